"""One home seen from both sides: commands beside it, and the same commands through a server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from detent.cli.app import run
from tests.serve.served import Served, start
from tests.warm import Warm

TASKS = """\
import sys
from pathlib import Path


def numbers():
    return [1, 2, 3]


def double(n):
    print("doubling", n)
    print("to", 2 * n, "\\u00e9", file=sys.stderr)
    return 2 * n


def page(total):
    Path("page.txt").write_text(str(total))
    return total


def broken():
    print("\\x1b[31mred\\x1b[0m and \\x07")
    raise ValueError("no such river")


def wait(path):
    import time

    print("waiting", flush=True)
    while not Path(path).exists():
        time.sleep(0.05)
    print("done", flush=True)
    return 1
"""
GOOD = """\
name: doubles
params: {start: 1}
steps:
  - {id: numbers, run: {python: "tasks:numbers"}}
  - {id: double, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
result: {$from: double}
"""
BAD = """\
name: breaks
steps:
  - {id: broken, run: {python: "tasks:broken"}, retry: 0}
  - {id: after, needs: [broken], run: {python: "tasks:numbers"}}
"""
WAITS = """\
name: waits
params: {path: ""}
steps:
  - {id: wait, run: {python: "tasks:wait", with: {path: {$param: path}}}}
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Project:
    """A directory with a home, tasks and contracts."""

    directory: Path
    environment: Mapping[str, str]

    @property
    def home(self) -> Path:
        return self.directory / ".detent"

    def detent(self, *words: str, expects: int | None = 0, **variables: str) -> Said:
        """A command in a process of its own."""
        command = Warm(words, {**self.environment, **variables}, self.directory)
        out, err = command.communicate(timeout=300)
        said = Said(command.wait(), out, err)
        assert expects is None or said.code == expects, said
        return said


def project(directory: Path) -> Project:
    """The project, before anything ran."""
    directory.mkdir(exist_ok=True)
    for name, text in (("tasks.py", TASKS), ("good.yaml", GOOD), ("bad.yaml", BAD), ("waits.yaml", WAITS)):
        (directory / name).write_text(text)
    state = directory / "state"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
    return Project(directory, {**kept, "XDG_STATE_HOME": str(state)})


@contextmanager
def served_project(made: Project, *options: str) -> Iterator[Served]:
    """A server on the home of a project."""
    served = start(made.home, made.environment, *options)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.stop()
        else:
            served.kill()


class Sides:
    """Runs commands in this process, on the home itself or through its server."""

    def __init__(self, made: Project, served: Served, capsys: pytest.CaptureFixture[str]) -> None:
        self.project, self.served, self._capsys = made, served, capsys

    def here(self, *words: str) -> Said:
        return self._run(*words, "--home", str(self.project.home))

    def there(self, *words: str) -> Said:
        return self._run(*words, "--connect", str(self.served.told["url"]))

    def _run(self, *words: str) -> Said:
        self._capsys.readouterr()
        code = run(words)
        captured = self._capsys.readouterr()
        assert "Traceback (most recent" not in captured.err, captured.err
        return Said(code, captured.out, captured.err)
