"""The jobs that did the work of one name before, and which of them a job is compared with.

A plain step is compared with the last of them. An element of a mapped step has as many earlier jobs as its list had elements,
run after run; with most of them it shares no more than the name, so the one that differs least is looked for, first among
those that had its place in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from detent.canon.late import dataclass
from detent.jobs.elements import element_id
from detent.jobs.order import Order
from detent.kernel import Job
from detent.owner.content import Content, order_of
from detent.reuse.ingredients import Change, changed
from detent.store.api import JobRow, StoreReader, WorkRow

LABELLED_MAX: Final = 20_000
"""Newest jobs of one name that are known at all."""
READ_MAX: Final = 2_000
"""Of them, as many orders are read to find the elements of a place."""
COMPARED_MAX: Final = 64
"""Namesakes with which an element is compared, those of its own place first."""


@dataclass(frozen=True, slots=True)
class EarlierJob:
    """A job of the same name, with what it was asked to do."""

    row: JobRow
    submitted_tick: int
    order: Order
    """What it was asked to do; of an element of an array, what that was."""
    element: int | None = None
    """Which element of the job, where that is an array."""


@dataclass(frozen=True, slots=True)
class Compared:
    """An earlier job of the same name, and what differs."""

    row: JobRow
    order: Order
    changes: list[Change]
    element: int | None = None

    @property
    def name(self) -> str:
        """What the job is called, or the element of it."""
        return element_id(self.row.job_id, self.element)


class EarlierJobs:
    """The jobs of one name, newest first, without those of one run; each is read at most once, and none before it is needed."""

    def __init__(
        self, reader: StoreReader, content: Content, workspace: str, label: str, *, beside_run: str | None = None
    ) -> None:
        self._reader, self._content, self._label, self._beside = reader, content, label, beside_run
        self._work = {row.job_id: row for row in reader.work_labelled(workspace, label, LABELLED_MAX)}
        self._read: list[EarlierJob] = []
        self._erased: list[tuple[JobRow, int]] = []
        """Jobs of the name whose orders were erased, with when they were submitted; as far as was read."""
        self._unread = iter(self._work)
        self._placed: dict[int | None, list[EarlierJob]] | None = None

    def work(self, job_id: str) -> WorkRow | None:
        """What a job of the name does, by its key; None for one that is not among them."""
        return self._work.get(job_id)

    def nearest(
        self,
        ingredients: Mapping[str, Any],
        index: int | None,
        *,
        skip: Callable[[EarlierJob], bool] = lambda _one: False,
    ) -> Compared | None:
        """The job to compare with: the last one, or for an element of a mapped step the one with the fewest changes."""
        if index is None:
            last = next((one for one in self if not skip(one)), None)
            return None if last is None else _compared(last, ingredients)
        found: Compared | None = None
        for one in islice((one for one in chain(self._of_place(index), self) if not skip(one)), COMPARED_MAX):
            compared = _compared(one, ingredients)
            if found is None or len(compared.changes) < len(found.changes):
                found = compared
            if len(found.changes) <= 1:
                break  # None at all would have been the same work, or work in other surroundings.
        return found

    def erased_since(self, compared: Compared | None, until_tick: int | None = None) -> JobRow | None:
        """The last job of the name that was erased, if it came after the one to compare with, and not after a tick.

        It is not known which element of a mapped step it was: a job of the same run as the compared one is another element.
        """
        since = -1 if compared is None else Job.decode(compared.row.body).submitted_tick
        run_id = None if compared is None else compared.row.run_id
        for row, tick in self._erased:
            if (
                tick >= since
                and (until_tick is None or tick <= until_tick)
                and (run_id is None or row.run_id != run_id)
            ):
                return row
        return None

    def __iter__(self) -> Iterator[EarlierJob]:
        place = 0
        while place < len(self._read) or self._read_one():
            yield self._read[place]
            place += 1

    def _of_place(self, index: int) -> list[EarlierJob]:
        if self._placed is None:
            self._placed = {}
            for one in islice(self, READ_MAX):
                self._placed.setdefault(one.order.origin.index, []).append(one)
        return self._placed.get(index, [])

    def _read_one(self) -> bool:
        for job_id in self._unread:
            row = self._reader.job(job_id)
            if row is None or (row.run_id is not None and row.run_id == self._beside):
                continue
            job, order = Job.decode(row.body), order_of(self._content, row)
            if order is not None and order.label == self._label:  # The rows that lead here are not signed.
                tick = job.submitted_tick
                places = range(len(order.elements))
                self._read += [EarlierJob(row, tick, order.of_element(place), place) for place in places] or [
                    EarlierJob(row, tick, order)
                ]
                return True
            if self._reader.is_erased(job.payload_digest):
                self._erased.append((row, job.submitted_tick))
        return False


def _compared(one: EarlierJob, ingredients: Mapping[str, Any]) -> Compared:
    return Compared(one.row, one.order, changed(one.order.origin.ingredients, ingredients), one.element)
