"""What the ledger says of a run that is taken up again: which of its jobs exist, and which steps took earlier results (X-174)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from detent.canon.late import dataclass
from detent.errors import DetentError
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


class Past:
    """The past of one run; empty for a new one."""

    def __init__(self, backend: Backend, work_keys: WorkKeys) -> None:
        self._backend = backend
        self._work_keys = work_keys
        self._reuses: Reuses | None = None
        self.jobs: dict[str, JobRow] = {}
        self.started_ms: int | None = None

    def recall(self, run_id: str) -> None:
        """Read it from the ledger."""
        reader = self._backend.reader
        run = reader.run(run_id)
        self.started_ms = None if run is None else run.started_tick
        self.jobs = {row.job_id: row for row in reader.jobs(run_id=run_id)}
        self._reuses = Reuses(reader, run_id)

    def recorded(self, element: Element, work_key: WorkKey) -> Recorded | None:
        """What an earlier process did of an element; None when it had not begun it."""
        taken = None if self._reuses is None else self._reuses.of(element.step.step_id, element.index)
        source = None if taken is None else taken.job_id
        row = self.jobs.get(element.job_id) if source is None else self._backend.reader.job(source)
        if source is None:
            return None if row is None else Recorded(row.state, self._changed_since(row, work_key))
        found = self._backend.report_of(source)
        if row is None or found is None:
            return Recorded("", GONE)
        return Recorded(row.state, self._changed_since(row, work_key), Found(source, False, row.state, *found))

    def is_open(self, job_id: str) -> bool:
        """Whether the run left this job unfinished."""
        row = self.jobs.get(job_id)
        return row is not None and row.state not in TERMINAL

    def open_jobs(self) -> list[str]:
        """All that it left unfinished."""
        return [job_id for job_id in self.jobs if self.is_open(job_id)]

    def begun(self, steps: Iterable[StepRun]) -> frozenset[str]:
        """Ids of the steps that were under way when the run was left; those are not stopped any more."""
        reuses, steps = self._reuses, list(steps)
        begun = {
            step.step_id for step in steps if reuses is not None and reuses.took_any(step.step_id, mapped=step.mapped)
        }
        keys = {step.key: step.step_id for step in steps}
        for row in self.jobs.values():
            with suppress(DetentError):  # Its payload was erased: whose it was is not known any more.
                begun.add(keys.get(self._backend.order(Job.decode(row.body).payload_digest).origin.step or "", ""))
        return frozenset(begun)

    def _changed_since(self, row: JobRow, work_key: WorkKey) -> str:
        """What is not any more as it was when a job did this work, in words; empty when all of it is."""
        try:
            order = self._backend.order(Job.decode(row.body).payload_digest)
        except DetentError:
            return GONE
        if change := self._work_keys.difference(order.origin.ingredients, work_key.ingredients):
            return change
        if row.state != State.SUCCEEDED:
            return ""
        found = self._backend.report_of(row.job_id)
        return GONE if found is None else self._work_keys.fault(work_key.call, found[1])
