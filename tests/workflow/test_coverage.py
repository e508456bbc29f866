from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_tests_of_this_room_run_more_than_nine_tenths_of_its_lines() -> None:
    """WF-280: with the page, the conformance suite and the benchmark beside it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.workflow.line_coverage", "tests/workflow"]
    environment = {
        **os.environ,
        "HYPOTHESIS_PROFILE": "ci",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    done = subprocess.run(command, env=environment, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    said = re.search(r"lines run: ([\d.]+) %", done.stdout)
    assert said is not None
    assert float(said[1]) > 90
    for name in ("docs/workflow-names.md", "tests/workflow/test_conformance.py", "bench/plan_rate.py"):
        assert (ROOT / name).is_file()
