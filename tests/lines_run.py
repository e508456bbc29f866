"""Cost without a clock: how many lines of Python a piece of work runs, the same on every machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(work: Callable[[], object]) -> int:
    """Run some work and count the lines of Python that took.

    The collector rests meanwhile: what it ends, and whom that tells, was left by other tests.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    outer, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(outer)
        if collects:
            gc.enable()
    return count
