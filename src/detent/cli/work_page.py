"""What a job was asked to do and its result, for `detent show`: its order and its report as lines and as data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from detent.cli.binding_text import map_text
from detent.cli.page import Cell, Cellish, Page
from detent.cli.terminal import BAD, FAINT, safe, short
from detent.jobs.values import is_file, is_result
from detent.words.quantities import count_text, size_text
from detent.words.states import FAILED, SUCCEEDED, word_of

if TYPE_CHECKING:
    from detent.jobs.order import Order
    from detent.jobs.work import WorkReport, WorkStream
    from detent.owner.content import Content
    from detent.owner.views import JobView

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
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast

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
    from detent.jobs.work import PROCESS  # noqa: PLC0415
    from detent.words.quantities import duration_text  # noqa: PLC0415

    result = report.result
    used = [duration_text(max(0, result.finished_ms - result.started_ms))]
    used += [f"{result.usage.cpu_ms} ms of CPU"] if result.usage.cpu_ms else []
    used += [f"{size_text(result.usage.memory_bytes_peak)} at most"] if result.usage.memory_bytes_peak else []
    where = "a process of its own, not sandboxed" if result.sandbox == PROCESS else f"sandbox {result.sandbox}"
    fields: list[tuple[str, Cellish]] = [("took", ", ".join(used)), ("ran in", where), ("worker", report.worker)]
    if report.ok:
        data = value_bytes(content, report)
        fields.append(("result", Cell("not here any more", FAINT) if data is None else value_text(data)))
    elif result.failure is not None:
        fields.append((FAILED, Cell(f"{result.failure.category} {result.failure.code}", BAD)))
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


def draw_error(page: Page, report: WorkReport) -> None:
    """Why an attempt failed, with the traceback of the user's code."""
    if (failure := report.result.failure) is None:
        return
    from detent.runs.record.outcome import failure_of  # noqa: PLC0415

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
    from detent.runs.record.recorded_run import value_of  # noqa: PLC0415

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
    from detent.errors import DetentError  # noqa: PLC0415

    try:
        data = content.get(stream.content)
    except DetentError:
        data = None
    return 0 if data is None else len(data)


def _stream_map(content: Content, stream: WorkStream) -> dict[str, Any]:
    return {"size_bytes": _size(content, stream), "truncated": stream.truncated}
