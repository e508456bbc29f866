"""Platform jobs at the command line: payload files, settings, and what the commands say about them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detent.executor.sandbox import Profile, probe, profile_of
from tests.cli.project import Project
from tests.executor.runners.rig import execute

needs_sandbox = pytest.mark.skipif(
    profile_of(probe()).strength < Profile.FULL_ROOTLESS.strength, reason="no sandbox on this machine"
)
SQUARE = "def main(x):\n    print('squaring', x)\n    return {'y': x * x}\n"
FILES = """\
import pathlib

def main():
    pathlib.Path('/job/out/table.csv').write_text('a,b\\n1,2\\n')
    pathlib.Path('/job/out/notes.txt').write_text('two lines\\nof text\\n')
"""


def draft(document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A payload whose job id the platform gives."""
    return {**{name: value for name, value in document.items() if name != "job_id"}, **fields}


def square(x: int = 7, **fields: Any) -> dict[str, Any]:
    """A cell that squares a number."""
    return draft(execute(SQUARE, parameters={"x": x}), **fields)


def payload_file(project: Project, document: dict[str, Any], name: str = "payload.json") -> str:
    """A payload as a file of the project."""
    return project.write(name, json.dumps(document))


def submit(project: Project, document: dict[str, Any], *options: str, code: int = 0) -> Any:
    """`detent submit`, and the document that it prints."""
    return project.json("submit", payload_file(project, document), *options, code=code)


def settings(project: Project, text: str) -> None:
    """Write sections in the place of [jobs], and of what follows it, in the settings of the home."""
    path = project.home.path / "config.toml"
    path.write_text(path.read_text().split("[jobs]\n")[0] + text)
