"""How a job got where it is: its records in words, with the decisions that they name, and what was refused about it.

Decisions that left no record of their own are made again from the recorded commands, watching the scheduler as it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from detent.canon import NotCanonical, decode, digest_text, sha256
from detent.canon.late import dataclass
from detent.errors import DetentError, InvariantBroken, Refused, StoreCorrupt
from detent.inspect.explain_words import Chapter, capital, decision_lines, read_decision
from detent.kernel import (
    Arrival,
    Command,
    Enqueued,
    Job,
    Kernel,
    KernelConfig,
    Placed,
    RaiseEpoch,
    decode_commands,
    identity,
)
from detent.kernel import evidence as ev
from detent.kernel.table import State
from detent.owner.content import Content
from detent.owner.decision_records import find_decision
from detent.owner.store_history import StoreHistory
from detent.owner.views import ABSENT, DAMAGED, ERASED, HERE, JobView, RecordView, Times, whereabouts
from detent.scheduling import Candidate, Decision, Scheduler, TaskRequest, stages
from detent.scheduling.explain import code_words, nameless
from detent.store.api import RecordRow, RefusalRow, StoreReader
from detent.words.quantities import duration_text
from detent.words.states import word_of


@dataclass(frozen=True, slots=True)
class Remade:
    """A decision made again, with every replica that was looked at, in placement order."""

    decision: Decision
    replicas: tuple[Candidate, ...] = ()


def remake(reader: StoreReader, partition: int, job_id: str, wanted: Collection[bytes]) -> dict[bytes, Remade]:
    """Make the decisions about a job again, by digest; those that do not come out again are left out.

    Raises `StoreCorrupt` when the commands cannot be decided again.
    """
    found: dict[bytes, Remade] = {}
    missing = set(wanted)
    history = StoreHistory(reader, partition)
    kernel: Kernel | None = None
    for batch in reader.batches(partition):
        if not missing:
            break
        history.horizon = batch.batch_no
        try:
            commands = decode_commands(batch.commands)
            kernel = kernel or _kernel(commands, history, job_id, found)
            for command in commands:
                kernel.apply(command)
        except (DetentError, InvariantBroken, TypeError, ValueError) as exc:
            raise StoreCorrupt(
                f"the commands of batch {batch.batch_no} cannot be decided again: {exc}",
                hint="run `detent verify` to see what was changed",
            ) from exc
        kernel.drain_touched()
        history.committed()
        missing -= found.keys()
    return {digest: found[digest] for digest in wanted if digest in found}


def _kernel(commands: Sequence[Command], history: StoreHistory, job_id: str, found: dict[bytes, Remade]) -> Kernel:
    """A kernel at the ledger's beginning; its configuration is in the first epoch."""
    epochs = [command for command in commands if isinstance(command, RaiseEpoch)]
    config = KernelConfig.decode(epochs[0].config) if epochs else KernelConfig()
    return Kernel(config, make_queue=partial(_Watched, job_id=job_id, found=found), history=history)


class _Watched(Scheduler):
    """The scheduler, with a look at the fleet whenever something is decided about one job."""

    def __init__(self, config: KernelConfig, *, job_id: str, found: dict[bytes, Remade]) -> None:
        super().__init__(config)
        self._job_id = job_id
        self._found = found

    def admit(self, arrival: Arrival) -> Enqueued | Refused:
        """Admit, and keep what was decided about the job: that it came in, or that it had to go for another."""
        admitted = super().admit(arrival)
        if isinstance(admitted, Enqueued):
            if arrival.job_id == self._job_id:
                # A pin is part of the request; admission chooses among all pools otherwise.
                self._keep(admitted.decision, None)
            for evicted, why in zip(admitted.evicted, admitted.evictions, strict=False):
                if evicted == self._job_id:
                    self._found[sha256(why)] = Remade(Decision.decode(why))
        return admitted

    def take(self, replica_id: str | None, suits: Callable[[str], bool] | None = None) -> Placed | Refused | None:
        """Place, and keep it; the slot is taken later, so the fleet is still the one that was looked at."""
        placed = super().take(replica_id, suits)
        if isinstance(placed, Placed) and placed.job_id == self._job_id:
            known = self.known.get(placed.job_id)
            self._keep(placed.decision, None if known is None or not known.pool_id else known.pool_id)
        return placed

    def _keep(self, data: bytes | None, pool_id: str | None) -> None:
        if data is None:
            return
        known = self.known.get(self._job_id)
        task = TaskRequest(self._job_id) if known is None else known.asked.task
        self._found[sha256(data)] = Remade(Decision.decode(data), tuple(stages(task, self.fleet, pool_id=pool_id)))


REFUSALS_READ_MAX: Final = 1_000
"""Newest refusals of one job that are looked at; equal ones in a row are shown once."""
REFUSALS_TOLD_MAX: Final = 20

_WHAT: Final[Mapping[str, str]] = {
    identity.JOB_SUBMIT: "submission refused",
    identity.JOB_CANCEL: "cancellation refused",
    identity.JOB_HEARTBEAT: "heartbeat refused",
}


def refusals_of(reader: StoreReader, job_id: str, times: Times) -> tuple[Chapter, ...]:
    """What was refused about a job, oldest first: of equal answers in a row the last, with their number."""
    rows = list(reader.refusals(job_id=job_id, limit=REFUSALS_READ_MAX))
    told = [_refusal(row, times) for row in reversed(rows)]
    groups = [list(group) for _, group in groupby(told, key=lambda chapter: (chapter.what, chapter.why))]
    return tuple(replace(group[-1], times=len(group)) for group in groups[-REFUSALS_TOLD_MAX:])


def _refusal(row: RefusalRow, times: Times) -> Chapter:
    error = _read_error(row.body)
    diagnostics = error.get("diagnostics")
    diagnostics = diagnostics if isinstance(diagnostics, dict) else {}
    details = diagnostics.get("details")
    decision = read_decision(details.get("decision")) if isinstance(details, dict) else None
    if decision is None:
        message = diagnostics.get("message")
        said = f"{capital(str(message))} ({row.code})." if message else f"The reason cannot be read ({row.code})."
        why = [said]
    else:
        why = decision_lines(decision)
    operator = error.get("failure_operator")
    what = _WHAT.get(str(operator), "request refused")
    result = details.get("result_digest") if isinstance(details, dict) else None
    if isinstance(result, bytes):
        what = "result discarded"
        why.append(f"Only its digest was kept: {digest_text(result)}.")
    # A submission refused because the job exists came after it was made; any other came before.
    rank = 0 if operator == identity.JOB_SUBMIT and row.code != "CONFLICT" else 2
    return Chapter(row.tick, times.iso(row.tick), what, tuple(why), decision=decision, rank=rank)


def _read_error(body: object) -> dict[str, Any]:
    """What an entry of the decision log says; nothing when it cannot be read, for that log is not signed."""
    try:
        error = decode(body) if isinstance(body, bytes) else None
    except NotCanonical:
        return {}
    return error if isinstance(error, dict) else {}


KILLED: Final = (
    "Its process was killed from outside each time. When memory runs out, the kernel does that (`dmesg` names the process);"
    " less data at once, fewer workers or more memory help."
)
REMADE: Final = "remade"
UNREADABLE: Final = "unreadable"
_LOST: Final[Mapping[str, str]] = {
    ERASED: "was erased",
    ABSENT: "is not stored here",
    DAMAGED: "is damaged, `detent verify` says more",
    UNREADABLE: "is none that can be read",
}
_WHILE: Final[Mapping[str, str]] = {
    "QUEUED": "while it waited in the queue",
    "RETRYING": "while it waited to be tried again",
    "RUNNING": "while it ran",
}


def story_of(
    reader: StoreReader,
    content: Content,
    view: JobView,
    records: Sequence[RecordView],
    remade: Mapping[bytes, Remade] | None = None,
    may_name: Callable[[str], bool] | None = None,
) -> tuple[tuple[Chapter, ...], str | None]:
    """All chapters in order, and the sentence about the last move; None when nothing has moved the job yet.

    ``remade`` holds decisions that were made again, by digest: they replace those that are not here. ``may_name`` says which
    other jobs may be named; then refusals are left out as well, which are kept by id and not by tenant.
    """
    teller = _Teller(reader, content, view, remade or {}, may_name)
    told = [teller.tell(batch) for batch in _batches(records)]
    refusals = refusals_of(reader, view.row.job_id, view.times) if may_name is None else ()
    chapters = sorted([*told, *refusals], key=_when)
    last = told[-1].why if told and told[-1].what != "submitted" else ()
    return tuple(chapters), last[0] if last else None


def named_decision(record: RecordView) -> bytes | None:
    """The digest of the decision record that a record of a job names, if it names one."""
    named = record.fields.get("decision_digest")
    if record.evidence is not None and record.evidence.names_decision:
        named = record.evidence.detail_digest
    return named if isinstance(named, bytes) else None


def why_final(job: Job, last: ev.Evidence | None) -> list[str]:
    """Why a job that has ended without success is not tried again, and what it had used where that is the reason."""
    if last is None or last.kind == ev.CANCEL:
        return []
    if last.kind == ev.WATCHDOG:
        return ["A limit that was reached would be reached again, so it is not retried."]
    if last.kind == ev.QUOTA:
        return [_used(job, last.reason_code), "A budget is for all attempts together: another one would not help."]
    if last.kind in ev.INTERRUPTIONS:
        bound = f"It may be interrupted {_times(job.max_interruptions)}, and that is used up."
        return [bound, KILLED] if last.kind == ev.WORKER_LOST else [bound]
    if last.kind == ev.RESULT and last.category not in job.retry_categories:
        kept = ", ".join(job.retry_categories) or "none"
        return [f"A failure of category {last.category or 'unknown'} is not retried; for this job these are: {kept}."]
    if not job.max_retries:
        return ["It allows no retries."]
    return [f"It may be retried {_times(job.max_retries)}, and that is used up."]


class _Teller:
    """Walks a job's records in order and remembers what a later one leaves out: who ran it, since when, how often."""

    def __init__(
        self,
        reader: StoreReader,
        content: Content,
        view: JobView,
        remade: Mapping[bytes, Remade],
        may_name: Callable[[str], bool] | None,
    ) -> None:
        self._may_name = may_name
        self._reader, self._content, self._remade = reader, content, remade
        self._job, self._times = view.job, view.times
        self._worker = "its worker"
        self._since = 0
        self._failures = self._interruptions = 0

    def tell(self, batch: Sequence[RecordView]) -> Chapter:
        """One chapter from the records of one atomic batch."""
        record = batch[-1]
        fields, evidence, named = record.fields, record.evidence, named_decision(record)
        # One that cannot be read happened after the one before it, whenever that was.
        tick = max(record.tick or 0, self._since)
        decision, became = self._decision(named, record.row)
        if record.row.kind == "submitted" and fields:
            what, why = "submitted", self._decided(decision, ["It was submitted."])
            self._since = tick
        elif evidence is None or not fields:
            what, why = f"{record.row.kind}, unreadable", ["`detent verify` says what is wrong with this record."]
        else:
            from_state, to_state = str(batch[0].fields.get("from_state")), str(fields.get("to_state"))
            what = f"{word_of(from_state)} -> {word_of(to_state)}"
            why = self._moved(from_state, to_state, evidence, decision, tick)
        if became is not None and became in _LOST:
            why.append(f"The decision record that says more {_LOST[became]}.")
        positions = tuple(one.row.position for one in batch)
        attempt = fields.get("attempt_id")
        return Chapter(
            tick,
            record.times.iso(tick),
            what,
            tuple(why),
            attempt=attempt + 1 if isinstance(attempt, int) else None,
            records=positions,
            decision=decision,
            decision_digest=named,
            decision_content=became,
            replicas=again.replicas if named is not None and (again := self._remade.get(named)) else None,
        )

    def _moved(
        self, from_state: str, to_state: str, evidence: ev.Evidence, decision: Decision | None, tick: int
    ) -> list[str]:
        """Why a transition happened: its decision record says it, or its evidence does."""
        words = code_words(evidence.reason_code)
        passed = duration_text((tick - self._since) * self._times.tick_ms)
        self._since = tick
        if evidence.kind == ev.DISPATCH:
            self._worker = evidence.replica_id or "a worker"
            return [*self._decided(decision, [f"It was given to {self._worker}."]), f"It had waited {passed}."]
        if evidence.kind == ev.RETRY_READY:
            return [f"After {passed} its delay is over and there is room: it stands at the end of its class again."]
        if evidence.kind == ev.CANCEL:
            if evidence.reason_code in ev.EVICTIONS:
                return self._decided(decision, [f"It lost its place in the queue to another job ({words})."])
            where = f" on {self._worker}" if from_state == State.RUNNING else ""
            return [f"It was cancelled {_WHILE.get(from_state, '')}{where} ({words})."]
        if evidence.kind == ev.QUOTA and from_state != State.RUNNING:
            return [f"When its turn came it was over its quota ({words})."]
        if to_state == State.SUCCEEDED:
            return [f"{capital(self._worker)} reported a result after {passed}."]
        return [self._ended(evidence, words, passed), *self._follows(to_state, evidence)]

    def _ended(self, evidence: ev.Evidence, words: str, passed: str) -> str:
        worker = capital(self._worker)
        if evidence.kind == ev.EXPIRY:
            return f"{worker} gave no sign of life in time and counts as lost, {passed} after the start ({words})."
        if evidence.kind in ev.INTERRUPTIONS:
            return f"It was interrupted on {self._worker} after {passed}, by no fault of its own ({words})."
        if evidence.kind == ev.WATCHDOG:
            return f"The watchdog stopped it on {self._worker} after {passed} ({words})."
        if evidence.kind == ev.QUOTA:
            return f"It was over its quota on {self._worker} after {passed} ({words})."
        category = "" if evidence.category is None else f", {evidence.category}"
        return f"{worker} reported a failure after {passed} ({words}{category})."

    def _follows(self, to_state: str, evidence: ev.Evidence) -> list[str]:
        if to_state != State.RETRYING:
            return ["It is not tried again."]
        if evidence.kind in ev.INTERRUPTIONS:
            self._interruptions += 1
            return [f"It is tried again: interruption {self._interruptions} of at most {self._job.max_interruptions}."]
        self._failures += 1
        return [f"It is tried again: retry {self._failures} of at most {self._job.max_retries}."]

    def _decided(self, decision: Decision | None, otherwise: list[str]) -> list[str]:
        if decision is None:
            return otherwise
        return decision_lines(decision)

    def _decision(self, named: bytes | None, record: RecordRow) -> tuple[Decision | None, str | None]:
        """The decision record that a record names, and whether it can still be read."""
        if named is None:
            return None, None
        became, _ = whereabouts(self._reader, self._content, named, record)
        decision = read_decision(find_decision(self._reader, record, named)) if became == HERE else None
        if decision is not None:
            return decision if self._may_name is None else nameless(decision, self._may_name), HERE
        if (again := self._remade.get(named)) is not None:
            return again.decision, REMADE
        return None, UNREADABLE if became == HERE else became


def _batches(records: Sequence[RecordView]) -> Iterator[list[RecordView]]:
    """The records of each atomic batch together, in order."""

    def batch_of(record: RecordView) -> object:
        batch_id = record.fields.get("batch_id")
        return batch_id if isinstance(batch_id, bytes) else record.row.position

    return (list(group) for _, group in groupby(records, key=batch_of))


def _when(chapter: Chapter) -> tuple[int, int, int]:
    return chapter.tick, chapter.rank, chapter.records[0] if chapter.records else 0


def _used(job: Job, code: str) -> str:
    usage = job.usage
    used = {
        "QUOTA_GPU_TIME": f"{duration_text(usage.gpu_time_ms)} of GPU time",
        "QUOTA_CPU_TIME": f"{duration_text(usage.cpu_time_ms)} of CPU time",
        "QUOTA_IO_BYTES": f"{usage.io_bytes_read + usage.io_bytes_written} bytes of input and output",
        "QUOTA_MEMORY_BYTES": f"{usage.peak_bytes} bytes of memory at once",
    }
    return f"It had used {used.get(code, 'more than it may')}."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
