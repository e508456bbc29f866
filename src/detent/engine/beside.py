"""What a home keeps beside its signed history and acts on: each row is held against the signed payload that it is about.

An index row or a kept answer is a hint that saves time. Where it is used, the signed payload decides; here every row is
compared, so that one which was changed is found before it is used (X-196). `docs/threat-model.md` lists all tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from detent.canon import NotCanonical, decode, digest_text, parse_digest
from detent.engine.content import NAMING, Content, open_value
from detent.engine.ingredients import key_of_order
from detent.errors import DetentError, InvariantBroken
from detent.jobs.work import WorkOrder, read_order
from detent.kernel import Job
from detent.kernel.evidence import RESULT
from detent.kernel.history import STEP_REUSED
from detent.ledger.findings import Finding
from detent.ledger.schema import Grounds, read_evidence
from detent.store.api import AnswerRow, JobRow, RecordRow, WorkRow


def beside_findings(content: Content) -> Iterator[Finding]:
    """Every row of the work index, every recorded reuse and every kept answer that does not fit what was signed."""
    reader = content.reader
    for row in reader.work_rows():
        yield from _work(content, row)
    for partition in range(reader.partitions):
        for record in reader.records_of_kind(partition, STEP_REUSED):
            yield from _reuse(content, record)
    for answer in reader.answer_rows():
        yield from _answer(content, answer)


def missing_findings(content: Content) -> Iterator[Finding]:
    """Content that work and records name by digest and that is neither here nor erased on the ledger.

    Signed reports are asked for where their signatures are checked. A payload, and what a reuse names, is asked for where the
    index has the job, because they were stored together; that of a job submitted in another way may never have been here.
    """
    reader = content.reader
    erased = set(_erased(content))
    indexed: set[str] = set()
    for row in reader.work_rows():
        indexed.add(row.job_id)
        job = _job(reader.job(row.job_id))
        if job is not None and _is_missing(content, job.payload_digest, erased):
            yield Finding("CONTENT_MISSING", f"the payload {_gone(job.payload_digest)}", job_id=row.job_id)
    for partition in range(reader.partitions):
        for record in reader.records(partition):
            named = _named(record)
            if record.kind == STEP_REUSED and _fields(record).get("job_id") not in indexed:
                continue
            if named is not None and _is_missing(content, named, erased):
                message = f"what the record names, {_gone(named)}"
                yield Finding("CONTENT_MISSING", message, partition, record.batch_no, record.position)


def _gone(digest: bytes) -> str:
    return f"{digest_text(digest)}, is neither here nor erased on the ledger"


def _named(record: RecordRow) -> bytes | None:
    """The content that a record names itself: the decision behind it, or the ingredients of a reuse."""
    if record.kind == "transition":
        grounds = None if record.evidence is None else read_evidence(record.evidence)
        return grounds.detail_digest if isinstance(grounds, Grounds) and grounds.kind != RESULT else None
    field = NAMING.get(record.kind)
    named = None if field is None else _fields(record).get(field)
    return named if type(named) is bytes else None


def _erased(content: Content) -> Iterator[bytes]:
    for partition in range(content.reader.partitions):
        for record in content.reader.records_of_kind(partition, "erased"):
            digests = _fields(record).get("digests")
            yield from digests if isinstance(digests, list) else ()


def _is_missing(content: Content, digest: bytes, erased: set[bytes]) -> bool:
    if digest in erased:
        return False
    try:
        return not content.has(digest)
    except DetentError:
        return False  # Damaged, which is found where it is read.


def _fields(record: RecordRow) -> Mapping[str, Any]:
    try:
        fields = decode(record.body)
    except NotCanonical:
        return {}  # Which is found where the record is read.
    return fields if isinstance(fields, dict) else {}


def _work(content: Content, row: WorkRow) -> Iterator[Finding]:
    job = _job(content.reader.job(row.job_id))
    if job is None:
        yield Finding("WORK_INDEX_WRONG", "a row of a job that cannot be read", job_id=row.job_id)
        return
    wrong = [] if row.workspace == job.tenant_id else ["workspace"]
    wrong += [] if row.payload_digest == job.payload_digest else ["payload_digest"]
    order = _order(content, job)
    if order is not None:
        key = key_of_order(order)
        fits = key is None or row.execution_key in {
            parse_digest(key),
            job.payload_digest,
        }  # The latter once it was erased.
        wrong += [] if fits else ["execution_key"]
        wrong += [] if order.label == row.label else ["label"]
    if wrong:
        message = f"the job's row says something else than its signed payload: {', '.join(wrong)}"
        yield Finding("WORK_INDEX_WRONG", message, job_id=row.job_id)


def _reuse(content: Content, record: RecordRow) -> Iterator[Finding]:
    """A reuse names its ingredients; those of the job whose result was taken must be the same."""
    fields = _fields(record)
    if type(fields.get("job_id")) is not str:
        return
    named = fields.get("ingredients_digest")
    said = _opened(content, named) if type(named) is bytes else None
    job = _job(content.reader.job(fields["job_id"]))
    order = None if job is None else _order(content, job)
    if order is None or said is None:
        return
    if said.get("ingredients") != order.ingredients:
        message = f"step {fields.get('step_id')!r} of run {fields.get('run_id')!r} took the result of other work"
        place = (record.partition, record.batch_no, record.position, fields["job_id"])
        yield Finding("REUSE_MISMATCH", message, *place)


def _answer(content: Content, row: AnswerRow) -> Iterator[Finding]:
    job_id = row.response.decode(errors="replace")
    if content.reader.job(job_id) is None:
        yield Finding("ANSWER_WRONG", "the answer kept for an idempotency key names a job that is not there")


def _job(row: JobRow | None) -> Job | None:
    try:
        return None if row is None else Job.decode(row.body)
    except (NotCanonical, InvariantBroken, TypeError, ValueError):
        return None


def _order(content: Content, job: Job) -> WorkOrder | None:
    said = _opened(content, job.payload_digest)
    try:
        return None if said is None else read_order(said)
    except (DetentError, TypeError):
        return None  # A payload of another kind.


def _opened(content: Content, digest: bytes) -> Mapping[str, Any] | None:
    """The map in sealed content; None when it is gone, damaged (which is found there) or something else."""
    try:
        data = content.get(digest)
        said = None if data is None else open_value(data)
    except (DetentError, TypeError):
        return None
    return said if isinstance(said, dict) else None
