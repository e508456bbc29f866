"""The results of platform jobs, read back: the contract's envelope, checked down to the signature of its executor.

The ledger's last record of a job names a report by its digest, the executor signed the report, and the report names the
envelope by its digest. Every link is checked here before anything is shown; what does not fit is `StoreCorrupt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detent.canon import digest_text
from detent.canon.crypto import verify_signature
from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, RequestRefused, StoreCorrupt
from detent.jobs.payload import read_payload
from detent.jobs.platform_order import is_platform_order
from detent.jobs.result import JobResult, answer_fault, public_result, read_result
from detent.jobs.status import TERMINAL_STATUSES, JobStatus, project_job
from detent.jobs.work import WorkReport
from detent.kernel import Evidence, Job
from detent.kernel.evidence import DISPATCH
from detent.ledger import SignedResult, TrustFault
from detent.ledger.signing import result_signature
from detent.ledger.workers import WorkerLease
from detent.owner.content import Content, order_of
from detent.owner.enrolled import enrolled_with
from detent.owner.home import Home
from detent.owner.wiring import load_trust
from detent.runs.cancel import cancel_note
from detent.store.api import JobRow, RecordRow
from detent.words.states import word_of

DAMAGED: Final = "run `detent verify` to see what was changed"


@dataclass(frozen=True, slots=True)
class JobResultView:
    """The outcome of an ended platform job, with what proves it."""

    job_id: str
    status: JobStatus
    reason_code: str | None
    attempt: int | None
    """Of the attempt that this is the outcome of, counted from 1; None for a job that no worker ever had."""
    result: Mapping[str, Any] | None
    """The envelope as clients see it; None for a job that ended without one: cancelled, or its worker was lost."""
    superseded_by: str | None = None
    report_digest: str | None = None
    """Of the signed report; the job's last record names it."""
    envelope_digest: str | None = None
    """Of the envelope; the signed report names it."""
    key_id: str | None = None
    """Of the executor's key that signed the report."""

    @property
    def ok(self) -> bool:
        """Whether the job succeeded."""
        return self.status is JobStatus.SUCCEEDED

    @property
    def artifacts(self) -> list[Mapping[str, Any]]:
        """The files that the job made."""
        return [] if self.result is None else list(self.result.get("artifacts", []))

    def to_map(self) -> dict[str, Any]:
        """As data."""
        return {
            "job_id": self.job_id,
            "status": word_of(self.status),
            "reason_code": self.reason_code,
            "attempt": self.attempt,
            "superseded_by": self.superseded_by,
            "result": None if self.result is None else dict(self.result),
            "proof": {
                "report_digest": self.report_digest,
                "envelope_digest": self.envelope_digest,
                "key_id": self.key_id,
            },
        }


def job_result(home: Home, content: Content, job_id: str) -> JobResultView:
    """The outcome of a platform job, checked.

    Raises `RequestRefused` (``RESULT_NOT_READY``) for a job that has not ended, `DetentError` (``CONTENT_GONE``) when the result
    was erased, and `InvalidInput` for a job of another kind.
    """
    row = content.reader.job(job_id)
    if row is None:
        raise InvalidInput(f"there is no job {job_id!r}", code="UNKNOWN_JOB", hint="`detent list --jobs` shows all")
    job = Job.decode(row.body)
    _insist_on_platform_job(content, row)
    shown = project_job(job)
    if shown.status not in TERMINAL_STATUSES:
        raise RequestRefused(
            f"job {job_id} has not ended: it is {shown.status.value}",
            code="RESULT_NOT_READY",
            hint=f"`detent result {job_id} --wait` runs it here and waits for its end",
            details={"job_id": job_id, "status": shown.status.value},
        )
    note = cancel_note(content.reader, content, row)
    view = JobResultView(
        job_id,
        shown.status,
        shown.reason_code,
        job.attempt_id + 1 if job.ever_dispatched else None,
        None,
        str(note["superseded_by"]) if "superseded_by" in note else None,
    )
    record = None if job.exit_seq is None else content.reader.transition(job_id, job.exit_seq)
    digest = None if record is None or record.evidence is None else Evidence.decode(record.evidence).detail_digest
    if record is None or digest is None or shown.status is JobStatus.CANCELLED:
        return view
    signed, report = _report(home, content, row, record, digest)
    if report.envelope is None:
        return view
    result = _envelope(content, row, report, report.envelope)
    return JobResultView(
        *(view.job_id, view.status, view.reason_code, report.attempt_id + 1, public_result(result)),
        view.superseded_by,
        *map(digest_text, (digest, report.envelope, signed.key_id)),
    )


def _insist_on_platform_job(content: Content, row: JobRow) -> None:
    order = order_of(content, row)
    if order is None and content.reader.is_erased(Job.decode(row.body).payload_digest):
        raise DetentError(f"job {row.job_id} was erased", code="CONTENT_GONE", details={"job_id": row.job_id})
    if order is None or order.call.kind != "job":
        raise InvalidInput(
            f"job {row.job_id} is not a platform job", hint=f"`detent show {row.job_id}` shows its result"
        )


def _report(
    home: Home, content: Content, row: JobRow, record: RecordRow, digest: bytes
) -> tuple[SignedResult, WorkReport]:
    """The report that ended a job, with its signature checked."""
    data = content.get(digest)
    if data is None:
        raise _gone(row.job_id, digest)
    try:
        signed = SignedResult.parse(data)
        report = WorkReport.parse(signed.body)
    except InvalidInput as exc:
        raise StoreCorrupt(f"the report of job {row.job_id} cannot be read: {exc}", hint=DAMAGED) from exc
    trust = load_trust(content.reader, home.settings(), row.partition)
    enrolled = enrolled_with(content.reader, trust, row.partition, signed.key_id)
    worker = None if enrolled is None else WorkerLease(enrolled, record.position, _holder(content, row, report))
    checked = result_signature(
        trust, signed, record.batch_no, tenant=row.tenant_id, partition=row.partition, worker=worker
    )
    if isinstance(checked, TrustFault):
        raise StoreCorrupt(f"the report of job {row.job_id} is not trusted: {checked.message}", hint=DAMAGED)
    if not verify_signature(*checked):
        raise StoreCorrupt(f"the signature of the report of job {row.job_id} does not verify", hint=DAMAGED)
    if (report.job_id, report.manifest_hash) != (row.job_id, Job.decode(row.body).manifest_hash):
        raise StoreCorrupt(f"the report of job {row.job_id} is about another job", hint=DAMAGED)
    return signed, report


def _holder(content: Content, row: JobRow, report: WorkReport) -> str | None:
    """To whom the lease was granted under which a report was made."""
    for record in content.reader.records_of_job(row.job_id):
        if record.kind == "transition" and record.evidence is not None:
            evidence = Evidence.decode(record.evidence)
            if evidence.kind == DISPATCH and evidence.lease_id == report.lease_id:
                return evidence.replica_id
    return None


def _envelope(content: Content, row: JobRow, report: WorkReport, digest: bytes) -> JobResult:
    """The envelope that a report names, which must be the answer to the job's payload."""
    data = content.get(digest)
    if data is None:
        raise _gone(row.job_id, digest)
    try:
        result = read_result(data)
    except InvalidInput as exc:
        raise StoreCorrupt(f"the result of job {row.job_id} cannot be read: {exc}", hint=DAMAGED) from exc
    order = order_of(content, row)
    fault = None
    if order is not None and is_platform_order(order):
        fault = answer_fault(read_payload(order.call.target), result)
    if fault is not None or result.status.value != report.result.status:
        fault = fault or f"it says {result.status.value}, the signed report {report.result.status}"
        raise StoreCorrupt(f"the result of job {row.job_id} is not the answer to its payload: {fault}", hint=DAMAGED)
    return result


def _gone(job_id: str, digest: bytes) -> DetentError:
    return DetentError(
        f"the result of job {job_id} is gone",
        code="CONTENT_GONE",
        hint="it was erased, or the home is damaged: `detent verify` tells which",
        details={"job_id": job_id, "digest": digest_text(digest)},
    )
