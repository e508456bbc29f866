"""The outcome of an attempt, for the ledger: a signed report, and the commands that close the attempt with it.

A worker only says how its work went. Who it was, under which lease, in which environment, and that all of this is so, is said
and signed here, in the process that supervises it (X-179).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from detent.canon import NotCanonical, json_digest
from detent.jobs.order import Order
from detent.jobs.work import (
    CANCELLED,
    FAILED,
    NO_USAGE,
    STREAM_INLINE_BYTES_MAX,
    Failure,
    Result,
    Usage,
    WorkReport,
    WorkStream,
)
from detent.kernel import Command, Finish, Grant
from detent.owner.backend import Backend, Inline, Reported
from detent.reuse.work_keys import Witnessed

LIMIT_WALL: Final = "LIMIT_WALL"
LIMIT_MEMORY: Final = "LIMIT_MEMORY"
Attempt: TypeAlias = tuple[Grant, Result, Witnessed, Order | None]
"""An attempt that is over: its lease, its result, what it ran in, and its order as far as that can be read."""
OF_TASK: Final = "timeout of the task"
"""Where the limit of a job without a step was set; the order of a step says it itself."""


class Reporter:
    """Makes the reports of one supervisor."""

    def __init__(self, backend: Backend, worker: str) -> None:
        self._backend = backend
        self._worker = worker

    def report(self, attempts: Sequence[Attempt]) -> list[Reported]:
        """Sign the outcomes of some attempts together, each with its environment and whether its code had changed by then."""
        drafts = [self._draft(*attempt) for attempt in attempts]
        signed = self._backend.sign_together([(report, body) for report, body, _ in drafts])
        return [
            Reported(one.digest, one.report, (*one.inline, *beside)) if beside else one
            for one, (_, _, beside) in zip(signed, drafts, strict=True)
        ]

    def _draft(
        self, grant: Grant, result: Result, witnessed: Witnessed, order: Order | None
    ) -> tuple[WorkReport, bytes, Inline]:
        """A report that can be recorded, its body, and the content that goes with it."""
        backend = self._backend
        value, value_content, inline = backend.stored_value(result.value)
        recorded, content = self._recordable(result, order)
        envelope, envelope_inline = (None, ()) if result.envelope is None else backend.store(result.envelope)
        if value_content is not None:
            recorded = replace(recorded, value=value)
        report = WorkReport(
            job_id=grant.job_id,
            attempt_id=grant.attempt_id,
            lease_id=grant.lease_id,
            manifest_hash=grant.job_manifest_hash,
            nonce=backend.random(16),
            result=recorded,
            value_content=value_content,
            value_digest=None if result.value is None else json_digest(result.value),
            env_version=result.env_version or witnessed.env_version,
            worker=self._worker,
            stale=witnessed.stale,
            envelope=envelope,
        )
        return (*_writable(report), (*inline, *content, *envelope_inline))

    def _recordable(self, result: Result, order: Order | None) -> tuple[Result, Inline]:
        """A result as its report holds it, and what the commit has to carry for it; most are recorded as they came."""
        (stdout, content), (stderr, more) = self._stream(result.stdout), self._stream(result.stderr)
        if stdout is not result.stdout or stderr is not result.stderr:
            result, content = replace(result, stdout=stdout, stderr=stderr), (*content, *more)
        if result.status == CANCELLED:
            # A worker may say CANCELLED only as an answer to a cancel, and then its report is no longer awaited.
            unasked = "the worker reported a cancellation that was not requested"
            result = replace(result, status=FAILED, failure=Failure("INTERNAL_ERROR", "CANCELLED_UNASKED", unasked))
        elif result.failure is not None and (named := _limit_named(result.failure, order)) is not result.failure:
            result = replace(result, failure=named)
        return result, content

    def _stream(self, stream: WorkStream) -> tuple[WorkStream, Inline]:
        if len(stream.data) <= STREAM_INLINE_BYTES_MAX:
            return stream, ()
        digest, inline = self._backend.store(stream.data)
        return WorkStream(b"", digest, stream.truncated), inline


def _writable(report: WorkReport) -> tuple[WorkReport, bytes]:
    """A report with its body. One that cannot be written holds something of the work's own that has no form in a record.

    What work says is checked where it enters; this is the last line, so that anything that still came through is a failed
    attempt of that work and not the end of the process that owns the ledger.
    """
    try:
        fault = None if report.result.failure is None else report.fault()
        if fault is None:
            return report, report.body()
    except (ValueError, TypeError, OverflowError, NotCanonical) as exc:
        fault = f"report cannot be encoded: {exc}"
    failure = Failure("VALIDATION_ERROR", "RESULT_INVALID", f"what the work said cannot be recorded: {fault:.500}")
    bare = replace(report.result, status=FAILED, value=None, failure=failure, files=(), usage=NO_USAGE)
    failed = replace(report, result=bare, value_content=None, value_digest=None, envelope=None)
    return failed, failed.body()


def _limit_named(failure: Failure, order: Order | None) -> Failure:
    """A failure that says where the limit that ended an attempt was set."""
    if order is None:
        return failure
    limits = order.limits
    if failure.code == LIMIT_MEMORY and limits.memory_by is not None:
        return replace(failure, message=f"{failure.message}: the limit is {limits.memory_mb} MB ({limits.memory_by})")
    wall_by = limits.wall_by or (OF_TASK if order.origin.step is None else None)
    if failure.code != LIMIT_WALL or wall_by is None:
        return failure
    _, colon, tail = failure.message.partition(";")
    return replace(failure, message=f"ran longer than its limit of {limits.wall_ms} ms ({wall_by}){colon}{tail}")


def closing_commands(grant: Grant, result: Result, reported: Reported | None) -> list[Command]:
    """What closes an attempt, the end itself last; without a report its worker was lost."""
    if reported is None:
        return [Finish(0, grant.job_id, grant.lease_id, kind="worker_lost", ok=False, reason_code="WORKER_LOST")]
    report = reported.report
    end = Finish(
        0,
        grant.job_id,
        grant.lease_id,
        ok=report.ok,
        reason_code=report.reason_code,
        category=None if report.result.failure is None else report.result.failure.category,
        detail_digest=reported.digest,
        used=_used(result.usage),
    )
    return [end]


def _used(usage: Usage) -> tuple[int, ...] | None:
    """What an attempt used, for the job's resource ledger (`detent.kernel.quota.USED`); None for one that used nothing."""
    used = (usage.memory_bytes_peak, usage.io_bytes_read, usage.io_bytes_written, usage.gpu_ms or 0, usage.cpu_ms)
    return used if any(used) else None
