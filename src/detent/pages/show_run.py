"""The steps of a run for `detent show`: the state, the result and the files of each.

What a job was asked to do and its result, for `detent show`: its order and its report as lines and as data.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from detent.canon import digest_text
from detent.errors import DetentError
from detent.jobs.values import is_file, is_result
from detent.jobs.work import PROCESS
from detent.pages.contract_text import map_text
from detent.pages.sheet import Cell, Cellish, Sheet, artifact_fields, state_cell
from detent.pages.text import BAD, FAINT, safe, short
from detent.runs.record.outcome import artifacts_of, failure_of
from detent.runs.record.recorded_run import report_of, value_of
from detent.runs.record.view import counts, step_time_ms, step_waited_ms
from detent.words.quantities import count_text, duration_text, short_duration, size_text, time_text
from detent.words.states import CANCELLED, FAILED, REUSED, RUNNING, SKIPPED, SUCCEEDED, WAITING, word_of

if TYPE_CHECKING:
    from detent.jobs.order import Order
    from detent.jobs.work import WorkReport, WorkStream
    from detent.owner.content import Content
    from detent.owner.home import Home
    from detent.owner.views import JobView
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

    def __init__(
        self,
        home: Home,
        reader: StoreReader,
        content: Content,
        recorded: RecordedRun,
        now_ms: int,
        *,
        local: bool = True,
    ) -> None:
        """``local``: whether the reader has the files of this machine; else files are told by name and digest alone."""
        self.recorded, self._reader, self._content, self._now_ms = recorded, reader, content, now_ms
        self.names = {step.step_id: step.key for step in recorded.steps}
        """What people call the steps, by the ids that records write."""
        self._results = {step.key: self._result(step) for step in recorded.steps[:RESULTS_READ_MAX]}
        jobs = {step.key: [element.job_id for element in step.elements[:ELEMENTS_READ_MAX]] for step in recorded.steps}
        self.artifacts: tuple[Artifact, ...] = tuple(artifacts_of(reader, content, home.content_files(), jobs))
        if not local:
            self.artifacts = tuple(replace(artifact, path=artifact.name) for artifact in self.artifacts)

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

    def draw(self, page: Sheet) -> None:
        """The steps, then the files."""
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

        row = step.elements[0].row if step.elements and not step.mapped else None
        report = None if row is None else report_of(self._reader, self._content, row)
        return None if report is None or not report.ok else value_bytes(self._content, report)

    def _step_map(self, step: RecordedStep) -> dict[str, Any]:

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


TEXT_MAX = 300
"""Columns of a value on a page; `-o json` has it whole."""
VALUE_BYTES_MAX = 1024 * 1024
"""A value larger than this is left out of JSON documents too."""
FILES_SHOWN_MAX = 20
TRACEBACK_LINES_MAX = 30


def order_map(order: Order | None) -> dict[str, Any] | None:
    """An order as data."""
    if order is None:
        return None
    document = order.document()
    document.pop("version", None)
    return document


def action_map(order: Order | None, view: JobView) -> dict[str, Any] | None:
    """The action of a step's job: its lease, and as epoch how often it was executed successfully (X-014)."""
    action = {} if order is None else order.origin.action
    return {**action, "epoch": action["epoch"] + (word_of(view.row.state) == SUCCEEDED)} if action else None


def report_map(content: Content, report: WorkReport | None) -> dict[str, Any] | None:
    """A report as data."""
    if report is None:
        return None

    result, data = report.result, value_bytes(content, report)
    failure, used = result.failure, ("cpu_ms", "memory_bytes_peak", "io_bytes_read", "io_bytes_written")
    return {
        "status": word_of(result.status),
        "attempt": report.attempt_id + 1,
        "attempt_id": report.attempt_id,
        "value": None if data is None else json.loads(data),
        "value_digest": None if report.value_digest is None else digest_text(report.value_digest),
        "error": None
        if failure is None
        else {
            name: getattr(failure, name)
            for name in ("category", "code", "type", "message", "traceback", "line", "column")
        },
        "stdout": _stream_map(content, result.stdout),
        "stderr": _stream_map(content, result.stderr),
        "files": [
            {
                "name": file.name,
                "digest": digest_text(file.digest),
                "size_bytes": file.size_bytes,
                "content_type": file.content_type,
                "output": file.output,
            }
            for file in result.files
        ],
        "sandbox": result.sandbox,
        "worker": report.worker,
        "env_version": report.env_version,
        "started_ms": result.started_ms,
        "finished_ms": result.finished_ms,
        **{name: getattr(result.usage, name) for name in used},
    }


def order_fields(order: Order) -> list[tuple[str, Cellish]]:
    """What a job was asked to do, for a page."""
    fields: list[tuple[str, Cellish]] = [("work", call_text(order))]
    if order.origin.step is not None:
        fields.append(
            (
                "step",
                order.origin.step
                if order.origin.index is None
                else f"{order.origin.step}, element {order.origin.index}",
            )
        )
    else:
        fields.append(("name", order.label))
    if action := order.origin.action:
        fields.append(("action", f"{action['step_type']}, correlation {action['correlation_id']}"))
    if order.origin.retry_of is not None:
        fields.append(("retry of", order.origin.retry_of))
    where = order.call.base if order.call.cwd is None else f"{order.call.base or '.'}/{order.call.cwd}"
    return [*fields, ("in", where)] if where is not None else fields


def report_fields(content: Content, report: WorkReport) -> list[tuple[str, Cellish]]:
    """The result of a job, for a page."""
    result = report.result
    used = [duration_text(max(0, result.finished_ms - result.started_ms))]
    used += [f"{result.usage.cpu_ms} ms of CPU"] if result.usage.cpu_ms else []
    used += [f"{size_text(result.usage.memory_bytes_peak)} at most"] if result.usage.memory_bytes_peak else []
    where = "a process of its own, not sandboxed" if result.sandbox == PROCESS else f"sandbox {result.sandbox}"
    fields: list[tuple[str, Cellish]] = [("took", ", ".join(used)), ("ran in", where), ("worker", report.worker)]
    if report.ok and result.elements is None:
        data = value_bytes(content, report)
        fields.append(("result", Cell("not here any more", FAINT) if data is None else value_text(data)))
    elif result.failure is not None:
        fields.append((FAILED, Cell(f"{result.failure.category} {result.failure.code}", BAD)))
    if result.elements is None:  # Of an array, each element has a result and output of its own.
        streams = (
            (name, _size(content, stream)) for name, stream in (("stdout", result.stdout), ("stderr", result.stderr))
        )
        printed = ", ".join(f"{size_text(size)} on {name}" for name, size in streams if size)
        fields.append(("printed", f"{printed}: `detent logs` shows it" if printed else "nothing"))
    fields += [
        ("file", f"{file.name}  {size_text(file.size_bytes)}, {short('sha256:' + file.digest.hex())}")
        for file in result.files[:FILES_SHOWN_MAX]
    ]
    if len(result.files) > FILES_SHOWN_MAX:
        fields.append(("", f"... and {count_text(len(result.files) - FILES_SHOWN_MAX, 'more file')}"))
    return fields


def draw_error(page: Sheet, report: WorkReport) -> None:
    """Why an attempt failed, with the traceback of the user's code."""
    if (failure := report.result.failure) is None:
        return

    page.line()
    for line in failure_of("", failure).message.splitlines()[:TRACEBACK_LINES_MAX]:
        page.hanging(["  "], Cell(line, BAD))
    lines = (failure.traceback or "").rstrip().splitlines()
    if len(lines) > TRACEBACK_LINES_MAX:
        page.line(
            "  ", Cell(f"... {count_text(len(lines) - TRACEBACK_LINES_MAX, 'line')} above: `-o json` has all", FAINT)
        )
    for line in lines[-TRACEBACK_LINES_MAX:]:
        page.line("  ", Cell(line, FAINT))


def call_text(order: Order) -> str:
    """What is called with which arguments: ``python tasks:square(4, factor=2)``; a result is ``<result>``."""
    arguments = [_written(value) for value in order.call.arguments]
    arguments += [f"{name}={_written(value)}" for name, value in order.call.keywords.items()]
    if order.call.kind == "python" and order.elements:
        return f"python {order.call.target}, {count_text(len(order.elements), 'element')}"
    if order.call.kind == "python":
        return _cut(f"python {order.call.target}({', '.join(arguments)})")
    if order.call.kind == "code":
        return _cut(f"code {order.call.entrypoint}({', '.join(arguments)})")
    if order.call.kind == "shell":
        lines = str(order.call.target).strip().splitlines()
        more = f" (and {count_text(len(lines) - 1, 'more line')})" if len(lines) > 1 else ""
        env = " ".join(f"{name}={_written(value)}" for name, value in order.call.env.items())
        return _cut(f"shell {lines[0] if lines else ''}{more}" + (f" with {env}" if env else ""))
    if order.call.kind == "map":
        source = (
            ", ".join(order.call.target["files"])
            if "files" in order.call.target
            else _written(order.call.keywords.get("items"))
        )
        return _cut(map_text(order.call.target, source, {}))
    kind = order.call.target.get("job_type") if isinstance(order.call.target, dict) else None
    return f"job {kind or ''}".strip()


def value_bytes(content: Content, report: WorkReport) -> bytes | None:
    """The strict JSON of a report's value; None when there is none, it is gone, or it is too large to be shown."""
    data = value_of(content, report)
    return None if data is None or len(data) > VALUE_BYTES_MAX else data


def value_text(data: bytes, most: int = TEXT_MAX) -> str:
    """A value in one line."""
    return _cut(_written(json.loads(data)), most)


def _written(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False).replace('"<result>"', "<result>").replace('"<file>"', "<file>")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if is_result(value):
            return "<result>"
        if is_file(value):
            return value.get("name") or "<file>"
        return {name.replace("$$", "$", 1): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _cut(text: str, most: int = TEXT_MAX) -> str:
    shown = safe(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _size(content: Content, stream: WorkStream) -> int:
    if stream.content is None:
        return len(stream.data)

    try:
        data = content.get(stream.content)
    except DetentError:
        data = None
    return 0 if data is None else len(data)


def _stream_map(content: Content, stream: WorkStream) -> dict[str, Any]:
    return {"size_bytes": _size(content, stream), "truncated": stream.truncated}
