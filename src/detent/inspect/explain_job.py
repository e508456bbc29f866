"""Why a job is where it is: what it waits for now, which limits and resources apply to it, and how it got there.

Waiting leaves no record, so the scheduler is rebuilt and asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from detent.canon import decode_trusted
from detent.canon.late import dataclass
from detent.errors import CODES, InvalidInput, StoreCorrupt
from detent.inspect.explain_history import named_decision, refusals_of, remake, story_of, why_final
from detent.inspect.explain_reuse import WhyRun, why_run
from detent.inspect.explain_words import CANDIDATES_TOLD_MAX, Chapter, moment, plain_decision
from detent.inspect.job_ledger import JobLedger, ledger_of
from detent.inspect.replicas import HINT, registered_text
from detent.jobs.order import POOL, RESOURCE
from detent.jobs.placing import wanted_words
from detent.kernel import Job, Kernel, KernelConfig
from detent.kernel.history import WORKER_ENROLLED, WORKER_RETIRED
from detent.kernel.queue import OWN_WORKERS
from detent.kernel.table import State
from detent.ledger.trust_config import TrustFault
from detent.ledger.workers import read_enrolment
from detent.owner.content import Content, order_of
from detent.owner.home import Home
from detent.owner.lock import is_held
from detent.owner.recovery import recover
from detent.owner.views import JobView, RecordView, Times, job_view, timeline_of_job
from detent.runs.cancel import given_reason
from detent.runs.record.recorded_run import report_of
from detent.scheduling import Decision, Scheduler
from detent.scheduling.explain import because, code_words, waiting_lines
from detent.scheduling.watchdog import WALL
from detent.store.api import REFUSALS_KEPT_MAX, StoreReader
from detent.words.quantities import duration_text
from detent.words.states import word_of
from detent.workers.live_output import live_jobs
from detent.workers.reports import OF_TASK

OPERATOR: str = "watchdog_wall_ms in the settings of this home"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit and where it was set."""

    amount: int
    by: str


@dataclass(frozen=True, slots=True)
class Limited:
    """The limits of one attempt, the smallest of its time first."""

    wall: tuple[Limit, ...]
    memory: Limit | None = None
    """In units of 2^20 bytes."""

    @property
    def lines(self) -> tuple[str, ...]:
        """In sentences."""
        lines = []
        if self.wall:
            first, *others = self.wall
            beside = "".join(f"; {other.by} allows {duration_text(other.amount)}" for other in others)
            lines.append(f"An attempt may take {duration_text(first.amount)}: {first.by}{beside}.")
        if self.memory is not None:
            lines.append(f"An attempt may use {self.memory.amount:,} MB of memory: {self.memory.by}.")
        return tuple(lines)

    def to_map(self) -> dict[str, object]:
        """As data."""
        memory = None if self.memory is None else {"mb": self.memory.amount, "by": self.memory.by}
        return {"wall": [{"ms": limit.amount, "by": limit.by} for limit in self.wall], "memory": memory}


def limited_by(content: Content, view: JobView, operator_ms: int | None) -> Limited | None:
    """The limits of a job; ``operator_ms`` is the home's own. None for a job whose order is gone, or that is neither step nor task."""
    order = order_of(content, view.row) if view.job.job_kind in {"action", "task"} else None
    if order is None:
        return None
    wall = []
    if order.limits.wall_ms is not None:
        wall.append(Limit(order.limits.wall_ms, order.limits.wall_by or OF_TASK))
    if operator_ms is not None:
        wall.append(Limit(operator_ms, OPERATOR))
    memory = (
        None if order.limits.memory_mb is None else Limit(order.limits.memory_mb, order.limits.memory_by or "the task")
    )
    return Limited(tuple(sorted(wall, key=lambda limit: limit.amount)), memory)


WAITED_MS_MIN: Final = 100
"""A shorter time between claim and start is not a wait: it is how long work takes to be handed over."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one attempt of a job takes, with what there is to say about it."""

    resources: Mapping[str, int]
    waiting: bool
    """It was claimed, and no worker has begun it."""
    lines: tuple[str, ...]

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {"takes": dict(self.resources), "waiting": self.waiting}


def taken_by(
    reader: StoreReader, content: Content, view: JobView, home: Path, pools: Mapping[str, int] | None = None
) -> Taken | None:
    """What a job takes; None when it declares nothing, or when its order is gone.

    ``pools``: how many workers the steps of a type have for themselves; a step that waits for one of them says so, too.
    """
    order = order_of(content, view.row) if view.job.job_kind in {"action", "task"} else None
    if order is None:
        return None
    waits = view.job.state == State.RUNNING and view.row.job_id not in live_jobs(home)
    step_type = order.origin.action.get("step_type", "")
    if waits and not order.limits.resources and step_type in (pools or {}):
        count = (pools or {})[step_type]
        return Taken(
            {}, True, (f"It was claimed and waits for a worker of the pool for {step_type} steps, which has {count}.",)
        )
    if not order.limits.resources:
        return None
    said = takes_text(order.limits.resources)
    if waits:
        return Taken(
            order.limits.resources,
            True,
            (said, "It was claimed and waits for these resources; no worker has begun it yet."),
        )
    waited = _waited_ms(reader, content, view)
    lines = (said,) if waited < WAITED_MS_MIN else (said, f"Its last attempt waited {duration_text(waited)} for them.")
    return Taken(order.limits.resources, False, lines)


def wanted_text(reader: StoreReader, tenant: str, labels: Collection[str]) -> str:
    """What a job waits for that asks for a pool or labels, and what of it no enrolled worker is certified for."""
    wanted = sorted(labels)
    said = f"It waits for a worker elsewhere that offers {wanted_words(wanted)}."
    certified = certified_offers(reader, tenant)
    lacking = [one for one in wanted if one not in certified and not one.startswith(RESOURCE)]
    more = (
        f" No worker that is enrolled for this workspace is certified for {wanted_words(lacking)}." if lacking else ""
    )
    return said + more


def certified_offers(reader: StoreReader, tenant: str) -> set[str]:
    """What the certificates of a workspace's workers offer: pools and labels. What a worker says at its start is not on the ledger."""
    retired = {decode_trusted(row.body)["worker_id"] for row in reader.records_of_kind(0, WORKER_RETIRED)}
    found: set[str] = set()
    for row in reader.records_of_kind(0, WORKER_ENROLLED):
        said = decode_trusted(row.body)
        enrolment = read_enrolment(row.evidence or b"", said["worker_id"], said["key_id"], said["certificate_digest"])
        if isinstance(enrolment, TrustFault) or said["worker_id"] in retired:
            continue
        certificate = enrolment.signed.certificate
        if certificate.covers(tenant):
            found |= {*certificate.labels, *(f"{POOL}{pool}" for pool in certificate.pools or ())}
    return found


def takes_text(resources: Mapping[str, int]) -> str:
    """What work takes, as a sentence."""
    said = [f"{amount:,} {name}" for name, amount in resources.items()]
    amounts = " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
    return f"Each attempt takes {amounts} of what there is."


def _waited_ms(reader: StoreReader, content: Content, view: JobView) -> int:
    """From the claim of the last attempt to its beginning, as far as its report tells."""
    report = report_of(reader, content, view.row) if view.job.terminal else None
    if report is None:
        return 0
    claims = [record.tick for record in timeline_of_job(reader, content, view) if record.fields.get("dispatch") is True]
    if not claims or claims[-1] is None:
        return 0
    return report.result.started_ms - (view.times.epoch_base_ms + claims[-1] * view.times.tick_ms)


AHEAD_MAX: Final = 10
"""Jobs before a waiting one that are named."""

_DAMAGED: Final = "What it waits for cannot be worked out, because the ledger is damaged: `detent verify` says more."
_IDLE: Final = "No process is working on this home; nothing moves until one opens it."
_STATES: Final = {
    "QUEUED": "It waits in the queue.",
    "RUNNING": "It runs.",
    "RETRYING": "It waits for its next attempt.",
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
    reader: StoreReader,
    view: JobView,
    records: Sequence[RecordView],
    ending: str | None,
    *,
    at_work: bool | None,
    may_name: Callable[[str], bool] | None = None,
) -> Present:
    """Say where a job stands. ``at_work`` is whether an owner has the home now; None when unknown."""
    if view.job.terminal:
        return Present(tuple(_ended(view, records, ending)))
    try:
        kernel = recover(reader, view.row.partition, KernelConfig(), make_queue=Scheduler).kernel
    except StoreCorrupt:
        return Present((_STATES.get(view.job.state, ""), _DAMAGED))
    scheduler, job = kernel.queue, kernel.jobs.get(view.row.job_id, view.job)
    assert isinstance(scheduler, Scheduler)
    idle = () if at_work in (True, None) else (_IDLE,)
    if job.state == State.QUEUED:
        told = _queued(scheduler, job, idle, may_name or (lambda _: True))
        labels = scheduler.labels_of(job.job_id)
        if labels <= OWN_WORKERS or told.waiting is None:
            return told
        return replace(told, lines=(wanted_text(reader, job.tenant_id, labels), *told.lines[1:]))
    lines = (
        _running(scheduler, job, view, records)
        if job.state == State.RUNNING
        else _retrying(kernel, scheduler, job, view)
    )
    return Present((*lines, *idle))


def _queued(scheduler: Scheduler, job: Job, idle: tuple[str, ...], may_name: Callable[[str], bool]) -> Present:
    waiting = scheduler.waiting(job.job_id)
    if waiting is None or waiting.queue is None:
        return Present((_STATES["QUEUED"], _DAMAGED))
    head = scheduler.head_of_line(job.job_id)
    lines = waiting_lines(waiting, candidates_max=CANDIDATES_TOLD_MAX)
    if head is not None and not may_name(head.job_id):
        lines.append(f"The first of its class belongs to another workspace: {because(head)}.")
        head = None
    elif head is not None:
        lines.append(f"The first of its class is job {head.job_id}: {because(head)}.")
    if scheduler.fleet and scheduler.suits_any(job.job_id):
        lines.append(f"{registered_text(list(scheduler.fleet))}: the workers of `detent run` get none.")
        lines.append(f"To change that, {HINT}.")
    if job.attempt_id:
        lines.append(f"It has been tried before: this is for attempt {job.attempt_id + 1}.")
    ahead = tuple(name for name in scheduler.ahead(job.job_id, AHEAD_MAX) if may_name(name))
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


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to "why": where the job stands now and how it came there."""

    job_id: str
    state: str | None
    """None for a job that was refused and never came to be."""
    as_of: str
    """The moment of the ledger's last entry: "now" is then."""
    present: Present
    story: tuple[Chapter, ...]

    @property
    def now(self) -> tuple[str, ...]:
        """Where it stands, in sentences."""
        return self.present.lines

    def to_map(self) -> dict[str, object]:
        """As data: one document."""
        present = self.present
        return {
            "job_id": self.job_id,
            "state": None if self.state is None else word_of(self.state),
            "as_of": self.as_of,
            "now": list(present.lines),
            "waiting": plain_decision(present.waiting),
            "head": plain_decision(present.head),
            "ahead": list(present.ahead),
            "ahead_total": present.ahead_total,
            "story": [chapter.to_map() for chapter in self.story],
        }


def explain(
    reader: StoreReader,
    content: Content,
    job_id: str,
    *,
    at_work: bool | None = None,
    again: bool = False,
    tenant: str | None = None,
) -> Explanation:
    """Explain one job. Raises `InvalidInput` for a job that was never submitted here.

    ``reader`` should be a snapshot: the records, the rows and the scheduler are looked at one after the other. ``again``
    has the job's decisions made once more: that brings back what is not stored of them, and takes as long as a replay.
    With ``tenant``, jobs of other tenants are counted and never named.
    """
    view = job_view(reader, job_id)
    if view is None:
        return _never_a_job(reader, job_id)
    records = timeline_of_job(reader, content, view)
    remade = None
    if again:
        named = [digest for record in records if (digest := named_decision(record)) is not None]
        remade = remake(reader, view.row.partition, job_id, named)
    may_name = None if tenant is None else partial(_is_of, reader, tenant)
    story, ending = story_of(reader, content, view, records, remade, may_name)
    present = present_of(reader, view, records, ending, at_work=at_work, may_name=may_name)
    as_of = view.times.iso(reader.head(view.row.partition).last_tick)
    return Explanation(job_id, view.job.state, as_of, present, story)


def _is_of(reader: StoreReader, tenant: str, job_id: str) -> bool:
    row = reader.job(job_id)
    return row is not None and row.tenant_id == tenant


def _never_a_job(reader: StoreReader, job_id: str) -> Explanation:
    times = Times.of(reader)
    refusals = refusals_of(reader, job_id, times)
    if not refusals:
        if reader.run(job_id) is not None:
            raise InvalidInput(
                f"{job_id!r} is a run, and jobs are explained", hint=f"`detent show {job_id}` lists its jobs"
            )
        raise InvalidInput(
            f"there is no job {job_id!r} here, and none of the last {REFUSALS_KEPT_MAX:,} refusals was about one",
            hint="`detent list --jobs` shows all",
        )
    newest = next(iter(reader.refusals(job_id=job_id, limit=1)))
    lines = ["It was refused and never became a job: nothing of it is queued."]
    code = CODES.get(newest.code)
    if code is not None:
        lines.append(
            f"That can pass ({newest.code}: {code.meaning}): the same submission may succeed later."
            if code.retryable
            else f"That does not pass by itself ({newest.code}: {code.meaning}): something has to change first."
        )
    as_of = times.iso(max(reader.head(partition).last_tick for partition in range(reader.partitions)))
    return Explanation(job_id, None, as_of, Present(tuple(lines)), refusals)


@dataclass(frozen=True, slots=True)
class Explained:
    """Everything there is to say about one job."""

    told: Explanation
    why: WhyRun | None = None
    """Why it was run and not reused."""
    reason: str | None = None
    """What was given as the reason of its cancellation."""
    taken: Taken | None = None
    limited: Limited | None = None
    ledger: JobLedger | None = None

    @property
    def beside(self) -> list[str]:
        """Sentences about quotas, limits and resources."""
        return [line for one in (self.ledger, self.limited, self.taken) if one is not None for line in one.lines]

    def to_map(self) -> dict[str, object]:
        """As data: one document."""
        return {
            **self.told.to_map(),
            "reuse": None if self.why is None else self.why.to_map(),
            "reason": self.reason,
            "resources": None if self.taken is None else self.taken.to_map(),
            "limits": None if self.limited is None else self.limited.to_map(),
            "ledger": None if self.ledger is None else self.ledger.to_map(),
        }


def explained(
    home: Home, reader: StoreReader, content: Content, job_id: str, *, again: bool = False, tenant: str | None = None
) -> Explained:
    """Explain one job with everything beside it: reuse, reason, resources, limits, quotas. As `explain` does."""
    told = explain(reader, content, job_id, at_work=is_held(home.lock), again=again, tenant=tenant)
    view = job_view(reader, job_id)
    if view is None:
        return Explained(told)
    settings = home.settings()
    return Explained(
        told,
        why_run(reader, content, view),
        given_reason(reader, content, view.row),
        taken_by(reader, content, view, home.path, settings.step_pools),
        limited_by(content, view, settings.scheduling_policy().watchdog_wall_ms),
        ledger_of(reader, content, view, settings.policies(), settings.path),
    )
