"""The results that a run took from earlier jobs: one by one (``step_reused``), or with an earlier run (``run_reused``).

A run that is reused is named once, with the steps that are excepted. Which job answers for which step follows from what both runs
have in common, their contract, and from the operation of the earlier one, by the formula that gave its jobs their ids. So the
story of every step is told from the ledger alone, whatever content was erased meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from detent.canon import NotCanonical, decode, digest, digest_text, encode_trusted
from detent.errors import DetentError
from detent.kernel import Run
from detent.kernel.history import RUN_REUSED, STEP_REUSED
from detent.runs.record.step_run import element_job_id
from detent.store.api import JobRow, StoreReader
from detent.workers.action_leases import workflow_id_of
from detent.workflow.identity import ids_of

WORK_LABEL = b"detent/reused-work/v1\0"
PLACES_MAX = 1_000
"""Places of a mapped step that are looked at to find one whose result was taken."""


class Taken(NamedTuple):
    """A result that was taken."""

    job_id: str
    ingredients_digest: bytes | None
    """Names the ingredients that were equal; None when it was taken with a whole run."""
    element: int | None = None
    """Which element of the job, where that is an array."""


class EarlierRun:
    """A run whose results were taken together: which of its jobs did which step."""

    def __init__(self, run: Run) -> None:
        self.run_id = run.run_id
        self._ids_of = ids_of(None, workflow_id_of(run.contract_digest), UUID(run.operation_id))

    def job_id(self, step_id: str, index: int | None) -> str:
        """The job that did a step, or an element of one, if it was the run's own."""
        return element_job_id(self._ids_of(step_id)[0], index)

    def job_of(self, element_id: str) -> str:
        """The same for an element as records call it."""
        step_id, _, index = element_id.partition("[")
        return self.job_id(step_id, int(index.removesuffix("]")) if index else None)


class Reuses:
    """What one run took, as its records say."""

    def __init__(self, reader: StoreReader, run_id: str) -> None:
        self._reader = reader
        self.steps: dict[str, Taken] = {}
        """By element: results that were taken one by one."""
        self._earlier: EarlierRun | None = None
        self._jobs: dict[str, JobRow] = {}
        """Jobs of the earlier run whose results were taken, by their ids."""
        for record in reader.records_of_run(run_id):
            if record.kind == STEP_REUSED and (said := _fields(record.body)):
                taken = Taken(str(said["job_id"]), said["ingredients_digest"], said.get("element"))
                self.steps[str(said["step_id"])] = taken
            elif record.kind == RUN_REUSED and (said := _fields(record.body)):
                excepted = said["except_steps"]
                self._take_run(str(said["reused_run_id"]), map(str, excepted) if isinstance(excepted, list) else ())

    def _take_run(self, run_id: str, excepted: Iterable[str]) -> None:
        row = self._reader.run(run_id)
        if row is None:
            return  # `verify` has more to say about it.
        try:
            self._earlier = EarlierRun(Run.decode(row.body))
            without = {self._earlier.job_of(element_id) for element_id in excepted}
        except (DetentError, ValueError):
            return
        self._jobs = {row.job_id: row for row in self._reader.jobs(run_id=run_id) if row.job_id not in without}

    def of(self, step_id: str, index: int | None) -> Taken | None:
        """The result that an element took; None when it took none."""
        element_id = step_id if index is None else f"{step_id}[{index}]"
        taken = self.steps.get(element_id)
        if taken is not None or self._earlier is None:
            return taken
        job_id = self._earlier.job_id(step_id, index)
        return Taken(job_id, None) if job_id in self._jobs else None

    def took_any(self, step_id: str, *, mapped: bool) -> bool:
        """Whether a step took the result of any of its elements."""
        if any(element_id.partition("[")[0] == step_id for element_id in self.steps):
            return True
        places: Iterable[int | None] = range(min(len(self._jobs), PLACES_MAX)) if mapped else (None,)
        return self._earlier is not None and any(self._earlier.job_id(step_id, place) in self._jobs for place in places)

    def row(self, job_id: str) -> JobRow | None:
        """The row of a job whose result was taken."""
        return self._jobs.get(job_id) or self._reader.job(job_id)

    def with_run(self) -> Iterator[JobRow]:
        """The jobs whose results were taken with the earlier run."""
        return iter(self._jobs.values())

    def __len__(self) -> int:
        return len(self.steps) + len(self._jobs)


def work_digest(keys: Iterable[tuple[str, str]]) -> str:
    """One digest over the elements of a run and the keys of their work: what a reuse of a whole run compared."""
    return digest_text(digest(WORK_LABEL, encode_trusted([[element_id, key] for element_id, key in sorted(keys)])))


def _fields(body: bytes) -> dict[str, Any] | None:
    try:
        said = decode(body)
    except NotCanonical:
        return None
    names = {"step_id", "job_id", "ingredients_digest"}, {"reused_run_id", "except_steps", "ingredients_digest"}
    return said if isinstance(said, dict) and any(each <= said.keys() for each in names) else None
