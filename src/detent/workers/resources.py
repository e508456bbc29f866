"""What the processes that work on one home take of what it has: counted things such as ``gpu``, shared by all of them.

The home's settings say how much there is. Each resource has a file, and a process that takes some of it locks so many of its
bytes; the bytes themselves are never written. A lock ends with the process that took it, however that ends, so nothing is
ever left taken. Nothing waits here: who does not get all of what it needs gets nothing, and asks again.

``cpu`` is not among them: it is the workers of one process, and that process counts them (`resource_gate`).

The executor in front of all others: holds work back until what it takes is free.

Work takes one worker (``cpu``) unless it says more, and the other resources its order names. It is taken in the order in which it
came, except that work passes by what waits for something it does not need itself: a job for the one GPU holds up no others, and
a job for all workers is not starved by small ones.

Steps of a type that has a pool of its own (``[workers.TYPE]`` in the settings) take a worker of that pool and none of the others': a
flood of steps of one type holds up no step of another.

What waits here has been claimed, and its lease is kept alive by the supervisor like that of any other. Its time has not begun: limits
count from the moment it is handed on.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from detent.canon.grammar import CPU
from detent.errors import InvalidInput
from detent.executor.assignment import Assignment
from detent.jobs.work import CANCELLED, Failure, Result, failed
from detent.store.files import open_no_follow
from detent.workers.executor import Executor

DIRECTORY: Final = "resources"

# As <fcntl.h> has it on Linux: type, whence, start, length, process. The process must be 0: the lock is the descriptor's.
_LOCK: Final = struct.Struct("hhqqi4x")

Range = tuple[int, int]
"""Of bytes: the first, and the first behind it."""


class Resources:
    """What one process has taken of a home's resources. Only one thread may use it."""

    def __init__(self, home: Path, totals: Mapping[str, int], workers: int) -> None:
        self.totals: Mapping[str, int] = {CPU: workers, **totals}
        """How much there is of each."""
        self._directory = home / DIRECTORY
        self._descriptors: dict[str, int] = {}
        self._taken: dict[int, dict[str, list[Range]]] = {}

    def take(self, holder: int, needs: Mapping[str, int]) -> str | None:
        """Take everything that is needed, under a number to give it back by; else nothing, and the one that is short."""
        taken: dict[str, list[Range]] = {}
        for name in sorted(needs):
            ranges = self._take(name, needs[name])
            if ranges is None:
                self._release(taken)
                return name
            taken[name] = ranges
        self._taken[holder] = taken
        return None

    def give(self, holder: int) -> None:
        """Give back what was taken under a number; nothing when nothing was."""
        self._release(self._taken.pop(holder, {}))

    def close(self) -> None:
        """Give everything back."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
        self._taken.clear()

    def _take(self, name: str, amount: int) -> list[Range] | None:
        descriptor = self._descriptor(name)
        got: list[Range] = []
        for start, end in self._free(descriptor, name):
            part = (start, min(end, start + amount - sum(after - before for before, after in got)))
            if not _lock(descriptor, fcntl.F_WRLCK, part):
                break  # Another process was quicker.
            got.append(part)
            if sum(after - before for before, after in got) == amount:
                return got
        for part in got:
            _lock(descriptor, fcntl.F_UNLCK, part)
        return None

    def _free(self, descriptor: int, name: str) -> Iterator[Range]:
        """The free parts, in order. Our own locks do not hinder us, so they are counted here."""
        own = sorted(part for taken in self._taken.values() for part in taken.get(name, ()))
        start = 0
        for before, after in [*own, (self.totals[name], self.totals[name])]:
            yield from _unlocked(descriptor, start, before)
            start = after

    def _release(self, taken: Mapping[str, list[Range]]) -> None:
        for name, parts in taken.items():
            for part in parts:
                _lock(self._descriptors[name], fcntl.F_UNLCK, part)

    def _descriptor(self, name: str) -> int:
        if name not in self._descriptors:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._descriptors[name] = open_no_follow(self._directory / name, os.O_RDWR | os.O_CREAT)
        return self._descriptors[name]


def _unlocked(descriptor: int, start: int, end: int) -> Iterator[Range]:
    while start < end:
        found = _LOCK.unpack(
            fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0))
        )
        if found[0] == fcntl.F_UNLCK:
            yield start, end
            return
        # The system names any lock in the way, not the first.
        yield from _unlocked(descriptor, start, found[2])
        start = found[2] + found[3]


def _lock(descriptor: int, kind: int, part: Range) -> bool:
    start, end = part
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, start, end - start, 0))
    except BlockingIOError:
        return False
    return True


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
        for executor in reversed(self._all_executors):  # All wake the supervisor through the first.
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
