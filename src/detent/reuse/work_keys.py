"""What decides whether work has been done already: its ingredients, its key, and the earlier jobs under that key.

Equal keys mean equal work within a workspace (X-148). An earlier success answers for it as long as everything that belongs to
its result is still there; work that is under way is waited for (X-186). What cannot be told (code that loads code, a command
that declares nothing) is done every time, and the reason is kept.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from detent.canon import digest_text, parse_digest
from detent.canon.grammar import SQLITE
from detent.canon.late import NamedTuple, dataclass
from detent.canon.strict_json import JsonValue
from detent.errors import DetentError, InvariantBroken
from detent.jobs.dedupe import DedupeRequest, ExecutionKey, Join, PriorJob, Reuse, dedupe
from detent.jobs.elements import element_id
from detent.jobs.order import Call, JobLimits, Retries, read_order
from detent.jobs.status import TERMINAL_STATUSES, ErrorCategory, JobStatus, project_job
from detent.jobs.values import result_name
from detent.jobs.work import WorkReport
from detent.kernel import Job
from detent.kernel.table import State
from detent.owner.backend import Backend, Submitted
from detent.reuse.ingredients import (
    FileDigests,
    binding_digest,
    changed,
    describe,
    ingredients,
    inputs_digests,
    is_same_work,
    key_of_work,
    never_reused,
    outputs_match,
)
from detent.reuse.path_arguments import PathArguments, expanded, no_value
from detent.reuse.witness import CodeWitness, surroundings_of
from detent.store.api import JobRow, WorkRow

FORCED: Final = "`--force` asked for it again"
LIMIT_BOUND: Final = "a limit had ended it, and another limit might not"
OTHER_LIMITS: Final = "the same work is under way with other limits"
ASTRAY: Final = "the index of work names job {} for it, which was asked to do something else; run `detent verify` to see what was changed"
KEPT_JOBS: Final = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED})


@dataclass(frozen=True, slots=True)
class Options:
    """How a run goes about its work."""

    force: bool = False
    """Reuse nothing that ended before this run began."""
    reuse_failed: bool = False
    salt: str | None = None
    max_parallel: int | None = None
    """Jobs of the run under way at once (X-138)."""
    workers: int = 1
    """Workers of this process, by which short elements are divided into jobs."""


def directory_of(call: Call) -> str:
    """Where a call runs."""
    return os.path.join(call.base or os.getcwd(), call.cwd or "")  # noqa: PTH109, PTH118 - texts, as they are written


@dataclass(frozen=True, slots=True)
class WorkKey:
    """What a piece of work is made of. Without a key it is done every time; ``why`` says why."""

    key: ExecutionKey | None
    ingredients: Mapping[str, Any]
    call: Call
    limits: JobLimits | None = None
    """What work under way must have been given, too, to be waited for."""
    why: str = ""

    @property
    def flight(self) -> tuple[ExecutionKey | None, JobLimits | None]:
        """What work under way must be equal in to be waited for."""
        return self.key, self.limits


@dataclass(frozen=True, slots=True)
class Found:
    """A job, or an element of one, that does, or did, the same work."""

    job_id: str
    running: bool
    state: str = State.SUCCEEDED.value
    """Of the job; of an element that has ended, how that did."""
    digest: bytes | None = None
    """Of the job's report."""
    report: WorkReport | None = None
    """Of the job, or of the element."""
    element: int | None = None
    """Which element of an array it is."""
    run_id: str | None = None
    """The run that the job is of."""

    @property
    def name(self) -> str:
        """What people call it."""
        return element_id(self.job_id, self.element)

    @property
    def result(self) -> str | None:
        """The name of its result."""
        return None if self.digest is None else result_name(self.digest, self.element)


@dataclass(frozen=True, slots=True)
class Miss:
    """No job answers for the work; ``why`` names what speaks against the one that nearly does."""

    why: str = ""


class _Earlier(NamedTuple):
    """A job under a key, as the ledger had it when it was looked for."""

    row: WorkRow
    job_row: JobRow
    job: Job
    report: tuple[bytes, WorkReport] | None
    submitted: Submitted | None

    def is_work_of(self, work_key: WorkKey, workspace: str) -> bool:
        """Whether the job was asked to do this very work, and what is taken for its report is about it.

        The index and the jobs' rows are not signed. They lead here; what was signed decides (X-196).
        """
        if self.submitted is None or self.job.tenant_id != workspace:
            return False
        if not is_same_work(self.submitted.order, work_key.call, work_key.ingredients):
            return False
        if self.report is None:
            return True
        said = self.report[1]
        return (said.job_id, said.manifest_hash) == (self.row.job_id, self.submitted.manifest_hash)

    def of_element(self, place: int) -> _Earlier:
        """The same about one element of an array: what it was asked to do, and what came of it."""
        submitted, report = self.submitted, self.report
        if submitted is not None:
            there = place < len(submitted.order.elements)
            submitted = submitted._replace(order=submitted.order.of_element(place)) if there else None
        if report is not None:
            own = report[1].of_element(place)
            report = None if own is None else (report[0], own)
        return self._replace(submitted=submitted, report=report)

    @property
    def name(self) -> str:
        """The job, or the element of it."""
        return element_id(self.row.job_id, self.row.element)

    @property
    def status(self) -> JobStatus:
        """How far it is; an element may have succeeded although its array failed."""
        status = project_job(self.job).status
        if self.row.element is None or self.report is None or status not in KEPT_JOBS:
            return status
        return JobStatus.SUCCEEDED if self.report[1].ok else status

    @property
    def found(self) -> Found:
        """As an answer to a search for work that is done."""
        state = State.SUCCEEDED.value if self.status is JobStatus.SUCCEEDED else self.job_row.state
        digest, report = self.report or (None, None)
        return Found(self.row.job_id, False, state, digest, report, self.row.element, self.job_row.run_id)


def no_results(named: str) -> bytes:
    """For work that names no results of other work."""
    raise InvariantBroken(f"the result {named} is not known here")


class WorkKeys(CodeWitness):
    """Keys of one process's work on one home. Its own thread's at a time: the driver's, or a client's under its lock."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self._backend = backend
        self._files = FileDigests()
        self._looked: dict[ExecutionKey, list[_Earlier]] = {}
        self.path_arguments = PathArguments()

    def of(
        self,
        call: Call,
        value_digest: Callable[[str], bytes],
        *,
        limits: JobLimits | None = None,
        salt: str | None = None,
        load: Callable[[str], JsonValue] = no_value,
        warns: bool = True,
    ) -> WorkKey:
        """The work key of a call. ``value_digest`` gives the digest of a result's value by the result's digest, ``load`` the
        value itself. Work that is done anyway ``warns`` of nothing that only reuse makes doubtful.
        """
        if not call.cache:
            return WorkKey(None, {}, call, limits, never_reused(call) or "")
        if warns and call.kind == "python" and call.inputs is None:
            self.path_arguments.look(
                str(call.target), call.arguments, call.keywords, call.outputs, directory_of(call), load
            )
        try:
            code = self._code(call, call.version)
            inputs = inputs_digests(call.inputs, directory_of(call), self._files) if call.inputs else {}
        except DetentError as exc:
            return WorkKey(None, {}, call, limits, str(exc))
        surroundings = surroundings_of(call, code)
        made = ingredients(call, value_digest, code=code, inputs=inputs, surroundings=surroundings, salt=salt)
        if (why := never_reused(call, code)) is not None:
            return WorkKey(None, made, call, limits, why)
        return WorkKey(key_of_work("action", binding_digest(call), made, surroundings.env_version), made, call, limits)

    def for_tenant(self, tenant: str) -> WorkKeys:
        """The same for the work of another workspace: what was read of code and files is shared, what was done before is not."""
        other = copy.copy(self)
        other._backend, other._looked = self._backend.for_tenant(tenant), {}  # noqa: SLF001 - its own class's
        return other

    def look(self, work_keys: Iterable[WorkKey]) -> None:
        """Read what there is of several pieces of work at once; the next `find` of each goes by it."""
        keys = [work_key.key for work_key in work_keys if work_key.key is not None]
        self._looked = self._earlier(keys) if keys else {}

    def look_away(self) -> None:
        """Forget what was read ahead: from now on it may be otherwise."""
        self._looked = {}

    def find(self, work_key: WorkKey, options: Options, *, since_ms: int) -> Found | Miss:
        """A job that answers for this work, if there is one. With ``force`` only work begun since then does."""
        if work_key.key is None:
            return Miss(work_key.why)
        earlier = self._looked.pop(work_key.key, None)
        if earlier is None:
            earlier = self._earlier([work_key.key])[work_key.key]
        backend, why, passed_over = self._backend, "", ""
        prior: list[PriorJob] = []
        known: dict[str, _Earlier] = {}
        for position, one in enumerate(earlier):
            job, reported = one.job, one.report
            if not one.is_work_of(work_key, backend.tenant):
                why = why or ASTRAY.format(one.name)
                continue
            if options.force and job.submitted_tick < since_ms:
                passed_over = FORCED
                continue
            status, available, limit_bound = one.status, True, False
            found = reported if status in KEPT_JOBS else None
            if status is JobStatus.SUCCEEDED and found is not None and not self.fault(work_key.call, found[1]):
                # They come in the order of their submission, and the first success is the answer.
                return one.found
            if status in KEPT_JOBS:
                fault = "its result is gone" if found is None else self.fault(work_key.call, found[1])
                available, why = not fault, fault or why
                error = None if found is None else found[1].result.failure
                limit_bound = error is not None and error.category == ErrorCategory.RESOURCE_LIMIT.value
                if limit_bound and options.reuse_failed:
                    why = why or LIMIT_BOUND
            limits = self._limits(job) if limit_bound or status not in TERMINAL_STATUSES else None
            if status not in TERMINAL_STATUSES and limits != work_key.limits:
                passed_over = OTHER_LIMITS
            known[one.name] = one
            prior.append(
                PriorJob(backend.tenant, work_key.key, one.name, status, position, limits, limit_bound, available)
            )
        request = DedupeRequest(backend.tenant, work_key.key, options.reuse_failed, "join", work_key.limits)
        answer = dedupe(request, prior)
        if isinstance(answer, Reuse):
            return known[answer.job_id].found
        if isinstance(answer, Join):
            one = known[answer.job_id]
            return Found(one.row.job_id, True, element=one.row.element)
        return Miss(why or passed_over)

    def _limits(self, job: Job) -> JobLimits | None:
        """The limits that a job was given; None when its order is gone."""
        try:
            order = read_order(self._backend.unsealed(job.payload_digest))
        except DetentError:
            return None
        return replace(order.limits, retries=Retries(job.max_retries, job.retry_categories))

    def _earlier(self, keys: Sequence[ExecutionKey]) -> dict[ExecutionKey, list[_Earlier]]:
        """The jobs under each key, in the order of their submission, in as few reads as it takes for one key."""
        backend = self._backend
        found: dict[ExecutionKey, list[_Earlier]] = {key: [] for key in keys}
        texts = {parse_digest(key): key for key in found}
        rows = [
            (row, job_row, Job.read(job_row.body))
            for row, job_row in backend.reader.work_of_keys(backend.tenant, [*texts])
        ]
        jobs = {job.job_id: job for _, _, job in rows}
        reports = backend.reports_of([*jobs.values()])
        submitted = backend.submitted([*jobs])
        for row, job_row, job in rows:
            earlier = _Earlier(row, job_row, job, reports.get(row.job_id), submitted.get(row.job_id))
            found[texts[row.execution_key]].append(earlier if row.element is None else earlier.of_element(row.element))
        return found

    def because(self, label: str, work_key: WorkKey, before_ms: int) -> str:
        """What has changed since the work of this label was last done, in words; empty when it never was."""
        for row in self._backend.reader.work_labelled(self._backend.tenant, label, 8):
            job_row = self._backend.reader.job(row.job_id)
            if job_row is None or Job.decode(job_row.body).submitted_tick >= before_ms:
                continue
            submitted = self._backend.submitted([row.job_id]).get(row.job_id)
            if submitted is None and self._backend.reader.is_erased(Job.decode(job_row.body).payload_digest):
                return f"job {row.job_id}, which did it before, was erased"
            if submitted is not None and submitted.order.label == label:
                return self.difference(submitted.order.origin.ingredients, work_key.ingredients)
        return ""

    @staticmethod
    def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
        """What has changed from one set of ingredients to another, in words; empty when nothing has."""
        changes = changed(old, new)
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
        return "; ".join(describe(change) for change in changes[:3]) + more

    def fault(self, call: Call, report: WorkReport) -> str:
        """What speaks against taking an earlier result: something of it is gone, or an output is not as it was left."""
        if report.stale:
            return "its code, its packages or its tools were changed while it ran"
        if not self._backend.is_whole(report):
            erased = any(map(self._backend.reader.is_erased, report.contents()))
            return "a part of its result was erased" if erased else "a part of its result is gone"
        if call.kind == "map" and (fault := _map_fault(call.target, directory_of(call), self._backend.value(report))):
            return fault
        if not call.outputs:
            return ""
        recorded: dict[str, dict[str, str]] = {}
        for file in report.result.files:
            if file.output is not None:
                recorded.setdefault(file.output, {})[file.name] = digest_text(file.digest)
        try:
            faults = outputs_match(recorded, call.outputs, directory_of(call), self._files)
        except DetentError as exc:
            return str(exc)
        return "; ".join(f"its output {fault.path} is {fault.fault}" for fault in faults[:3])


def _map_fault(target: Mapping[str, Any], directory: str, value: JsonValue) -> str:
    """What speaks against taking an earlier result of a map step over; empty: nothing. Files are looked at elsewhere."""
    if not isinstance(value, dict):
        return "its result is gone"
    if value.get("failed"):
        return f"{value['failed']} of its items failed"
    kind, _, rest = str(target["commit"]).partition(":")
    if kind != SQLITE:
        return ""
    from detent.targets.sqlite_target import table_fault  # noqa: PLC0415 - loads apsw

    name, _, table = rest.rpartition("#")
    return table_fault(Path(directory, expanded(name)), table, value["total"], value["succeeded"])
