"""Why a job stands where it stands: its records in words, the decisions they name, and what it waits for now.

The past is read off the ledger: every record of the job, the evidence beside it, and the decision record its evidence
names. The present is not written down anywhere, because waiting is not an event; so the scheduler is rebuilt as it stands
at the ledger's end, and asked. Nothing here changes anything, and no owner is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from detent.canon import NotCanonical, decode
from detent.engine.content import Content
from detent.engine.inspect import JobView, RecordView, Times, job_view, plain, timeline_of_job
from detent.engine.recover import recover
from detent.errors import CODES, DetentError, InvalidInput
from detent.kernel import Job, KernelConfig
from detent.kernel import evidence as ev
from detent.scheduling import Decision, Scheduler, explain_lines
from detent.store.api import RefusalRow, StoreReader

AHEAD_SHOWN_MAX: Final = 10
REFUSALS_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Chapter:
    """One event of a job's life: when, what happened, why, and the decision record behind it, if there is one."""

    tick: int
    at: str
    what: str
    why: tuple[str, ...]
    position: int | None = None
    decision: Decision | None = None
    decision_digest: bytes | None = None

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {
            "tick": self.tick,
            "at": self.at,
            "what": self.what,
            "why": list(self.why),
            "record": self.position,
            "decision_digest": plain(self.decision_digest),
            "decision": None if self.decision is None else _plain_map(self.decision.to_map()),
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to "why": where the job stands now and how it came there."""

    job_id: str
    state: str | None
    """None for a job that was refused and never came to be."""
    now: tuple[str, ...]
    story: tuple[Chapter, ...]
    waiting: Decision | None = None
    ahead: tuple[str, ...] = ()
    ahead_total: int = 0

    def to_map(self) -> dict[str, object]:
        """As data: one document."""
        return {
            "job_id": self.job_id,
            "state": self.state,
            "now": list(self.now),
            "waiting": None if self.waiting is None else _plain_map(self.waiting.to_map()),
            "ahead": list(self.ahead),
            "ahead_total": self.ahead_total,
            "story": [chapter.to_map() for chapter in self.story],
        }


def explain(reader: StoreReader, content: Content, job_id: str) -> Explanation:
    """Explain one job. Raises `InvalidInput` for a job that nobody ever asked for here."""
    view = job_view(reader, job_id)
    times = Times.of(reader) if view is None else view.times
    refusals = [_refusal(row, times) for row in reader.refusals(job_id=job_id, limit=REFUSALS_SHOWN_MAX)]
    if view is None:
        if not refusals:
            raise InvalidInput(
                f"there is no job {job_id!r} here, and none was refused", hint="`detent list --jobs` shows all"
            )
        now = ("It was refused and never became a job; nothing of it is queued.",)
        return Explanation(job_id, None, now, tuple(reversed(refusals)))
    records = timeline_of_job(reader, content, view)
    told = [_chapter(record, view.job, content) for record in records]
    story = tuple(sorted([*told, *refusals], key=lambda chapter: (chapter.tick, chapter.position or 0)))
    if view.job.state == "QUEUED":
        return _queued(reader, view, story)
    return Explanation(job_id, view.job.state, _now(reader, view, records), story)


# -- now ---------------------------------------------------------------------------------------------------------------


def _queued(reader: StoreReader, view: JobView, story: tuple[Chapter, ...]) -> Explanation:
    scheduler = _scheduler(reader, view.row.partition)
    waiting = None if scheduler is None else scheduler.waiting(view.row.job_id)
    if scheduler is None or waiting is None or waiting.queue is None:
        return Explanation(view.row.job_id, "QUEUED", ("It waits in the queue.",), story)
    ahead = tuple(scheduler.ahead(view.row.job_id, AHEAD_SHOWN_MAX))
    lines = [line for line in explain_lines(waiting) if not line.startswith("It was number")]
    place = waiting.queue
    if place.before:
        lines.append(f"It is number {place.place} of class {place.priority}; {place.before} go before it.")
    else:
        lines.append(f"It is next: number {place.place} of class {place.priority}, and nobody goes before it.")
    if not scheduler.fleet:
        lines[0] = (
            "It waits for its turn."
            if place.before
            else "It waits for a worker: none has asked for work since it came."
        )
    return Explanation(view.row.job_id, "QUEUED", tuple(lines), story, waiting, ahead, place.before)


def _scheduler(reader: StoreReader, partition: int) -> Scheduler | None:
    queue = recover(reader, partition, KernelConfig(), make_queue=Scheduler).kernel.queue
    return queue if isinstance(queue, Scheduler) else None


def _now(reader: StoreReader, view: JobView, records: Sequence[RecordView]) -> tuple[str, ...]:
    job, times = view.job, view.times
    if job.state == "RUNNING":
        lines = [
            f"It runs on {job.lease_holder}, attempt {job.attempt_id + 1}.",
            f"Its lease holds until {times.iso(job.lease_expiry or 0)}; each sign of life from the worker extends it.",
        ]
        scheduler = _scheduler(reader, view.row.partition)
        due = None if scheduler is None else scheduler.deadline(job.job_id)
        if due is not None:
            lines.append(f"It is stopped at {times.iso(due.tick)} unless it ends before ({_words(due.code or '')}).")
        return tuple(lines)
    if job.state == "RETRYING":
        return tuple(_retrying(job, times, reader.head(view.row.partition).last_tick))
    last = records[-1].evidence if records else None
    lines = [f"It ended as {job.state}: {_words(job.reason_code or '')}."]
    if last is not None and last.category is not None:
        lines.append(f"The failure was a {last.category}.")
    if job.state == "FAILED":
        lines.append(_why_final(job, last))
    return tuple(lines)


def _retrying(job: Job, times: Times, tick: int) -> list[str]:
    ready = job.ready_tick or 0
    lines = [f"Attempt {job.attempt_id + 1} ended ({_words(job.reason_code or '')}), and it is tried again."]
    if tick < ready:
        lines.append(f"It goes back to the queue at {times.iso(ready)}.")
    else:
        lines.append("Its delay is over. It waits for room in the queue, ahead of every new job.")
    lines.append(f"It has failed {job.failures} times; {job.max_retries} retries are allowed.")
    return lines


def _why_final(job: Job, last: ev.Evidence | None) -> str:
    if last is not None and last.kind in {ev.WATCHDOG, ev.QUOTA}:
        return "A limit that was reached is reached again by trying again, so it is not retried."
    if job.failures >= job.max_retries and job.max_retries:
        return f"All {job.max_retries} retries are used up."
    if last is not None and last.category is not None and last.category not in job.retry_categories:
        return f"Only {', '.join(job.retry_categories) or 'no category'} is retried for this job."
    return "It is not retried."


# -- then --------------------------------------------------------------------------------------------------------------


def _chapter(record: RecordView, job: Job, content: Content) -> Chapter:
    fields, evidence = record.fields, record.evidence
    tick = record.tick or 0
    named = fields.get("decision_digest")
    if evidence is not None and evidence.names_decision:
        named = evidence.detail_digest
    decision = _decision(content, named)
    if record.row.kind == "submitted":
        what, why = "submitted", () if decision is None else tuple(explain_lines(decision))
    elif evidence is None:
        what, why = record.row.kind, ("`detent verify` says what is wrong with this record.",)
    else:
        what = f"{fields.get('from_state')} -> {fields.get('to_state')}"
        why = tuple(explain_lines(decision)) if decision is not None else tuple(_moved(fields, evidence, job))
    if decision is None and isinstance(named, bytes):
        why = (*why, "The decision record behind this is not stored here any more; `detent replay` makes it again.")
    return Chapter(
        tick,
        record.times.iso(tick),
        what,
        why,
        record.row.position,
        decision,
        named if isinstance(named, bytes) else None,
    )


def _moved(fields: dict[str, Any], evidence: ev.Evidence, job: Job) -> list[str]:
    """Why a transition without a decision record happened: its evidence says it."""
    words, to_state = _words(evidence.reason_code), fields.get("to_state")
    if evidence.kind == ev.DISPATCH:
        return [f"Given to {evidence.replica_id}."]
    if evidence.kind == ev.EXPIRY:
        return [f"No heartbeat came in time, so its worker counts as lost ({words}).", _follows(to_state, job)]
    if evidence.kind in ev.INTERRUPTIONS:
        return [f"It was interrupted by nobody's fault ({words}).", _follows(to_state, job)]
    if evidence.kind == ev.WATCHDOG:
        return [f"The watchdog stopped it ({words})."]
    if evidence.kind == ev.RETRY_READY:
        return ["Its delay is over and the queue has room: it stands at the end of its class again."]
    if evidence.kind == ev.CANCEL:
        return [f"Cancelled ({words})."]
    if evidence.kind == ev.QUOTA:
        return [f"Over its quota ({words})."]
    if to_state == "SUCCEEDED":
        return ["Its worker reported a result."]
    category = "" if evidence.category is None else f", {evidence.category}"
    return [f"Its worker reported a failure ({words}{category}).", _follows(to_state, job)]


def _follows(to_state: object, job: Job) -> str:
    if to_state == "RETRYING":
        return f"It is tried again; {job.max_retries} retries after failures are allowed."
    return "It is not tried again."


def _refusal(row: RefusalRow, times: Times) -> Chapter:
    diagnostics = _diagnostics(row)
    details = diagnostics.get("details")
    decision = _read_decision(details.get("decision")) if isinstance(details, dict) else None
    said = f"{diagnostics.get('message', 'The reason cannot be read')} ({row.code})."
    why = (said,) if decision is None else tuple(explain_lines(decision))
    return Chapter(row.tick, times.iso(row.tick), "refused", why, None, decision)


def _diagnostics(row: RefusalRow) -> dict[str, Any]:
    """What an entry of the decision log says; nothing when it cannot be read, for that log is not signed."""
    try:
        error = decode(row.body)
    except NotCanonical:
        return {}
    found = error.get("diagnostics") if isinstance(error, dict) else None
    return found if isinstance(found, dict) else {}


def _decision(content: Content, named: object) -> Decision | None:
    """The decision record that a record names, if it is still here and still is one."""
    try:
        return _read_decision(content.get(named)) if isinstance(named, bytes) else None
    except DetentError:
        return None


def _read_decision(data: object) -> Decision | None:
    try:
        return Decision.decode(data) if isinstance(data, bytes) else None
    except DetentError:
        return None


def _words(code: str) -> str:
    """A code with what the registry says of it."""
    entry = CODES.get(code)
    return code if entry is None else f"{code}: {entry.meaning}"


def _plain_map(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain_map(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_map(inner) for inner in value]
    return plain(value)
