"""From a request to a job: what a server checks, completes and compares before anything is written.

A payload is checked whole and held to the plan of its workspace, as every way to submit one does it. A task names a function of the
code on the server's side; nothing of it is imported here, its key is made by reading the source. The principal that asks is
part of what is signed: `requested_by` of the payload or of the order. The workspace is the credential's, whatever a body says.

For the writing thread alone: the readers of code and files are for one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from detent.canon import parse_digest, tick_to_iso
from detent.canon.grammar import PRIORITY_NAMES
from detent.contract.words import python_target_fault
from detent.errors import DetentError, InvalidInput, RequestRefused
from detent.jobs.elements import split_element_id
from detent.jobs.fields import EnvelopeInvalid
from detent.jobs.order import Call, JobLimits, Retries
from detent.jobs.payload import JobPayload
from detent.jobs.plans import Plan
from detent.jobs.platform_order import repeated
from detent.jobs.status import project_job
from detent.jobs.values import result_name
from detent.kernel import Job
from detent.kernel.manifest import PLATFORM
from detent.owner.backend import Backend, Submission
from detent.reuse.work_keys import Found, Miss
from detent.runs.platform_jobs import JobOptions, PlatformJobs, SubmittedJob, placed_as
from detent.runs.retry import order_again
from detent.runs.runtime import Runtime
from detent.runs.submit.calls import Calls, JobRequest
from detent.serve.values import files_in, received
from detent.words.states import QUEUED, word_of

WALL_BY: Final = "timeout_ms of the request"
MEMORY_BY: Final = "memory_mb of the request"
WORKSPACES_KNOWN_MAX: Final = 1_000
"""Workspaces whose helpers are kept; more of them are made again."""
DATASETS: Final = ("inputs", "object", "dependencies")


@dataclass(frozen=True, slots=True)
class Asker:
    """On whose behalf a job is submitted."""

    workspace: str
    principal_id: str
    traceparent: str | None = None
    """The trace of the request."""
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskAsked:
    """A call of a function, as a request says it."""

    target: str
    arguments: list[Any]
    keywords: dict[str, Any]
    label: str | None
    priority: Literal["low", "normal", "high"]
    retries: int | None
    retry_on: tuple[str, ...] | None
    timeout_ms: int | None
    memory_mb: int | None
    resources: Mapping[str, int]
    policies: Mapping[str, str]
    version: str | None
    reuse: bool
    pool: str | None = None
    labels: tuple[str, ...] = ()
    salt: str | None = None


@dataclass(frozen=True, slots=True)
class Offered:
    """One job of a request: a new one, or an earlier one that answers for it."""

    job_id: str
    status: str
    created_at: str
    submission: Submission | None
    """None: an earlier job answers."""
    payload: JobPayload | None = None
    """Of a new platform job."""
    platform: SubmittedJob | None = None
    """Of a platform job: what is told of its payload."""

    @property
    def deduplicated(self) -> bool:
        """Whether an earlier job answers."""
        return self.submission is None


class Submitting:
    """Prepares the jobs of all workspaces of one server."""

    def __init__(self, work: Runtime, project: Path, plan_of: Callable[[str], tuple[str, Plan]]) -> None:
        self._work, self._project = work, str(project)
        self._platform = PlatformJobs(work, plan_of)
        self._calls: dict[str, Calls] = {}

    @property
    def backend(self) -> Backend:
        """The backend that all workspaces share."""
        return self._work.backend

    def payload(
        self, asker: Asker, document: Mapping[str, Any], options: JobOptions, job_id: str | None = None
    ) -> Offered:
        """A platform job, or the earlier one that answers for it."""
        options = replace(options, traceparent=asker.traceparent, request_id=asker.request_id)
        whole = _in_workspace(document, asker.workspace)
        try:
            draft = self._platform.checked(whole)
            prepared = self._platform.prepared(draft, job_id or self.backend.new_job_id(), asker.principal_id, options)
        except EnvelopeInvalid as exc:
            raise _placed(exc) from exc
        known = self._platform.answered(prepared, options)
        if known is not None:
            return replace(self._earlier(known), platform=prepared.submitted(known, deduplicated=True))
        one = self._new(self._platform.submission(prepared), prepared.payload)
        return replace(one, platform=prepared.submitted(one.job_id))

    def task(self, asker: Asker, asked: TaskAsked, job_id: str | None = None) -> Offered:
        """A call of a function, or the earlier job that answers for it."""
        request = self._request(asker, asked)
        calls = self._calls_of(asker.workspace)
        (key,) = calls.work_keys_of([request])
        found = calls.find(request, key)
        calls.look_away()
        if isinstance(found, Found):
            if found.element is None:
                return self._earlier(found.job_id)
            found = Miss("an element of a map did it before, which has no job of its own")
        return self._new(calls.submission(request, key, job_id or self.backend.new_job_id(), found))

    def again(self, asker: Asker, job_id: str, element: int | None = None) -> Offered:
        """A new job that does the work of an ended one again, and names it (X-154)."""
        own = self._work.for_tenant(asker.workspace)
        row = own.backend.reader.job(job_id)
        if row is None:
            raise InvalidInput("there is no such job in this workspace", code="UNKNOWN_JOB")
        job = Job.read(row.body)
        if job.job_kind == PLATFORM:
            asked = own.backend.submitted([job_id]).get(job_id)
            if asked is None:
                raise DetentError("its payload is gone", code="CONTENT_GONE", hint="submit the payload again")
            draft = {name: value for name, value in repeated(asked.order).items() if name != "requested_by"}
            return self.payload(asker, draft, placed_as(asked.order))
        order, key = order_again(own.backend, own.work_keys, row, element)
        traced = replace(order.origin, traceparent=asker.traceparent, request_id=asker.request_id)
        order = replace(order, origin=replace(traced, requested_by=asker.principal_id))
        submission = own.backend.submission(
            order, job_id=self.backend.new_job_id(), job_kind=job.job_kind, priority=job.priority, key=key
        )
        return self._new(submission)

    @property
    def supersedes(self) -> bool:
        """Whether new platform jobs replace older ones here."""
        return self._work.settings.supersede

    def supersede(self, payload: JobPayload) -> tuple[str, ...]:
        """Cancel what a new platform job replaces, where the settings say so. Writes by itself, once the job is durable."""
        return self._platform.supersede(payload)

    def _request(self, asker: Asker, asked: TaskAsked) -> JobRequest:
        _check_target(asked.target)
        label = asked.label or asked.target
        if asked.policies:
            self._work.refuse_unknown_policies(label, asked.policies)
        backend = self.backend.for_tenant(asker.workspace)
        results = _Results(backend)

        default = Retries()
        limits = JobLimits(
            wall_ms=asked.timeout_ms,
            wall_by=None if asked.timeout_ms is None else WALL_BY,
            memory_mb=asked.memory_mb,
            memory_by=None if asked.memory_mb is None else MEMORY_BY,
            retries=Retries(
                default.max if asked.retries is None else asked.retries,
                default.on if asked.retry_on is None else asked.retry_on,
            ),
            resources=asked.resources,
            policies=asked.policies,
            pool=asked.pool,
            labels=asked.labels,
        )
        self._work.for_tenant(asker.workspace).insist_on_place(label, limits)
        call = Call(
            kind="python",
            target=asked.target,
            arguments=tuple(_values(asked.arguments, results)),
            keywords=_keywords(asked.keywords, results),
            base=self._project,
            version=asked.version,
        )
        priority = PRIORITY_NAMES[asked.priority]
        whose, traced = asker.principal_id, (asker.traceparent, asker.request_id)
        return JobRequest(call, label, limits, priority, asked.reuse, whose, asked.salt, *traced)

    def _calls_of(self, workspace: str) -> Calls:
        known = self._calls.get(workspace)
        if known is None:
            if len(self._calls) >= WORKSPACES_KNOWN_MAX:
                self._calls.clear()
            own = self._work.for_tenant(workspace)
            known = self._calls[workspace] = Calls(own.backend, own.work_keys)
        return known

    def _new(self, submission: Submission, payload: JobPayload | None = None) -> Offered:
        # A caller over HTTP is refused by a full queue and does not wait for room as a library caller does, so the
        # policy of the queue decides about its jobs: what `drop-lru` and `shed-low-priority` give up is one of these.
        submission.manifest = manifest = replace(submission.manifest, evictable=True)
        return Offered(manifest.job_id, QUEUED, _moment(manifest.created_tick), submission, payload)

    def _earlier(self, job_id: str) -> Offered:
        row = self.backend.reader.job(job_id)
        if row is None:
            raise RequestRefused(f"job {job_id} is gone", code="CONFLICT", hint="repeat the request", retryable=True)
        job = Job.read(row.body)
        return Offered(job_id, word_of(project_job(job).status), _moment(job.submitted_tick), None)


class _Results:
    """The results of a workspace's own jobs, by job id."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __call__(self, named: str) -> str | None:
        job_id, element = named, None
        row = self._backend.reader.job(job_id)
        if row is None:
            job_id, element = split_element_id(named) or (named, None)
            row = self._backend.reader.job(job_id)
        if row is None or row.tenant_id != self._backend.tenant:
            return None
        found = self._backend.report_of(job_id)
        if found is None:
            return None
        report = found[1] if element is None else found[1].of_element(element)
        return result_name(found[0], element) if report is not None and report.ok else None


def _values(values: list[Any], results: _Results) -> list[Any]:
    return [received(value, f"body.task.arguments[{place}]", results) for place, value in enumerate(values)]


def _keywords(values: Mapping[str, Any], results: _Results) -> dict[str, Any]:
    return {name: received(value, f"body.task.keywords.{name}", results) for name, value in values.items()}


def content_named(payload: Mapping[str, Any] | None, asked: TaskAsked | None) -> list[tuple[bytes, str]]:
    """The content that a job names by digest, each with its place: what its workspace must have (T4)."""
    if asked is not None:
        given = [*files_in(asked.arguments, "body.task.arguments")]
        return [*given, *files_in(dict(asked.keywords), "body.task.keywords")]
    found: Any = payload
    for name in DATASETS:
        found = found.get(name) if isinstance(found, dict) else None
    named = []
    for place, one in enumerate(found if isinstance(found, list) else ()):
        if isinstance(one, dict) and one.get("kind") == "dataset" and type(one.get("digest")) is str:
            with suppress(InvalidInput):  # Refused where the payload is read.
                named.append((parse_digest(one["digest"]), f"body.payload.{'.'.join(DATASETS)}[{place}].digest"))
    return named


def _check_target(target: str) -> None:
    fault = python_target_fault(target)
    where = target.rpartition(":")[0]
    if fault is None and (where.startswith("/") or ".." in where.split("/")):
        fault = "leaves the project of the server"
    if fault is not None:
        raise InvalidInput(
            f"task.target {fault}",
            code="VALIDATION_ERROR",
            hint="write module:function or path/file.py:function, of the code on the server's side",
            details={"errors": [{"path": "body.task.target", "message": fault}]},
        )


def _in_workspace(document: Mapping[str, Any], workspace: str) -> dict[str, Any]:
    """A payload of this workspace; one that names another is refused, and so is one with an id of its own."""
    if document.get("workspace_id", workspace) != workspace:
        raise RequestRefused(
            "the payload names another workspace than the credential's",
            code="WORKSPACE_MISMATCH",
            hint="leave workspace_id out, or use a key of that workspace",
        )
    if "job_id" in document:
        raise InvalidInput(
            "payload.job_id is given by the server",
            code="VALIDATION_ERROR",
            hint="leave job_id out; an Idempotency-Key makes a repeat safe",
            details={"errors": [{"path": "body.payload.job_id", "message": "is given by the server"}]},
        )
    return {**document, "workspace_id": workspace}


def _placed(exc: EnvelopeInvalid) -> DetentError:
    """The faults of a payload, at their places in the request's body."""
    listed = exc.details.get("errors")
    faults = listed if isinstance(listed, list) else [{"path": exc.details.get("path", ""), "message": str(exc)}]
    errors = [{"path": f"body.payload.{one['path']}".rstrip("."), "message": one["message"]} for one in faults]
    return EnvelopeInvalid(str(exc), hint=exc.hint, details={"errors": errors})


def _moment(tick: int) -> str:
    return tick_to_iso(tick, 1, 0)
