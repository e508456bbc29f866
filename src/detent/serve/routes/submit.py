"""Jobs, submitted: a platform job by its payload, or a call of a function by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, model_validator

from detent.access.headers import path_part
from detent.canon.grammar import AMOUNT_MAX, LABEL, LABELS_MAX, RESOURCES_MAX
from detent.errors import RequestRefused
from detent.runs.platform_jobs import JobOptions, SubmittedJob
from detent.serve.budgets import headers_of, name_of, paid_by
from detent.serve.call import Answer, Call, Shape
from detent.serve.paging import Id
from detent.serve.submitting import Asker, Offered, TaskAsked, content_named
from detent.serve.table import READING, Route
from detent.serve.waiting import Wait
from detent.serve.writing import Writing

BODY_BYTES: Final = 16 * 1024 * 1024
ARGUMENTS_MAX: Final = 1_000
RETRIES_MAX: Final = 1_000
DURATION_MS_MAX: Final = 366 * 86_400_000
MEMORY_MB_MAX: Final = 16 * 1024 * 1024
LABEL_CHARS_MAX: Final = 200
SALT_CHARS_MAX: Final = 200


Resource = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Label = Annotated[str, Field(pattern=f"^{LABEL.pattern}$")]
Amount = Annotated[int, Field(ge=1, le=AMOUNT_MAX)]
Keyword = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,199}$")]


class Task(Shape):
    """A call of a function of the code on the server's side."""

    target: Annotated[str, Field(min_length=3, max_length=500)]
    """`module:function` or `path/file.py:function`, from the project that the server was started with."""
    arguments: Annotated[list[JsonValue], Field(default_factory=list, max_length=ARGUMENTS_MAX)]
    """Plain JSON; `{"$result": JOB}` stands for the result of a job of this workspace."""
    keywords: Annotated[dict[Keyword, JsonValue], Field(default_factory=dict, max_length=ARGUMENTS_MAX)]
    label: Annotated[str, Field(min_length=1, max_length=LABEL_CHARS_MAX)] | None = None
    """Names the work for people; without one it is called like its target."""
    priority: Literal["low", "normal", "high"] = "normal"
    retries: Annotated[int, Field(ge=0, le=RETRIES_MAX)] | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=DURATION_MS_MAX)] | None = None
    memory_mb: Annotated[int, Field(ge=1, le=MEMORY_MB_MAX)] | None = None
    resources: Annotated[dict[Resource, Amount], Field(default_factory=dict, max_length=RESOURCES_MAX)]
    """What one attempt takes of what the home, or a worker elsewhere, has, such as `{"gpu": 1}`."""
    pool: Label | None = None
    """The pool of workers that may take it. Left out: any worker."""
    labels: Annotated[list[Label], Field(default_factory=list, max_length=LABELS_MAX)]
    """What its worker must be."""
    quota: str | None = None
    lease: str | None = None
    backoff: str | None = None
    version: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Your own word for "the code is the same"."""
    reuse: bool = False
    """Whether an earlier result of the same call, or equal work under way, may answer."""
    salt: Annotated[str, Field(min_length=1, max_length=SALT_CHARS_MAX)] | None = None
    """Part of what makes calls the same: only results under the same salt answer."""

    def asked(self) -> TaskAsked:
        """As it is prepared."""
        named = {"quota": self.quota, "lease": self.lease, "backoff": self.backoff}
        return TaskAsked(
            self.target,
            self.arguments,
            self.keywords,
            self.label,
            self.priority,
            self.retries,
            None,
            self.timeout_ms,
            self.memory_mb,
            self.resources,
            {name: value for name, value in named.items() if value is not None},
            self.version,
            self.reuse,
            self.pool,
            tuple(self.labels),
            self.salt,
        )


class Placed(Shape):
    """Where a payload may run, and what it takes there."""

    pool: Label | None = None
    """The pool of workers that may take it. Left out: any worker."""
    labels: Annotated[list[Label], Field(default_factory=list, max_length=LABELS_MAX)]
    """What its worker must be."""
    resources: Annotated[dict[Resource, Amount], Field(default_factory=dict, max_length=RESOURCES_MAX)]
    """What one attempt takes of what the home, or a worker elsewhere, has, such as `{"gpu": 1}`."""


class Paid(Shape):
    """The session that pays for a job, and the most that the job may take from each of its budgets."""

    session_id: Id
    tokens: Annotated[int, Field(ge=0, le=1 << 53)] | None = None
    time_ms: Annotated[int, Field(ge=0, le=1 << 53)] | None = None
    cost: Annotated[int, Field(ge=0, le=1 << 53)] | None = None


class JobAsked(Shape):
    """A job to submit: exactly one of a payload and a task."""

    payload: dict[str, JsonValue] | None = None
    """A platform job, as docs/jobs.md describes it, without a job_id."""
    place: Placed | None = None
    """Where a payload may run; a task says it itself."""
    task: Task | None = None
    reuse_failed: bool = False
    """Whether an earlier failure of the same payload answers, too."""
    in_flight: Literal["new", "join"] = "new"
    """Whether an equal payload that is under way answers (`join`)."""
    paid_by: Paid | None = None
    """A session whose budgets cover the job."""

    @model_validator(mode="after")
    def _exactly_one(self) -> JobAsked:
        if (self.payload is None) == (self.task is None):
            raise ValueError("give exactly one of payload and task")
        if self.place is not None and self.payload is None:
            raise ValueError("place is for a payload; write pool, labels and resources into the task")
        return self


class SubmitQuery(Shape):
    """How long to wait for room in a full queue, in seconds."""

    wait: Wait = 0


class JobLinks(Shape):
    """Where to go on."""

    self: str
    events: str


class PlatformTaken(Shape):
    """What a payload stands for."""

    job_type: str
    workspace_id: str
    user_id: str
    """The principal that asked."""
    execution_key: str
    """Equal for equal work."""
    plan: str
    """The name of the plan that the payload was held to."""


class JobTaken(Shape):
    """The job that does the work, or did it before."""

    job_id: str
    status: str
    deduplicated: bool
    """Whether it was submitted before."""
    created_at: str
    links: JobLinks
    platform: PlatformTaken | None
    """Null for a call of a function."""


async def post_job(call: Call) -> Answer:
    """Submit one job; it is durable when this answers."""
    asked: JobAsked = call.body
    insist_on_scope(call, asked)
    await insist_on_content(call, asked)
    if asked.paid_by is not None:
        await call.serving.budgets.left(call.workspace, asked.paid_by.session_id)
    made: list[tuple[Offered, Answer]] = []

    def make() -> Writing:
        one = offer(call, asked)
        answer = Answer(
            taken(one).model_dump_json().encode(),
            200 if one.deduplicated else 202,
            headers={"location": f"/v1/jobs/{path_part(one.job_id)}"},
        )
        made.append((one, answer))
        kept = [] if call.once is None else [call.once.row(answer, [one.job_id])]
        return Writing([] if one.submission is None else [one.submission], answers=kept)

    room = call.serving.hub.room
    for decided in await room.admitted(call.query.wait, lambda: call.write(make)):
        if decided.refusal is not None:
            raise room.refusal_of(decided.refusal)
    one, answer = made[-1]
    if asked.paid_by is not None:
        left = await call.serving.budgets.left(call.workspace, asked.paid_by.session_id)
        answer = replace(answer, headers={**answer.headers, **headers_of(left)})
    if one.payload is not None and call.serving.submitting.supersedes:
        payload = one.payload
        await call.serving.writer.run(lambda: call.serving.submitting.supersede(payload))
    return answer


def offer(call: Call, asked: JobAsked, job_id: str | None = None) -> Offered:
    """Prepare one job; on the writing thread."""
    assert call.principal is not None
    asker = Asker(call.workspace, call.principal.principal_id, call.traceparent, call.logged_id)
    submitting = call.serving.submitting
    if job_id is None:
        job_id = submitting.backend.new_job_id(payer_of(call, asked))
    if asked.payload is not None:
        options = JobOptions(reuse_failed=asked.reuse_failed, in_flight_policy=asked.in_flight)
        if (place := asked.place) is not None:
            options = replace(options, pool=place.pool, labels=tuple(place.labels), resources=place.resources)
        one = submitting.payload(asker, asked.payload, options, job_id)
    else:
        assert asked.task is not None
        one = submitting.task(asker, asked.task.asked(), job_id)
    if asked.paid_by is not None and one.submission is not None:
        one.submission.request = paid_by(
            call.workspace, asked.paid_by.session_id, asked.paid_by.model_dump(), one.submission.request
        )
    return one


def payer_of(call: Call, asked: JobAsked) -> str | None:
    """The session that pays for a job, as the scheduler calls it: the job has to lie in its partition (X-030)."""
    return None if asked.paid_by is None else name_of(call.workspace, asked.paid_by.session_id)


def taken(one: Offered) -> JobTaken:
    """What a caller gets for a job."""
    part = path_part(one.job_id)
    links = JobLinks(self=f"/v1/jobs/{part}", events=f"/v1/events?topics=job:{part}")
    return JobTaken(
        job_id=one.job_id,
        status=one.status,
        deduplicated=one.deduplicated,
        created_at=one.created_at,
        links=links,
        platform=None if one.platform is None else _platform(one.platform),
    )


def _platform(told: SubmittedJob) -> PlatformTaken:
    return PlatformTaken.model_validate({name: getattr(told, name) for name in PlatformTaken.model_fields})


def insist_on_scope(call: Call, asked: JobAsked) -> None:
    """Refuse a function to a credential that may submit sandboxed jobs alone."""
    if asked.task is not None and call.principal is not None and not call.principal.may("tasks:write"):
        raise RequestRefused(
            "a task runs with the rights of a worker, and the credential lacks the scope tasks:write",
            code="FORBIDDEN",
            hint="submit a payload, which runs in the sandbox, or use a key with tasks:write",
        )


async def insist_on_content(call: Call, asked: JobAsked) -> None:
    """Refuse a job that names content which its workspace does not have."""
    for digest, path in content_named(asked.payload, None if asked.task is None else asked.task.asked()):
        await call.serving.uploads.insist_on_known(call.workspace, [digest], path)


SUBMITTING: Final = (
    *(
        "QUEUE_FULL",
        "LIMIT_TENANT",
        "WORKSPACE_MISMATCH",
        "CONTENT_UNKNOWN",
        "PLAN_EXCEEDED",
        "NO_FEASIBLE_POOL",
        "POOL_UNREADY",
    ),
    *(
        "POLICY_UNKNOWN",
        "SESSION_BUDGET_EXCEEDED",
        "CTX_TOO_LONG",
        "NOT_FOUND",
        "TOKEN_BUDGET_EXCEEDED",
        "INVALID_PARAMS",
    ),
    *("CONFLICT", "INBOX_FULL", "OUTCOME_UNKNOWN"),
)
"""The codes of every route that submits jobs."""

ROUTES: Final = (
    Route(
        "POST",
        "/v1/jobs",
        post_job,
        "Submit a platform job or a call of a function.",
        "jobs:write",
        (*READING, *SUBMITTING),
        {202: JobTaken, 200: JobTaken},
        query=SubmitQuery,
        body=JobAsked,
        body_bytes_max=BODY_BYTES,
        idempotent=True,
    ),
)
