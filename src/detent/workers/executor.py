"""Where work runs, by its kind: what a supervisor of workers hands to which executor, and what comes back.

An *executor* takes orders under a number and always gives back one result for each. There are four: plain
processes for the user's own functions and commands, the sandbox for code written in a contract, the runners for platform
jobs, which use the sandbox too, and one that drives the ordered runs of map steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from detent.executor.assignment import Assignment
from detent.jobs.work import Result


class Executor(Protocol):
    """An executor for some kinds of orders. Only the supervisor's own thread calls it."""

    def wanted(self) -> int:
        """How many more assignments it can use now."""

    def take(self, assignment: Assignment) -> None:
        """Begin an assignment, or queue it. Never waits and never raises for what the order says."""

    def cancel(self, number: int) -> None:
        """End an assignment at once, with everything it started; it still gives its result."""

    def finished(self) -> Sequence[tuple[int, Result]]:
        """What has come back since the last time, by the numbers of the assignments; never waits."""

    def close(self) -> None:
        """End everything that still runs, and what it left behind."""


class Sleeper(Protocol):
    """What the supervisor waits on: something in an executor, or `wake` from another thread."""

    def wait(self, timeout: float) -> None: ...

    def wake(self) -> None: ...


class Asleep:
    """What a supervisor without workers sleeps on: nothing wakes it."""

    def wait(self, timeout: float) -> None:
        """Come back at once."""

    def wake(self) -> None:
        """Do nothing."""


class LazyExecutor:
    """An executor that is made when its first assignment comes: most runs never need the sandbox, and it takes time to load."""

    def __init__(self, make: Callable[[], Executor], wanted: int) -> None:
        self._make = make
        self._wanted = wanted
        self._executor: Executor | None = None

    def wanted(self) -> int:
        """What the executor wants, or would want."""
        return self._wanted if self._executor is None else self._executor.wanted()

    def take(self, assignment: Assignment) -> None:
        """Make the executor, if it is the first time, and hand the assignment on."""
        if self._executor is None:
            self._executor = self._make()
        self._executor.take(assignment)

    def cancel(self, number: int) -> None:
        """End an assignment at once."""
        if self._executor is not None:
            self._executor.cancel(number)

    def finished(self) -> Sequence[tuple[int, Result]]:
        """What has come back since the last time."""
        return () if self._executor is None else self._executor.finished()

    def close(self) -> None:
        """End everything that still runs."""
        if self._executor is not None:
            self._executor.close()
