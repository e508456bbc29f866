"""The command line, run inside the test's own process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from detent.cli.app import run
from tests.homes import Played, fresh


@dataclass(frozen=True, slots=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


class Cli:
    """Runs commands in a directory, with the tree heads of the played home kept beside it."""

    def __init__(self, capsys: pytest.CaptureFixture[str], played: Played) -> None:
        self._capsys = capsys
        self.played = played

    def __call__(self, *arguments: str) -> Result:
        """Run one command line."""
        self._capsys.readouterr()
        code = run(arguments)
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    def json(self, *arguments: str) -> Any:
        """The document of a command that succeeds."""
        result = self(*arguments, "-o", "json")
        assert result.code == 0, result.err
        return result.document


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    played = fresh(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(played.state))
    for name in ("DETENT_HOME", "DETENT_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Cli(capsys, played)
