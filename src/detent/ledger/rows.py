"""What lies beside the signed history: stored rows, which must say what the records say, and content by digest.

Job rows come in the order of their ids, as the fold does, so the two are walked side by side: a row too many, one too few
and one that differs are all told apart, and nothing has to be remembered.
"""

from __future__ import annotations

from collections.abc import Iterator

from detent.canon import NotCanonical, digest_text, encode_trusted, sha256
from detent.errors import InvariantBroken
from detent.kernel import Job, partition_of
from detent.kernel.job import FIXED_FIELDS
from detent.ledger.book import Book
from detent.ledger.findings import Finding
from detent.ledger.items import ContentItem, JobItem, RunItem
from detent.ledger.tables import JobFold, fixed_digest

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
        elif said[:-1] != [item.tenant_id, item.name, item.status, item.started_tick, item.ended_tick] or (
            item.body is not None and sha256(item.body) != said[-1]
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
