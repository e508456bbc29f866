"""The results that a run took from earlier jobs: one by one (``step_reused``), or with an earlier run (``run_reused``).

A run that is reused is named once, with the steps that are excepted. Which job answers for which step follows from what both runs
have in common, their contract, and from the operation of the earlier one, by the formula that gave its jobs their ids. So the
story of every step is told from the ledger alone, whatever content was erased meanwhile. Only which elements of a mapped step share an
array is in that job's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from detent.canon import NotCanonical, decode, digest, digest_text, encode_trusted
from detent.errors import DetentError
from detent.jobs.elements import ELEMENTS_MAX
from detent.jobs.order import Order
from detent.kernel import Run, same_partition
from detent.kernel.history import RUN_REUSED, STEP_REUSED
from detent.runs.record.step_run import array_job_id, element_job_id
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

    def __init__(self, run: Run, partitions: int) -> None:
        self.run_id = run.run_id
        self._suits = same_partition(run.run_id, partitions)
        self._ids_of = ids_of(None, workflow_id_of(run.contract_digest), UUID(run.operation_id), self._suits)

    def job_id(self, step_id: str, index: int | None) -> str:
        """The job that did a step, or an element of one, if it was the run's own."""
        return element_job_id(self._ids_of(step_id)[0], index, self._suits)

    def array_id(self, step_id: str, first: int) -> str:
        """The job that did several elements of a step, by the first of them."""
        return array_job_id(self._ids_of(step_id)[0], first, self._suits)

    def jobs_of(self, element_id: str) -> tuple[str, ...]:
        """The jobs that may have done an element as records call it: its own, or an array that begins with it."""
        step_id, _, index = element_id.partition("[")
        if not index:
            return (self.job_id(step_id, None),)
        place = int(index.removesuffix("]"))
        return self.job_id(step_id, place), self.array_id(step_id, place)


class Reuses:
    """What one run took, as its records say. ``order_of`` reads the order of a job; None for one that was erased."""

    def __init__(self, reader: StoreReader, run_id: str, order_of: Callable[[JobRow], Order | None]) -> None:
        self._reader = reader
        self._order_of = order_of
        self._arrays: dict[str, dict[int, Taken]] = {}
        """By step: what the elements took whose results are in arrays, by index."""
        self._looked: dict[str, int] = {}
        """By step: the index up to which arrays were looked for."""
        self.steps: dict[str, Taken] = {}
        """By element: results that were taken one by one."""
        self._earlier: EarlierRun | None = None
        self._jobs: dict[str, JobRow] = {}
        """Jobs of the earlier run whose results were taken, by their ids."""
        self._earlier_jobs: frozenset[str] = frozenset()
        """All of its jobs."""
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
            self._earlier = EarlierRun(Run.decode(row.body), self._reader.partitions)
            without = {job_id for element_id in excepted for job_id in self._earlier.jobs_of(element_id)}
        except (DetentError, ValueError):
            return
        rows = {row.job_id: row for row in self._reader.jobs(run_id=run_id)}
        self._earlier_jobs = frozenset(rows)
        self._jobs = {job_id: row for job_id, row in rows.items() if job_id not in without}

    def of(self, step_id: str, index: int | None) -> Taken | None:
        """The result that an element took; None when it took none."""
        element_id = step_id if index is None else f"{step_id}[{index}]"
        taken = self.steps.get(element_id)
        if taken is not None or self._earlier is None:
            return taken
        job_id = self._earlier.job_id(step_id, index)
        if job_id in self._jobs:
            return Taken(job_id, None)
        return None if index is None else self._in_array(self._earlier, step_id, index)

    def _in_array(self, earlier: EarlierRun, step_id: str, index: int) -> Taken | None:
        """The result of an element of an array, which comes behind the first of its elements."""
        found = self._arrays.setdefault(step_id, {})
        for first in range(self._looked.get(step_id, 0), index + 1):
            row = self._jobs.get(earlier.array_id(step_id, first))
            if row is not None:
                order = self._order_of(row)
                for place, taken in enumerate(
                    self._likely_indexes(earlier, step_id, first)
                    if order is None
                    else (element.index for element in order.elements)
                ):
                    if taken is not None:
                        found[taken] = Taken(row.job_id, None, place)
        self._looked[step_id] = max(self._looked.get(step_id, 0), index + 1)
        return found.get(index)

    def _likely_indexes(self, earlier: EarlierRun, step_id: str, first: int) -> range:
        """The elements of an array whose order was erased: up to the next one that has a job; of the last array, the first alone."""
        for index in range(first + 1, first + ELEMENTS_MAX + 1):
            if {earlier.job_id(step_id, index), earlier.array_id(step_id, index)} & self._earlier_jobs:
                return range(first, index)
        return range(first, first + 1)

    def took_any(self, step_id: str, *, mapped: bool) -> bool:
        """Whether a step took the result of any of its elements."""
        if any(element_id.partition("[")[0] == step_id for element_id in self.steps):
            return True
        earlier = self._earlier
        if earlier is None or not mapped:
            return earlier is not None and earlier.job_id(step_id, None) in self._jobs
        return any(
            earlier.job_id(step_id, place) in self._jobs or earlier.array_id(step_id, place) in self._jobs
            for place in range(PLACES_MAX)
        )

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
