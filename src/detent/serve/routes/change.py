"""Jobs, changed: cancelled, retried and erased, each with a record of who asked for it in the same commit."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

from pydantic import Field

from detent.access.headers import path_part
from detent.errors import DetentError, InvalidInput, Refused, RequestRefused, error_of
from detent.jobs.elements import split_element_id
from detent.kernel import Cancel, Command
from detent.kernel.table import OPEN, State
from detent.owner.views import JobView
from detent.runs.cancel import USER
from detent.runs.erase import erase_job
from detent.serve.audit import operated
from detent.serve.call import WHOLE, Answer, Call, Shape
from detent.serve.listing import JobFilter, Place
from detent.serve.paging import Id, JobState
from detent.serve.routes.jobs import JobSummary, summary
from detent.serve.routes.submit import SUBMITTING, JobTaken, taken
from detent.serve.submitting import Asker, Offered
from detent.serve.table import READING, Route
from detent.serve.tenant_reader import TenantReader
from detent.serve.writing import Writing
from detent.words.states import CANCELLED, kernel_name, word_of

CANCELLED_MAX: Final = 5_000
"""Jobs that one request cancels: they share a commit."""
PAGE_MAX: Final = 1_000
"""Jobs that are looked at in one read."""
LOOKED_AT_MAX: Final = 20_000
"""Open jobs that are looked at for a caller's own ones."""
JOBS_CANCEL: Final = "jobs:cancel"
Reason = Annotated[str, Field(min_length=1, max_length=1_000)]
"""Why, in words; it is kept with the record."""


class CancelAsked(Shape):
    """Why a job is cancelled."""

    reason: Reason | None = None
    transition_seq: Annotated[int, Field(ge=0, le=1 << 53), WHOLE] | None = None
    """Cancel only a job that still stands there: where the caller has seen it."""


class CancelMany(Shape):
    """Which open jobs to cancel, and how many of them the caller expects."""

    state: JobState | None = None
    """`queued`, `running` or `retrying`; without one, all that have not ended."""
    run: Id | None = None
    expected: Annotated[int, Field(ge=0, le=CANCELLED_MAX)]
    """How many jobs the caller has seen. More than that are not cancelled: something has changed meanwhile."""
    dry_run: bool = False
    reason: Reason | None = None


class CancelledMany(Shape):
    """What was cancelled, or would be."""

    matched: int
    cancelled: int
    dry_run: bool


class RetryAsked(Shape):
    """Nothing is asked for beside the retry itself."""


class EraseAsked(Shape):
    """Whether to say only what would go."""

    dry_run: bool = False


class ErasedJob(Shape):
    """What was erased of a job, or would be; its history stays."""

    job_id: str
    erased: int
    """Pieces of content: payload, reports, values, output and files."""
    already: int
    shared: int
    """Pieces that another job or run names, too; they stay."""
    size_bytes: int
    dry_run: bool


async def cancel_job(call: Call) -> Answer:
    """Cancel a job; once more is the same answer."""
    asked: CancelAsked = call.body
    view = await _own(call, CANCELLED)
    job_id, workspace = view.job.job_id, call.workspace
    if not call.may(JOBS_CANCEL) and not await _asked_by_caller(call, [job_id]):
        raise not_own(f"job {job_id}", JOBS_CANCEL)
    if view.job.state != State.CANCELED.value:
        _insist_on_open(view)

        def make() -> Writing:
            digest, inline = _reason(call, asked.reason)
            commands: list[Command] = [
                Cancel(0, workspace, job_id, USER, asked.transition_seq, digest),
                operated(call, "job.cancel", "job", job_id, reason=asked.reason),
            ]
            return Writing(commands=commands, content=inline)

        answer, *_ = await call.write(make)
        if answer.refusal is not None:
            raise _moved_on(job_id) if answer.refusal.code == "CONTRACT_VIOLATION" else _conflict(answer.refusal)
        view = await call.read(lambda reader: reader.job(workspace, job_id))
    return Answer(JobSummary.model_validate(summary(view)))


async def cancel_jobs(call: Call) -> Answer:
    """Cancel the open jobs that match, if they are no more than expected; all of them in one commit.

    A caller that may cancel its own jobs alone has no others that match.
    """
    asked: CancelMany = call.body
    workspace = call.workspace
    states = [kernel_name(asked.state)] if asked.state is not None else list(OPEN)
    if not set(states) <= set(OPEN):
        raise InvalidInput(
            f"jobs that are {asked.state} have ended", code="VALIDATION_ERROR", hint="name an open state"
        )
    found: list[str] = []
    for state in states:
        found += await _matching(call, JobFilter(state=state, run_id=asked.run), asked.expected + 1)
    if len(found) > asked.expected:
        raise RequestRefused(
            f"more than {asked.expected} jobs match",
            code="CONFLICT",
            hint="look again, then repeat the request with the number that you see",
        )
    if asked.dry_run or not found:
        return Answer(CancelledMany(matched=len(found), cancelled=0, dry_run=asked.dry_run))

    def make() -> Writing:
        digest, inline = _reason(call, asked.reason)
        cancels = [Cancel(0, workspace, job_id, USER, detail_digest=digest) for job_id in found]
        said = {"state": asked.state, "run": asked.run, "matched": len(found)}
        parameters = {name: value for name, value in said.items() if value is not None}
        record = operated(call, "job.cancel", "jobs", asked.run or "open", parameters=parameters, reason=asked.reason)
        return Writing(commands=[*cancels, record], content=inline)

    answers = await call.write(make)
    cancelled = sum(answer.refusal is None for answer in answers[: len(found)])
    return Answer(CancelledMany(matched=len(found), cancelled=cancelled, dry_run=False))


async def retry_job(call: Call) -> Answer:
    """Submit the work of an ended job again, as a new job that names it."""
    assert call.principal is not None
    asker = Asker(call.workspace, call.principal.principal_id, call.traceparent, call.logged_id)
    name = call.path["job_id"]
    view, element = await call.read(partial(_job_or_element, workspace=call.workspace, name=name))
    if view.job.state in OPEN:
        raise RequestRefused(f"job {name} has not ended", code="CONFLICT", hint="wait for it, or cancel it first")
    if element is None and view.job.state == State.SUCCEEDED.value:
        raise RequestRefused(f"job {name} succeeded; there is nothing to run again", code="CONFLICT")
    made: list[tuple[Offered, Answer]] = []

    def make() -> Writing:
        one = call.serving.submitting.again(asker, view.job.job_id, element)
        answer = Answer(
            taken(one).model_dump_json().encode(), 202, headers={"location": f"/v1/jobs/{path_part(one.job_id)}"}
        )
        made.append((one, answer))
        kept = [] if call.once is None else [call.once.row(answer, [one.job_id])]
        record = operated(call, "job.retry", "job", name, parameters={"job_id": one.job_id})
        return Writing([] if one.submission is None else [one.submission], [record], answers=kept)

    for decided in await call.write(make):
        if decided.refusal is not None:
            raise error_of(decided.refusal)
    return made[-1][1]


async def erase(call: Call) -> Answer:
    """Erase what a job was asked to do and what came of it; its history stays."""
    asked: EraseAsked = call.body
    view = await _own(call, "erased")
    job_id = view.job.job_id
    if view.job.state in OPEN:
        raise RequestRefused(f"job {job_id} has not ended", code="CONFLICT", hint="wait for it, or cancel it first")
    behind = [] if asked.dry_run else [operated(call, "job.erase", "job", job_id)]
    work = partial(erase_job, call.serving.home, job_id, environment=os.environ, dry_run=asked.dry_run, behind=behind)
    done = await call.serving.writer.run(work)
    return Answer(
        ErasedJob(
            job_id=job_id,
            erased=len(done.erased),
            already=len(done.already),
            shared=len(done.stays),
            size_bytes=done.size_bytes,
            dry_run=asked.dry_run,
        )
    )


async def _own(call: Call, done: str) -> JobView:
    """The job of the path; an element of one is not changed by itself."""
    name = call.path["job_id"]
    view, element = await call.read(partial(_job_or_element, workspace=call.workspace, name=name))
    if element is not None:
        raise RequestRefused(
            f"{name} is an element of job {view.job.job_id}, and a job is {done} as a whole",
            code="CONFLICT",
            hint=f"name the job: {view.job.job_id}",
        )
    return view


def _job_or_element(reader: TenantReader, *, workspace: str, name: str) -> tuple[JobView, int | None]:
    split = split_element_id(name)
    try:
        return reader.job(workspace, name), None
    except InvalidInput:
        if split is None:
            raise
    return reader.job(workspace, split[0]), split[1]


async def _matching(call: Call, wanted: JobFilter, limit: int) -> list[str]:
    """The newest jobs that match and that the caller may cancel, at most so many."""
    found: list[str] = []
    place, looked_at = None, 0
    while len(found) < limit:
        page, place = await call.read(
            partial(_page_of, workspace=call.workspace, wanted=wanted, place=place, limit=min(limit, PAGE_MAX))
        )
        found += page if call.may(JOBS_CANCEL) else await _asked_by_caller(call, page)
        looked_at += len(page)
        if place is None:
            break
        if looked_at > LOOKED_AT_MAX:
            raise RequestRefused(
                f"more than {LOOKED_AT_MAX:,} open jobs of the workspace have to be looked at",
                code="CONFLICT",
                hint="name a run, or cancel jobs one by one",
            )
    return found


def _page_of(
    reader: TenantReader, *, workspace: str, wanted: JobFilter, place: Place | None, limit: int
) -> tuple[list[str], Place | None]:
    views, following = reader.jobs(workspace, wanted, place, limit)
    return [view.job.job_id for view in views], following


async def _asked_by_caller(call: Call, job_ids: list[str]) -> list[str]:
    """Those of these jobs that the caller itself submitted."""
    assert call.principal is not None
    workspace, principal_id = call.workspace, call.principal.principal_id
    return await call.read(lambda reader: reader.jobs_asked_by(workspace, job_ids, principal_id))


def not_own(what: str, scope: str) -> RequestRefused:
    """The refusal of a caller that may cancel what it submitted itself, and nothing else."""
    return RequestRefused(
        f"{what} was submitted by another principal, and the credential lacks the scope {scope}",
        code="FORBIDDEN",
        hint="ask for a key of the role operator, which may cancel everything in its workspace",
    )


def _reason(call: Call, reason: str | None) -> tuple[bytes | None, tuple[tuple[bytes, bytes], ...]]:
    if reason is None:
        return None, ()
    return call.serving.submitting.backend.sealed({"reason": reason}, name="reason")


def _insist_on_open(view: JobView) -> None:
    if view.job.terminal:
        error = _moved_on(view.job.job_id, word_of(view.job.state))
        error.details |= {
            "stored_transition_seq": view.job.transition_seq,
            "committed_state": word_of(view.job.state),
        }
        raise error


def _conflict(refusal: Refused) -> DetentError:
    """A refusal of the kernel in the words of the API."""
    details = dict(refusal.details)
    if "committed_state" in details:
        details["committed_state"] = word_of(str(details["committed_state"]))
    return error_of(replace(refusal, details=details), hint="read the job again, and decide by what it says then")


def _moved_on(job_id: str, state: str = "over") -> RequestRefused:
    return RequestRefused(
        f"job {job_id} has ended: {state}", code="CONFLICT", hint=f"GET /v1/jobs/{path_part(job_id)} shows it"
    )


ROUTES: Final = (
    Route(
        "POST",
        "/v1/jobs/{job_id}/cancel",
        cancel_job,
        "Cancel a job.",
        JOBS_CANCEL,
        ("UNKNOWN_JOB", "CONFLICT", "OUTCOME_UNKNOWN", "INBOX_FULL", *READING),
        {200: JobSummary},
        body=CancelAsked,
        audited=True,
        action="job.cancel",
    ),
    Route(
        "POST",
        "/v1/jobs:cancel",
        cancel_jobs,
        "Cancel the open jobs that match a filter, all in one commit.",
        JOBS_CANCEL,
        ("CONFLICT", *READING),
        {200: CancelledMany},
        body=CancelMany,
        idempotent=True,
        audited=True,
        action="job.cancel",
    ),
    Route(
        "POST",
        "/v1/jobs/{job_id}/retry",
        retry_job,
        "Submit the work of an ended job again.",
        "jobs:write",
        ("UNKNOWN_JOB", "CONTENT_GONE", *READING, *SUBMITTING),
        {202: JobTaken},
        body=RetryAsked,
        idempotent=True,
        audited=True,
        action="job.retry",
    ),
    Route(
        "POST",
        "/v1/jobs/{job_id}/erase",
        erase,
        "Erase what a job was asked to do and what came of it; its history stays.",
        "server:admin",
        ("UNKNOWN_JOB", "CONFLICT", "INVALID_PARAMS", "OUTCOME_UNKNOWN", "INBOX_FULL", *READING),
        {200: ErasedJob},
        body=EraseAsked,
        audited=True,
        action="job.erase",
    ),
)
