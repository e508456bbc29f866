"""What the ledger says of a run that is taken up again: which of its jobs exist, and which steps took earlier results (X-174)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from detent.canon.late import dataclass
from detent.errors import DetentError
from detent.jobs.order import Order
from detent.kernel import Job
from detent.kernel.table import TERMINAL, State
from detent.owner.backend import Backend
from detent.reuse.work_keys import Found, WorkKey, WorkKeys
from detent.runs.record.reuses import Reuses
from detent.runs.record.step_run import Element, StepRun
from detent.store.api import JobRow

GONE: Final = "its result is gone"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the ledger says of an element that an earlier process of its run began."""

    state: str
    """Of its own job, or of the job whose result it took."""
    change: str = ""
    """What is not as it was then, in words; the run cannot go on from it."""
    taken: Found | None = None
    """The job whose result it took, if it took one."""
    array: tuple[str, int] | None = None
    """The array that has it, and its place there; None when it has a job of its own."""


class Past:
    """The past of one run; empty for a new one."""

    def __init__(self, backend: Backend, work_keys: WorkKeys) -> None:
        self._backend = backend
        self._work_keys = work_keys
        self._reuses: Reuses | None = None
        self._orders: dict[str, Order] = {}
        self._arrays: dict[tuple[str | None, int | None], tuple[str, int]] = {}
        """Which array has an element, by the key of its step and its index, and where."""
        self.jobs: dict[str, JobRow] = {}
        self.started_ms: int | None = None

    def recall(self, run_id: str) -> None:
        """Read it from the ledger."""
        reader = self._backend.reader
        run = reader.run(run_id)
        self.started_ms = None if run is None else run.started_tick
        for row in reader.jobs(run_id=run_id):
            self.jobs[row.job_id] = row
            with suppress(DetentError):  # Its payload was erased: whose it was is not known any more.
                order = self._orders[row.job_id] = self._backend.order(Job.decode(row.body).payload_digest)
                for place, element in enumerate(order.elements):
                    self._arrays[order.origin.step, element.index] = row.job_id, place
        self._reuses = Reuses(reader, run_id, self._order_of)

    def _order_of(self, row: JobRow) -> Order | None:
        submitted = self._backend.submitted([row.job_id]).get(row.job_id)
        return None if submitted is None else submitted.order

    def recorded(self, element: Element, work_key: WorkKey) -> Recorded | None:
        """What an earlier process did of an element; None when it had not begun it."""
        source = None if self._reuses is None else self._reuses.of(element.step.step_id, element.index)
        if source is None:
            job_id, place = self._own(element)
            row = self.jobs.get(job_id)
            if row is None:
                return None
            change = self._changed_since(row, place, work_key)
            return Recorded(row.state, change, array=None if place is None else (job_id, place))
        job_id, place = source.job_id, source.element
        row, found = self._backend.reader.job(job_id), self._backend.report_of(job_id)
        report = None if found is None else found[1] if place is None else found[1].of_element(place)
        if row is None or found is None or report is None:
            return Recorded("", GONE)
        taken = Found(job_id, False, State.SUCCEEDED.value, found[0], report, place)
        return Recorded(row.state, self._changed_since(row, place, work_key), taken)

    def _own(self, element: Element) -> tuple[str, int | None]:
        """The job of an element, if it has one: an array, with its place there, or one of its own."""
        in_array = self._arrays.get((element.step.key, element.index))
        return (element.job_id, None) if in_array is None or element.job_id in self.jobs else in_array

    def is_open(self, element: Element) -> bool:
        """Whether the run left the job of an element unfinished."""
        return self._is_open(self._own(element)[0])

    def _is_open(self, job_id: str) -> bool:
        row = self.jobs.get(job_id)
        return row is not None and row.state not in TERMINAL

    def open_jobs(self) -> list[str]:
        """All that it left unfinished."""
        return [job_id for job_id in self.jobs if self._is_open(job_id)]

    def begun(self, steps: Iterable[StepRun]) -> frozenset[str]:
        """Ids of the steps that were under way when the run was left; those are not stopped any more."""
        reuses, steps = self._reuses, list(steps)
        begun = {
            step.step_id for step in steps if reuses is not None and reuses.took_any(step.step_id, mapped=step.mapped)
        }
        keys = {step.key: step.step_id for step in steps}
        begun.update(keys.get(order.origin.step or "", "") for order in self._orders.values())
        return frozenset(begun)

    def _changed_since(self, row: JobRow, place: int | None, work_key: WorkKey) -> str:
        """What is not any more as it was when a job did this work, in words; empty when all of it is."""
        try:
            order = self._orders.get(row.job_id) or self._backend.order(Job.decode(row.body).payload_digest)
        except DetentError:
            return GONE
        if place is not None:
            order = order.of_element(place)
        if change := self._work_keys.difference(order.origin.ingredients, work_key.ingredients):
            return change
        if row.state != State.SUCCEEDED:
            return ""
        found = self._backend.report_of(row.job_id)
        report = None if found is None else found[1] if place is None else found[1].of_element(place)
        return GONE if report is None else self._work_keys.fault(work_key.call, report)
