"""Where a job stands now. Waiting is no event and stands in no record: the scheduler is rebuilt and asked.

It is rebuilt as it was at the ledger's end, from the newest checkpoint and the commands after it, so the answer is that of
the owner without asking the owner. Leases are read off it, too: a heartbeat moves a lease and touches no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detent.canon.late import dataclass
from detent.engine.explain_chapter import CANDIDATES_TOLD_MAX, moment
from detent.engine.explain_story import why_final
from detent.engine.inspect import JobView, RecordView
from detent.engine.recover import recover
from detent.errors import StoreCorrupt
from detent.kernel import Job, Kernel, KernelConfig
from detent.kernel.table import State
from detent.scheduling import Decision, Scheduler
from detent.scheduling.explain import because, code_words, waiting_lines
from detent.scheduling.watchdog import WALL
from detent.store.api import StoreReader
from detent.words.quantities import duration_text

AHEAD_MAX: Final = 10
"""Jobs before a waiting one that are named."""

_DAMAGED: Final = "What it waits for cannot be worked out, because the ledger is damaged: `detent verify` says more."
_NOBODY: Final = "No process is at work on this home: nothing moves until one opens it."
_STATES: Final = {
    "QUEUED": "It waits in the queue.",
    "RUNNING": "It runs.",
    "RETRYING": "It waits to be tried again.",
}
_ENDED: Final = {"SUCCEEDED": "It succeeded", "FAILED": "It failed", "CANCELED": "It was cancelled"}


@dataclass(frozen=True, slots=True)
class Present:
    """What there is to say of a job's present."""

    lines: tuple[str, ...]
    waiting: Decision | None = None
    """What a queued job waits for."""
    head: Decision | None = None
    """What the first of its line waits for, when that is another job."""
    ahead: tuple[str, ...] = ()
    ahead_total: int = 0


def present_of(
    reader: StoreReader, view: JobView, records: Sequence[RecordView], ending: str | None, *, at_work: bool | None
) -> Present:
    """Say where a job stands. ``at_work`` is whether an owner has the home now; None when nobody knows."""
    if view.job.terminal:
        return Present(tuple(_ended(view, records, ending)))
    try:
        kernel = recover(reader, view.row.partition, KernelConfig(), make_queue=Scheduler).kernel
    except StoreCorrupt:
        return Present((_STATES.get(view.job.state, ""), _DAMAGED))
    scheduler, job = kernel.queue, kernel.jobs.get(view.row.job_id, view.job)
    assert isinstance(scheduler, Scheduler)
    idle = () if at_work in (True, None) else (_NOBODY,)
    if job.state == State.QUEUED:
        return _queued(scheduler, job, idle)
    lines = (
        _running(scheduler, job, view, records)
        if job.state == State.RUNNING
        else _retrying(kernel, scheduler, job, view)
    )
    return Present((*lines, *idle))


def _queued(scheduler: Scheduler, job: Job, idle: tuple[str, ...]) -> Present:
    waiting = scheduler.waiting(job.job_id)
    if waiting is None or waiting.queue is None:
        return Present((_STATES["QUEUED"], _DAMAGED))
    head = scheduler.head_of_line(job.job_id)
    lines = waiting_lines(waiting, candidates_max=CANDIDATES_TOLD_MAX)
    if head is not None:
        lines.append(f"The first of its class is job {head.job_id}: {because(head)}.")
    if job.attempt_id:
        lines.append(f"It has been tried before: this is for attempt {job.attempt_id + 1}.")
    ahead = tuple(scheduler.ahead(job.job_id, AHEAD_MAX))
    return Present((*lines, *idle), waiting, head, ahead, waiting.queue.before)


def _running(scheduler: Scheduler, job: Job, view: JobView, records: Sequence[RecordView]) -> list[str]:
    times = view.times
    # Not the row's tick: a report of usage writes the row, too.
    since = max((record.tick or 0 for record in records), default=0)
    lines = [
        f"It runs on {job.lease_holder} since {moment(times, since)}, attempt {job.attempt_id + 1}.",
        f"Its lease holds until {moment(times, job.lease_expiry or 0)}; each sign of life from the worker extends it.",
    ]
    known = scheduler.known.get(job.job_id)
    limits = None if known is None else known.asked.limits
    if limits is not None:
        said = [
            f"{duration_text(ticks * times.tick_ms)} {what}"
            for ticks, what in ((limits.wall_ticks, "in all"), (limits.idle_ticks, "without progress"))
            if ticks is not None
        ]
        lines += [f"It may run {' and '.join(said)}."] if said else []
    due = scheduler.deadline(job.job_id)
    if due is not None:
        unless = "ends" if due.code == WALL else "reports progress or ends"
        lines.append(
            f"It is stopped at {moment(times, due.tick)} unless it {unless} before ({code_words(due.code or '')})."
        )
    return lines


def _retrying(kernel: Kernel, scheduler: Scheduler, job: Job, view: JobView) -> list[str]:
    ready, times = job.ready_tick or 0, view.times
    ended = f"Attempt {job.attempt_id + 1} ended ({code_words(job.reason_code or '')}), and it is tried again."
    used = f"Retries used: {job.failures} of at most {job.max_retries}"
    if job.interruptions:
        used += f"; interruptions: {job.interruptions} of at most {job.max_interruptions}"
    line = scheduler.line(job.job_id, job.priority)
    if kernel.tick < ready:
        when = f"It goes back to the queue at {moment(times, ready)}, {duration_text((ready - kernel.tick) * times.tick_ms)} after"
        return [ended, f"{when} the ledger's last entry.", f"{used}."]
    pool_id, priority = line
    where = f" of pool {pool_id}" if pool_id else ""
    before = sum(
        1
        for other in kernel.jobs.values()
        if other.state == State.RETRYING
        and (other.ready_tick or 0, other.job_id) < (ready, job.job_id)
        and scheduler.line(other.job_id, other.priority) == line
    )
    others = "" if not before else f", after {before} other retries" if before > 1 else ", after one other retry"
    waits = f"Its delay is over. The queue{where} has no room for class {priority}: it gets the next place that is free"
    return [ended, f"{waits}, before every new job{others}.", f"{used}."]


def _ended(view: JobView, records: Sequence[RecordView], ending: str | None) -> list[str]:
    job = view.job
    attempts = sum(1 for record in records if record.fields.get("dispatch") is True)
    after = {0: ", and never ran", 1: " at its first attempt"}.get(attempts, f" at attempt {attempts}")
    lines = [f"{_ENDED.get(job.state, 'It ended')}{after}, at {moment(view.times, view.row.tick)}."]
    if ending is not None:
        lines.append(ending)
    last = records[-1].evidence if records else None
    return lines if job.state == State.SUCCEEDED else [*lines, *why_final(job, last)]
