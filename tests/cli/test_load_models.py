"""Loading the models of contracts looks for no plugins and leaves the environment as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOAD = """
import os
from detent.cli.contract_file import load_models
load_models()
from pydantic.plugin import _loader
from detent.contract import load
load(b"name: one\\nsteps: [{id: a, run: {shell: ls}}]").steps
print(_loader._plugins, os.environ.get("PYDANTIC_DISABLE_PLUGINS"))
"""


@pytest.mark.parametrize("asked", [None, "somebody"])
def test_no_plugin_is_looked_for_and_the_variable_is_as_before(asked: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYDANTIC_DISABLE_PLUGINS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    if asked is not None:
        environment["PYDANTIC_DISABLE_PLUGINS"] = asked
    done = subprocess.run([sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"None {asked}\n"
