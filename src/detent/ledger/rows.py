"""Checks of what lies beside the signed history: stored rows, content and signed reports.

What lies beside the signed history: stored rows, which must say what the records say, and content by digest.

Job rows come in the order of their ids, as the fold does, so the two are walked side by side: a row too many, one too few
and one that differs are all told apart, and nothing has to be remembered.

The comparison of signed reports, as a bundle brings them, with the records that name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from detent.canon import NotCanonical, digest_text, encode_trusted, json_decode, sha256
from detent.errors import InvalidInput, InvariantBroken
from detent.jobs.elements import Elements
from detent.jobs.status import JobStatus
from detent.kernel import Job, partition_of
from detent.kernel.job import FIXED_FIELDS
from detent.ledger.book import Book, Partition
from detent.ledger.findings import Finding
from detent.ledger.items import ContentItem, JobItem, RunItem
from detent.ledger.loose import loose
from detent.ledger.signing import NamedResult, SignedResult, result_signature
from detent.ledger.tables import JobFold, fixed_digest
from detent.ledger.trust_config import TrustFault
from detent.ledger.workers import WorkerLease

RUNNING = "running"
_COMPARED = ("tenant_id", "run_id", "state", "transition_seq", "attempt_id", "head")


class Rows:
    """The comparison of stored rows and content with what was read before."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._folds: Iterator[tuple[str, JobFold]] | None = None
        self._fold: tuple[str, JobFold] | None = None
        self._last: bytes | None = None
        self.jobs = 0
        self.runs = 0

    def content(self, item: ContentItem) -> None:
        """Content must have the digest it is kept under, and must not be what the ledger says is erased."""
        self._book.counts["contents"] += 1
        if sha256(item.data) != item.digest:
            self._note("CONTENT_DIGEST_WRONG", f"the content kept as {digest_text(item.digest)} is something else")
        self._book.erased.found(item.digest, item.data)

    def job(self, item: JobItem) -> None:
        """Walk the fold up to this row's job and compare."""
        self.jobs += 1
        name = item.job_id.encode()
        if self._last is not None and name <= self._last:
            self._note("ITEM_OUT_OF_ORDER", "job rows are not in the order of their ids", item.job_id)
            return
        self._last = name
        self._start()
        while self._fold is not None and self._fold[0].encode() < name:
            self._missing()
        if self._fold is None or self._fold[0] != item.job_id:
            self._note("FOLD_ROW_UNKNOWN", "a job row that no record knows", item.job_id)
            return
        wrong = _job_differences(item, self._fold[1])
        header = self._book.header
        if header is not None and item.partition not in (None, partition_of(item.job_id, header.partitions)):
            wrong.append("partition")
        if wrong:
            message = f"the job's row says something else than its records: {', '.join(wrong)}"
            self._note("FOLD_DIFFERS", message, item.job_id)
        self._step()

    def run(self, item: RunItem) -> None:
        """A run's row must say what its records say."""
        self.runs += 1
        self._finish_jobs()
        runs, header = self._book.runs, self._book.header
        if header is None or not 0 <= item.partition < header.partitions:
            self._note(
                "FOLD_DIFFERS", f"the row of run {item.run_id!r} names a partition that the ledger does not have"
            )
            return
        said = runs.ended(item.partition, item.run_id)
        if said is None and (run := runs.open(item.partition, item.run_id)) is not None:
            digest = run.row_digest(item.run_id, RUNNING, None)
            said = [run.tenant_id, run.name, RUNNING, run.started_tick, None, digest]
        if said is None:
            self._note("FOLD_ROW_UNKNOWN", f"a row of run {item.run_id!r}, which no record knows")
        elif said[:5] != [item.tenant_id, item.name, item.status, item.started_tick, item.ended_tick] or (
            item.body is not None and sha256(item.body) != said[5]
        ):
            self._note("FOLD_DIFFERS", f"the row of run {item.run_id!r} says something else than its records")

    def finish(self, *, expected: bool) -> None:
        """All rows have come. ``expected``: there had to be one for every job and run."""
        if expected:
            self._start()
        self._finish_jobs()
        if (expected or self.runs) and self.runs != self._book.runs.count:
            self._note("FOLD_ROW_MISSING", f"{self.runs} run rows for {self._book.runs.count} runs")
        for digest in self._book.erased.undone():
            self._note("CONTENT_NOT_ERASED", f"{digest_text(digest)} is erased on the ledger and still here")

    def _start(self) -> None:
        if self._folds is None:
            self._folds = self._book.jobs.sorted()
            self._step()

    def _finish_jobs(self) -> None:
        """No more job rows come: what is left of the fold, once it is being walked, has none."""
        while self._fold is not None:
            self._missing()

    def _step(self) -> None:
        self._fold = next(self._folds, None) if self._folds is not None else None

    def _missing(self) -> None:
        if self._fold is not None:
            self._note("FOLD_ROW_MISSING", "a job of the records has no row", self._fold[0])
        self._step()

    def _note(self, code: str, message: str, job_id: str | None = None) -> None:
        self._book.findings.add(Finding(code, message, job_id=job_id))


def _job_differences(item: JobItem, fold: JobFold) -> list[str]:
    """The columns, and the parts of the stored job, in which a row differs from the fold."""
    wrong = [name for name in _COMPARED if getattr(item, name) != getattr(fold, name)]
    if item.body is None:
        return wrong
    try:
        job = Job.decode(item.body)
        values = job.to_list()
        canonical = encode_trusted(values) == item.body
    except (NotCanonical, InvariantBroken, TypeError, ValueError):
        return [*wrong, "body"]
    if not canonical or job.job_id != item.job_id:
        wrong.append("body")
    if item.tick is not None and fold.fixed and not _written(item.tick, job, fold):
        wrong.append("tick")
    if not fold.fixed:
        return wrong + [f"body.{name}" for name in _COMPARED if getattr(job, name) != getattr(fold, name)]
    if fixed_digest(values[:FIXED_FIELDS]) != fold.fixed:
        wrong.append("body (what the submission fixed)")
    return wrong + [f"body.{name}" for name in _body_differences(job, fold)]


def _written(tick: int, job: Job, fold: JobFold) -> bool:
    """Whether a row can have been written at a tick: with the job's last record, or with a later report of usage."""
    reported = job.state == "RUNNING" and job.reports > 0
    return tick >= fold.tick if reported else tick == fold.tick


def _body_differences(job: Job, fold: JobFold) -> Iterator[str]:
    """The fields of a stored job that the job's records determine and that differ from them.

    What is left are usage and its reports, the conflicts counted, and how far heartbeats have moved a lease: these come
    from commands without records, and only a replay knows them.
    """
    running, queued, retrying = (job.state == state for state in ("RUNNING", "QUEUED", "RETRYING"))
    expected: dict[str, object] = {
        "failures": fold.failures,
        "interruptions": fold.interruptions,
        "ever_dispatched": fold.dispatched,
        "reason_code": fold.reason,
        "exit_seq": fold.transition_seq - 1 if fold.ended else fold.exit_seq,
        "lease_id": fold.lease_id,
        "lease_holder": fold.holder,
        "ready_tick": fold.due if retrying else None,
        "queued_tick": fold.moved_tick if queued else None,
    }
    if not running:
        expected |= {"lease_expiry": None, "heartbeat_tick": None}
    if fold.ended:
        expected["conflicts"] = 0
    for name in (*_COMPARED, *expected):
        if getattr(job, name) != (expected[name] if name in expected else getattr(fold, name)):
            yield name
    if running and (job.lease_expiry is None or job.lease_expiry < fold.due):
        yield "lease_expiry"
    if running and (job.heartbeat_tick is None or job.heartbeat_tick < fold.moved_tick):
        yield "heartbeat_tick"


_BOUND: Final = ("job_id", "attempt_id", "lease_id", "manifest_hash")
"""The fields of a report that bind it to one attempt (JOB-083)."""


class Reports:
    """The comparison of reports, as they come, with the records that name them."""

    def __init__(self, book: Book, partition_of: Callable[[int], Partition | None]) -> None:
        self._book = book
        self._partition_of = partition_of
        self.checked = 0
        self.erased = 0
        self.missing = 0

    def content(self, item: ContentItem) -> None:
        """Check content that a record names as a report; any other is none of this."""
        named = self._book.results.take(item.digest)
        if named is None:
            return
        self.checked += 1
        try:
            signed = SignedResult.parse(item.data)
        except InvalidInput as exc:
            self._note("RESULT_SIGNATURE_INVALID", f"what the record names as the signed report is none: {exc}", named)
            return
        if fault := _mismatch(signed.body, named):
            self._note("RESULT_MISMATCH", fault, named)
        self._check_signature(signed, named)

    def finish(self, *, expected: bool) -> None:
        """All content has come. ``expected``: it had to be there, unless it was erased."""
        lost = expected or self.checked > 0
        for digest, named in self._book.results.left():
            if digest in self._book.erased:
                self.erased += 1
                continue
            self.missing += 1
            if lost:
                message = f"the signed report {digest_text(digest)} is neither here nor erased on the ledger"
                self._note("RESULT_MISSING", message, named)

    def counts(self) -> dict[str, int]:
        """How many results there were, and what was seen of their reports."""
        results = self._book.results
        return {
            "results": results.named + results.unnamed,
            "results_signed": self._book.executors.total(),
            "results_without_report": results.unnamed,
            "reports_erased": self.erased,
            "reports_missing": self.missing,
        }

    def _check_signature(self, signed: SignedResult, named: NamedResult) -> None:
        partition = self._partition_of(named.partition)
        trust = None if partition is None else partition.trust
        if partition is None or trust is None:
            return  # That there is nothing to trust has been found already.
        enrolled = partition.workers.worker(signed.key_id)
        worker = None if enrolled is None else WorkerLease(enrolled, named.position, named.holder)
        check = result_signature(
            trust, signed, named.batch_no, tenant=named.tenant_id, partition=named.partition, worker=worker
        )
        if isinstance(check, TrustFault):
            self._note(check.code, f"the report's signature: {check.message}", named)
            return
        message = "the executor's signature of the report does not verify"
        place = (named.partition, named.batch_no, named.position, named.job_id)
        otherwise = ("RESULT_SIGNATURE_INVALID", message, *place, signed.key_id)
        self._book.executors[signed.key_id] += 1
        if enrolled is not None:
            self._book.workers[signed.key_id] = enrolled.worker_id
        self._book.signature(check, otherwise)

    def _note(self, code: str, message: str, named: NamedResult) -> None:
        place = (named.partition, named.batch_no, named.position, named.job_id)
        self._book.findings.add(Finding(code, message, *place))


def _mismatch(body: bytes, named: NamedResult) -> str | None:
    """Say in what a report differs from the record that names it, or nothing."""
    said = loose(body)
    if type(said) is not dict:
        return "the report cannot be read"
    wrong = [name for name in _BOUND if said.get(name) != getattr(named, name)]
    if wrong:
        return f"the report is of another attempt than the record: {', '.join(wrong)}"
    status = _status(said)
    if (status == JobStatus.SUCCEEDED.value) != named.succeeded:
        ended = "a success" if named.succeeded else "a failure"
        return f"the report says {str(status)[:40]}, the record calls it {ended}"
    return _elements_fault(said, named) if "elements" in said or "elements_root" in said else None


def _elements_fault(said: Mapping[str, Any], named: NamedResult) -> str | None:
    """Say what is wrong with the elements of an array, or nothing: each counts, and the root is that over all of them."""
    try:
        elements = Elements.read(said.get("elements"))
        if fault := elements.fault():
            return f"the report's {fault}"
        if elements.root() != said.get("elements_root"):
            return "the report's elements_root is not the root over its elements"
    except (TypeError, ValueError, KeyError) as exc:
        return f"the report's elements cannot be read: {exc}"
    return None if elements.ok == named.succeeded else "the report's elements did not all end as the record says"


def _status(said: Mapping[str, Any]) -> object:
    """How a report says that its attempt ended: in a field of its own, or in the result document of a platform job."""
    if type(document := said.get("result")) is not bytes:
        return said.get("status")
    try:
        result = json_decode(document)
    except InvalidInput:
        return None
    return result.get("status") if isinstance(result, dict) else None
