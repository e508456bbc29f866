"""Jobs, read: lists, one job, and everything that is known about it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from detent.access.cursor import read_cursor, write_cursor
from detent.access.headers import matches, weak_tag
from detent.canon import digest_text, tick_to_iso
from detent.errors import InvalidInput
from detent.inspect.logs import AttemptLog
from detent.jobs.platform_order import requested_by
from detent.jobs.status import project_job
from detent.jobs.work import Usage
from detent.owner.views import JobView
from detent.serve.call import Answer, Call, Shape
from detent.serve.listing import JobFilter, Place
from detent.serve.paging import (
    LIMIT,
    NDJSON,
    Cursor,
    Id,
    JobId,
    JobState,
    Limit,
    Moment,
    Prefix,
    moment_ms,
    whole_listing,
)
from detent.serve.records import LedgerRecord, record_of
from detent.serve.table import READING, Route
from detent.serve.tenant_reader import JobFacts
from detent.serve.waiting import Wait, until_ended
from detent.words.states import kernel_name, word_of

IDS_MAX: Final = 500
LOG_BYTES_MAX: Final = 1024 * 1024
MATCHES_MAX: Final = 500
"""Lines that a search in a log gives at once."""


class JobSummary(Shape):
    """A job as it stands, without what it was asked to do and without its result."""

    job_id: str
    run_id: str | None
    status: str
    """As the platform shows it: `queued`, `running`, `succeeded`, `failed`, `timed_out` or `cancelled`."""
    detail: str | None
    """`retrying`: its last attempt is over and its next one has not begun."""
    state: str
    """As the ledger has it: `queued`, `running`, `retrying`, `succeeded`, `failed` or `cancelled`."""
    reason_code: str | None
    attempt: int | None
    """Counted from 1; null for a job that no worker ever had."""
    transition_seq: int
    priority: int
    submitted_at: str
    changed_at: str


class JobError(Shape):
    """Why a job's last attempt failed."""

    category: str
    code: str
    message: str
    type: str | None
    traceback: str | None


class JobDetail(JobSummary):
    """A job with its times, its attempts and its result."""

    kind: str
    """`action`, `task`, `platform`, or what its submitter called it."""
    label: str | None
    """What it does, by name; null when that was erased."""
    step: str | None
    index: int | None
    """Its place in the list that a mapped step goes through."""
    retry_of: str | None
    requested_by: str | None
    """The principal, or the user, on whose behalf it was submitted; null for the home's own user, and when that was erased."""
    attempts: int
    failures: int
    interruptions: int
    max_retries: int
    first_started_at: str | None
    started_at: str | None
    finished_at: str | None
    queue_time_ms: int | None
    waited_ms: int
    ran_ms: int
    worker: str | None
    value: JsonValue
    """What a function returned; null when it is larger than 1 MiB, erased, or not there."""
    value_digest: str | None
    result: JsonValue
    """The signed result of a platform job, without addresses of the store."""
    error: JobError | None


class JobQuery(Shape):
    """Whether to wait for its end."""

    wait: Wait = 0


class JobsQuery(Shape):
    """Which jobs, and where to go on."""

    state: JobState | None = None
    run: Id | None = None
    label: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    """What they do, by name: `workflow/step`, or the function's name, or the label they were submitted with."""
    pool: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    """The pool of workers that they asked for."""
    q: Prefix | None = None
    """The beginning of their ids; listed by id then."""
    worker: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The worker that has them, with `state=running`."""
    since: Moment | None = None
    """Submitted then or later."""
    until: Moment | None = None
    """Submitted before."""
    limit: Limit = LIMIT
    cursor: Cursor | None = None


class JobsPage(Shape):
    """Jobs as they were submitted, newest first."""

    items: list[JobSummary]
    next: str | None
    """The cursor of the following page; null on the last one."""


class JobIds(Shape):
    """The jobs that are asked about."""

    job_ids: Annotated[list[JobId], Field(min_length=1, max_length=IDS_MAX)]


class JobsFound(Shape):
    """Those that exist in this workspace, in the order asked."""

    items: list[JobSummary]


class AttemptUsage(Shape):
    """What an attempt used, as its report says."""

    cpu_ms: int
    memory_bytes_peak: int
    io_bytes_read: int
    io_bytes_written: int
    gpu_ms: int | None
    unmeasured: list[str]
    """The amounts that could not be measured where it ran; they are 0 for that reason alone."""


class Attempt(Shape):
    """One attempt at a job."""

    attempt: int
    running: bool
    status: str | None
    reason_code: str | None
    report: str | None
    """`here`, `erased`, `absent` or `damaged`; null when none was made."""
    report_digest: str | None
    """That of the signed report, which the record of the attempt's end names."""
    signer: str | None
    """The id of the key that signed the report, in hexadecimal; null when the report is not here."""
    worker: str | None
    lease_id: str | None
    """The lease under which it ran, in hexadecimal."""
    started_at: str | None
    finished_at: str | None
    waited_ms: int | None
    ran_ms: int | None
    usage: AttemptUsage | None
    stdout_bytes: int
    stderr_bytes: int


class Attempts(Shape):
    """Every attempt at a job, oldest first."""

    items: list[Attempt]


class LogQuery(Shape):
    """Which part of the output."""

    attempt: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    stream: Literal["stdout", "stderr"] = "stdout"
    offset: Annotated[int, Field(ge=0, le=1 << 53)] = 0
    limit: Annotated[int, Field(ge=1, le=LOG_BYTES_MAX)] = LOG_BYTES_MAX
    q: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Only the lines that have this text, from `offset` on; `Detent-Log-Offsets` says where each begins."""


class JobRecords(Shape):
    """A job's records on the ledger, in order."""

    items: list[LedgerRecord]


class JobExplanation(Shape):
    """Why a job is where it is, and how it came there."""

    job_id: str
    state: str | None
    as_of: str
    """The moment of the ledger's last entry."""
    now: list[str]
    """Where it stands, in sentences."""
    waiting: JsonValue
    head: JsonValue
    ahead: list[str]
    """Jobs of this workspace that are before it in the queue."""
    ahead_total: int
    """How many jobs are before it, of all workspaces."""
    story: list[JsonValue]
    reuse: JsonValue
    reason: str | None
    resources: JsonValue
    limits: JsonValue
    ledger: JsonValue


def summary_of(view: JobView) -> JobSummary:
    """What lists show of a job, as a document."""
    return JobSummary.model_validate(summary(view))


def summary(view: JobView) -> dict[str, object]:
    """What lists show of a job."""
    shown = project_job(view.job)
    return {
        "job_id": view.row.job_id,
        "run_id": view.row.run_id,
        "status": word_of(shown.status),
        "detail": shown.detail,
        "state": word_of(view.row.state),
        "reason_code": view.job.reason_code,
        "attempt": view.attempt,
        "transition_seq": view.row.transition_seq,
        "priority": view.job.priority,
        "submitted_at": view.times.iso(view.job.submitted_tick),
        "changed_at": view.times.iso(view.row.tick),
    }


def _detail(facts: JobFacts) -> JobDetail:
    view, job, order, report, told = facts.view, facts.view.job, facts.order, facts.report, facts.told
    times = {} if told is None else told.answer(tick_ms=view.times.tick_ms, epoch_base_ms=view.times.epoch_base_ms)
    named = ("first_started_at", "started_at", "finished_at", "queue_time_ms")
    failure = None if report is None else report.result.failure
    origin = None if order is None else order.origin
    return JobDetail.model_validate(
        {
            **summary(view),
            **{name: times.get(name) for name in named},
            "kind": job.job_kind,
            "label": None if order is None else order.label,
            "step": None if origin is None else origin.step,
            "index": None if origin is None else origin.index,
            "retry_of": None if origin is None else origin.retry_of,
            "requested_by": None if facts.order is None else requested_by(facts.order),
            "attempts": len(facts.attempts),
            "failures": job.failures,
            "interruptions": job.interruptions,
            "max_retries": job.max_retries,
            "waited_ms": facts.waited_ms,
            "ran_ms": facts.ran_ms,
            "worker": job.lease_holder or (None if report is None else report.worker or None),
            "value": facts.value,
            "value_digest": None if report is None or report.value_digest is None else digest_text(report.value_digest),
            "result": None if facts.result is None else dict(facts.result),
            "error": None
            if failure is None
            else {name: getattr(failure, name) for name in ("category", "code", "message", "type", "traceback")},
        }
    )


def job_tag(view: JobView) -> str:
    """The entity tag of a job: it changes with every record of it."""
    return weak_tag(view.row.job_id, view.row.transition_seq)


async def _list(call: Call) -> Answer:
    query: JobsQuery = call.query
    filters = {
        name: getattr(query, name) for name in ("state", "run", "label", "pool", "q", "worker", "since", "until")
    }
    place = None
    if query.cursor is not None:
        place = read_cursor(query.cursor, "/v1/jobs", filters, (int if query.q is None else str,))
    wanted = JobFilter(
        None if query.state is None else kernel_name(query.state),
        *(query.run, query.label, query.pool, query.q, query.worker),
        *(moment_ms(query.since), moment_ms(query.until)),
    )
    wanted.insist_on_index()
    shown = call.serving.shown_jobs.of

    async def page(at: Place | None, limit: int) -> tuple[list[JobView], Place | None]:
        return await call.read(lambda reader: reader.jobs(call.workspace, wanted, at, limit))

    if call.media_type == NDJSON:
        return whole_listing(page, place, shown)
    found, behind = await page(place, query.limit)
    following = None if behind is None else write_cursor("/v1/jobs", filters, behind)
    return Answer(JobsPage.model_construct(items=[shown(view) for view in found], next=following))


async def _some(call: Call) -> Answer:
    body: JobIds = call.body
    found = await call.read(lambda reader: reader.jobs_of(call.workspace, body.job_ids))
    return Answer(JobsFound.model_construct(items=[call.serving.shown_jobs.of(view) for view in found]))


async def _one(call: Call) -> Answer:
    query: JobQuery = call.query
    job_id, known = call.path["job_id"], call.serving.ended_jobs
    if call.if_none_match is not None:
        # A caller that asks again for a job that has ended costs a row at most, and not its report and its records.
        tag = known.tag(call.workspace, job_id) or await _tag_if_ended(call, job_id)
        if tag is not None and matches(call.if_none_match, tag):
            return Answer(None, tag=tag)
    facts = await until_ended(
        call.serving.hub,
        "job",
        job_id,
        query.wait,
        lambda: call.read(lambda reader: reader.detail(call.workspace, job_id)),
        lambda found: found.view.job.terminal,
    )
    # While it runs its times go on, so only a job that has ended stays the same.
    return Answer(_detail(facts), tag=job_tag(facts.view) if facts.view.job.terminal else None)


async def _tag_if_ended(call: Call, job_id: str) -> str | None:
    """The tag of a job that has ended, for this request and the next ones; None for one that has not."""
    view = await call.read(lambda reader: reader.job(call.workspace, job_id))
    if not view.job.terminal:
        return None
    call.serving.ended_jobs.ended(call.workspace, job_id, job_tag(view))
    return job_tag(view)


async def _attempts(call: Call) -> Answer:
    view, found = await call.read(lambda reader: reader.attempts(call.workspace, call.path["job_id"]))
    return Answer(Attempts(items=[_attempt(one) for one in found]), tag=job_tag(view))


def _attempt(one: AttemptLog) -> Attempt:
    return Attempt(
        attempt=one.number,
        running=one.running,
        status=None if one.status is None else word_of(one.status),
        reason_code=one.reason_code,
        report=one.fate,
        report_digest=None if one.report_digest is None else digest_text(one.report_digest),
        signer=None if one.signer is None else one.signer.hex(),
        worker=one.worker or None,
        lease_id=None if one.lease_id is None else one.lease_id.hex(),
        started_at=None if one.started_ms is None else tick_to_iso(one.started_ms, 1, 0),
        finished_at=None if one.finished_ms is None else tick_to_iso(one.finished_ms, 1, 0),
        waited_ms=one.waited_ms,
        ran_ms=one.ran_ms,
        usage=None if one.usage is None else _usage(one.usage),
        stdout_bytes=len(one.stdout.data),
        stderr_bytes=len(one.stderr.data),
    )


def _usage(used: Usage) -> AttemptUsage:
    return AttemptUsage(
        cpu_ms=used.cpu_ms,
        memory_bytes_peak=used.memory_bytes_peak,
        io_bytes_read=used.io_bytes_read,
        io_bytes_written=used.io_bytes_written,
        gpu_ms=used.gpu_ms,
        unmeasured=list(used.unmeasured),
    )


def lines_with(data: bytes, text: bytes, offset: int, size_max: int) -> tuple[bytes, list[int], int]:
    """Lines that have a text, from an offset on: the lines, where each begins, and where to go on.

    Ends before the line that would be too much; the first one is given whole, however long it is.
    """
    lines: list[bytes] = []
    offsets: list[int] = []
    size, place = 0, min(offset, len(data))
    while (found := data.find(text, place)) >= 0:
        first = max(data.rfind(b"\n", 0, found) + 1, place)
        end = data.find(b"\n", found + len(text))
        stop = len(data) if end < 0 else end + 1
        if offsets and (size + stop - first > size_max or len(offsets) == MATCHES_MAX):
            return b"".join(lines), offsets, place
        lines.append(data[first:stop])
        offsets.append(first)
        size, place = size + stop - first, stop
    return b"".join(lines), offsets, len(data)


async def _log(call: Call) -> Answer:
    query: LogQuery = call.query
    await call.serving.turns.watch_first(call.workspace, [call.path["job_id"]])
    log = await call.read(lambda reader: reader.log(call.workspace, call.path["job_id"]))
    number = query.attempt or len(log.attempts)
    if number > len(log.attempts) or (not log.attempts and query.attempt is not None):
        raise InvalidInput(
            f"the job has had {len(log.attempts)} attempts",
            code="VALIDATION_ERROR",
            details={"errors": [{"path": "query.attempt", "message": "there is no such attempt"}]},
        )
    attempt = log.attempts[number - 1] if log.attempts else AttemptLog(0, running=not log.ended)
    stream = attempt.stream(query.stream)
    offsets: list[int] | None = None
    if query.q is None:
        piece = stream.data[query.offset : query.offset + query.limit]
        following = min(query.offset, len(stream.data)) + len(piece)
    else:
        piece, offsets, following = lines_with(stream.data, query.q.encode(), query.offset, query.limit)
    over = not attempt.running and following == len(stream.data)
    headers = {
        "detent-log-attempt": str(number),
        "detent-log-next": str(following),
        "detent-log-end": "true" if over else "false",
        "detent-log-truncated": "true" if stream.truncated else "false",
        "detent-log-content": stream.fate if attempt.fate in {None, "here"} else attempt.fate,
    }
    if offsets is not None:
        headers["detent-log-offsets"] = ",".join(map(str, offsets))
    return Answer(piece, headers=headers)


async def _explain(call: Call) -> Answer:
    found = await call.read(lambda reader: reader.explain_job(call.workspace, call.path["job_id"]))
    return Answer(JobExplanation.model_validate(found))


async def _records(call: Call) -> Answer:
    view, found = await call.read(lambda reader: reader.job_records(call.workspace, call.path["job_id"]))
    return Answer(JobRecords(items=[record_of(one) for one in found]), tag=job_tag(view))


_OWN: Final = ("UNKNOWN_JOB", *READING)
ROUTES: Final = (
    Route(
        "GET",
        "/v1/jobs",
        _list,
        "List jobs, newest first.",
        "jobs:read",
        READING,
        {200: JobsPage},
        query=JobsQuery,
        also=(NDJSON,),
        pages=True,
    ),
    Route(
        "POST",
        "/v1/jobs:read",
        _some,
        "Read many jobs at once.",
        "jobs:read",
        READING,
        {200: JobsFound},
        body=JobIds,
        body_bytes_max=256 * 1024,
    ),
    Route(
        "GET",
        "/v1/jobs/{job_id}",
        _one,
        "Read a job; with `wait`, when it has ended or the time is over.",
        "jobs:read",
        _OWN,
        {200: JobDetail},
        query=JobQuery,
        etag=True,
    ),
    Route(
        "GET",
        "/v1/jobs/{job_id}/attempts",
        _attempts,
        "List the attempts at a job.",
        "jobs:read",
        _OWN,
        {200: Attempts},
        etag=True,
    ),
    Route(
        "GET",
        "/v1/jobs/{job_id}/logs",
        _log,
        "Read what a job printed, also while it runs; `Detent-Log-Next` is the offset to go on from.",
        "logs:read",
        _OWN,
        query=LogQuery,
        media_type="text/plain; charset=utf-8",
    ),
    Route(
        "GET",
        "/v1/jobs/{job_id}/explain",
        _explain,
        "Explain why a job waited, ran, was retried or failed.",
        "jobs:read",
        _OWN,
        {200: JobExplanation},
    ),
    Route(
        "GET",
        "/v1/jobs/{job_id}/records",
        _records,
        "List a job's records on the ledger.",
        "jobs:read",
        _OWN,
        {200: JobRecords},
        etag=True,
    ),
)
