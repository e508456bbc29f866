"""`detent.context()`: what a task can learn about itself, and say, while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from detent.errors import InvalidInput
from detent.executor.plain.current import Running, running


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The work that the running function is an attempt at."""

    job_id: str
    run_id: str | None
    attempt: int
    """1 for the first."""
    idempotency_token: str
    """The same for every attempt at this work: hand it to services that shall act once."""
    step: str | None
    index: int | None
    """Place in the list that a mapped step goes through."""
    traceparent: str | None
    """The trace that the work belongs to (W3C Trace Context), where the request to a server named one."""
    _running: Running

    @property
    def cancelled(self) -> bool:
        """Whether the task has been asked to end: a moment later it is ended."""
        return self._running.cancelled

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the task is, from 0 to 1. Costs next to nothing: what comes too often is dropped."""
        if type(fraction) not in {int, float} or not isfinite(fraction) or not 0 <= fraction <= 1:
            raise InvalidInput(f"progress is a number from 0 to 1, not {fraction!r:.40}")
        self._running.progress(float(fraction), str(message))


def context() -> TaskContext:
    """The context of the task that calls this; `InvalidInput` where no task runs."""
    now = running()
    if now is None:
        raise InvalidInput(
            "detent.context() is called outside a task",
            hint="it tells a task about itself while a worker runs it; a plain call of the function has no context",
        )
    return TaskContext(*now.parts, now)
