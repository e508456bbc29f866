"""A directory with functions for `detent map`, run in this process or, as from another terminal, in one of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.cli.app import run
from detent.inspect.replay import replay_home
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home
from tests.cli.conftest import Result
from tests.runs.rig import WAIT_SECONDS, environment, eventually
from tests.warm import Warm

__all__ = ["MapProject", "detent_home", "eventually", "opened", "project"]

FUNCTIONS = """
import os
def count(path): return len(path.read_text("utf-8", "replace").split())
def square(x): return x * x
def is_even(x): return x % 2 == 0
def picky(x):
    if x == 3: raise ValueError("three")
    return x
def stuck(x):
    import os
    if x == 3: os.read(os.pipe()[0], 1)
    return x
def slow(x):
    if x == 40:
        open("running", "w").close()
        open("gate").read()
    return x
def take(value, token):
    with open("taken", "a") as file: file.write(f"{value}\\n")
    if value == 3 and not os.path.exists("go"):
        open("writing", "w").close()
        with open("gate") as file: file.read()
"""


class MapProject:
    """A directory with functions, mapped with real workers."""

    def __init__(self, home: TemporaryHome, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.directory = home.directory
        self._capsys = capsys
        self._started: list[Warm] = []
        (home.directory / "words.py").write_text(FUNCTIONS)
        (home.directory / "rows.jsonl").write_text("".join(f"{number}\n" for number in range(100)))

    def __call__(self, *arguments: str) -> Result:
        self._capsys.readouterr()
        code = run(arguments)
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    def map(self, compute: str, *more: str) -> Result:
        return self("map", "--items", "rows.jsonl", "--compute", compute, "-w", "2", *more)

    def lines(self, name: str = "out.jsonl") -> list[Any]:
        return [json.loads(line) for line in (self.directory / name).read_text().splitlines()]

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The document of a command."""
        result = self(*arguments, "-o", "json")
        assert result.code == code, result.err
        return result.document

    def start(self, *arguments: str) -> Warm:
        """A command in another terminal, with everything below it in a process group of its own."""
        process = Warm(arguments, environment(self.home), self.directory)
        self._started.append(process)
        return process

    def ended(self, process: Warm) -> Result:
        """Wait for the end of a command in another terminal."""
        out, err = process.communicate(timeout=WAIT_SECONDS)
        assert "Traceback" not in err, err
        return Result(process.wait(), out, err)

    def newest(self) -> str:
        """The id of the newest run."""
        return str(self.json("list")[0]["run_id"])

    def begun(self) -> str:
        """The id of the first run of this home, as soon as there is one."""
        eventually(lambda: bool(self.json("list")), "no run has begun")
        return self.newest()

    def appears(self, name: str) -> None:
        """Wait until a file is there."""
        eventually((self.directory / name).exists, f"there is no {name}")

    def taken(self) -> list[int]:
        """What the function `take` was called with, in order."""
        path = self.directory / "taken"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def close(self) -> None:
        """Leave no process behind."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=WAIT_SECONDS)


@pytest.fixture
def project(
    detent_home: TemporaryHome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[MapProject]:
    for name, value in detent_home.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(detent_home.directory)
    monkeypatch.delitem(sys.modules, "words", raising=False)  # That of another test, if it was loaded in this process.
    made = MapProject(detent_home, capsys)
    yield made
    made.close()
    assert detent_home.verify().ok
    assert replay_home(detent_home.home).ok


def opened(gate: Path) -> bool:
    """Let whatever waits at a named pipe go on; False while nothing does."""
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
