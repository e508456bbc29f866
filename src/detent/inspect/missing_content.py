"""Content that jobs, runs, records and reports name by digest and that is neither here nor erased on the ledger.

A person who reads a home sees such content as gone. That is right after an erasure, which is on the ledger, and a finding otherwise.
The digest says what it was, so nothing else can be put in its place. The signed reports themselves are asked for where their
signatures are checked.

What jobs were asked to do, read for checking: an unreadable one is None here and a finding where it is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

from detent.canon import DIGEST_BYTES, NotCanonical, decode, digest_text, parse_digest, sha256
from detent.errors import DetentError, InvariantBroken, StoreCorrupt
from detent.jobs.order import Order, read_order
from detent.jobs.report import PlatformReport, Report, read_report
from detent.kernel import Job, Run
from detent.kernel.evidence import DISPATCH, EVICTIONS, RESULT
from detent.ledger.findings import Finding
from detent.ledger.schema import Grounds, SubmittedManifest, read_evidence, read_submitted
from detent.ledger.signing import SignedResult
from detent.owner.content import NAMING, Content, open_value, scheduled_inputs
from detent.owner.decision_records import read_decisions
from detent.store.api import JobRow, RecordRow, RunRow, StoreReader

NOTHING = bytes(DIGEST_BYTES)
"""In the place of a digest where there is nothing to name."""


def missing_findings(content: Content) -> Iterator[Finding]:
    """Every payload, input of a run, decision, list of reused ingredients, value, output and file that is gone unexplained."""
    missing = _Missing(content)
    reader = content.reader
    for row in reader.jobs():
        for what, digest in _of_job(content, row):
            if missing(digest):
                yield Finding("CONTENT_MISSING", f"{what} {_gone(digest)}", job_id=row.job_id)
    for run in reader.runs():
        inputs = _inputs(run)
        if inputs is not None and missing(inputs):
            message = f"what run {run.run_id!r} was started with, {_gone(inputs)}"
            yield Finding("CONTENT_MISSING", message, run.partition)
    for partition in range(reader.partitions):
        pieces = _Pieces(reader, partition)
        for batch_no, records in groupby(reader.records(partition), key=attrgetter("batch_no")):
            kept = yield from pieces.of_batch(batch_no)
            named = set()
            for record in records:
                place = (partition, batch_no, record.position, record.job_id)
                if (decision := _decision_named(record)) is not None:
                    named.add(decision)
                    if decision not in kept if kept is not None else missing(decision):
                        yield Finding("CONTENT_MISSING", f"the decision, {_gone(decision)}", *place)
                    continue
                for what, digest in _of_record(content, record):
                    if missing(digest):
                        yield Finding("CONTENT_MISSING", f"{what} {_gone(digest)}", *place)
            for digest in (kept or frozenset()) - named:
                message = f"decision {digest_text(digest)} is kept with batch {batch_no}, and no record of it names it"
                yield Finding("DECISIONS_WRONG", message, partition, batch_no)
        yield from pieces.left()


class _Pieces:
    """The decisions that are kept with the batches of one partition, read along with its records."""

    def __init__(self, reader: StoreReader, partition: int) -> None:
        self._rows = reader.decisions(partition)
        self._row = next(self._rows, None)

    def of_batch(self, batch_no: int) -> Generator[Finding, None, frozenset[bytes] | None]:
        """The digests of what is kept with a batch; None where nothing is. Those of batches passed over are findings."""
        while self._row is not None and self._row.batch_no < batch_no:
            yield self._pass()
        if self._row is None or self._row.batch_no != batch_no:
            return None
        row, self._row = self._row, next(self._rows, None)
        try:
            return frozenset(map(sha256, read_decisions(row)))
        except StoreCorrupt as exc:
            yield Finding("DECISIONS_WRONG", str(exc), row.partition, batch_no)
            return frozenset()

    def left(self) -> Iterator[Finding]:
        """Findings about what is kept for batches that have no records, or are not there."""
        while self._row is not None:
            yield self._pass()

    def _pass(self) -> Finding:
        row = self._row
        assert row is not None
        self._row = next(self._rows, None)
        message = f"decisions are kept with batch {row.batch_no}, which has no records"
        return Finding("DECISIONS_WRONG", message, row.partition, row.batch_no)


class _Missing:
    """Whether content is gone without an erasure that explains it."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._erased: set[bytes] = set()
        for partition in range(content.reader.partitions):
            for record in content.reader.records_of_kind(partition, "erased"):
                digests = fields_of(record).get("digests")
                self._erased.update(digests if isinstance(digests, list) else ())

    def __call__(self, digest: bytes) -> bool:
        # An erasure leaves a mark in the store. Without it, pages would call the content absent, or it came back and went again.
        if digest == NOTHING or (digest in self._erased and self._content.reader.is_erased(digest)):
            return False
        try:
            return not self._content.has(digest)
        except DetentError:
            return False  # Damaged, which is found where it is read.


def _gone(digest: bytes) -> str:
    return f"{digest_text(digest)}, is neither here nor known as erased"


def _of_job(content: Content, row: JobRow) -> Iterator[tuple[str, bytes]]:
    job = job_of(row)
    if job is None:
        return  # Which is found where rows are compared with records.
    yield "the payload", job.payload_digest
    order = order_of(content, job)
    for named in () if order is None else _listed(order.files):
        yield "a file among the arguments,", named


def _inputs(row: RunRow) -> bytes | None:
    try:
        return Run.decode(row.body).inputs_digest
    except (InvariantBroken, DetentError, NotCanonical, TypeError, ValueError):
        return None  # Which is found where rows are compared with records.


def _of_record(content: Content, record: RecordRow) -> Iterator[tuple[str, bytes]]:
    """What a record names itself beside a decision (the ingredients of a reuse), and what is in the report that it names."""
    if record.kind == "transition":
        grounds = None if record.evidence is None else read_evidence(record.evidence)
        if not isinstance(grounds, Grounds) or grounds.detail_digest is None:
            return
        if grounds.kind != RESULT:
            yield "why it was asked for,", grounds.detail_digest
            return
        report = _report(content, grounds.detail_digest)
        yield from () if report is None else _of_report(report)
    elif (field := NAMING.get(record.kind)) is not None:
        named = fields_of(record).get(field)
        if type(named) is bytes:
            yield "what the record names,", named
    elif (inputs := scheduled_inputs(record)) is not None:
        yield "what a schedule runs,", inputs


def _decision_named(record: RecordRow) -> bytes | None:
    """The decision that a record names."""
    if record.kind == "submitted":
        named = fields_of(record).get("decision_digest")
        return named if type(named) is bytes else None
    grounds = read_evidence(record.evidence) if record.kind == "transition" and record.evidence is not None else None
    if not isinstance(grounds, Grounds) or (grounds.kind != DISPATCH and grounds.reason_code not in EVICTIONS):
        return None
    return grounds.detail_digest


def _report(content: Content, digest: bytes) -> Report | None:
    try:
        envelope = content.get(digest)
        return None if envelope is None else read_report(SignedResult.parse(envelope).body)
    except DetentError:
        return None


def _of_report(report: Report) -> Iterator[tuple[str, bytes]]:
    if isinstance(report, PlatformReport):
        yield from (("an artifact,", parse_digest(artifact.digest)) for artifact in report.outcome().artifacts)
        return
    # A platform job's file is its value, too: named twice, and missing once.
    yield from (("a part of the result,", named) for named in dict.fromkeys(_listed(report.contents)))


def _listed(digests: Callable[[], Iterator[str | bytes]]) -> Iterator[bytes]:
    """Digests as far as they are ones: a payload or a report that no release wrote is not searched any further."""
    try:
        for named in digests():
            yield named if isinstance(named, bytes) else parse_digest(named)
    except (DetentError, TypeError, ValueError, KeyError):
        return


def job_of(row: JobRow | None) -> Job | None:
    """The job in a row."""
    try:
        return None if row is None else Job.decode(row.body)
    except (NotCanonical, InvariantBroken, TypeError, ValueError):
        return None


def order_of(content: Content, job: Job) -> Order | None:
    """The order that a job's payload is; None also for a payload of another kind."""
    said = opened(content, job.payload_digest)
    try:
        return None if said is None else read_order(said)
    except (DetentError, TypeError):
        return None


def opened(content: Content, digest: bytes) -> Mapping[str, Any] | None:
    """The map in sealed content."""
    try:
        data = content.get(digest)
        said = None if data is None else open_value(data)
    except (DetentError, TypeError):
        return None
    return said if isinstance(said, dict) else None


def fields_of(record: RecordRow) -> Mapping[str, Any]:
    """The fields of a record."""
    return _map(record.body)


def created_ms(reader: StoreReader, job_id: str) -> int | None:
    """When a job's submitter signed its manifest, by the submitter's clock."""
    record = next(reader.records_of_job(job_id), None)
    signed = None if record is None or record.evidence is None else read_submitted(record.evidence)
    tick = _map(signed.body).get("created_tick") if isinstance(signed, SubmittedManifest) else None
    return tick if type(tick) is int else None


def _map(data: bytes) -> Mapping[str, Any]:
    try:
        said = decode(data)
    except NotCanonical:
        return {}
    return said if isinstance(said, dict) else {}
