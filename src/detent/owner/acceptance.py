"""Accepting results: from a signed report to the commands that close an attempt, or to a refusal that is kept.

A report is believed when a key with the role ``result``, or that of an enrolled worker which holds the lease, signed exactly these
bytes, that key may speak for the job's tenant and partition, and the report names the job, the manifest and the attempt it is handed in for (JOB-083). Whether it
comes in time, or again, is for the kernel to say, which alone knows the lease in force: a late result is refused there, and
the same one again gets the answer it got before. A refused result leaves its digest in the decision log and nothing
else: no state, no content (X-157, X-182). A late or contradicting one also counts as an ambiguous transition (PIPE-007).

"Verified" is a type here, too: a `VerifiedReport` comes from `verify_report`, which checked the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from detent.access.certificate import Certificate
from detent.canon import sha256
from detent.canon.crypto import verify_signature
from detent.canon.late import NamedTuple, dataclass
from detent.errors import InvalidInput, Refused
from detent.jobs.report import Report, read_report
from detent.jobs.status import ErrorCategory, JobStatus, category_of
from detent.jobs.work import REPORT_BYTES_MAX, WorkReport
from detent.kernel import Command, Finish, History, Job, Kernel, ReportUsage
from detent.kernel.evidence import REASON_COMPLETED, reason_fault
from detent.kernel.history import WORKER_RETIRED
from detent.kernel.job import Usage
from detent.kernel.outcome import JobState
from detent.kernel.table import State
from detent.ledger import SignedResult, Trust, TrustFault
from detent.ledger.signing import RESULT_LABEL
from detent.ledger.trust_config import RESULT
from detent.ledger.workers import Enrolled, WorkerLease
from detent.owner.turn import Judge
from detent.store.api import CONTENT_INLINE_BYTES_MAX

ENVELOPE_BYTES_MAX: Final = REPORT_BYTES_MAX + 1024
REASON_CANCELLED_UNASKED: Final = "CANCELLED_UNASKED"
"""A worker reported CANCELLED although the job was not cancelled: its own failure, and worth a retry (X-158)."""

Pairs: TypeAlias = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class VerifiedReport:
    """A report that a trusted executor signed; made by `verify_report` alone."""

    report: Report
    envelope: bytes
    digest: bytes
    key_id: bytes
    certificate: Certificate | None = None
    """Of the worker on another machine that signed it; None where a key of the trust configuration did."""


CertificateOf: TypeAlias = Callable[[bytes], Certificate | None]
"""The certificate of the worker that was enrolled with a key, if it holds; None where there is no such worker."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What closes an attempt: its usage, then its end, which names the envelope by its digest."""

    commands: tuple[Command, ...]
    content: tuple[tuple[bytes, bytes], ...]
    """The envelope, when it is small enough to go with the commit; a larger one is a file already."""


class _Ended(NamedTuple):
    status: str
    used: Usage
    code: str | None
    category: str | None


def verify_report(
    trust: Trust, envelope: bytes, position: int, certificate_of: CertificateOf = lambda _: None
) -> VerifiedReport | Refused:
    """Check an envelope: canonical, signed by a key of the role ``result`` that is valid at ``position`` or by an enrolled worker, and a report.

    The signature is checked before the body is read.
    """
    digest = sha256(envelope)
    if len(envelope) > ENVELOPE_BYTES_MAX:
        return _refused("REPORT_INVALID", f"a signed report has at most {ENVELOPE_BYTES_MAX} bytes", digest)
    try:
        signed = SignedResult.parse(envelope)
    except InvalidInput as exc:
        return _refused("REPORT_INVALID", str(exc), digest)
    entry = trust.entry(signed.key_id, RESULT, position)
    certificate = certificate_of(signed.key_id) if isinstance(entry, TrustFault) else None
    if isinstance(entry, TrustFault) and certificate is None:
        return _unsigned(entry.message, digest, signed.body, fault=entry.code)
    public_key = certificate.public_key if certificate is not None else entry.public_key  # type: ignore[union-attr]
    if not verify_signature(public_key, RESULT_LABEL + signed.body, signed.signature):
        return _unsigned("the result's signature does not verify", digest, signed.body)
    try:
        return VerifiedReport(read_report(signed.body), envelope, digest, signed.key_id, certificate)
    except InvalidInput as exc:
        return _refused("REPORT_INVALID", str(exc), digest)


def accept(
    trust: Trust,
    verified: VerifiedReport,
    job: Job | JobState,
    position: int,
    partition: int,
    history: History | None = None,
) -> Accepted | Refused:
    """The commands by which a report closes its attempt; refuses a key of another's and a report about something else.

    A report for a lease that is not in force is handed to the kernel without its usage: it is late, or a repeat. ``history`` says
    which workers are enrolled.
    """
    report, digest = verified.report, verified.digest
    active = job.state == State.RUNNING and job.lease_id == report.lease_id
    if verified.certificate is not None:
        # A late report has no holder to compare with: the kernel refuses it, or knows it.
        lease = (job.tenant_id, job.lease_holder if active else verified.certificate.worker_id)
        fault = _worker_fault(verified.certificate, history, trust.origin_of_batch(position), lease)
    else:
        entry = trust.entry(verified.key_id, RESULT, position)
        fault = entry if isinstance(entry, TrustFault) else entry.scope_fault(job.tenant_id, partition)
    if fault is not None:
        return _refused("REPORT_SIGNATURE_INVALID", fault.message, digest, job_id=job.job_id, fault=fault.code)
    if report.job_id != job.job_id:
        return _refused("REPORT_MISMATCH", f"the result is about job {report.job_id!r}", digest, job_id=job.job_id)
    if report.manifest_hash != job.manifest_hash:
        return _refused("REPORT_MISMATCH", "the result answers another manifest", digest, job_id=job.job_id)
    ended = _ended(report)
    finish = _finish(report, ended, digest)
    if isinstance(finish, Refused):
        return finish
    if active and report.attempt_id != job.attempt_id:
        message = f"the result is of attempt {report.attempt_id + 1}, and attempt {job.attempt_id + 1} is running"
        return _refused("REPORT_MISMATCH", message, digest, job_id=job.job_id)
    usage = _usage(report, ended.used, job.reports if isinstance(job, Job) else 0) if active else []
    small = len(verified.envelope) <= CONTENT_INLINE_BYTES_MAX
    return Accepted((*usage, finish), ((digest, verified.envelope),) if small else ())


def _worker_fault(
    certificate: Certificate, history: History | None, origin: str, lease: tuple[str, str | None]
) -> TrustFault | None:
    """Say why a worker's key may not sign a result of a lease (its tenant and holder) now, or nothing."""
    worker_id, (tenant, holder) = certificate.worker_id, lease
    records = [] if history is None else history.worker(worker_id)
    if not records:
        return TrustFault("KEY_UNKNOWN", f"worker {worker_id!r} is not enrolled in the partition of the job")
    if records[-1].kind == WORKER_RETIRED:
        return TrustFault("KEY_OUT_OF_RANGE", f"worker {worker_id!r} was retired")
    key = WorkerLease(Enrolled(worker_id, certificate, 0), 1, holder).public_key(origin=origin, tenant=tenant)
    return key if isinstance(key, TrustFault) else None


def job_of(report: bytes | VerifiedReport) -> str | None:
    """The job a report says it is about, whether or not that is to be believed; None for anything but a report."""
    if isinstance(report, VerifiedReport):
        return report.report.job_id
    try:
        return read_report(SignedResult.parse(report).body).job_id
    except InvalidInput:
        return None


def judge(
    trust: Trust,
    handed_in: bytes | VerifiedReport,
    content: Pairs,
    *,
    position: int,
    partition: int,
    has_file: Callable[[bytes], bool],
    certificate_of: CertificateOf = lambda _: None,
) -> tuple[Judge, Pairs]:
    """What an owner has to decide about a report, and the content that goes with it if it is accepted.

    The signature is checked here, on the caller's thread; the job is looked at within the turn. Content that a report
    names comes with it or is a file of the home: an unreadable result does not count.
    """
    verified = verify_report(trust, handed_in, position, certificate_of) if isinstance(handed_in, bytes) else handed_in
    if isinstance(verified, Refused):
        refusal = verified
        return (lambda _kernel: refusal), ()
    report, digest = verified.report, verified.digest
    inline = () if len(verified.envelope) > CONTENT_INLINE_BYTES_MAX else ((digest, verified.envelope),)
    sent = {named for named, _ in (*content, *inline)}
    named = [digest, *(report.contents() if isinstance(report, WorkReport) else ())]
    if missing := next((one for one in named if one not in sent and not has_file(one)), None):
        message = f"the result names content that is not here: sha256:{missing.hex()}"
        refusal = _refused("REPORT_INVALID", message, digest, job_id=report.job_id)
        return (lambda _kernel: refusal), ()

    def decide(kernel: Kernel) -> Sequence[Command] | Refused:
        job = kernel.jobs.get(report.job_id) or kernel.history.ended_job(report.job_id)
        if job is None:
            return _refused("UNKNOWN_JOB", f"there is no job {report.job_id!r}", digest, job_id=report.job_id)
        accepted = accept(trust, verified, job, position, partition, kernel.history)
        return accepted if isinstance(accepted, Refused) else accepted.commands

    return decide, (*content, *inline)


def _ended(report: Report) -> _Ended:
    """What either kind of report says about the end of its attempt."""
    if isinstance(report, WorkReport):
        taken, failure = report.result.usage, report.result.failure
        used = Usage(0, taken.memory_bytes_peak, taken.io_bytes_read, taken.io_bytes_written, 0, taken.cpu_ms)
        return _Ended(
            report.result.status, used, *(None, None) if failure is None else (failure.code, failure.category)
        )
    from detent.jobs.result import usage_of  # noqa: PLC0415 - loads Pydantic, which a report of work never needs

    result = report.outcome()
    used = Usage() if result.resource_usage is None else usage_of(result.resource_usage)
    failed = result.error
    return _Ended(result.status.value, used, *(None, None) if failed is None else (failed.code, failed.category.value))


def _finish(report: Report, ended: _Ended, digest: bytes) -> Finish | Refused:
    """How a report closes its attempt. CANCELLED is an answer to a cancel; unasked it is the worker's failure (X-158)."""
    end = Finish(0, report.job_id, report.lease_id, detail_digest=digest)
    if ended.status == JobStatus.SUCCEEDED.value:
        return replace(end, reason_code=REASON_COMPLETED)
    if ended.status == JobStatus.CANCELLED.value or ended.code is None:
        category = ErrorCategory.INTERNAL_ERROR.value
        return replace(end, ok=False, reason_code=REASON_CANCELLED_UNASKED, category=category)
    expected, fault = category_of(ended.code), reason_fault(ended.code)
    if expected is not None and expected.value != ended.category:
        fault = f"{ended.code} belongs to {expected.value}, not to {ended.category}"
    if fault:
        return _refused("REPORT_INVALID", f"the report's error: {fault}", digest, job_id=report.job_id)
    return replace(end, ok=False, reason_code=ended.code, category=ended.category)


def _usage(report: Report, used: Usage, report_no: int) -> list[ReportUsage]:
    """What the attempt used, as its supervisor measured it. The peak is taken and given back: peaks do not add up."""
    lease = (0, report.job_id, report.lease_id)
    if not any(used.to_list()):
        return []
    taken = ReportUsage(
        *lease,
        report_no,
        bytes_allocated=used.peak_bytes,
        io_bytes_read=used.io_bytes_read,
        io_bytes_written=used.io_bytes_written,
        gpu_time_ms=used.gpu_time_ms,
        cpu_time_ms=used.cpu_time_ms,
    )
    given_back = ReportUsage(*lease, report_no + 1, bytes_allocated=-used.peak_bytes)
    return [taken, given_back] if used.peak_bytes else [taken]


def _unsigned(message: str, digest: bytes, body: bytes, **details: object) -> Refused:
    """The refusal of bytes without a trusted signature, under the job they name, if they name one."""
    with suppress(InvalidInput):
        details["job_id"] = read_report(body).job_id
    return _refused("REPORT_SIGNATURE_INVALID", message, digest, **details)


def _refused(code: str, message: str, digest: bytes, **details: object) -> Refused:
    return Refused(code, message, {"result_digest": digest, **details})
