"""Bounded class queues: one line for each priority class, a bound for each and one over all (X-082 to X-084).

Inside a class the first come is the first served, always; a class whose head has no place now holds back its own
followers and no lower class. When there is no room, the admission policy decides which job is refused: the new one, or one
that already waits. One always is.

The idea of the file: each class has two lines, one of jobs that are kept and one of jobs that may be evicted. A job stands
in exactly one of them, and the head of the class is the older of two heads. So the oldest and the newest job that may be
evicted are the two ends of one line, however many kept jobs came between, and nothing is ever searched.

A job that is cancelled leaves a gap in its line. A gap is known by counting: while ``_gaps[line][job_id]`` is positive,
the first that many places of that job id are gaps. That stays true when the id comes back, because it comes back at the
end. The first place of a line is never a gap, and a line is rewritten before its gaps outnumber its jobs, so a gap is
passed over once and paid for by the cancellation that made it.

A job that may not be evicted does not evict either: for it a full queue means to wait outside (X-031). A retry that waits
for room comes in through `has_room`, which counts only free places, so it neither evicts nor is refused
(X-042); the kernel hands it in as kept, so it is never evicted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Final, TypeAlias

from detent.canon.grammar import PRIORITY_MAX, PRIORITY_MIN
from detent.canon.late import NamedTuple, dataclass
from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.kernel.policy import QueuePolicy
from detent.kernel.queue import Enqueued
from detent.scheduling.checks import CLASSES, check_positive
from detent.scheduling.queue_parts import Lines, Waiting, enqueued_alone, name_index, read_snapshot

REJECT: Final = "reject"
DROP_LRU: Final = "drop-lru"
SHED_LOW_PRIORITY: Final = "shed-low-priority"
EVICTION_REASON: Final[Mapping[str, str]] = {DROP_LRU: "DROPPED_LRU", SHED_LOW_PRIORITY: "SHED_LOW_PRIORITY"}
ADMISSION_POLICIES: Final = (REJECT, DROP_LRU, SHED_LOW_PRIORITY)

CAPACITY_DEFAULT: Final = 256
"""Bound of a class that a mapping of capacities does not name (A.10)."""

PASSED_MAX: Final = 4_096
"""Jobs of other workers that one claim looks past."""

Capacity: TypeAlias = int | Mapping[int, int]

# A job's place is one integer: its arrival number, then five bits that name its line (class, and whether it may be
# evicted). Arrival numbers are never given twice, so comparing places is comparing arrivals.
_LINE_BITS: Final = 5
_LINE_STEP: Final = 1 << _LINE_BITS
_LINE_MASK: Final = _LINE_STEP - 1
_LINES: Final = 2 * (PRIORITY_MAX + 1)
_CLASS_NUMBERS: Final = frozenset(CLASSES)
_EVICTED, _REASON, _DECISION, _EVICTIONS = Enqueued(0)[1:]


class Head(NamedTuple):
    """The job that goes next in its class."""

    priority: int
    job_id: str
    arrival: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a job stands: its class, its place in the class (1 is the head), and how many go before it in all."""

    priority: int
    arrival: int
    place: int
    before: int


class ClassQueues:
    """The waiting jobs of one pool, by class. Enqueue, dequeue and cancel cost O(1), amortised.

    ``capacity`` bounds each class (one number, or a number for each class), ``total`` all of them together; only jobs
    that wait count against either. Equal snapshots behave equally from then on, under equal bounds and policy.
    """

    __slots__ = (
        "_capacity",
        "_classes",
        "_gap_counts",
        "_gap_total",
        "_gaps",
        "_lines",
        "_places",
        "_top",
        "arrivals",
        "policy",
        "total",
    )

    def __init__(self, capacity: Capacity, total: int | None = None, policy: str = REJECT) -> None:
        self._capacity = _capacities(capacity)
        self.total = sum(self._capacity) if total is None else check_positive("total", total)
        if not isinstance(policy, str) or policy not in ADMISSION_POLICIES:
            raise InvalidInput(
                f"the admission policy must be one of {', '.join(ADMISSION_POLICIES)}, not {show(policy)}"
            )
        self.policy = policy
        self._top: int
        self.arrivals = 0
        """The next arrival number. Every entry into the queue takes a new one, a retry's too (X-043)."""
        self._clear()

    @classmethod
    def of(cls, policy: QueuePolicy) -> ClassQueues:
        """The queues that a kernel's queue policy describes."""
        return cls(policy.capacity_per_class, policy.capacity_total, policy.admission_policy)

    # -- in, out, away -------------------------------------------------------------------------------------------------

    def enqueue(
        self,
        job_id: str,
        priority: int,
        evictable: bool = True,  # not by name only: that makes every call slower
    ) -> Enqueued | Refused:
        """Give a job the last place of its class; name the jobs that lost theirs for it, or refuse it."""
        places = self._places
        if (
            type(priority) is not int
            or priority not in _CLASS_NUMBERS
            or type(job_id) is not str
            or not job_id
            or (evictable is not True and evictable is not False)
            or job_id in places
        ):
            return _unfit(job_id, priority, evictable)
        own = self._classes[priority]
        evicted: tuple[str, ...] = ()
        if own.room <= 0 or len(places) >= self.total:
            made = self._make_room(priority, evictable)
            if isinstance(made, Refused):
                return made
            evicted = made
        arrival = self.arrivals
        self.arrivals = arrival + 1
        own.room -= 1
        if evictable:
            places[job_id] = arrival * _LINE_STEP + own.number
            own.evictable.append(job_id)
        else:
            places[job_id] = arrival * _LINE_STEP + own.number - 1
            own.kept.append(job_id)
        if priority > self._top:  # noqa: PLR1730 - on the hot path, where a call to max() shows
            self._top = priority
        if evicted:
            return Enqueued(arrival, evicted, EVICTION_REASON[self.policy])
        return enqueued_alone((arrival, _EVICTED, _REASON, _DECISION, _EVICTIONS))

    def dequeue(self, placeable: Callable[[str], bool] | None = None) -> str | None:
        """Take out the head of the highest class whose head can be placed; None when there is none.

        ``placeable`` is asked once for each head it refuses, from the top class down, and must not touch the queue.
        """
        places, priority = self._places, self._top
        while priority:
            own = self._classes[priority]
            line = own.evictable
            if own.kept:
                if not line or places[own.kept[0]] < places[line[0]]:
                    line = own.kept
            elif not line:
                if priority == self._top:
                    self._top -= 1
                priority -= 1
                continue
            if placeable is not None and not placeable(line[0]):
                priority -= 1
                continue
            job_id = line.popleft()
            del places[job_id]
            own.room += 1
            if self._gap_total:
                self._close_gaps(own.number - (line is own.kept))
            return job_id
        return None

    def cancel(self, job_id: str) -> bool:
        """Take a job out wherever it stands; False when it is not there."""
        place = self._places.pop(job_id, None) if type(job_id) is str else None
        if place is None:
            return False
        number = place & _LINE_MASK
        self._classes[number >> 1].room += 1
        line = self._lines[number]
        if line[0] == job_id:
            line.popleft()
        else:
            gaps = self._gaps[number]
            gaps[job_id] = gaps.get(job_id, 0) + 1
            self._gap_counts[number] += 1
            self._gap_total += 1
        if self._gap_total:
            self._close_gaps(number)
        return True

    # -- questions -----------------------------------------------------------------------------------------------------

    def first(self, suits: Callable[[str], bool]) -> str | None:
        """The first job that suits a worker, from the top class down; at most `PASSED_MAX` others are passed over."""
        left = PASSED_MAX
        for priority in range(self._top, 0, -1):
            for _, job_id in merge(self._standing(2 * priority), self._standing(2 * priority + 1)):
                if suits(job_id):
                    return job_id
                left -= 1
                if not left:
                    return None
        return None

    def _standing(self, number: int) -> Iterator[tuple[int, str]]:
        """The jobs of a line with their places, in order."""
        gaps = dict(self._gaps[number])
        for job_id in self._lines[number]:
            if gaps.get(job_id, 0):
                gaps[job_id] -= 1
            else:
                yield self._places[job_id], job_id

    def has_room(self, priority: int) -> bool:
        """Whether a job of this class could be enqueued now without displacing another."""
        if type(priority) is not int or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
            return False
        return self._classes[priority].room > 0 and len(self._places) < self.total

    def has_room_for(self, priorities: Sequence[int]) -> bool:
        """Whether jobs of these classes could all be enqueued now without displacing another."""
        wanted = {priority: priorities.count(priority) for priority in set(priorities)}
        if any(priority not in CLASSES or self._classes[priority].room < count for priority, count in wanted.items()):
            return False
        return len(self._places) + len(priorities) <= self.total

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._places

    def depths(self) -> dict[int, int]:
        """How many jobs wait in each class, from the top; all ten are there."""
        return {priority: self._depth(priority) for priority in CLASSES}

    def counts(self, priority: int) -> tuple[int, int]:
        """How many jobs wait in a class, and how many in all the classes above it."""
        own = self._depth(priority)
        if priority >= self._top:
            return own, 0
        return own, sum(map(self._depth, range(priority + 1, self._top + 1)))

    def heads(self) -> tuple[Head, ...]:
        """The job that goes next in each class with waiting jobs, from the top."""
        found = []
        for priority in CLASSES:
            lines = self._lines[2 * priority : 2 * priority + 2]
            if standing := [(self._places[line[0]], line[0]) for line in lines if line]:
                place, job_id = min(standing)
                found.append(Head(priority, job_id, place >> _LINE_BITS))
        return tuple(found)

    def position(self, job_id: str) -> Position | None:
        """Where a job stands, None when it does not wait here. Looks at every waiting job: for people, not for loops."""
        place = self._places.get(job_id)
        if place is None:
            return None
        priority = (place & _LINE_MASK) >> 1
        ahead = sum(1 for other in self._places.values() if other < place and (other & _LINE_MASK) >> 1 == priority)
        above = sum(self._depth(higher) for higher in CLASSES if higher > priority)
        return Position(priority, place >> _LINE_BITS, ahead + 1, above + ahead)

    def in_turn(self) -> list[str]:
        """Every waiting job, the next one first. For people, as above."""
        return [job_id for _, job_id in sorted((_turn(place), job_id) for job_id, place in self._places.items())]

    def ahead(self, job_id: str, limit: int) -> list[str]:
        """The jobs that go before a waiting one, at most ``limit`` of them, the next one first. For people, as above."""
        place = self._places.get(job_id)
        if place is None:
            return []
        own = _turn(place)
        turns = sorted((turn, other) for other, at in self._places.items() if (turn := _turn(at)) < own)
        return [other for _, other in turns[:limit]]

    def snapshot(self) -> object:
        """The next arrival number and, for each class with jobs, from the top: its jobs in order.

        A job is ``[arrival, job_id, evictable]``. Bounds and policy are configuration and not part of it.
        """
        return [self.arrivals, self.written()]

    def written(self) -> list[object]:
        """The lines of the snapshot."""
        entries: dict[int, list[object]] = {priority: [] for priority in CLASSES if self._depth(priority)}
        for job_id, place in sorted(self._places.items(), key=_by_place):
            line = place & _LINE_MASK
            entries[line >> 1].append([place >> _LINE_BITS, job_id, bool(line & 1)])
        return [[priority, jobs] for priority, jobs in entries.items()]

    def restore(self, snapshot: object) -> None:
        """Become the queue that ``snapshot`` was taken of, even if the bounds have changed: a restore drops no job."""
        self.take_over(*read_snapshot(snapshot))

    def take_over(self, arrivals: int, entries: Iterable[Waiting]) -> None:
        """Become the queue of these jobs, given by class from the top and in order."""
        self._clear()
        self.arrivals = arrivals
        for priority, arrival, job_id, evictable in entries:
            number = 2 * priority + evictable
            self._places[job_id] = arrival * _LINE_STEP + number
            self._lines[number].append(job_id)
            self._classes[priority].room -= 1
            self._top = max(self._top, priority)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._places: dict[str, int] = name_index()
        self._lines: list[deque[str]] = [deque() for _ in range(_LINES)]
        """The kept and the evictable line of each class, one after the other."""
        self._classes = [
            Lines(2 * priority + 1, capacity, self._lines[2 * priority], self._lines[2 * priority + 1])
            for priority, capacity in enumerate(self._capacity)
        ]
        self._gaps: list[dict[str, int]] = [{} for _ in range(_LINES)]
        self._gap_counts = [0] * _LINES
        self._gap_total = 0
        self._top = 0
        """No class above this one has a waiting job."""

    def _depth(self, priority: int) -> int:
        return self._capacity[priority] - self._classes[priority].room

    def _make_room(self, priority: int, evictable: bool) -> tuple[str, ...] | Refused:
        """Evict as many jobs as the policy lets a new job of this class evict; none if that is not enough.

        That is one job, unless the queue was restored under tighter bounds than it was filled under.
        """
        own = self._classes[priority]
        over_class = 1 - own.room
        if self.policy == REJECT or not evictable or (self.policy == SHED_LOW_PRIORITY and over_class > 0):
            return self._full(priority)
        lowest_first = range(PRIORITY_MIN, priority + (self.policy == DROP_LRU))
        missing = max(over_class, len(self._places) + 1 - self.total)
        for lower in lowest_first:
            missing -= self._evictable(lower)
            if missing <= 0:
                break
        if missing > 0 or over_class > self._evictable(priority):
            return self._full(priority)
        evicted: list[str] = []
        while own.room <= 0:
            evicted.append(self._evict(priority))
        while len(self._places) >= self.total:
            evicted.append(self._evict(next(lower for lower in lowest_first if self._classes[lower].evictable)))
        return tuple(evicted)

    def _evictable(self, priority: int) -> int:
        return len(self._classes[priority].evictable) - self._gap_counts[2 * priority + 1]

    def _evict(self, priority: int) -> str:
        """Take out the oldest (`drop-lru`) or the newest (`shed-low-priority`) job of a class that may be evicted."""
        own = self._classes[priority]
        number, line = own.number, own.evictable
        if self.policy == DROP_LRU:
            job_id = line.popleft()
        else:
            job_id = line.pop()
            while self._places.get(job_id, 0) & _LINE_MASK != number:
                self._forget_gap(number, job_id)
                job_id = line.pop()
        del self._places[job_id]
        own.room += 1
        if self._gap_total:
            self._close_gaps(number)
        return job_id

    def _forget_gap(self, number: int, job_id: str) -> None:
        gaps = self._gaps[number]
        self._gap_counts[number] -= 1
        self._gap_total -= 1
        if gaps[job_id] == 1:
            del gaps[job_id]
        else:
            gaps[job_id] -= 1

    def _close_gaps(self, number: int) -> None:
        """Bring a line's first job to its head, and rewrite the line if its gaps outnumber its jobs (X-083)."""
        line, gaps = self._lines[number], self._gaps[number]
        while line and line[0] in gaps:
            self._forget_gap(number, line.popleft())
        if 2 * self._gap_counts[number] <= len(line):
            return
        jobs = []
        for job_id in line:
            if job_id in gaps:
                self._forget_gap(number, job_id)
            else:
                jobs.append(job_id)
        line.clear()
        line.extend(jobs)

    def _full(self, priority: int) -> Refused:
        of_class = self._classes[priority].room <= 0
        holder, count = (f"class {priority}", self._depth(priority)) if of_class else ("it", len(self._places))
        return Refused(
            "QUEUE_FULL",
            f"the queue has no room for a job of class {priority}: {holder} holds {count}",
            {
                "bound": "class" if of_class else "total",
                "waiting": len(self._places),
                "waiting_in_class": self._depth(priority),
                "capacity_per_class": self._capacity[priority],
                "capacity_total": self.total,
                "admission_policy": self.policy,
            },
        )


def _turn(place: int) -> tuple[int, int]:
    """The sort key of a place when all classes share one line."""
    return -((place & _LINE_MASK) >> 1), place >> _LINE_BITS


def _by_place(entry: tuple[str, int]) -> int:
    return entry[1]


def _unfit(job_id: object, priority: object, evictable: object) -> Refused:
    if type(job_id) is not str or not job_id:
        message = f"job_id must be a non-empty text, not {show(job_id)}"
    elif type(priority) is not int or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        message = f"priority must be an integer from {PRIORITY_MIN} to {PRIORITY_MAX}, not {show(priority)}"
    elif type(evictable) is not bool:
        message = f"evictable must be true or false, not {show(evictable)}"
    else:
        message = f"job {show(job_id)} waits in the queue already"
    return Refused("INVALID_PARAMS", message)


def _capacities(capacity: Capacity) -> list[int]:
    """The bound of each class, by class number; class 0 does not exist and holds nothing."""
    if not isinstance(capacity, Mapping):
        return [0, *([check_positive("capacity", capacity)] * PRIORITY_MAX)]
    if unknown := [name for name in capacity if type(name) is not int or name not in CLASSES]:
        raise InvalidInput(f"capacity names a class that does not exist: {show(unknown[0])}")
    return [0, *(check_positive(f"capacity[{c}]", capacity.get(c, CAPACITY_DEFAULT)) for c in reversed(CLASSES))]
