"""A run as people watch it: plain data that the driver fills and anything may draw, and the spans that tell running from waiting."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from detent.canon.late import dataclass
from detent.words.states import (
    BLOCKED,
    CANCELLED,
    DONE,
    FAILED,
    OVER,
    READY,
    REUSED,
    RUNNING,
    SKIPPED,
    STEP_STATES,
    SUCCEEDED,
    WAITING,
)


class Spans:
    """Disjoint spans of milliseconds, in order. Adding is cheap where spans come about as they end."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in spans:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Something ran from ``start`` to ``end``; a span that ends before it starts, by a clock set back, counts for nothing."""
        if end <= start:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def total_ms(self, more: Iterable[tuple[int, int]] = ()) -> int:
        """For how long something ran, with what runs still counted among it."""
        still = [span for span in more if span[1] > span[0]]
        if not still:
            return sum(self._ends) - sum(self._starts)
        return Spans([*zip(self._starts, self._ends, strict=True), *still]).total_ms()


@dataclass(frozen=True, slots=True)
class StepView:
    """One step at one moment. An element is one job of the step: a plain step has one, a mapped step as many as its list."""

    key: str
    name: str
    state: str = WAITING
    total: int | None = 1
    """Elements; None until the list of a mapped step is known."""
    done: int = 0
    """Elements that succeeded, those that were reused among them."""
    cached: int = 0
    """Elements whose result was there already."""
    running: int = 0
    """Elements that a worker has begun; what is queued or leased ahead for one is not among them."""
    failed: int = 0
    retrying: int = 0
    """Elements whose last attempt failed and that wait for the next."""
    retries: int = 0
    """Attempts that ended and were repeated, of all elements."""
    again: str = ""
    """Why the attempt that ended last is repeated, and when: ``failed (OSError: busy); attempt 2 of 3 in 1 s``."""
    started_ms: int | None = None
    """When something of it was first submitted; it may have waited since."""
    ended_ms: int | None = None
    ran_ms: int | None = None
    """How long workers ran it; None before a worker has begun, or when it is not known."""
    message: str = ""
    """Why it failed, what it waits for, or what the running task says of itself, in one line."""
    fraction: float | None = None
    """How far a running task says it is, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class RunView:
    """One run at one moment; times are milliseconds since 1970."""

    run_id: str
    name: str
    status: str
    """``running``, ``completed`` (as it is recorded), ``failed`` or ``cancelled``."""
    steps: tuple[StepView, ...]
    started_ms: int
    now_ms: int
    workers: int | None
    """Worker processes that the command has; None where a server has them."""
    home: str
    """Its directory, or the URL of the server that has it."""
    ended_ms: int | None = None
    resumed: bool = False
    """Whether an earlier process began it."""
    note: str = ""
    """What an observer should know now: `stopping`, `waits for the owner of the home`."""
    warnings: tuple[str, ...] = ()
    """What its user should change: tasks that are given files by their names alone."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Steps by outcome, and elements over all steps."""

    steps: int = 0
    succeeded: int = 0
    cached: int = 0
    failed: int = 0
    skipped: int = 0
    """Skipped and blocked ones."""
    cancelled: int = 0
    running: int = 0
    waiting: int = 0
    """Waiting and ready ones."""
    jobs: int = 0
    """Elements that are known."""
    jobs_done: int = 0
    jobs_cached: int = 0
    jobs_failed: int = 0

    @property
    def done(self) -> int:
        """Steps that have their result, from now or from before."""
        return self.succeeded + self.cached


def counts(steps: Iterable[StepView]) -> Counts:
    """Count steps and their elements."""
    by_state = dict.fromkeys(STEP_STATES, 0)
    jobs = done = cached = failed = 0
    for step in steps:
        by_state[step.state] += 1
        jobs += step.total or 0
        done += step.done
        cached += step.cached
        failed += step.failed
    return Counts(
        steps=sum(by_state.values()),
        succeeded=by_state[SUCCEEDED],
        cached=by_state[REUSED],
        failed=by_state[FAILED],
        skipped=by_state[SKIPPED] + by_state[BLOCKED],
        cancelled=by_state[CANCELLED],
        running=by_state[RUNNING],
        waiting=by_state[WAITING] + by_state[READY],
        jobs=jobs,
        jobs_done=done,
        jobs_cached=cached,
        jobs_failed=failed,
    )


def elapsed_ms(view: RunView) -> int:
    """How long the run has taken so far, or took; never negative, even if the wall clock was set back."""
    return max(0, (view.now_ms if view.ended_ms is None else view.ended_ms) - view.started_ms)


def step_elapsed_ms(step: StepView, now_ms: int) -> int | None:
    """How long a step has taken so far, or took; None for one that never began."""
    if step.started_ms is None:
        return None
    return max(0, (now_ms if step.ended_ms is None else step.ended_ms) - step.started_ms)


def step_waited_ms(step: StepView, now_ms: int) -> int | None:
    """For how long a step waited although it could run: before its first worker, between attempts, for room or resources."""
    elapsed = step_elapsed_ms(step, now_ms)
    if elapsed is None or (step.ran_ms is None and step.state in OVER):
        return None
    return max(0, elapsed - (step.ran_ms or 0))


def step_time_ms(step: StepView, now_ms: int) -> int | None:
    """The time to show for a step: for how long it ran, or, where that is not known, from its submission to its end."""
    if step.ran_ms is not None or step.state not in OVER:
        return step.ran_ms
    return step_elapsed_ms(step, now_ms)


def share_done(step: StepView) -> float | None:
    """How far a step is, from 0 to 1; None when unknown."""
    if step.state in DONE:
        return 1.0
    if not step.total:
        return None
    within = min(1.0, max(0.0, step.fraction)) if step.fraction is not None else 0.0
    # What a task says of itself counts for the one element that it is.
    return min(1.0, (step.done + step.failed + (within if step.total == 1 and not step.done else 0.0)) / step.total)
