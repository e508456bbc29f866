"""What is kept beside the ledger: the index of equal work, the labels of jobs, and the answers to idempotency keys.

A ledger of an older schema lacks some of them, and reads as one where they are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import Any, Final, TypeVar

from detent.store.api import AnswerRow, JobRow, LabelRow, WorkRow
from detent.store.checks import maker
from detent.store.named_queries import Binding, NamedQueries, first_column

_Row = TypeVar("_Row")
_ANSWER_ROW: Final = maker(AnswerRow)
_JOB_ROW: Final = maker(JobRow)
_LABEL_ROW: Final = maker(LabelRow)
_WHOLE_WORK_ROW: Final = maker(WorkRow)

_WORK_COLUMNS: Final = WorkRow._fields.index("element_keys")
"""What is read back of a row."""
_SCHEMA_WITH_WORK: Final = 2
"""The schema that brought the index of work and the answers; a ledger of an older one has none."""
_SCHEMA_WITH_ELEMENTS: Final = 6
"""The schema that brought the elements of arrays into that index."""
SCHEMA_WITH_LABELS: Final = 8
"""The schema that brought a label for every job, and its pool."""


class BesideReader(NamedQueries):
    """The part of a reader that finds earlier work and earlier answers."""

    def work(self, workspace: str, execution_key: bytes) -> Iterator[WorkRow]:
        """Jobs and elements of arrays that do this work, in the order in which they were submitted."""
        return self._found_work(_numbered_work, "work", "work_in_elements", workspace, execution_key)

    def work_of_keys(self, workspace: str, execution_keys: Sequence[bytes]) -> Iterator[tuple[WorkRow, JobRow]]:
        """The same for any of these pieces of work, each with its job's row."""
        return self._found_work(
            _numbered_work_and_job, "work_of_keys", "work_of_keys_in_elements", workspace, [*execution_keys]
        )

    def work_labelled(self, workspace: str, label: str, limit: int = 100) -> Iterator[WorkRow]:
        """Jobs under a label, newest first."""
        if not self._knows(_SCHEMA_WITH_WORK):
            return iter(())
        return self._rows(_work_row, "work_labelled", workspace, label, limit)

    def work_rows(self) -> Iterator[WorkRow]:
        """The whole index, in the order in which the jobs were submitted; without the elements of arrays."""
        return self._rows(_work_row, "work_rows") if self._knows(_SCHEMA_WITH_WORK) else iter(())

    def work_element_rows(self) -> Iterator[tuple[str, int, bytes]]:
        """The keys of all elements of arrays: job, element and key, in the order of submission."""
        return self._rows(_element_key, "work_element_rows") if self._knows(_SCHEMA_WITH_ELEMENTS) else iter(())

    def jobs_outside_work(self) -> Iterator[JobRow]:
        """Jobs that have no row in the index, in the order in which they were submitted."""
        return self._rows(_JOB_ROW, "jobs_outside_work") if self._knows(_SCHEMA_WITH_WORK) else iter(())

    def labels_of_run(self, run_id: str) -> set[str]:
        """The labels of what a run's jobs do."""
        return set(self._rows(first_column, "labels_of_run", run_id)) if self._knows(_SCHEMA_WITH_WORK) else set()

    def label(self, job_id: str) -> LabelRow | None:
        """What a job is called and which pool it asked for."""
        return self._one(_LABEL_ROW, "label", job_id) if self._knows(SCHEMA_WITH_LABELS) else None

    def label_rows(self) -> Iterator[LabelRow]:
        """The labels of all jobs, in the order of submission."""
        return self._rows(_LABEL_ROW, "label_rows") if self._knows(SCHEMA_WITH_LABELS) else iter(())

    def answer(self, scope: bytes) -> AnswerRow | None:
        """What was answered under a client's idempotency key."""
        return self._one(_ANSWER_ROW, "answer", scope) if self._knows(_SCHEMA_WITH_WORK) else None

    def answer_rows(self) -> Iterator[AnswerRow]:
        """Every answer that is kept, oldest first."""
        return self._rows(_ANSWER_ROW, "answer_rows") if self._knows(_SCHEMA_WITH_WORK) else iter(())

    def answers_kept(self, after_ms: int) -> tuple[int, int | None]:
        """How many answers were stored after a moment, and when the oldest of them was."""
        found = (
            self._one(lambda row: (row[0], row[1]), "answers_kept", after_ms)
            if self._knows(_SCHEMA_WITH_WORK)
            else None
        )
        return (0, None) if found is None else found

    def _found_work(
        self, make: Callable[[tuple[Any, ...]], tuple[int, _Row]], jobs: str, elements: str, *bindings: Binding
    ) -> Iterator[_Row]:
        """What jobs and elements of arrays do, by the numbers of their jobs."""
        if not self._knows(_SCHEMA_WITH_WORK):
            return iter(())
        found = self._rows(make, jobs, *bindings)
        if self._knows(_SCHEMA_WITH_ELEMENTS) and (inside := list(self._rows(make, elements, *bindings))):
            found = merge(found, inside, key=first_column)
        return (row for _, row in found)


def _work_row(row: tuple[Any, ...]) -> WorkRow:
    return _WHOLE_WORK_ROW((*row, (), None))


def _numbered_work(row: tuple[Any, ...]) -> tuple[int, WorkRow]:
    return row[0], _work_row(row[1:])


def _numbered_work_and_job(row: tuple[Any, ...]) -> tuple[int, tuple[WorkRow, JobRow]]:
    return row[0], (_work_row(row[1 : _WORK_COLUMNS + 1]), _JOB_ROW(row[_WORK_COLUMNS + 1 :]))


def _element_key(row: tuple[Any, ...]) -> tuple[str, int, bytes]:
    job_id, element, key = row
    return job_id, element, key
