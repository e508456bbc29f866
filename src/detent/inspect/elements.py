"""The elements of an array, read back: what each was asked to do, and what came of it, by the array's signed report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from detent.canon.late import dataclass
from detent.errors import DetentError
from detent.jobs.elements import element_id
from detent.jobs.order import Order
from detent.jobs.work import WorkReport
from detent.kernel import Job
from detent.kernel.table import TERMINAL, State
from detent.ledger.signing import report_named
from detent.owner.content import Content
from detent.owner.views import JobView
from detent.runs.record.outcome import read_report
from detent.store.api import StoreReader
from detent.words.quantities import duration_text
from detent.words.states import word_of


@dataclass(frozen=True, slots=True)
class ElementView:
    """One element of an array."""

    job_id: str
    place: int
    count: int
    """How many elements the array has."""
    order: Order
    """What it was asked to do, as a job of its own would be."""
    report: WorkReport | None
    """What came of it; None while it has no outcome."""
    state: str
    """As a job of its own would stand."""

    @property
    def name(self) -> str:
        """What it is called."""
        return element_id(self.job_id, self.place)

    @property
    def ran_ms(self) -> int | None:
        """How long it took; None while that is not known."""
        return None if self.report is None else self.report.result.finished_ms - self.report.result.started_ms

    def to_map(self) -> dict[str, Any]:
        """One line of a list of elements."""
        failure = None if self.report is None else self.report.result.failure
        return {
            "job_id": self.name,
            "element": self.place,
            "index": self.order.origin.index,
            "state": word_of(self.state),
            "status": word_of(self.state),
            "reason_code": None if self.report is None else self.report.reason_code,
            "attempt": None if self.report is None else self.report.attempt_id + 1,
            "ran_ms": self.ran_ms,
            "error": None
            if failure is None
            else {name: getattr(failure, name) for name in ("category", "code", "type", "message")},
        }

    @property
    def lines(self) -> tuple[str, ...]:
        """In sentences."""
        here = f"It is element {self.place} of {self.count} of job {self.job_id}: they share its attempts, its lease and its place in the queue."
        if self.report is None:
            return (here, "It has no outcome of its own: what is told of the job holds for it.")
        took = duration_text(self.ran_ms or 0)
        how = f"It {word_of(self.state)} in attempt {self.report.attempt_id + 1}, after {took}"
        failure = self.report.result.failure
        if failure is None:
            return (here, f"{how}.")
        said = ": ".join(text for text in (failure.type or failure.code, failure.message) if text)
        return (here, f"{how}: {said}.")


def elements_of(reader: StoreReader, content: Content, view: JobView, order: Order) -> Iterator[ElementView]:
    """All elements of an array, in order."""
    report = settled_report(reader, content, view.row.job_id)
    for place in range(len(order.elements)):
        yield _view(view.job, order, report, place)


def element_of(reader: StoreReader, content: Content, view: JobView, order: Order, place: int) -> ElementView:
    """One element of an array."""
    return _view(view.job, order, settled_report(reader, content, view.row.job_id), place)


def settled_report(reader: StoreReader, content: Content, job_id: str) -> WorkReport | None:
    """The last report of an array that tells of its elements: each takes over what those before it told."""
    digests = [
        digest
        for record in reader.records_of_job(job_id)
        if record.evidence is not None and (digest := report_named(record.evidence)) is not None
    ]
    try:
        reports = (read_report(content, digest) for digest in reversed(digests))
        return next((report for report in reports if report is not None and report.result.elements is not None), None)
    except DetentError:
        return None


def _view(job: Job, order: Order, report: WorkReport | None, place: int) -> ElementView:
    own = None if report is None else report.of_element(place)
    return ElementView(job.job_id, place, len(order.elements), order.of_element(place), own, _state(job, own))


def _state(job: Job, own: WorkReport | None) -> str:
    if own is None:
        return job.state
    if own.ok:
        return State.SUCCEEDED.value
    failure = own.result.failure
    is_tried_again = job.state not in TERMINAL and failure is not None and failure.category in job.retry_categories
    return job.state if is_tried_again else State.FAILED.value
