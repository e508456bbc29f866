"""Code that is edited while a client is open: a job runs the code that its key describes (X-176)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODULES = """
HELPER = "def value(): return {number}\\n"
NUMBERS = "import helper, detent\\nDECORATOR\\ndef own(): return {number}\\nDECORATOR\\ndef of_helper(): return helper.value()\\n"

def write(here, number):
    for name, text in (("helper", HELPER), ("numbers_of", NUMBERS)):
        (here / f"{name}.py").write_text(text.format(number=number))
"""
SCRIPT = """
import importlib, sys
from pathlib import Path
import detent, modules

here = Path(__file__).parent

if __name__ == "__main__":
    modules.write(here, 19)
    import helper, numbers_of
    wrong = []
    with detent.Client(here / "home", workers=2) as client:
        for number in range(20, 27):
            modules.write(here, number)
            if sys.argv[1] == "reload":
                importlib.reload(helper)
                importlib.reload(numbers_of)
            handles = [client.submit(numbers_of.own), client.submit(numbers_of.of_helper)]
            found = [handle.result(60) for handle in handles]
            if found != [number, number]:
                wrong.append((number, found))
    print(wrong)
"""


@pytest.mark.parametrize("how", ["reload", "edit"])
@pytest.mark.parametrize("said", ["", "cache=False", "cache=True"])
def test_a_client_runs_the_code_as_it_is_when_it_submits(tmp_path: Path, how: str, said: str) -> None:
    """X-176: at once, also in the same second and with the same size, with `importlib.reload` or without."""
    (tmp_path / "modules.py").write_text(MODULES.replace("DECORATOR", f"@detent.task({said})"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script), how], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
