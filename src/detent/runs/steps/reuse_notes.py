"""The results that a run took and has not recorded yet, and how few records say it.

Most runs that reuse anything repeat an earlier run: all of its results are taken, or all but a few. Then one record names that run
(``run_reused``). It is written when nothing can be decided any more without running something, so what is excepted is known. Everything
else is recorded step by step (``step_reused``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from detent.canon.late import dataclass
from detent.kernel import Command, ReuseRun, ReuseStep, Run
from detent.kernel.records import EXCEPTED_STEPS_MAX
from detent.kernel.run import COMPLETED
from detent.owner.backend import Backend, Inline
from detent.reuse.work_keys import Found, WorkKey
from detent.runs.record.inputs import RunIdentity
from detent.runs.record.reuses import EarlierRun, work_digest
from detent.runs.record.step_run import Element, StepRun

NOTES_MAX: Final = 10_000
"""Results that are noted before they are recorded; a run that reuses more records them step by step."""
TAKEN_PER_EXCEPTED: Final = 4
"""A run is named as a whole if so many results are taken for each one that is not."""
REUSES_MAX: Final = 1_000
REUSE_BYTES_MAX: Final = 1024 * 1024
"""Reuses recorded in one commit, and how much their ingredients may take."""


@dataclass(frozen=True, slots=True)
class Note:
    """An element that took an earlier result."""

    element: Element
    work_key: WorkKey
    found: Found

    @property
    def element_id(self) -> str:
        """What records call it."""
        return self.element.step.element_id(self.element.index)


class ReuseNotes:
    """The notes of one run. ``about`` gives what the record of a single reuse names: the ingredients that were equal."""

    def __init__(
        self,
        backend: Backend,
        identity: RunIdentity,
        contract_digest: bytes,
        about: Callable[[Element, WorkKey], tuple[bytes, Inline]],
    ) -> None:
        self._backend = backend
        self._run_id = identity.run_id
        self._contract_digest = contract_digest
        self._about = about
        self._notes: list[Note] = []
        self._is_first = not identity.resumed
        """Nothing has been recorded: an earlier run can still be named."""

    def add(self, element: Element, work_key: WorkKey, found: Found) -> None:
        """Note that an element took an earlier result."""
        self._notes.append(Note(element, work_key, found))

    @property
    def is_full(self) -> bool:
        """Whether as much is noted as may be."""
        return len(self._notes) >= NOTES_MAX

    def requests(self, steps: Sequence[StepRun]) -> Iterator[tuple[list[Command], list[tuple[bytes, bytes]]]]:
        """What records the notes, commit by commit, each with the content that it names; the notes are forgotten."""
        notes, self._notes = self._notes, []
        commands: list[Command] = []
        content: list[tuple[bytes, bytes]] = []
        if self._is_first and notes and (whole := self._whole(notes, steps)) is not None:
            taken, excepted, earlier = whole
            keys = ((note.element_id, note.work_key.key or "") for note in taken)
            named, inline = self._backend.sealed_trusted({"elements": len(taken), "work": work_digest(keys)})
            commands.append(ReuseRun(0, self._run_id, earlier.run_id, tuple(sorted(excepted)), named))
            content.extend(inline)
            named_with_run = set(map(id, taken))
            notes = [note for note in notes if id(note) not in named_with_run]
        self._is_first = self._is_first and not (notes or commands)
        size = 0
        for note in notes:
            named, inline = self._about(note.element, note.work_key)
            found = note.found
            commands.append(ReuseStep(0, self._run_id, note.element_id, found.job_id, named, found.element))
            content.extend(inline)
            size += sum(len(data) for _, data in inline)
            if len(commands) >= REUSES_MAX or size >= REUSE_BYTES_MAX:
                yield commands, content
                commands, content, size = [], [], 0
        if commands:
            yield commands, content

    def _whole(
        self, notes: Sequence[Note], steps: Sequence[StepRun]
    ) -> tuple[list[Note], list[str], EarlierRun] | None:
        """The earlier run that nearly all results are of: what was taken with it, and what is excepted; None for no such run.

        Every job of that run is accounted for: it did the very step that took its result, or one that is excepted. Of an array, each
        element has to be taken by the element of its index. Else it is excepted, by the name of its first element, and what was taken of
        it is recorded one by one.
        """
        run = self._source(notes)
        if run is None:
            return None
        earlier = EarlierRun(run, self._backend.partitions)
        taken = {
            note.found.job_id: [note]
            for note in notes
            if note.found.job_id == earlier.job_id(note.element.step.step_id, note.element.index)
        }
        taken.update(self._whole_arrays(notes, earlier))
        results = [note for of_job in taken.values() for note in of_job]
        excepted: list[str] = []
        if left := run.jobs - len(taken):
            if left > EXCEPTED_STEPS_MAX or left * TAKEN_PER_EXCEPTED > len(results):
                return None
            others = {
                job_id: element_id
                for element_id in map(_element_id, _places(steps))
                for job_id in earlier.jobs_of(element_id)
                if job_id not in taken
            }
            rows = self._backend.reader.jobs_of(list(others))
            excepted = [others[row.job_id] for row in rows if row.run_id == run.run_id]
        return (results, excepted, earlier) if len(taken) + len(excepted) == run.jobs else None

    def _whole_arrays(self, notes: Sequence[Note], earlier: EarlierRun) -> Iterator[tuple[str, list[Note]]]:
        """The arrays whose elements were all taken by the elements of their own indexes, with these."""
        arrays: dict[tuple[str, str], dict[int, Note]] = {}
        for note in notes:
            if note.found.element is not None and note.found.run_id == earlier.run_id:
                arrays.setdefault((note.found.job_id, note.element.step.step_id), {})[note.found.element] = note
        submitted = self._backend.submitted([job_id for job_id, _ in arrays])
        for (job_id, step_id), found in arrays.items():
            elements = submitted[job_id].order.elements if job_id in submitted else ()
            indexes = [element.index for element in elements]
            if (
                indexes
                and indexes[0] is not None
                and job_id == earlier.array_id(step_id, indexes[0])
                and {place: note.element.index for place, note in found.items()} == dict(enumerate(indexes))
            ):
                yield job_id, list(found.values())

    def _source(self, notes: Sequence[Note]) -> Run | None:
        """The run that most results are of, if it may be named: it completed, of the same contract, workspace and partition."""
        ((run_id, _),) = Counter(note.found.run_id for note in notes).most_common(1)
        row = None if run_id is None else self._backend.reader.run(run_id)
        if row is None or row.status != COMPLETED or row.tenant_id != self._backend.tenant:
            return None
        session, run = self._backend.session, Run.decode(row.body)
        same = session.partition(run.run_id) == session.partition(self._run_id)
        return run if same and run.contract_digest == self._contract_digest else None


def _places(steps: Iterable[StepRun]) -> Iterator[tuple[str, int | None]]:
    """Every element of a run, as far as it is known: a mapped step has none before its list is."""
    for step in steps:
        if step.opened:
            yield from ((step.step_id, element.index) for element in step.elements)
        elif not step.mapped:
            yield step.step_id, None


def _element_id(place: tuple[str, int | None]) -> str:
    step_id, index = place
    return step_id if index is None else f"{step_id}[{index}]"
