"""Every example that says what to run is run, in a copy of its own, with the line that its first comment tells to type."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BEST = {"decay": 0.0, "loss": 0.001735, "rate": 0.5, "slope": 1.9956}


@pytest.mark.parametrize(
    ("example", "file", "counts", "code", "result"),
    [
        ("etl", "weather.yaml", {"run": 8, "failed": 0, "skipped": 0}, 0, None),
        ("sweep", "sweep.yaml", {"run": 4, "failed": 0, "skipped": 0}, 0, BEST),
        ("sweep", "sweep.py", {"run": 8, "failed": 0, "skipped": 0}, 0, BEST),
        ("workflows", "line.yaml", {"run": 4, "failed": 0, "skipped": 0}, 0, None),
        ("workflows", "extracts.yaml", {"run": 5, "failed": 0, "skipped": 0}, 0, None),
        ("workflows", "errors.yaml", {"run": 3, "failed": 1, "skipped": 2}, 1, None),
    ],
)
def test_an_example_does_what_it_shows(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    example: str,
    file: str,
    counts: dict[str, int],
    code: int,
    result: Any,
) -> None:
    copy = project.directory / example
    shutil.copytree(EXAMPLES / example, copy, ignore=shutil.ignore_patterns(".detent", "out", "__pycache__"))
    monkeypatch.chdir(copy)
    ended = project.terminal("run", f"{example}/{file}", "-w", "2", "-o", "json").ended()
    assert ended.code == code, ended.err
    said = ended.document
    assert {name: said["steps"][name] for name in counts} == counts
    assert said.get("result") == result
    again = project.terminal("run", f"{example}/{file}", "-w", "2", "-o", "json").ended().document
    assert again["steps"]["reused"] > 0
