"""A pytest plugin that says which lines of the workflow room its tests run: `-p tests.workflow.line_coverage`.

A dozen lines of `sys.settrace`, so that nothing needs to be installed to see it. Slow, as tracing is.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOM = str(Path(__file__).resolve().parents[2] / "src" / "detent" / "workflow")

_run: dict[str, set[int]] = {}


def _trace(frame: FrameType, event: str, argument: Any) -> Any:
    path = frame.f_code.co_filename
    if not path.startswith(ROOM):
        return None
    if event in {"call", "line"}:
        _run.setdefault(path, set()).add(frame.f_lineno)
    return _trace


def _lines(code: CodeType) -> set[int]:
    own = {line for _, _, line in code.co_lines() if line}
    return own.union(*(_lines(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def pytest_configure() -> None:
    sys.settrace(_trace)
    threading.settrace(_trace)


def pytest_unconfigure() -> None:
    sys.settrace(None)
    total = run = 0
    for path in sorted(Path(ROOM).glob("*.py")):
        lines = _lines(compile(path.read_text(encoding="utf-8"), str(path), "exec"))
        missed = sorted(lines - _run.get(str(path), set()))
        total += len(lines)
        run += len(lines) - len(missed)
        sys.stdout.write(f"{path.name}: {len(lines) - len(missed)} of {len(lines)} lines run, not {missed}\n")
    sys.stdout.write(f"lines run: {100 * run / total:.1f} %\n")
