"""From a result to the kernel: how it closes the attempt, and what it adds to the job's resource ledger (A.3, X-025)."""

from __future__ import annotations

from typing import Final, NamedTuple

from detent.jobs.category import ErrorCategory
from detent.jobs.limits import MB
from detent.jobs.result import JobResult, ResourceUsage
from detent.jobs.status import JobStatus
from detent.kernel.commands import ReportUsage
from detent.kernel.evidence import REASON_COMPLETED
from detent.kernel.job import Usage

REASON_CANCELLED_UNASKED: Final = "CANCELLED_UNASKED"
"""A worker reported CANCELLED although the job was not cancelled."""


class Closing(NamedTuple):
    """The part of the kernel's ``Finish`` command that a result decides."""

    ok: bool
    reason_code: str
    category: str | None


def closing_of(result: JobResult) -> Closing:
    """How a result closes its attempt.

    CANCELLED is an answer to a cancel and nothing else. When there was one, the job has ended and the kernel refuses this
    as a late result; when there was none, the worker is at fault, which is INTERNAL_ERROR and may be retried (X-158).
    """
    if result.status is JobStatus.SUCCEEDED:
        return Closing(ok=True, reason_code=REASON_COMPLETED, category=None)
    if result.status is JobStatus.CANCELLED or result.error is None:
        return Closing(ok=False, reason_code=REASON_CANCELLED_UNASKED, category=ErrorCategory.INTERNAL_ERROR.value)
    return Closing(ok=False, reason_code=result.error.code, category=result.error.category.value)


def usage_of(usage: ResourceUsage) -> Usage:
    """One attempt's usage in the units of the kernel's ledger."""
    return Usage(
        bytes_allocated=0,
        peak_bytes=usage.memory_mb_peak * MB,
        io_bytes_read=usage.io_bytes_read,
        io_bytes_written=usage.io_bytes_written,
        gpu_time_ms=usage.gpu_ms,
        cpu_time_ms=usage.cpu_ms,
    )


def usage_reports(
    tick: int, job_id: str, lease_id: bytes, usage: ResourceUsage, *, report_no: int = 0
) -> tuple[ReportUsage, ReportUsage]:
    """The commands by which an attempt's usage enters the ledger, before the attempt is closed.

    The ledger finds the peak itself, from what is allocated; so the first report takes the peak and the second gives it
    back. Otherwise the peaks of several attempts would add up. ``report_no`` is the lease's next report.
    """
    used = usage_of(usage)
    taken = ReportUsage(
        tick,
        job_id,
        lease_id,
        report_no,
        bytes_allocated=used.peak_bytes,
        io_bytes_read=used.io_bytes_read,
        io_bytes_written=used.io_bytes_written,
        gpu_time_ms=used.gpu_time_ms,
        cpu_time_ms=used.cpu_time_ms,
    )
    return taken, ReportUsage(tick, job_id, lease_id, report_no + 1, bytes_allocated=-used.peak_bytes)
