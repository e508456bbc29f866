"""The commands that look at contract files, run inside the test's own process, in a directory without a home."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from detent.cli.app import run


@dataclass(frozen=True, slots=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


class Desk:
    """A directory to write contracts in."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def write(self, content: str | bytes, name: str = "pipeline.yaml") -> str:
        """Write a file; gives its name."""
        (self.directory / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def __call__(self, *arguments: str) -> Said:
        """Run a command line."""
        self._capsys.readouterr()
        code = run(arguments)
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        assert "INVARIANT_VIOLATION" not in captured.err
        return Said(code, captured.out, captured.err)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    for name in ("DETENT_HOME", "DETENT_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path, capsys)


SMALL = """\
name: small
params:
  rows: 10
  region: {type: string}
steps:
  - id: first
    run: {python: "work:first", with: {rows: {$param: rows}, region: {$param: region}}}
    timeout: 90s
    retry: 2
  - id: left
    run: {python: "work:side", args: [{$from: first}, "left"]}
  - id: off
    run: {shell: "echo off"}
    enabled: false
  - id: right
    needs: [off, first]
    run: {shell: "sort < in > out\\nwc out"}
    inputs: in
    outputs: [out]
    cache: false
  - id: each
    map: {item: {$from: left}}
    run:
      code: |
        def main(item, also):
            return [item, also]
      with: {also: {deep: [{$from: right}, 1]}}
    on_error: continue
"""
"""Every kind of binding but ``job``, a disabled step, a map, two parameters."""
