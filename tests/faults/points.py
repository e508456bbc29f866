"""Named moments in the life of a command at which it can be made to kill itself.

The owner of a ledger has crash points of its own. Everything else is cut at the border of a method: right before it is
called, or right after it has returned. A method that is renamed makes `arm` fail, and with it the test.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from detent.testing import CrashAt


class Cut(NamedTuple):
    """Where a command is cut."""

    module: str
    owner: str
    method: str
    after: bool
    times_max: int
    """How often a run of a hundred jobs passes it at least."""


OWNER = {f"owner: {name}": times for name, times in (("decided", 8), ("sealed", 8), ("appended", 8), ("committed", 8))}

CUTS = {
    "home: opened": Cut("detent.owner.session", "Session", "__init__", True, 1),
    "pool: host asked for": Cut("detent.executor.plain.link", "Link", "__init__", True, 1),
    "pool: worker asked for": Cut("detent.executor.plain.pool", "Pool", "_spawn", True, 2),
    "supervisor: begins": Cut("detent.workers.supervisor", "Supervisor", "start", True, 1),
    "run: locked": Cut("detent.runs.handle", "RunHandle", "open", True, 1),
    "run: begun": Cut("detent.runs.steps.progress", "RunProgress", "begin", True, 1),
    "step: opened": Cut("detent.runs.steps.graph", "RunGraph", "_open", True, 20),
    "jobs: prepared": Cut("detent.runs.steps.progress", "RunProgress", "_submit", False, 6),
    "jobs: submitted": Cut("detent.runs.steps.progress", "RunProgress", "_submit", True, 6),
    "job: claimed": Cut("detent.workers.supervisor", "Supervisor", "_begin", False, 60),
    "job: handed out": Cut("detent.workers.supervisor", "Supervisor", "_begin", True, 60),
    "job: reported": Cut("detent.workers.reports", "Reporter", "report", True, 60),
    "job: ended": Cut("detent.workers.home_bench", "HomeBench", "_became", False, 60),
    "result: told": Cut("detent.runs.steps.progress", "RunProgress", "_settle", True, 60),
    "sandbox: wanted": Cut("detent.workers.sandbox_executor", "SandboxExecutor", "take", False, 4),
    "sandbox: started": Cut("detent.executor.sandbox.supervisor", "Sandbox", "start", True, 4),
    "head: to be kept": Cut("detent.owner.state_directory", "KeptHeads", "_write", False, 1),
    "file: to be renamed": Cut("pathlib", "Path", "replace", False, 1),
    "run: to be ended": Cut("detent.runs.record.requests", "Requests", "end", False, 1),
    "run: ended": Cut("detent.runs.record.requests", "Requests", "end", True, 1),
    "run: lock released": Cut("detent.runs.record.inputs", "RunLock", "release", True, 1),
    "supervisor: ends": Cut("detent.workers.supervisor", "Supervisor", "close", False, 1),
    "pool: ended": Cut("detent.executor.plain.pool", "Pool", "close", True, 1),
    "home: to be given up": Cut("detent.owner.session", "Session", "close", False, 1),
    "home: given up": Cut("detent.owner.session", "Session", "close", True, 1),
}

POINTS = {**OWNER, **{name: cut.times_max for name, cut in CUTS.items()}}
"""Every point, with how often it is passed at least."""

ENDS = ("run: ended", "run: lock released", "supervisor: ends", "pool: ended", "home: to be given up", "home: given up")
"""Points after the last record of the run: what comes next is another run, which finds everything done."""


def arm(point: str | None, times: int) -> None:
    """Make this process kill itself the n-th time that it passes a point."""
    if point is None:
        return
    if point in OWNER:
        _arm_owner(CrashAt(point.removeprefix("owner: "), times, kill=True))
    else:
        _arm_method(CUTS[point], times)


def _arm_owner(crash: Callable[[str], None]) -> None:
    from detent.owner.wiring import Parts
    from detent.runs import runtime

    # What `Work` falls back to when it is given no parts, which no command does.
    setattr(runtime, "Parts", functools.partial(Parts, crash_point=crash))  # noqa: B010 - mypy holds a class for constant


def _arm_method(cut: Cut, times: int) -> None:
    owner = getattr(importlib.import_module(cut.module), cut.owner)
    method = inspect.getattr_static(owner, cut.method)
    left = times

    def passed() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(method)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        if not cut.after:
            passed()
        answer = method(*arguments, **named)
        if cut.after:
            passed()
        return answer

    setattr(owner, cut.method, wrapped)
