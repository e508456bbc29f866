"""The watchdog: which running jobs are stuck (OC-CORE-1022).

A job that lives but runs past its wall limit, or reports no progress for its idle limit, is aborted for good. A job whose
heartbeat is lost is none of the watchdog's business: its lease expires and it is tried again (X-091). So the end of a
lease and a verdict from here never mean the same thing.

The rule is `Watched.deadline`, for each running job by itself; `Watchdog` keeps the answer for all of them up to date: a heap of due ticks, an entry for each watched job. Progress moves a job's deadline and leaves its entry where it
is; the entry is moved when it comes up. Entries of jobs that have ended are thrown out when they come up, or all at once
when they are half of the heap. A tick therefore costs O(log n) for each verdict and for each deadline that was moved since
it was last looked at, and nothing for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Final

from detent.canon import UINT64_MAX, check_uint64, ms_to_ticks
from detent.canon.late import NamedTuple, dataclass
from detent.canon.show import show
from detent.errors import InvalidInput, InvariantBroken
from detent.scheduling.checks import check_bool, check_id, check_positive

WALL: Final = "WATCHDOG_WALL"
IDLE: Final = "WATCHDOG_IDLE"
SWEPT_MIN: Final = 1_024
"""Entries of ended jobs that are not worth sweeping."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an attempt may run, and how long without a sign of progress, in ticks; None where there is no limit."""

    wall_ticks: int | None = None
    idle_ticks: int | None = None

    def __post_init__(self) -> None:
        for name in ("wall_ticks", "idle_ticks"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))


def limits_of(
    wall_limits_ms: Iterable[int | None], idle_ms: int | None, *, reports_progress: bool, tick_ms: int = 1
) -> Limits:
    """The limits of one job: the smallest wall limit that applies, and the idle limit if the job reports progress.

    A job that never promised to report progress is not idle when it is silent (X-162). A limit is rounded up to whole
    ticks, so that nothing ends early.
    """
    check_bool("reports_progress", reports_progress)
    given = [check_positive("wall limit", limit) for limit in wall_limits_ms if limit is not None]
    wall_ticks = ms_to_ticks(min(given), tick_ms) if given else None
    if idle_ms is None or not reports_progress:
        return Limits(wall_ticks)
    return Limits(wall_ticks, ms_to_ticks(check_positive("idle_ms", idle_ms), tick_ms))


class Verdict(NamedTuple):
    """A job to abort: when that was due, and why. Verdicts sort as they are to be carried out."""

    due_tick: int
    job_id: str
    code: str


@dataclass(frozen=True, slots=True)
class Watched:
    """One running attempt: since when, when it last made progress, and its limits."""

    job_id: str
    started_tick: int
    progress_tick: int
    limits: Limits

    def __post_init__(self) -> None:
        check_id("job_id", self.job_id)
        check_uint64("started_tick", self.started_tick)
        if check_uint64("progress_tick", self.progress_tick) < self.started_tick:
            raise InvalidInput(f"job {show(self.job_id)} made progress before it started")

    def deadline(self) -> Verdict | None:
        """The verdict that falls unless the job makes progress or ends; None when it has no limit."""
        return _deadline(self.job_id, self.started_tick, self.progress_tick, self.limits)


@dataclass(slots=True)
class _Attempt:
    started_tick: int
    progress_tick: int
    limits: Limits


class Watchdog:
    """The running jobs and their deadlines, kept up to date. Verdicts fall by due tick, then job id."""

    __slots__ = ("_attempts", "_heap")

    def __init__(self) -> None:
        self._attempts: dict[str, _Attempt] = {}
        self._heap: list[tuple[int, str]] = []

    def start(self, job_id: str, tick: int, limits: Limits) -> None:
        """Watch an attempt that starts now. Starting is progress."""
        if job_id in self._attempts:
            raise InvariantBroken(f"job {job_id} is watched already")
        self._watch(Watched(job_id, tick, tick, limits))

    def progress(self, job_id: str, tick: int) -> bool:
        """A job says that it is getting on: its idle time begins again, its wall time does not.

        False when that changes nothing: the job is not watched, or has reported as late a tick already.
        """
        attempt = self._attempts.get(job_id)
        if attempt is None or check_uint64("tick", tick) <= attempt.progress_tick:
            return False
        attempt.progress_tick = tick
        return True

    def end(self, job_id: str) -> bool:
        """Stop watching an attempt; False when it is not watched."""
        if self._attempts.pop(job_id, None) is None:
            return False
        if len(self._heap) > 2 * len(self._attempts) + SWEPT_MIN:
            self._heap = [entry for entry in self._heap if entry[1] in self._attempts]
            heapify(self._heap)
        return True

    def next_due(self) -> Verdict | None:
        """The next verdict, whenever it falls; None when there is nothing to wait for."""
        while self._heap:
            due_tick, job_id = self._heap[0]
            attempt = self._attempts.get(job_id)
            verdict = None
            if attempt is not None:
                verdict = _deadline(job_id, attempt.started_tick, attempt.progress_tick, attempt.limits)
            if verdict is None:
                heappop(self._heap)
            elif verdict.due_tick > due_tick:
                # Moved by progress, or left behind by an earlier attempt: then it is one entry too many, and as good.
                heapreplace(self._heap, (verdict.due_tick, job_id))
            else:
                return verdict
        return None

    def deadline(self, job_id: str) -> Verdict | None:
        """The verdict that falls on one job unless it makes progress or ends; None when it has no limit."""
        attempt = self._attempts.get(job_id)
        if attempt is None:
            return None
        return _deadline(job_id, attempt.started_tick, attempt.progress_tick, attempt.limits)

    def due(self, tick: int) -> list[Verdict]:
        """Who is to be aborted at ``tick``, in order. A job returned here is no longer watched."""
        found: list[Verdict] = []
        while (verdict := self.next_due()) is not None and verdict.due_tick <= tick:
            found.append(verdict)
            self.end(verdict.job_id)
        return found

    def __len__(self) -> int:
        return len(self._attempts)

    def running(self) -> list[Watched]:
        """Every watched attempt, by job id."""
        return [
            Watched(job_id, attempt.started_tick, attempt.progress_tick, attempt.limits)
            for job_id, attempt in sorted(self._attempts.items(), key=itemgetter(0))
        ]

    def snapshot(self) -> object:
        """Each watched attempt as ``[job_id, started, progress, wall limit, idle limit]``, by job id."""
        return [
            [job_id, attempt.started_tick, attempt.progress_tick, attempt.limits.wall_ticks, attempt.limits.idle_ticks]
            for job_id, attempt in sorted(self._attempts.items(), key=itemgetter(0))
        ]

    def restore(self, snapshot: object) -> None:
        """Become the watchdog that ``snapshot`` was taken of; refuse what none could have written."""
        found: dict[str, Watched] = {}
        for entry in snapshot if type(snapshot) is list else (snapshot,):
            if type(entry) is not list or len(entry) != 5:
                raise InvalidInput(f"a watched job in a snapshot is a list of five fields, not {show(entry)}")
            job_id, started_tick, progress_tick, wall_ticks, idle_ticks = entry
            watched = Watched(job_id, started_tick, progress_tick, Limits(wall_ticks, idle_ticks))
            if job_id in found:
                raise InvalidInput(f"job {show(job_id)} is watched twice")
            found[job_id] = watched
        self._attempts, self._heap = {}, []
        for watched in found.values():
            self._watch(watched)

    def _watch(self, watched: Watched) -> None:
        self._attempts[watched.job_id] = _Attempt(watched.started_tick, watched.progress_tick, watched.limits)
        verdict = watched.deadline()
        if verdict is not None:
            heappush(self._heap, (verdict.due_tick, watched.job_id))


def _deadline(job_id: str, started_tick: int, progress_tick: int, limits: Limits) -> Verdict | None:
    """Of two deadlines the earlier one, of two at one tick the wall limit's. After the last tick there is, none comes."""
    never = UINT64_MAX + 1
    wall_due = never if limits.wall_ticks is None else started_tick + limits.wall_ticks
    idle_due = never if limits.idle_ticks is None else progress_tick + limits.idle_ticks
    due_tick, code = (wall_due, WALL) if wall_due <= idle_due else (idle_due, IDLE)
    return Verdict(due_tick, job_id, code) if due_tick < never else None
