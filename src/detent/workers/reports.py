"""The outcome of an attempt, for the ledger: a signed report, and the commands that close the attempt with it.

A worker only says how its work went. Who it was, under which lease, in which environment, and that all of this is so, is said
and signed here, in the process that supervises it (X-179).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from detent.canon import NotCanonical, json_digest
from detent.jobs.order import Order
from detent.jobs.work import STREAM_INLINE_BYTES_MAX, WorkError, WorkReport, WorkStream
from detent.kernel import Command, Finish, Grant
from detent.owner.backend import Backend, Inline, Reported
from detent.reuse.work_keys import Witnessed
from detent.workers.executor import CANCELLED, FAILED, SUCCEEDED, Finished

LIMIT_WALL: Final = "LIMIT_WALL"
LIMIT_MEMORY: Final = "LIMIT_MEMORY"
OF_TASK: Final = "timeout of the task"
"""Where the limit of a job without a step was set; the order of a step says it itself."""


class Reporter:
    """Makes the reports of one supervisor."""

    def __init__(self, backend: Backend, worker: str) -> None:
        self._backend = backend
        self._worker = worker

    def report(self, grant: Grant, one: Finished, witnessed: Witnessed, order: Order | None = None) -> Reported:
        """Sign the outcome of an attempt, its environment, and whether its code had changed by then."""
        backend = self._backend
        value, value_content, inline = backend.stored_value(one.value)
        stdout, stdout_inline = self._stream(one.stdout, one.stdout_truncated)
        stderr, stderr_inline = self._stream(one.stderr, one.stderr_truncated)
        envelope, envelope_inline = (None, ()) if one.envelope is None else backend.store(one.envelope)
        # A worker may say CANCELLED only as an answer to a cancel, and then its report is no longer awaited.
        status, error = one.status, _limit_named(one.error, order)
        if status == CANCELLED:
            status = FAILED
            error = WorkError(
                "INTERNAL_ERROR", "CANCELLED_UNASKED", "the worker reported a cancellation that was not requested"
            )
        reported = self._signed(
            WorkReport(
                job_id=grant.job_id,
                attempt_id=grant.attempt_id,
                lease_id=grant.lease_id,
                manifest_hash=grant.job_manifest_hash,
                status=status,
                nonce=backend.random(16),
                value=value,
                value_content=value_content,
                value_digest=None if one.value is None else json_digest(one.value),
                error=error,
                stdout=stdout,
                stderr=stderr,
                files=one.files,
                env_version=one.env_version or witnessed.env_version,
                sandbox=one.sandbox,
                worker=self._worker,
                stale=witnessed.stale,
                started_ms=one.started_ms,
                finished_ms=one.finished_ms,
                cpu_ms=one.cpu_ms,
                memory_bytes_peak=one.memory_bytes_peak,
                io_bytes_read=one.io_bytes_read,
                io_bytes_written=one.io_bytes_written,
                envelope=envelope,
                gpu_ms=one.gpu_ms,
                unmeasured=one.unmeasured,
            )
        )
        beside = (*inline, *stdout_inline, *stderr_inline, *envelope_inline)
        return Reported(reported.digest, reported.report, (*reported.inline, *beside)) if beside else reported

    def _signed(self, report: WorkReport) -> Reported:
        """A signed report. One that cannot be written holds something of the work's own that has no form in a record.

        What work says is checked where it enters; this is the last line, so that anything that still came through is a failed
        attempt of that work and not the end of the process that owns the ledger.
        """
        try:
            fault = None if report.error is None else report.fault()
            if fault is None:
                return self._backend.sign(report)
        except (ValueError, TypeError, OverflowError, NotCanonical) as exc:
            fault = f"report cannot be encoded: {exc}"
        error = WorkError("VALIDATION_ERROR", "RESULT_INVALID", f"what the work said cannot be recorded: {fault:.500}")
        bare = replace(
            report,
            status=FAILED,
            value=None,
            value_content=None,
            value_digest=None,
            error=error,
            files=(),
            envelope=None,
            cpu_ms=0,
            memory_bytes_peak=0,
            io_bytes_read=0,
            io_bytes_written=0,
            gpu_ms=None,
        )
        return self._backend.sign(bare)

    def _stream(self, data: bytes, truncated: bool) -> tuple[WorkStream, Inline]:
        if len(data) <= STREAM_INLINE_BYTES_MAX:
            return WorkStream(data, None, truncated), ()
        digest, inline = self._backend.store(data)
        return WorkStream(b"", digest, truncated), inline


def _limit_named(error: WorkError | None, order: Order | None) -> WorkError | None:
    """An error that says where the limit that ended an attempt was set."""
    if error is None or order is None:
        return error
    if error.code == LIMIT_MEMORY and order.limits.memory_by is not None:
        return replace(
            error, message=f"{error.message}: the limit is {order.limits.memory_mb} MB ({order.limits.memory_by})"
        )
    wall_by = order.limits.wall_by or (OF_TASK if order.origin.step is None else None)
    if error.code != LIMIT_WALL or wall_by is None:
        return error
    _, colon, tail = error.message.partition(";")
    return replace(error, message=f"ran longer than its limit of {order.limits.wall_ms} ms ({wall_by}){colon}{tail}")


def closing_commands(grant: Grant, one: Finished, reported: Reported | None) -> list[Command]:
    """What closes an attempt, the end itself last; without a report its worker was lost."""
    if reported is None:
        return [Finish(0, grant.job_id, grant.lease_id, kind="worker_lost", ok=False, reason_code="WORKER_LOST")]
    report = reported.report
    end = Finish(
        0,
        grant.job_id,
        grant.lease_id,
        ok=report.status == SUCCEEDED,
        reason_code=report.reason_code,
        category=None if report.error is None else report.error.category,
        detail_digest=reported.digest,
        used=_used(one),
    )
    return [end]


def _used(one: Finished) -> tuple[int, ...] | None:
    """What an attempt used, for the job's resource ledger (`detent.kernel.quota.USED`); None for one that used nothing."""
    used = (one.memory_bytes_peak, one.io_bytes_read, one.io_bytes_written, one.gpu_ms or 0, one.cpu_ms)
    return used if any(used) else None
