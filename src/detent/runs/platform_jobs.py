"""Platform jobs, submitted whole: validated, held to a plan, completed, compared with earlier work, signed, queued (JOB-081).

A payload that does not fit is refused with all of its faults at once, before anything is written. Equal work that succeeded
before answers for a new job (JOB-026). A request under an idempotency key is answered once (JOB-031). Where the settings say
so, a job for a newer revision cancels those for older ones (X-034).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from detent.artifacts.api import DirectoryStore
from detent.canon import digest_text, json_digest, json_encode, parse_digest, tick_to_iso
from detent.canon.grammar import PRIORITY_NAMES
from detent.canon.late import dataclass
from detent.canon.strict_json import JSON_BYTES_MAX
from detent.contract.findings import path_text
from detent.contract.model import JobFault
from detent.errors import NO_ROOM, DetentError, InvalidInput, Refused, error_of
from detent.jobs.complete import complete_payload, ingredients
from detent.jobs.dedupe import (
    SUPERSEDED,
    DedupeRequest,
    ExecutionKey,
    IdempotencyScope,
    InFlight,
    PriorJob,
    Revised,
    Run,
    dedupe,
    input_hash,
    parse_idempotency_key,
    superseded_by,
)
from detent.jobs.fields import EnvelopeInvalid, read_document
from detent.jobs.order import Call, Order
from detent.jobs.payload import LOCAL_USER, JobPayload, ObjectExecute, read_payload
from detent.jobs.plans import Plan, check_plan, within_plan
from detent.jobs.platform_order import is_platform_order, platform_order, repeated
from detent.jobs.status import TERMINAL_STATUSES, ErrorCategory, project_job
from detent.jobs.work import WorkReport
from detent.kernel import Cancel, Job
from detent.kernel.table import OPEN
from detent.owner.backend import Submission
from detent.owner.kept_answers import request_digest
from detent.reuse.ingredients import key_of_order
from detent.reuse.witness import surroundings_of
from detent.runs.record.job_check import platform_faults, schema_faults
from detent.runs.runtime import Runtime
from detent.runs.submit.requests import KeptRequests, insist_on_kept
from detent.runs.submit.submitter import Submitter

ENDPOINT: Final = "jobs"
"""The endpoint of an idempotency key, for every way to submit a platform job."""
REVISION_NUMBER: Final = "document_revision_number"
"""An optional field of a payload: the place of its revision in the document's history."""


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """The answer to a submission: the job that does the work, or did it before."""

    job_id: str
    job_type: str
    workspace_id: str
    user_id: str
    execution_key: str
    plan: str
    """The name of the plan that the payload was held to."""
    deduplicated: bool = False
    """Whether the job was submitted before: it is equal work, or answers the same request under an idempotency key."""
    superseded: tuple[str, ...] = ()
    """The jobs for older revisions that were cancelled for this one."""

    def to_map(self) -> dict[str, Any]:
        """As data."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "superseded": list(self.superseded)}


@dataclass(frozen=True, slots=True)
class Draft:
    """A payload that was checked, with the limits that it left open."""

    plan: str
    document: dict[str, Any]
    payload: JobPayload

    @property
    def user_id(self) -> str:
        """The user that it names, else the home's own."""
        return LOCAL_USER if self.payload.requested_by is None else self.payload.requested_by.user_id


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A complete payload and the order that it makes."""

    payload: JobPayload
    order: Order
    plan: str
    user_id: str

    def submitted(self, job_id: str, *, deduplicated: bool = False) -> SubmittedJob:
        """The answer that names a job: its own, or one that answers for it."""
        payload = self.payload
        said = (payload.job_type, payload.workspace_id, self.user_id, str(payload.execution_key), self.plan)
        return SubmittedJob(job_id, *said, deduplicated=deduplicated)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a caller says beside the payload."""

    user_id: str | None = None
    """Who asks; None: the user that the payload names, else the home's own."""
    idempotency_key: str | None = None
    reuse_failed: bool = False
    in_flight_policy: InFlight = "new"
    files: tuple[Path, ...] = ()
    """Files that the payload names by digest, to be stored before the job is submitted."""
    timeout: float | None = None
    """Seconds to wait for room in a full queue; None: as long as it takes."""
    pool: str | None = None
    labels: tuple[str, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)
    """Where the job may run and what it takes there, as a step of a contract says it."""
    traceparent: str | None = None
    """The trace of the request (W3C Trace Context)."""
    request_id: str | None = None
    """The request to a server, as its answer names it."""


def placed_as(order: Order) -> JobOptions:
    """What a repeat of a job says beside its payload: that it runs where the first one could."""
    return JobOptions(pool=order.limits.pool, labels=order.limits.labels, resources=order.limits.resources)


class PlatformJobs:
    """Submits platform jobs to one home. Safe for several threads."""

    def __init__(self, work: Runtime, plan_of: Callable[[str], tuple[str, Plan]] | None = None) -> None:
        """``plan_of`` gives the plan of a workspace with its name; without it the settings do."""
        self._work = work
        self._plan_of = plan_of or work.settings.plans.of
        self._backend = work.backend
        self._submitter: Submitter[None] = Submitter(work.backend, work.supervisor, threading.Event())
        self._kept = KeptRequests(work.backend, work.idempotency.window_ms)

    def submit(self, payload: bytes | Mapping[str, Any], options: JobOptions | None = None) -> SubmittedJob:
        """Submit one payload, draft or complete; the job is durable when this returns.

        Raises `EnvelopeInvalid` with every fault of the payload, `RequestRefused` (``PLAN_EXCEEDED``) for one that asks for
        more than its workspace's plan allows, and `QueueFull` when there was no room in time.
        """
        options = options or JobOptions()
        deadline = None if options.timeout is None else time.monotonic() + options.timeout
        given = read_document(payload, name="payload", bytes_max=JSON_BYTES_MAX)
        draft = self.checked(given)
        self._store(options.files, draft.document)
        user_id = options.user_id or draft.user_id
        scope = None
        if options.idempotency_key is not None:
            key = parse_idempotency_key(options.idempotency_key)
            scope = IdempotencyScope(draft.payload.workspace_id, user_id, ENDPOINT, key).digest()
        while True:
            prepared = self.prepared(draft, str(given.get("job_id") or self._new_id(scope)), user_id, options)
            order = prepared.order
            known = self._answer_kept(scope, order) or self._remembered(scope, order, self.answered(prepared, options))
            if known is not None:
                return prepared.submitted(known, deduplicated=True)
            refusal = self._offer(prepared, scope)
            if refusal is None:
                return replace(prepared.submitted(prepared.payload.job_id), superseded=self.supersede(prepared.payload))
            if refusal.code in NO_ROOM:
                self._submitter.wait_for_room(deadline)
            elif refusal.code != "CONFLICT" or self._answer_kept(scope, order) is None:
                raise error_of(refusal)  # Else an equal request came first, and left an answer.

    def retry(self, job_id: str) -> SubmittedJob:
        """Submit the work of an ended job again, as a new job that names it (JOB-065, X-154)."""
        asked = self._backend.submitted([job_id]).get(job_id)
        if asked is None:
            raise DetentError(
                f"job {job_id} cannot be retried: its payload is gone",
                code="CONTENT_GONE",
                hint="submit the payload again: `detent submit FILE`",
                details={"job_id": job_id},
            )
        return self.submit(repeated(asked.order), placed_as(asked.order))

    # -- before anything is written ------------------------------------------------------------------------------------

    def checked(self, given: Mapping[str, Any]) -> Draft:
        """Check a payload whole and hold it to the plan of its workspace. Raises what `submit` raises."""
        name, plan = self._plan_of(str(given.get("workspace_id")))
        document = within_plan(given, plan)
        faults, payload = schema_faults(document)
        if payload is None:
            raise _invalid(faults)
        if refused := check_plan(payload.limits, payload.environment, plan, name=name):
            raise error_of(refused, hint=f"ask for less, or raise [plans.{name}] in the settings of the home")
        if faults := list(platform_faults(payload)):
            raise _invalid(faults)
        return Draft(name, document, payload)

    def prepared(self, draft: Draft, job_id: str, user_id: str, options: JobOptions) -> PreparedJob:
        """Complete a draft for one job. Refuses one that no worker could ever take."""
        whole = self._completed({**draft.document, "job_id": job_id}, user_id)
        order = platform_order(whole, _ingredients(whole))
        limits = replace(order.limits, pool=options.pool, labels=options.labels, resources=options.resources)
        origin = replace(order.origin, traceparent=options.traceparent, request_id=options.request_id)
        order = replace(order, limits=limits, origin=origin)
        self._work.for_tenant(whole.tenant_id).insist_on_place(f"job {order.label!r}", order.limits)
        return PreparedJob(whole, order, draft.plan, user_id)

    def _store(self, files: Sequence[Path], document: Mapping[str, Any]) -> None:
        """Keep files that the payload names by digest; refuse one that it does not name."""
        written = json_encode(dict(document)).decode()
        for path in files:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            if digest_text(digest) not in written:
                raise InvalidInput(
                    f"the payload does not name the file {path}",
                    hint=f"the payload names files by digest; this one is {digest_text(digest)}",
                    details={"path": str(path), "digest": digest_text(digest)},
                )
            DirectoryStore(self._backend.files).put(path, digest=digest)

    def _completed(self, document: Mapping[str, Any], user_id: str) -> JobPayload:
        from detent.executor.runners import tools  # noqa: PLC0415 - reads what is installed

        draft = read_payload(document)
        here = tools.env_version(draft.job_type)
        if draft.environment.env_version not in (None, here):
            said = f"asks for {draft.environment.env_version!r}; this machine has {here!r}"
            raise _invalid([JobFault(("environment", "env_version"), said, "leave it out to use what is here")])
        return complete_payload(
            draft,
            created_at=tick_to_iso(self._backend.now_ms(), 1, 0),
            user_id=user_id,
            env_version=here,
            nonce=self._backend.random(16).hex(),
        )

    # -- equal requests and equal work ---------------------------------------------------------------------------------

    def _new_id(self, scope: bytes | None) -> str:
        return self._backend.new_job_id() if scope is None else self._kept.next_job_id(scope)

    def _answer_kept(self, scope: bytes | None, order: Order) -> str | None:
        """The job that an idempotency key stands for; refuses another body under the same key (JOB-032)."""
        if scope is None:
            return None
        key = key_of_order(order)
        return self._kept.job_of(scope, request_digest(order), lambda other: key_of_order(other) == key)

    def _remembered(self, scope: bytes | None, order: Order, job_id: str | None) -> str | None:
        """Remember that a job answers a request under a key; the job that does, if an equal request came first."""
        if scope is None or job_id is None:
            return job_id
        insist_on_kept(self._submitter.answers([], [self._kept.row(scope, request_digest(order), job_id)]))
        return self._answer_kept(scope, order) or job_id

    def answered(self, prepared: PreparedJob, options: JobOptions) -> str | None:
        """A job that does, or did, the same work and may answer for it (JOB-026 to JOB-028)."""
        payload = prepared.payload
        key, workspace = ExecutionKey(str(payload.execution_key)), payload.workspace_id
        prior = list(self._prior(key, workspace))
        limits = payload.limits.model_dump(mode="json")
        request = DedupeRequest(workspace, key, options.reuse_failed, options.in_flight_policy, limits)
        decided = dedupe(request, prior)
        return None if isinstance(decided, Run) else decided.job_id

    def _prior(self, key: ExecutionKey, workspace: str) -> Iterator[PriorJob]:
        backend = self._backend
        rows = [(row, Job.read(row.body)) for _, row in backend.reader.work_of_keys(workspace, [parse_digest(key)])]
        reports = backend.reports_of([job for _, job in rows])
        submitted = backend.submitted([job.job_id for _, job in rows])
        for row, job in rows:
            asked, reported = submitted.get(job.job_id), reports.get(job.job_id)
            # The index is not signed. It leads here; what was signed decides.
            if asked is None or job.tenant_id != workspace or key_of_order(asked.order) != key:
                continue
            status = project_job(job).status
            report = None if reported is None else reported[1]
            if report is not None and report.manifest_hash != asked.manifest_hash:
                continue
            yield PriorJob(
                workspace,
                key,
                job.job_id,
                status,
                row.tick if status in TERMINAL_STATUSES else job.submitted_tick,
                asked.order.call.target.get("limits"),
                report is not None and _is_limit_bound(report),
                report is not None and not report.stale and backend.is_whole(report),
            )

    # -- submitting ----------------------------------------------------------------------------------------------------

    def submission(self, prepared: PreparedJob) -> Submission:
        """The job, ready to be submitted."""
        payload = prepared.payload
        return self._backend.submission(
            prepared.order,
            job_id=payload.job_id,
            job_kind="platform",
            priority=PRIORITY_NAMES[payload.priority],
            key=ExecutionKey(str(payload.execution_key)),
            tenant=payload.tenant_id,
        )

    def _offer(self, prepared: PreparedJob, scope: bytes | None) -> Refused | None:
        """Submit the job; why it was refused, or nothing."""
        order, job_id = prepared.order, prepared.payload.job_id
        kept = [] if scope is None else [self._kept.row(scope, request_digest(order), job_id)]
        (answer,) = self._submitter.answers([self.submission(prepared)], kept)
        insist_on_kept([answer])
        return answer.refusal

    # -- newer revisions -----------------------------------------------------------------------------------------------

    def supersede(self, payload: JobPayload) -> tuple[str, ...]:
        """Cancel the open jobs that this one replaces, if the settings say so; the jobs that were cancelled."""
        if not self._work.settings.supersede:
            return ()
        new, others = self._revised(payload)
        replaced = superseded_by(new, others, enabled=True)
        if not replaced:
            return ()
        said = {"reason": f"superseded by job {payload.job_id}", "superseded_by": payload.job_id}
        digest, inline = self._backend.sealed(said, name="reason")
        commands = [Cancel(0, payload.tenant_id, job_id, SUPERSEDED, detail_digest=digest) for job_id in replaced]
        answers = self._submitter.ask(commands, inline)
        return tuple(job_id for job_id, answer in zip(replaced, answers, strict=True) if answer.refusal is None)

    def _revised(self, payload: JobPayload) -> tuple[Revised, list[Revised]]:
        """A new job and the open ones of its workspace, with how new their revisions are.

        By the numbers that payloads give their revisions. Without a number in the new one, a revision counts as newer than
        another if it was submitted later.
        """
        reader = self._backend.reader
        rows = [row for state in OPEN for row in reader.jobs(state=state) if row.tenant_id == payload.tenant_id]
        jobs = sorted((Job.read(row.body) for row in rows), key=lambda job: (job.submitted_tick, job.job_id))
        submitted = self._backend.submitted([job.job_id for job in jobs if job.job_id != payload.job_id])
        numbered = getattr(payload, REVISION_NUMBER, None)
        seen: dict[str, int] = {}
        others = []
        for job in jobs:
            asked = submitted.get(job.job_id)
            if asked is None or not is_platform_order(asked.order):
                continue
            document = asked.order.call.target
            number = seen.setdefault(document["document_revision_id"], len(seen))
            if numbered is not None:
                number = document.get(REVISION_NUMBER, numbered)
            others.append(_revised(read_payload(document), number, job))
        if numbered is None:
            numbered = seen.setdefault(payload.document_revision_id, len(seen))
        return _revised(payload, numbered, None), others


def _revised(payload: JobPayload, number: int, job: Job | None) -> Revised:
    return Revised(
        payload.workspace_id,
        payload.job_id,
        payload.job_type,
        payload.document_id,
        frozenset(payload.object_ids),
        number,
        project_job(job).status,
    )


def _ingredients(payload: JobPayload) -> dict[str, Any]:
    """What goes into the work by name, for `explain`: the inputs, each parameter, and the tools (JOB-021)."""
    around = surroundings_of(Call(kind="job", target={"job_type": payload.job_type}), None)
    given = payload.inputs.object.runtime.parameters if isinstance(payload, ObjectExecute) else {}
    parameters = {f"argument:{name}": digest_text(json_digest(json_encode(value))) for name, value in given.items()}
    found = {"payload": input_hash(ingredients(payload), name="payload"), **parameters, **around.ingredients()}
    return dict(sorted(found.items()))


def _is_limit_bound(report: WorkReport) -> bool:
    """Whether other limits might have given another outcome."""
    failed = report.result.failure is not None and report.result.failure.category == ErrorCategory.RESOURCE_LIMIT.value
    return failed or report.result.stdout.truncated or report.result.stderr.truncated


def _invalid(faults: Sequence[JobFault]) -> EnvelopeInvalid:
    """One error for all faults of a payload."""
    errors = [{"path": path_text(fault.path), "message": fault.message, "hint": fault.hint} for fault in faults]
    return EnvelopeInvalid(
        "\n".join(f"{error['path']}: {error['message']}" for error in errors),
        hint=faults[0].hint if len(faults) == 1 else "docs/jobs.md says what a payload holds",
        details={"path": errors[0]["path"], "errors": errors},
    )
