"""Runs as people watch them, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from detent.cli.progress_frame import Line
from detent.runs.record.view import RunView, StepView

START_MS = 1_700_000_000_000


def run_view(*steps: StepView, after_ms: int = 5_000, **changes: object) -> RunView:
    view = RunView("run-7f3a", "weather", "running", steps, START_MS, START_MS + after_ms, 4, "/home/.detent")
    return replace(view, **changes)  # type: ignore[arg-type]


def step(key: str, state: str = "waiting", total: int | None = 1, **figures: object) -> StepView:
    begun = state in {"running", "succeeded", "reused", "failed", "cancelled"}
    figures = {"started_ms": START_MS + 1_000 if begun else None, **figures}
    return StepView(key, str(figures.pop("name", key)), state, total, **figures)  # type: ignore[arg-type]


def texts(lines: Sequence[Line]) -> list[str]:
    return ["".join(cell.text for cell in line) for line in lines]
