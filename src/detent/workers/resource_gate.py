"""The executor in front of all others: holds work back until what it takes is free.

Work takes one worker (``cpu``) unless it says more, and the other resources its order names. It is taken in the order in which it
came, except that work passes by what waits for something it does not need itself: a job for the one GPU holds up no others, and
a job for all workers is not starved by small ones.

What waits here has been claimed, and its lease is kept alive by the supervisor like that of any other. Its time has not begun: limits
count from the moment it is handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from detent.canon.amounts import CPU
from detent.errors import InvalidInput
from detent.jobs.work import CANCELLED, Failure, Result, failed
from detent.workers.executor import Assignment, Executor
from detent.workers.resources import Resources

WAITING_MAX: Final = 256
"""Assignments that wait here; while there are more, no others are claimed."""


class ResourceGate:
    """Hands assignments to the executors behind it. Those that declare nothing pass as if it were not there."""

    def __init__(self, executors: Mapping[str, Executor], resources: Resources, clock_ms: Callable[[], int]) -> None:
        self._executors = executors
        self._all_lanes = tuple(dict.fromkeys(executors.values()))
        self._resources = resources
        self._clock_ms = clock_ms
        self._under_way: dict[int, tuple[Executor, int]] = {}
        """The executor that has an assignment, and how many workers it takes."""
        self._workers_taken = 0
        self._large = 0
        """Assignments under way that take more than one worker."""
        self._waiting: dict[int, Assignment] = {}
        self._ended: list[tuple[int, Result]] = []

    def wanted(self) -> int:
        """The kinds of the next jobs are unknown: nothing while any executor is full, else what the most can use."""
        if len(self._waiting) >= WAITING_MAX:
            return 0
        wanted = [lane.wanted() for lane in self._all_lanes]
        return max(wanted) if min(wanted) else 0

    def take(self, assignment: Assignment) -> None:
        """Hand an assignment on, or keep it until what it takes is free. Refuses what can never be."""
        if not assignment.order.limits.resources and not self._waiting and not self._large:
            self._hand_on(assignment, 1)
            return
        if fault := feasible_fault(assignment.order.limits.resources, self._resources.totals):
            raise InvalidInput(fault)
        self._waiting[assignment.number] = assignment
        self._admit()

    def cancel(self, number: int) -> None:
        """End an assignment, or keep it from beginning."""
        if self._waiting.pop(number, None) is not None:
            self._ended.append((number, Result(status=CANCELLED)))
            self._admit()
        elif number in self._under_way:
            self._under_way[number][0].cancel(number)

    def finished(self) -> Sequence[tuple[int, Result]]:
        """What has come back; what it took is free for those who wait."""
        back = [one for lane in self._all_lanes for one in lane.finished()]
        for number, _ in back:
            self._let_go(number)
        if self._waiting:  # Also when nothing came back here: another process may have given something back.
            self._admit()
        if self._ended:
            back += self._ended
            self._ended = []
        return back

    def close(self) -> None:
        """End everything; what waits is left to the next supervisor."""
        self._waiting.clear()
        for lane in reversed(self._all_lanes):  # The first is what everybody wakes the supervisor through.
            lane.close()
        self._resources.close()

    def _admit(self) -> None:
        short: set[str] = set()
        for number, assignment in list(self._waiting.items()):
            needs = dict(assignment.order.limits.resources)
            workers = needs.pop(CPU, 1)
            missing = self._missing(number, workers, needs, short)
            if missing:
                short |= missing
                continue
            del self._waiting[number]
            try:
                self._hand_on(assignment, workers)
            except InvalidInput as exc:
                failure = Failure("VALIDATION_ERROR", "VALIDATION_ERROR", str(exc))
                self._ended.append((number, failed(failure, self._clock_ms())))

    def _missing(self, number: int, workers: int, needs: Mapping[str, int], short: set[str]) -> set[str]:
        """What an assignment has to wait for; it has taken all it needs when that is nothing."""
        missing = needs.keys() & short
        # Small work is handed on ahead of time, so that no worker waits for its next: only large work makes it count.
        counts = workers > 1 or self._large > 0
        if CPU in short or (counts and self._workers_taken + workers > self._resources.totals[CPU]):
            missing = missing | {CPU}
        if missing:
            return set(missing)
        lacking = self._resources.take(number, needs) if needs else None
        return set() if lacking is None else {lacking}

    def _hand_on(self, assignment: Assignment, workers: int) -> None:
        lane, number = self._executors[assignment.order.call.kind], assignment.number
        self._under_way[number] = (lane, workers)
        self._workers_taken += workers
        self._large += workers > 1
        try:
            lane.take(assignment)
        except InvalidInput:
            self._let_go(number)
            raise

    def _let_go(self, number: int) -> None:
        _, workers = self._under_way.pop(number, (None, 0))
        self._workers_taken -= workers
        self._large -= workers > 1
        self._resources.give(number)


def feasible_fault(needs: Mapping[str, int], totals: Mapping[str, int]) -> str | None:
    """Say what is needed and can never be had, or nothing."""
    for name, amount in needs.items():
        if name not in totals:
            return f"it needs {amount} {name}, a resource that this home does not have"
        if amount > totals[name]:
            return f"it needs {amount} {name}, and only {totals[name]} can be had here"
    return None
