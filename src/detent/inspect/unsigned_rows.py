"""Checks of what a home acts on and no signature covers: rows and checkpoints.

What a home keeps beside its signed history and acts on: each row is held against the signed payload that it is about.

An index row or a kept answer is a hint that saves time. Where it is used, the signed payload decides; here every row is
compared, so that one which was changed is found before it is used, and rows that must be there and are not are found, too
(X-196). What cannot be derived is counted and said under "not proved". `docs/threat-model.md` lists all tables.

Checkpoints held against the commands: a checkpoint is not signed, and an owner goes on from what it says.

The commands are applied again from the beginning, up to the newest checkpoint, and the state that they lead to must be the one
that was kept. That takes as long as replaying, so `detent verify` does it for short histories and says of longer ones that it did not;
`detent replay` always does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from detent.canon import NotCanonical, decode, digest_text, parse_digest, sha256
from detent.errors import StoreCorrupt
from detent.inspect.missing_content import created_ms, fields_of, job_of, opened, order_of
from detent.jobs.dedupe import IDEMPOTENCY_WINDOW_MS, ExecutionKey
from detent.jobs.kept_answer import WHOLE, read_kept
from detent.jobs.order import INPUT, Order
from detent.kernel import Job, checkpoint
from detent.kernel.checkpoint import CHECKPOINT_BYTES_MAX
from detent.kernel.history import RUN_REUSED, STEP_REUSED
from detent.kernel.partition_state import MakeQueue
from detent.kernel.table import State
from detent.ledger.findings import Finding
from detent.owner.content import Content
from detent.owner.kept_answers import is_under_key, request_digest
from detent.owner.recovery import states_from_the_beginning
from detent.reuse.ingredients import key_of_order
from detent.runs.record.recorded_run import report_of
from detent.runs.record.reuses import work_digest
from detent.store.api import PAYLOAD_MARK_BYTES, AnswerRow, CheckpointRow, RecordRow, StoreReader, WorkRow

CLOCKS_APART_MS: Final = 60_000
"""How far a submitter's clock and the owner's may lie apart: a clock may be set between the two moments, and ticks only go forwards."""
UUID_DERIVED: Final = 8
"""The version of the ids that are derived instead of drawn, as those of jobs under idempotency keys are."""


class Beside:
    """Compares what lies beside the history of one home, and counts what cannot be compared."""

    def __init__(self, window_ms: int = IDEMPOTENCY_WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._now_ms = 0
        """The latest moment that the ledger or an answer speaks of."""
        self._labels = 0
        self._unlabelled = 0
        self._unsure = 0
        self._borrowed = 0
        self._whole = 0
        self._unanswered = 0

    def findings(self, content: Content) -> Iterator[Finding]:
        """Every row that does not fit what was signed, and every job that lacks one."""
        reader = content.reader
        self._now_ms = max(reader.head(partition).last_tick for partition in range(reader.partitions))
        keys: dict[str, dict[int, bytes]] = {}
        for job_id, element, key in reader.work_element_rows():
            keys.setdefault(job_id, {})[element] = key
        for row in reader.work_rows():
            yield from self._work(content, row, keys.pop(row.job_id, {}))
        for job_id in keys:
            yield Finding("WORK_INDEX_WRONG", "keys of elements of a job that has no row", job_id=job_id)
        for job_row in reader.jobs_outside_work():
            if (job := job_of(job_row)) is not None:
                yield from self._unindexed(content, job)
        for partition in range(reader.partitions):
            for record in reader.records_of_kind(partition, STEP_REUSED):
                yield from _reuse(content, record)
            for record in reader.records_of_kind(partition, RUN_REUSED):
                yield from _run_reuse(content, record)
        for answer in reader.answer_rows():
            self._now_ms = max(self._now_ms, answer.stored_at_ms)
        for answer in reader.answer_rows():
            yield from self._answer(content, answer)
        for job_row in reader.jobs():
            if (job := job_of(job_row)) is not None and self._counts(job) and _is_under_some_key(job):
                self._unanswered += not reader.is_erased(job.payload_digest)

    def not_proved(self) -> Iterator[str]:
        """What could not be compared, with how much of it there is."""
        if self._labels:
            yield f"The names of work in the index whose payloads were erased ({self._labels:,})."
        if self._unlabelled:
            yield (
                f"Why jobs are missing from the lists by label and by pool ({self._unlabelled:,}). They may be older than these lists,"
                " or their rows were deleted; such a job is found by its id, run, state and time."
            )
        if self._unsure:
            yield (
                "Whether commands without declared inputs belong in the index of equal work, which their payloads do not say"
                f" ({self._unsure:,}). A row that is gone has the work done again."
            )
        if self._borrowed:
            yield (
                "Which request a kept answer to an idempotency key was given to, where it names the job of an earlier equal request"
                f" ({self._borrowed:,}). Before it is used, the job is compared with the request."
            )
        if self._whole:
            yield (
                f"The bytes of answers that a server keeps for idempotency keys ({self._whole:,}). Their jobs are here; a repeat of the"
                " request gets these bytes."
            )
        if self._unanswered > 0:
            yield (
                f"Why answers to idempotency keys are missing whose jobs are here ({self._unanswered:,}). They may have expired"
                " under an earlier setting, or been deleted; a request under such a key is done again."
            )

    def _work(self, content: Content, row: WorkRow, element_keys: Mapping[int, bytes]) -> Iterator[Finding]:
        job = job_of(content.reader.job(row.job_id))
        if job is None:
            yield Finding("WORK_INDEX_WRONG", "a row of a job that cannot be read", job_id=row.job_id)
            return
        wrong = [] if row.workspace == job.tenant_id else ["workspace"]
        wrong += [] if row.payload_digest == job.payload_digest else ["payload_digest"]
        order = order_of(content, job)
        yield from self._label(content, job, order)
        if order is None:
            self._labels += 1
            wrong += [] if row.execution_key == job.payload_digest or not _erased(content, job) else ["execution_key"]
        else:
            # An array has its keys elsewhere, and only the payload's digest here.
            key = digest_text(job.payload_digest) if order.elements else key_of_order(order)
            # The payload's digest stands there once it was erased; the same payload may have been left again since.
            fits = key is None or row.execution_key in {parse_digest(key), job.payload_digest}
            wrong += [] if fits else ["execution_key"]
            wrong += [] if order.label == row.label else ["label"]
        wrong += _wrong_elements(order, element_keys)
        if wrong:
            message = f"the job's row says something else than its signed payload: {', '.join(wrong)}"
            yield Finding("WORK_INDEX_WRONG", message, job_id=row.job_id)

    def _unindexed(self, content: Content, job: Job) -> Iterator[Finding]:
        """A job whose work can be reused was put into the index in the commit that submitted it."""
        order = order_of(content, job)
        yield from self._label(content, job, order)
        key = None if order is None else _key(order.of_element(0) if order.elements else order)
        if order is None or key is None:
            return
        if order.call.kind == "shell" and not any(name.startswith(INPUT) for name in order.origin.ingredients):
            self._unsure += 1  # Commands that declare that they read no file are reused, others are not.
            return
        yield Finding("WORK_INDEX_WRONG", "the job's work can be reused, and its row is missing", job_id=job.job_id)

    def _label(self, content: Content, job: Job, order: Order | None) -> Iterator[Finding]:
        """A job is listed under the label and in the pool of its signed payload, and under none once that was erased."""
        row = content.reader.label(job.job_id)
        if row is None:
            self._unlabelled += order is not None
            return
        wrong = [] if row.workspace == job.tenant_id else ["workspace"]
        wrong += [] if row.payload_mark == job.payload_digest[:PAYLOAD_MARK_BYTES] else ["payload_mark"]
        if order is not None:
            wrong += [] if row.label == order.label else ["label"]
            wrong += [] if row.pool == order.limits.pool else ["pool"]
        elif _erased(content, job):
            wrong += ["label, which was erased"]
        if wrong:
            message = f"the job is listed otherwise than its signed payload says: {', '.join(wrong)}"
            yield Finding("LABEL_WRONG", message, job_id=job.job_id)

    def _answer(self, content: Content, row: AnswerRow) -> Iterator[Finding]:
        if row.response[:1] == WHOLE:
            yield from self._whole_answer(content, row)
            return
        job_id, reader = row.response.decode(errors="replace"), content.reader
        job = job_of(reader.job(job_id))
        if job is None:
            yield _wrong_answer("names a job that is not there")
            return
        order = order_of(content, job)
        first, own = is_under_key(job_id, row.scope, lambda named: reader.job(named) is not None)
        if not own:
            self._borrowed += 1
            began = None if first is None or _is_erased(content, first) else created_ms(reader, first)
            if began is not None and row.stored_at_ms <= began:
                yield _wrong_answer(f"is older than job {first!r}, which was submitted under that key", job_id)
            return
        self._unanswered -= self._counts(job)
        if order is not None and request_digest(order) != row.body_digest:
            yield _wrong_answer("is about another request than its job's signed payload", job_id)
        began = created_ms(reader, job_id)
        latest = max(began or 0, job.submitted_tick)
        if began is not None and not began - CLOCKS_APART_MS <= row.stored_at_ms <= latest + CLOCKS_APART_MS:
            yield _wrong_answer("was not kept when its job was submitted", job_id)

    def _whole_answer(self, content: Content, row: AnswerRow) -> Iterator[Finding]:
        """A whole answer of a server names jobs that are there, and is not older than them."""
        try:
            kept = read_kept(row.response)
        except StoreCorrupt:
            yield _wrong_answer("cannot be read")
            return
        self._whole += 1
        for job_id in () if kept is None else kept.jobs:
            if content.reader.job(job_id) is None:
                yield _wrong_answer("names a job that is not there", job_id)

    def _counts(self, job: Job) -> bool:
        """Whether an answer that was kept when this job was submitted would still be here."""
        return job.submitted_tick + self._window_ms > self._now_ms


def _reuse(content: Content, record: RecordRow) -> Iterator[Finding]:
    """A reuse names its ingredients; those of the job whose result was taken must be the same."""
    fields = fields_of(record)
    if type(fields.get("job_id")) is not str:
        return
    named = fields.get("ingredients_digest")
    said = opened(content, named) if type(named) is bytes else None
    job = job_of(content.reader.job(fields["job_id"]))
    order = None if job is None else order_of(content, job)
    if order is None or said is None:
        return
    element = fields.get("element")
    if type(element) is int:
        order = order.of_element(element) if element < len(order.elements) else None
    elif order.elements:
        order = None  # An array has results, and none of its own.
    if order is None or said.get("ingredients") != order.origin.ingredients or _failed(content, job, element):
        message = f"step {fields.get('step_id')!r} of run {fields.get('run_id')!r} took the result of other work"
        place = (record.partition, record.batch_no, record.position, fields["job_id"])
        yield Finding("REUSE_MISMATCH", message, *place)


def _run_reuse(content: Content, record: RecordRow) -> Iterator[Finding]:
    """A reuse of a whole run names one digest over the keys of its work; those of that run's jobs must give the same."""
    fields = fields_of(record)
    named, run_id, excepted = (fields.get(name) for name in ("ingredients_digest", "reused_run_id", "except_steps"))
    said = opened(content, named) if type(named) is bytes else None
    if said is None or type(run_id) is not str or type(excepted) is not list:
        return
    keys: list[tuple[str, str]] = []
    for row in content.reader.jobs(run_id=run_id):
        job = job_of(row)
        order = None if job is None else order_of(content, job)
        if order is None:
            return  # Erased: there is nothing left to compare.
        elements = [order.of_element(place) for place in range(len(order.elements))] or [order]
        if _element_named(elements[0]) in excepted:
            continue  # An array is excepted by its first element.
        for element in elements:
            key = key_of_order(element)
            if key is None:
                return  # Made by tools that are not known here.
            keys.append((_element_named(element), key))
    if said.get("work") != work_digest(keys):
        message = f"run {fields.get('run_id')!r} took the results of other work with run {run_id!r}"
        yield Finding("REUSE_MISMATCH", message, record.partition, record.batch_no, record.position)


def _element_named(order: Order) -> str:
    """What records call the element of a step that an order is about."""
    step_id, index = str(order.origin.action.get("step_id")), order.origin.index
    return step_id if index is None else f"{step_id}[{index}]"


def _failed(content: Content, job: Job | None, element: int | None) -> bool:
    """Whether an element of an array did not succeed: of an array that failed, its report says which did."""
    row = None if job is None or element is None or job.state != State.FAILED else content.reader.job(job.job_id)
    report = None if row is None or element is None else report_of(content.reader, content, row)
    own = None if report is None or element is None else report.of_element(element)
    return report is not None and (own is None or not own.ok)


def _wrong_elements(order: Order | None, found: Mapping[int, bytes]) -> Iterator[str]:
    """The elements of an array whose keys are not those that its payload leads to; no other job, and no erased one, has any."""
    count = 0 if order is None else len(order.elements)
    yield from (f"key of element {place}, which there is not" for place in found if place >= count)
    for place in range(count):
        element = None if order is None else order.of_element(place)
        if element is None:
            continue
        if place not in found:
            if _key(element) is not None:
                yield f"missing key of element {place}"
        elif (key := key_of_order(element)) is not None and parse_digest(key) != found[place]:
            yield f"key of element {place}"


def _wrong_answer(what: str, job_id: str | None = None) -> Finding:
    return Finding("ANSWER_WRONG", f"the answer kept for an idempotency key {what}", job_id=job_id)


def _key(order: Order) -> ExecutionKey | None:
    """The key of work that is reused; None for work that is done every time, as far as its order tells."""
    unread = "code" in order.origin.ingredients and order.origin.ingredients["code"] is None
    undeclared = order.call.kind == "shell" and not order.call.outputs
    return None if unread or undeclared else key_of_order(order)


def _is_under_some_key(job: Job) -> bool:
    """Whether a job was submitted under an idempotency key: of tasks and platform jobs, those alone have derived ids."""
    try:
        return job.run_id is None and job.job_kind in {"task", "platform"} and UUID(job.job_id).version == UUID_DERIVED
    except ValueError:
        return False


def _erased(content: Content, job: Job) -> bool:
    return content.reader.is_erased(job.payload_digest)


def _is_erased(content: Content, job_id: str) -> bool:
    job = job_of(content.reader.job(job_id))
    return job is not None and _erased(content, job)


RECORDS_APPLIED_MAX: Final = 20_000
"""The longest history that a verification applies again."""
COUNTED: Final = frozenset({"metrics", "trace_length"})
"""What a release may count otherwise than the one before: a difference in these alone shows no tampering."""


class Checkpoints:
    """Compares the checkpoints of one home, and counts those that were not."""

    def __init__(self, make_queue: MakeQueue) -> None:
        self._make_queue = make_queue
        self._left = 0

    def findings(self, reader: StoreReader) -> Iterator[Finding]:
        """Every checkpoint that is not what its digest names, or not the state that the commands lead to."""
        for partition in range(reader.partitions):
            rows: dict[int, CheckpointRow] = {}
            for row in reader.checkpoints(partition):
                if sha256(row.body) != row.digest:
                    yield _wrong(row, "is not what its digest names")
                elif not 0 <= row.batch_no < reader.head(partition).size:
                    yield _wrong(row, "comes after a batch that is not there")
                else:
                    rows[row.batch_no] = row
            yield from self._compared(reader, partition, rows)

    def not_proved(self) -> Iterator[str]:
        """What was not compared."""
        if self._left:
            yield (
                f"The state in checkpoints, from which the next owner goes on ({self._left:,} not compared): applying a long history"
                " again takes its time. `detent replay` does it."
            )

    def _compared(self, reader: StoreReader, partition: int, rows: dict[int, CheckpointRow]) -> Iterator[Finding]:
        left = dict(rows)
        last = reader.batch(partition, max(rows)) if rows else None
        if last is not None and last.first_position + last.record_count <= RECORDS_APPLIED_MAX:
            states = states_from_the_beginning(reader, partition, last.batch_no + 1, make_queue=self._make_queue)
            try:
                for batch_no, kernel in states:
                    if (row := rows.get(batch_no)) is None:
                        continue
                    differing = _differing(row.body, checkpoint(kernel))
                    if not differing <= COUNTED:
                        yield _wrong(row, f"is not the state that the commands lead to: {', '.join(sorted(differing))}")
                    if not differing or not differing <= COUNTED:
                        del left[batch_no]
            except Exception:  # noqa: BLE001, S110 - damaged commands do what they like, and are found where records are checked
                pass
        self._left += len(left)


def _differing(stored: bytes, made: bytes) -> set[str]:
    """The parts in which two checkpoints differ."""
    if stored == made:
        return set()
    ours, theirs = _parts(made), _parts(stored)
    return {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)} or {"encoding"}


def _parts(body: bytes) -> Mapping[str, Any]:
    try:
        said = decode(body, bytes_max=CHECKPOINT_BYTES_MAX)
    except NotCanonical:
        return {}
    return said if isinstance(said, dict) else {}


def _wrong(row: CheckpointRow, what: str) -> Finding:
    message = f"the checkpoint after batch {row.batch_no} {what}"
    return Finding("CHECKPOINT_WRONG", message, row.partition, row.batch_no)
