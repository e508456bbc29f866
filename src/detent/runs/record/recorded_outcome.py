"""How a recorded run ended, read from the ledger alone: what it gave back, the files it made, and why what failed did.

The process that drove a run knows this by itself. A server that was started since, or that has others drive its runs, reads it here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from detent.canon import json_decode_trusted
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.jobs.values import escaped, restored
from detent.jobs.work import WorkReport
from detent.kernel.run import COMPLETED
from detent.owner.content import Content
from detent.runs.record.outcome import Artifact, StepFailure, artifacts_of, failures_of, read_result
from detent.runs.record.recorded_run import RecordedElement, RecordedRun, element_report, value_of
from detent.runs.record.step_run import bound
from detent.store.api import StoreReader
from detent.store.content import ContentFiles
from detent.words.states import CANCELLED, FAILED, word_of

RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Values that a result is put together from; a larger result is left out."""
FAILURES_MAX: Final = 1_000
FILES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class RecordedOutcome:
    """What a run left behind."""

    gives_result: bool
    """Whether it succeeded and its contract says what it gives back."""
    result: JsonValue
    """None where it gives nothing back, or where that was erased or is too large."""
    result_left_out: bool
    artifacts: tuple[Artifact, ...]
    """The first of its files."""
    failures: tuple[StepFailure, ...]
    """The first of its failures."""


class _TooLarge(Exception):
    """The values of a result are more than are read."""


def recorded_outcome(
    reader: StoreReader, content: Content, files: ContentFiles, recorded: RecordedRun
) -> RecordedOutcome:
    """Read how a run ended, or how far it is."""
    gives = recorded.run.status == COMPLETED and recorded.inputs.contract.result is not None
    result, left_out = None, False
    if gives:
        try:
            result = _Values(reader, content, recorded).result()
        except _TooLarge:
            left_out = True
    jobs = {step.key: [element.job_id for element in step.elements] for step in recorded.steps}
    made = islice(artifacts_of(reader, content, files, jobs), FILES_MAX)
    failed = islice(failures_of(reader, content, _failed(recorded)), FAILURES_MAX)
    return RecordedOutcome(gives, result, left_out, tuple(made), tuple(failed))


def _failed(recorded: RecordedRun) -> Iterator[tuple[str, str, str]]:
    """What did not succeed: jobs, then steps that failed without one."""
    for step in recorded.steps:
        for element in step.elements:
            if word_of(element.state) == FAILED:
                yield step.key, element.job_id, step.view.message
    for step in recorded.steps:
        states = {word_of(element.state) for element in step.elements}
        if step.view.state == FAILED and not states & {FAILED, CANCELLED}:
            yield step.key, step.step_id, step.view.message


class _Values:
    """The values of a run's results, as far as its own result needs them."""

    def __init__(self, reader: StoreReader, content: Content, recorded: RecordedRun) -> None:
        self._reader, self._content, self._recorded = reader, content, recorded
        self._read_bytes = 0

    def result(self) -> Any:
        """What the contract says that the run gives back; a file is a mapping with its digest."""
        inputs = self._recorded.inputs
        value = bound(inputs.contract.result, lambda name: escaped(inputs.params[name]), self._of_step)
        return restored(value, self._named, lambda mapping: mapping)

    def _of_step(self, key: str) -> JsonValue:
        step = self._recorded.step(key)
        if step is None:
            return None
        if step.mapped:
            return [self._of_element(element) for element in step.elements]
        return self._of_element(step.elements[0]) if step.elements else None

    def _of_element(self, element: RecordedElement) -> JsonValue:
        return self._value(element_report(self._reader, self._content, element))

    def _named(self, name: str) -> JsonValue:
        return self._value(read_result(self._content, name))

    def _value(self, report: WorkReport | None) -> JsonValue:
        data = None if report is None else value_of(self._content, report)
        if data is None:
            return None
        self._read_bytes += len(data)
        if self._read_bytes > RESULT_BYTES_MAX:
            raise _TooLarge
        return json_decode_trusted(data)
