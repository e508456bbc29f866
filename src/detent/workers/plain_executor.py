"""The executor of plain processes: the user's own functions and commands, trusted and marked as such (X-179)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from detent.errors import CODES
from detent.executor.assignment import Assignment, Progress
from detent.executor.plain.pool import Pool
from detent.jobs.work import FAILED, Failure, Result
from detent.kernel import QuotaPolicy
from detent.kernel.job import Usage
from detent.kernel.policy import QUOTA_OK
from detent.kernel.quota import quota_verdict


class PlainExecutor:
    """Hands orders to a pool of processes. It is what the supervisor sleeps on, too."""

    def __init__(self, pool: Pool, told: dict[str, tuple[float, str]] | None = None) -> None:
        self._pool = pool
        self._told = {} if told is None else told
        """How far the tasks under way say they are, by job."""
        self._jobs: dict[int, str] = {}
        self._left: dict[int, QuotaPolicy] = {}
        """What tasks under way may use of their jobs' budgets, where that is limited."""
        self._over: dict[int, str] = {}
        """The tasks that were ended for using more, with the budget's code."""
        self._finished: list[tuple[int, Result]] = []

    def wanted(self) -> int:
        """How many more the pool can use."""
        return self._pool.wanted()

    def take(self, assignment: Assignment) -> None:
        """Give an order to the pool."""
        self._jobs[assignment.number] = assignment.job_id
        if assignment.left is not None:
            self._left[assignment.number] = assignment.left
        self._pool.submit(assignment)

    def cancel(self, number: int) -> None:
        """End a task and everything it started."""
        self._pool.cancel(number)

    def finished(self) -> Sequence[tuple[int, Result]]:
        """What has come back."""
        if not self._finished:  # Else a look has just been taken.
            self.wait(0.0)
        finished, self._finished = self._finished, []
        return finished

    def wait(self, timeout: float) -> None:
        """Sleep until something comes back, `wake` is called, or the time is over."""
        for event in self._pool.wait(timeout):
            if isinstance(event, Progress):
                if (job_id := self._jobs.get(event.number)) is not None:
                    self._told[job_id] = (event.fraction, event.message)
                continue
            number, result = event
            self._told.pop(self._jobs.pop(number, ""), None)
            self._left.pop(number, None)
            self._finished.append((number, _over_quota(result, self._over.pop(number, None))))
        self._end_over_quota()

    def _end_over_quota(self) -> None:
        """End the tasks that have used more than their jobs may, as far as looks from outside can tell."""
        for number, left in self._left.items():
            seen = None if number in self._over else self._pool.seen(number)
            if seen is None:
                continue
            verdict = quota_verdict(
                Usage(
                    0, seen.memory_bytes_peak, seen.io_bytes_read, seen.io_bytes_written, seen.gpu_ms or 0, seen.cpu_ms
                ),
                left,
            )
            if verdict != QUOTA_OK:
                self._over[number] = verdict
                self._pool.cancel(number)

    def wake(self) -> None:
        """End a `wait`; from any thread."""
        self._pool.wake()

    def close(self) -> None:
        """End everything."""
        self._pool.close()


def _over_quota(result: Result, code: str | None) -> Result:
    """The result of a task that was ended for a budget, by its code; one that had ended by itself meanwhile stays as it is."""
    if code is None or result.ok:
        return result
    return replace(result, status=FAILED, failure=Failure("RESOURCE_LIMIT", code, CODES[code].meaning), lost=False)
