"""The steps of a run for `detent show`: the state, the result and the files of each."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from detent.cli.artifact_text import artifact_fields
from detent.cli.page import Cell, Cellish, Page, state_cell
from detent.cli.terminal import BAD, FAINT
from detent.cli.work_page import value_bytes, value_text
from detent.words.quantities import count_text, time_text
from detent.words.states import CANCELLED, FAILED, REUSED, RUNNING, SKIPPED, WAITING, word_of

if TYPE_CHECKING:
    from detent.owner.content import Content
    from detent.owner.home import Home
    from detent.runs.record.outcome import Artifact
    from detent.runs.record.recorded_run import RecordedRun, RecordedStep
    from detent.runs.record.view import Counts
    from detent.store.api import StoreReader

STEPS_SHOWN_MAX = 100
RESULT_SHOWN_MAX = 60
RESULTS_READ_MAX = 200
ELEMENTS_READ_MAX = 1_000


class RunSteps:
    """A recorded run, read once for the page and for the document."""

    def __init__(self, home: Home, reader: StoreReader, content: Content, recorded: RecordedRun, now_ms: int) -> None:
        from detent.runs.record.outcome import artifacts_of  # noqa: PLC0415 - keeps `--help` fast

        self.recorded, self._reader, self._content, self._now_ms = recorded, reader, content, now_ms
        self.names = {step.step_id: step.key for step in recorded.steps}
        """What people call the steps, by the ids that records write."""
        self._results = {step.key: self._result(step) for step in recorded.steps[:RESULTS_READ_MAX]}
        jobs = {step.key: [element.job_id for element in step.elements[:ELEMENTS_READ_MAX]] for step in recorded.steps}
        self.artifacts: tuple[Artifact, ...] = tuple(artifacts_of(reader, content, home.content_files(), jobs))

    def to_map(self) -> dict[str, Any]:
        """What the document of a run has beside its records."""
        inputs = self.recorded.inputs
        return {
            "file": inputs.contract.name,
            "base": inputs.contract.base,
            "params": dict(inputs.params),
            "about": dict(inputs.about),
            "options": dict(inputs.options),
            "message": self.recorded.message or None,
            "step_list": [self._step_map(step) for step in self.recorded.steps],
            "artifacts": [asdict(artifact) for artifact in self.artifacts],
        }

    def fields(self) -> list[tuple[str, Cellish]]:
        """What the head of the page says of where it came from."""
        from detent.runs.record.view import counts  # noqa: PLC0415

        inputs, about = self.recorded.inputs, self.recorded.inputs.about
        fields: list[tuple[str, Cellish]] = [("file", inputs.contract.name)]
        if inputs.params:
            said = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in inputs.params.items())
            fields.append(("params", said))
        if inputs.options:
            fields.append(("options", " ".join("--" + name.replace("_", "-") for name in inputs.options)))
        if "retry_of" in about:
            fields.append(("retry of", f"run {about['retry_of']}"))
        if "scheduled_for" in about:
            fields.append(("for", time_text(str(about["scheduled_for"]))))
        missed = about.get("missed")
        if isinstance(missed, dict):
            said = count_text(int(missed.get("count", 0)), "occurrence")
            fields.append(("missed", f"{said} from {missed.get('first')} to {missed.get('last')}"))
        if self.recorded.message:
            fields.append(("because", self.recorded.message))
        return [*fields, ("steps", _counts_text(counts(step.view for step in self.recorded.steps)))]

    def draw(self, page: Page) -> None:
        """The steps, then the files."""
        from detent.runs.record.view import step_time_ms, step_waited_ms  # noqa: PLC0415
        from detent.words.quantities import short_duration  # noqa: PLC0415

        shown = self.recorded.steps[:STEPS_SHOWN_MAX]
        rows: list[list[Cellish]] = []
        for step in shown:
            view = step.view
            took, waited = step_time_ms(view, self._now_ms), step_waited_ms(view, self._now_ms)
            jobs = f"{view.done}/{view.total}" if step.mapped and view.total is not None else str(len(step.elements))
            jobs += f", {view.cached} reused" if step.mapped and view.cached else ""
            time = "-" if took is None else short_duration(took)
            wait = "-" if waited is None else short_duration(waited)
            rows.append(
                [step.key, state_cell(view.state), jobs, Cell(wait, FAINT), Cell(time, FAINT), self._said(step)]
            )
        page.table(("STEP", "STATE", "JOBS", "WAITED", "TIME", "RESULT"), rows)
        more = len(self.recorded.steps) - len(shown)
        if more:
            page.line(Cell(f"... and {count_text(more, 'more step')}: `-o json` has all", FAINT))
        if self.artifacts:
            page.line()
            page.fields(artifact_fields("file", self.artifacts))

    def _said(self, step: RecordedStep) -> Cell:
        view = step.view
        if view.message:
            return Cell(view.message, BAD if view.state == FAILED else FAINT)
        if step.waits_for:
            return Cell(f"waits for {', '.join(step.waits_for)}", FAINT)
        if step.mapped:
            return Cell("")
        data = self._results.get(step.key)
        return Cell("" if data is None else value_text(data, RESULT_SHOWN_MAX))

    def _result(self, step: RecordedStep) -> bytes | None:
        from detent.runs.record.recorded_run import report_of  # noqa: PLC0415

        row = step.elements[0].row if step.elements and not step.mapped else None
        report = None if row is None else report_of(self._reader, self._content, row)
        return None if report is None or not report.ok else value_bytes(self._content, report)

    def _step_map(self, step: RecordedStep) -> dict[str, Any]:
        from detent.runs.record.view import step_waited_ms  # noqa: PLC0415

        view = step.view
        data = self._results.get(step.key)
        return {
            "step": step.key,
            "name": view.name,
            "state": view.state,
            "needs": list(step.needs),
            "waits_for": list(step.waits_for),
            "total": view.total,
            "done": view.done,
            "reused": view.cached,
            "failed": view.failed,
            "started_ms": view.started_ms,
            "ended_ms": view.ended_ms,
            "waited_ms": step_waited_ms(view, self._now_ms),
            "ran_ms": view.ran_ms,
            "message": view.message or None,
            "result": None if data is None else json.loads(data),
            "jobs": [
                {
                    "index": element.index,
                    "job_id": element.job_id,
                    "run_id": None if element.row is None else element.row.run_id,
                    "state": word_of(element.state),
                    "reused": element.reused,
                }
                for element in step.elements
            ],
        }


def _counts_text(said: Counts) -> str:
    words = [(said.succeeded, "run"), (said.cached, REUSED), (said.failed, FAILED), (said.skipped, SKIPPED)]
    words += [(said.cancelled, CANCELLED), (said.running, RUNNING), (said.waiting, WAITING)]
    return ", ".join(f"{number:,} {word}" for number, word in words if number) or "none"
