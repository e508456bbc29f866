"""The outcome of an attempt, for the ledger: a signed report, and the commands that close the attempt with it.

A worker only says how its work went. Who it was, under which lease, in which environment, and that all of this is so, is said
and signed here, in the process that supervises it (X-179).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from detent.canon import NotCanonical, json_digest
from detent.executor.plain.telling import bounded
from detent.jobs.elements import Elements
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
    stream_parts,
)
from detent.kernel import Finish, Grant
from detent.owner.backend import Inline, Reported
from detent.reuse.witness import Witnessed

LIMIT_WALL: Final = "LIMIT_WALL"
LIMIT_MEMORY: Final = "LIMIT_MEMORY"
ELEMENTS_BYTES_MAX: Final = 512 * 1024
"""Of the values, output and failures of an array's elements that are part of its report."""
ROOM: Final = ((4096, 1024, 1 << 16), (4096, 1024, 4096), (256, 128, 512), (128, 0, 256))
"""How much of one element's value, stream and text of a failure is part of the report: less, where there are many."""
Attempt: TypeAlias = tuple[Grant, Result, Witnessed, Order | None]
"""An attempt that is over: its lease, its result, what it ran in, and its order as far as that can be read."""
OF_TASK: Final = "timeout of the task"
"""Where the limit of a job without a step was set; the order of a step says it itself."""


class Signs(Protocol):
    """Where reports are signed, and what they name is kept: a home's backend, or a worker elsewhere."""

    def random(self, count: int, /) -> bytes: ...

    def store(self, data: bytes) -> tuple[bytes, Inline]: ...

    def stored_value(self, value: bytes | None) -> tuple[bytes | None, bytes | None, Inline]: ...

    def sign_together(self, reports: Sequence[tuple[WorkReport, bytes]]) -> list[Reported]: ...


class Reporter:
    """Makes the reports of one supervisor."""

    def __init__(self, backend: Signs, worker: str) -> None:
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
        elements = recorded.elements
        if elements is not None:
            elements, spilled = self._spilled(elements)
            recorded, content = replace(recorded, elements=elements), (*content, *spilled)
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
            elements_root=None if elements is None else elements.root(),
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

    def _spilled(self, elements: Elements) -> tuple[Elements, Inline]:
        """Elements as a report has room for them, and the content that holds what it has no room for."""
        value_bytes, stream_bytes, failure_bytes = next(
            (room for room in ROOM if _inline_bytes(elements, *room) <= ELEMENTS_BYTES_MAX), ROOM[-1]
        )
        inline: list[tuple[bytes, bytes]] = []
        values, contents = elements.values, elements.contents
        if max(map(len, filter(None, values)), default=0) > value_bytes:
            values, contents = list(values), dict(contents)
            for place, value in enumerate(values):
                if value is not None and len(value) > value_bytes:
                    digest, stored = self._backend.store(value)
                    inline += stored
                    values[place], contents[place] = None, [digest, json_digest(value)]
        streams = {}
        for place, printed in elements.streams.items():
            kept = [self._stream(WorkStream(*one), stream_bytes) for one in printed]
            streams[place] = [stream_parts(stream) for stream, _ in kept]
            inline += [piece for _, stored in kept for piece in stored]
        failures = {place: _shortened(failure, failure_bytes) for place, failure in elements.failures.items()}
        return replace(elements, values=values, contents=contents, streams=streams, failures=failures), tuple(inline)

    def _stream(self, stream: WorkStream, bytes_max: int = STREAM_INLINE_BYTES_MAX) -> tuple[WorkStream, Inline]:
        if len(stream.data) <= bytes_max:
            return stream, ()
        digest, inline = self._backend.store(stream.data)
        return WorkStream(b"", digest, stream.truncated), inline


def _inline_bytes(elements: Elements, value_bytes: int, stream_bytes: int, failure_bytes: int) -> int:
    """How much of a report elements would take if what is larger than this were stored elsewhere, or shortened."""
    values = sum(min(len(value), value_bytes) for value in elements.values if value is not None)
    streams = sum(min(len(data), stream_bytes) for pair in elements.streams.values() for data, _, _ in pair)
    failures = sum(
        min(len(text), failure_bytes)
        for one in elements.failures.values()
        for text in one.values()
        if type(text) is str
    )
    return values + streams + failures


def _shortened(failure: Mapping[str, Any], bytes_max: int) -> Mapping[str, Any]:
    """A failure whose texts have at most so many bytes."""
    if all(type(text) is not str or len(text) <= bytes_max for text in failure.values()):
        return failure
    return {name: bounded(text, bytes_max) if type(text) is str else text for name, text in failure.items()}


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


def closing_command(grant: Grant, result: Result, reported: Reported | None) -> Finish:
    """What closes an attempt; without a report its worker was lost."""
    if reported is None or result.lost:
        # Of an array that lost its worker there is a report: of the elements that had ended.
        digest = None if reported is None else reported.digest
        return Finish(
            *(0, grant.job_id, grant.lease_id, "worker_lost", False, "WORKER_LOST"),
            detail_digest=digest,
            used=None if reported is None else _used(result.usage),
        )
    report = reported.report
    return Finish(
        0,
        grant.job_id,
        grant.lease_id,
        ok=report.ok,
        reason_code=report.reason_code,
        category=None if report.result.failure is None else report.result.failure.category,
        detail_digest=reported.digest,
        used=_used(result.usage),
    )


def _used(usage: Usage) -> tuple[int, ...] | None:
    """What an attempt used, for the job's resource ledger (`detent.kernel.quota.USED`); None for one that used nothing."""
    used = (usage.memory_bytes_peak, usage.io_bytes_read, usage.io_bytes_written, usage.gpu_ms or 0, usage.cpu_ms)
    return used if any(used) else None
