"""A home in which a pipeline ran in the server's own workspace, beside the jobs of another tenant."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.homes import Played, fresh

TASKS = """\
import sys


def numbers():
    return [1, 2, 3]


def double(n):
    print("doubling", n)
    print("to", 2 * n, file=sys.stderr)
    return 2 * n


def broken():
    raise ValueError("no such river")
"""
GOOD = """\
name: doubles
steps:
  - {id: numbers, run: {python: "tasks:numbers"}}
  - {id: double, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
"""
BAD = """\
name: breaks
steps:
  - {id: broken, run: {python: "tasks:broken"}, retry: 0}
"""


@dataclass(frozen=True, slots=True)
class Worked:
    """A project on a played home."""

    directory: Path
    played: Played

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.played.environment}

    def run(self, name: str, *options: str) -> int:
        """`detent run`, in a process of its own; gives the exit code."""
        line = [sys.executable, "-m", "detent", "run", name, "--home", str(self.played.home.path), *options]
        return subprocess.run(
            line, cwd=self.directory, env=self.environment, capture_output=True, check=False, timeout=300
        ).returncode


def project(directory: Path) -> Worked:
    """The project, before anything ran."""
    (directory / "tasks.py").write_text(TASKS)
    (directory / "good.yaml").write_text(GOOD)
    (directory / "bad.yaml").write_text(BAD)
    return Worked(directory, fresh(directory))
