"""A killed run read back from the ledger: what was committed, where the destination stood, where it was cut.

The notes say how far the destination has come; the reports of the chunks say how each item ended. Nothing else is needed, and
nothing else is kept: there is no file beside the ledger that could disagree with it.

Closes an ordered run that no process drives: cancelled where its destination stands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import repeat
from pathlib import Path

from detent.canon.grammar import function_of
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.errors import DetentError, InvalidInput, StoreCorrupt
from detent.jobs.work import WorkReport
from detent.kernel import Cancel, Command, EndRun, Run
from detent.kernel import run as run_status
from detent.kernel.run import CANCELLED_WITH_RUN
from detent.kernel.table import TERMINAL, State
from detent.ordered import Chunk, Envelope, OrderedConfig, SeqState, chunk_job_id, chunk_of
from detent.owner.backend import Backend
from detent.owner.session import ask_again
from detent.reuse.ingredients.job import env_version
from detent.runs.ordered.chunk_result import ChunkResult, read_head, read_values
from detent.runs.ordered.notes import BEGIN, Notes, cancel_name, commit_name, note, notes_of
from detent.runs.ordered.recorded import remove_snapshot
from detent.runs.ordered.spec import OrderedInputs, read_ordered
from detent.runs.record.identity import RunLock
from detent.targets import CommitFailed, parse_target
from detent.targets.api import Mark
from detent.workers.identity import worker_identity

FAILED_CODE = "WORK_FAILED"

_envelope: Callable[[tuple[object, ...]], Envelope] = partial(tuple.__new__, Envelope)
"""An envelope of its five fields: what `Envelope._make` does, without a call of Python for every item."""


@dataclass(frozen=True, slots=True)
class FailedItem:
    """An item that failed."""

    seq: int
    code: str
    message: str
    job_id: str
    type: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands by the ledger."""

    cursor: int = 0
    """The first seq that is not recorded as committed."""
    mark: Mark | None = None
    """Where the destination stood then; None when nothing about it is recorded."""
    boundary: int | None = None
    """The lowest seq that was cancelled by request."""


def standing(backend: Backend, run_id: str) -> Standing:
    """Where a run stands. Raises `StoreCorrupt` when its commits do not follow one another."""
    ends: dict[int, int] = {}
    boundary: int | None = None
    begun = False
    for name in notes_of(backend.reader, run_id):
        if name.kind == "commit":
            ends[name.first] = name.last
        elif name.kind == "cancel":
            boundary = name.first if boundary is None else min(boundary, name.first)
        begun = begun or name.kind == BEGIN
    cursor, newest = 0, BEGIN if begun else ""
    while cursor in ends:
        newest, cursor = commit_name(cursor, ends[cursor]), ends.pop(cursor) + 1
    if ends:
        raise StoreCorrupt(f"the commits of run {run_id!r} do not follow one another: {min(ends)} comes after {cursor}")
    return Standing(cursor, _mark(note(backend, run_id, newest)) if newest else None, boundary)


def committed(backend: Backend, run_id: str, config: OrderedConfig, standing: Standing) -> Iterator[Envelope]:
    """How the seqs below the cursor ended, in order. What a boundary has cancelled was cancelled, computed or not."""
    boundary = config.total if standing.boundary is None else standing.boundary
    seq = 0
    while seq < standing.cursor:
        chunk = chunk_of(seq, config.total, config.window_size, config.chunk_size)
        for envelope in envelopes_of(backend, run_id, chunk)[: standing.cursor - seq]:
            yield envelope if seq < boundary else Envelope(SeqState.TERMINAL_CANCEL)
            seq += 1


def envelopes_of(backend: Backend, run_id: str, chunk: Chunk) -> list[Envelope]:
    """How the items of an ended chunk ended, without their values."""
    job_id = chunk_job_id(run_id, *chunk, backend.partitions)
    row = backend.reader.job(job_id)
    count = chunk.last - chunk.first + 1
    if row is None or row.state == State.CANCELED:
        return [Envelope(SeqState.TERMINAL_CANCEL)] * count
    found = backend.report_of(job_id)
    report = None if found is None else found[1]
    if row.state == State.FAILED:
        return [Envelope(SeqState.TERMINAL_FAIL, code=failure_code(report))] * count
    data = None if report is None else backend.value_bytes(report)
    if row.state != State.SUCCEEDED or data is None:
        raise StoreCorrupt(f"the result of job {job_id!r} is gone", hint="it was erased; begin a new run with --new")
    ended = envelopes(read_head(data))
    return ended + [Envelope(SeqState.TERMINAL_CANCEL)] * (count - len(ended))


def envelopes(result: ChunkResult, size: int = 0) -> list[Envelope]:
    """How the items of a chunk ended; ``size`` is what each holds in memory until its commit."""
    if not result.errors:
        columns = zip(result.outcomes, result.digests, repeat(size), repeat(None), repeat(None), strict=False)
        return list(map(_envelope, columns))
    return [
        Envelope(outcome, digest, size, None, result.code(index) if outcome is SeqState.TERMINAL_FAIL else None)
        for index, (outcome, digest) in enumerate(zip(result.outcomes, result.digests, strict=True))
    ]


def values_of(backend: Backend, run_id: str, chunk: Chunk) -> dict[int, JsonValue]:
    """The stored values of an ended chunk's successes, by seq."""
    found = backend.report_of(chunk_job_id(run_id, *chunk, backend.partitions))
    data = None if found is None or not found[1].ok else backend.value_bytes(found[1])
    if data is None:
        return {}
    return dict(zip(*read_values(data, read_head(data)), strict=True))


def failures_of(
    chunk: Chunk, job_id: str, result: ChunkResult | None, report: WorkReport | None
) -> Iterator[FailedItem]:
    """The failed items of a chunk with their reasons; of a chunk that gave no result, all of them."""
    if result is None:
        error = None if report is None else report.result.failure
        message = "its worker gave no result" if error is None else error.message
        for seq in range(chunk.first, chunk.last + 1):
            yield FailedItem(seq, failure_code(report), message, job_id, None if error is None else error.type)
        return
    for index, said in result.errors.items():
        message, kind, trace = str(said.get("message", "")), said.get("type"), said.get("traceback")
        yield FailedItem(chunk.first + index, result.code(index), message, job_id, kind, trace)


def past_failures(backend: Backend, run_id: str, config: OrderedConfig, outcomes: bytearray) -> Iterator[FailedItem]:
    """The failed items among those that a run had committed when it was left, in order."""
    seq = outcomes.find(SeqState.TERMINAL_FAIL)
    while seq >= 0:
        chunk = chunk_of(seq, config.total, config.window_size, config.chunk_size)
        job_id = chunk_job_id(run_id, *chunk, backend.partitions)
        found = backend.report_of(job_id)
        report = None if found is None else found[1]
        data = None if report is None or not report.ok else backend.value_bytes(report)
        for failure in failures_of(chunk, job_id, None if data is None else read_head(data), report):
            if failure.seq < len(outcomes) and outcomes[failure.seq] == SeqState.TERMINAL_FAIL:
                yield failure
        seq = outcomes.find(SeqState.TERMINAL_FAIL, chunk.last + 1)


def failure_code(report: WorkReport | None) -> str:
    """Why a whole chunk failed."""
    return FAILED_CODE if report is None or report.result.failure is None else report.result.failure.code


def _mark(said: JsonValue) -> Mark | None:
    if not isinstance(said, dict):
        raise StoreCorrupt("a note of the run is gone", hint="it was erased; begin a new run with --new")
    try:
        return None if said.get("mark") is None else Mark.from_json(said["mark"])
    except InvalidInput as exc:
        raise StoreCorrupt(f"a note of the run holds no mark: {exc}") from exc


def notes_for(backend: Backend, run_id: str) -> Notes:
    """Notes of a run that this process does not drive."""
    identity = str(worker_identity(backend.random(4).hex()))
    return Notes(backend, run_id, worker=identity, label=run_id, env_version=env_version({}))


def end_run(backend: Backend, run_id: str, reason: str) -> bool:
    """End a run as cancelled where its destination stands; False when another process drives it, which is left to that one."""
    lock = RunLock.take(backend.home.path, run_id)
    if lock is None:
        return False
    try:
        with suppress(DetentError):  # Notes that were erased, or a run that was ended meanwhile: it only has to end.
            known = standing(backend, run_id)
            boundary = _reached(backend, run_id, known)
            said = {"boundary": boundary, "requested": 0, "reason": reason}
            notes_for(backend, run_id).write(cancel_name(boundary), said)
        while True:
            rows = backend.reader.jobs(run_id=run_id)
            left: list[Command] = [
                Cancel(0, backend.tenant, row.job_id, CANCELLED_WITH_RUN) for row in rows if row.state not in TERMINAL
            ]
            commands = [*left, EndRun(0, run_id, run_status.CANCELLED)]
            ask = partial(backend.session.ask, commands, content=())
            answer = ask_again(backend.session, ask, threading.Event())[-1]
            if answer.refusal is None or answer.refusal.code != "RUN_NOT_DONE":
                remove_snapshot(backend.home.path, run_id)
                return True
    finally:
        lock.release()


def _reached(backend: Backend, run_id: str, known: Standing) -> int:
    """The first item that the destination does not have.

    A driver that was killed may have written more than it recorded. A file is cut to the recorded length, as a resume would do,
    and a table says itself how far it is: otherwise what comes next would find some items there already, and add them again.
    A destination that cannot be opened now is taken to stand where the ledger says.
    """
    inputs = _inputs(backend, run_id)
    written = None if inputs is None else inputs.spec.commit
    if inputs is None or written is None or known.mark is None or function_of(written) is not None:
        return known.cursor
    target = parse_target(written, base=None if inputs.spec.base is None else Path(inputs.spec.base))
    try:
        return max(known.cursor, target.open(run_id, known.mark))
    except CommitFailed:
        return known.cursor
    finally:
        target.close()


def _inputs(backend: Backend, run_id: str) -> OrderedInputs | None:
    row = backend.reader.run(run_id)
    return None if row is None else read_ordered(backend.unsealed(Run.decode(row.body).inputs_digest))
