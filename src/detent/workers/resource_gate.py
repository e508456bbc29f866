"""The executor in front of all others: holds work back until what it takes is free.

Work takes one worker (``cpu``) unless it says more, and the other resources its order names. It is taken in the order in which it
came, except that work passes by what waits for something it does not need itself: a job for the one GPU holds up no others, and
a job for all workers is not starved by small ones.

Steps of a type that has a pool of its own (``[workers.TYPE]`` in the settings) take a worker of that pool and none of the others': a
flood of steps of one type holds up no step of another.

What waits here has been claimed, and its lease is kept alive by the supervisor like that of any other. Its time has not begun: limits
count from the moment it is handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from detent.canon.amounts import CPU
from detent.errors import InvalidInput
from detent.executor.assignment import Assignment
from detent.jobs.work import CANCELLED, Failure, Result, failed
from detent.workers.executor import Executor
from detent.workers.resources import Resources

SHARED: Final = ""
"""The pool of all work whose step has none of its own."""
WAITING_MAX: Final = 256
"""Assignments that wait here; while there are more, no others are claimed."""


class ResourceGate:
    """Hands assignments to the executors behind it. Those that declare nothing pass as if it were not there."""

    def __init__(
        self,
        executors: Mapping[str, Executor],
        resources: Resources,
        clock_ms: Callable[[], int],
        pools: Mapping[str, int] | None = None,
    ) -> None:
        """``pools``: how many workers the steps of a type have for themselves; all other work shares the rest."""
        self._executors = executors
        self._all_executors = tuple(dict.fromkeys(executors.values()))
        self._resources = resources
        self._clock_ms = clock_ms
        self._pools = {SHARED: resources.totals[CPU], **(pools or {})}
        self._under_way: dict[int, tuple[Executor, str, int]] = {}
        """The executor that has an assignment, and how many workers it takes of which pool."""
        self._workers_taken = dict.fromkeys(self._pools, 0)
        self._large = 0
        """Assignments under way that take more than one worker."""
        self._waiting: dict[int, Assignment] = {}
        self._ended: list[tuple[int, Result]] = []

    def wanted(self) -> int:
        """The kinds of the next jobs are unknown: nothing while any executor is full, else what the most can use."""
        if len(self._waiting) >= WAITING_MAX:
            return 0
        wanted = [executor.wanted() for executor in self._all_executors]
        return max(wanted) if min(wanted) else 0

    def take(self, assignment: Assignment) -> None:
        """Hand an assignment on, or keep it until what it takes is free. Refuses what can never be."""
        resources = assignment.order.limits.resources
        if not resources and not self._waiting and not self._large and len(self._pools) == 1:
            self._hand_on(assignment, SHARED, 1)
            return
        pool = self._pool_of(assignment)
        if fault := feasible_fault(resources, {**self._resources.totals, CPU: self._pools[pool]}):
            raise InvalidInput(fault if pool == SHARED else f"{fault}, in the pool for {pool} steps")
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
        back = [one for executor in self._all_executors for one in executor.finished()]
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
        for executor in reversed(self._all_executors):  # The first is what everybody wakes the supervisor through.
            executor.close()
        self._resources.close()

    def _admit(self) -> None:
        short: set[str] = set()
        for number, assignment in list(self._waiting.items()):
            needs = dict(assignment.order.limits.resources)
            workers, pool = needs.pop(CPU, 1), self._pool_of(assignment)
            missing = self._missing(number, pool, workers, needs, short)
            if missing:
                short |= missing
                continue
            del self._waiting[number]
            try:
                self._hand_on(assignment, pool, workers)
            except InvalidInput as exc:
                failure = Failure("VALIDATION_ERROR", "VALIDATION_ERROR", str(exc))
                self._ended.append((number, failed(failure, self._clock_ms())))

    def _pool_of(self, assignment: Assignment) -> str:
        """The pool whose workers an assignment takes: that of its step's type, if that has one."""
        step_type = assignment.order.origin.action.get("step_type", SHARED)
        return step_type if step_type in self._pools else SHARED

    def _missing(self, number: int, pool: str, workers: int, needs: Mapping[str, int], short: set[str]) -> set[str]:
        """What an assignment has to wait for; it has taken all it needs when that is nothing."""
        missing = needs.keys() & short
        # Small work is handed on ahead of time, so that no worker waits for its next: only large work, and work that must leave
        # the workers of other pools alone, makes it count.
        counts = workers > 1 or self._large > 0 or len(self._pools) > 1
        worker = f"{CPU} {pool}" if pool else CPU
        if worker in short or (counts and self._workers_taken[pool] + workers > self._pools[pool]):
            missing = missing | {worker}
        if missing:
            return set(missing)
        lacking = self._resources.take(number, needs) if needs else None
        return set() if lacking is None else {lacking}

    def _hand_on(self, assignment: Assignment, pool: str, workers: int) -> None:
        executor, number = self._executors[assignment.order.call.kind], assignment.number
        self._under_way[number] = (executor, pool, workers)
        self._workers_taken[pool] += workers
        self._large += workers > 1
        try:
            executor.take(assignment)
        except InvalidInput:
            self._let_go(number)
            raise

    def _let_go(self, number: int) -> None:
        _, pool, workers = self._under_way.pop(number, (None, SHARED, 0))
        self._workers_taken[pool] -= workers
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
