"""The result of a platform job, for people and as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from detent.errors import EXIT_FAILED, InvalidInput
from detent.inspect.job_results import job_result
from detent.owner.content import Content
from detent.pages.sheet import Cell, Cellish, Sheet, Told, state_cell, told
from detent.pages.text import BAD, FAINT, STRONG, short
from detent.runs.find_jobs import find_jobs
from detent.words.quantities import duration_text, size_text
from detent.words.states import FAILED

if TYPE_CHECKING:
    from detent.inspect.job_results import JobResultView
    from detent.owner.home import Home
    from detent.store.api import StoreReader

SHOWN_CHARS_MAX = 2000


def job_meant(content: Content, identifier: str) -> str:
    """The job that is meant by its id, or by the beginning of it."""
    if content.reader.job(identifier) is not None:
        return identifier
    found = find_jobs(content.reader, content, identifier)
    if len(found.jobs) != 1:
        raise InvalidInput(f"{identifier!r} is not one job", hint=f"`detent show {identifier}` lists its jobs")
    return str(found.jobs[0].job_id)


def result(home: Home, reader: StoreReader, identifier: str) -> Told:
    """The checked result of the job that is meant."""
    content = Content(reader, home.content_files())
    return result_page(job_result(home, content, job_meant(content, identifier)))


def result_page(view: JobResultView, *, submitted: dict[str, Any] | None = None) -> Told:
    """A checked result, with the exit code that its status stands for."""
    document = view.to_map() if submitted is None else {**submitted, **view.to_map()}
    return told(document, lambda page: _draw(page, view), code=0 if view.ok else EXIT_FAILED)


def _draw(page: Sheet, view: JobResultView) -> None:
    page.line(Cell("job ", STRONG), Cell(view.job_id, STRONG), "  ", state_cell(view.status.value))
    fields: list[tuple[str, Cellish]] = []
    if view.superseded_by is not None:
        fields.append(("superseded", f"by job {view.superseded_by}"))
    if view.result is None:
        fields.append(("result", Cell(f"none: the job ended without one ({view.reason_code})", FAINT)))
        page.fields(fields, indent="  ")
        return
    fields += _fields(view.result)
    fields += [
        (
            "artifact",
            f"{one['artifact_id']}  {one['kind']} {one['format']}, {size_text(one['size_bytes'])}{_named(one)}",
        )
        for one in view.artifacts
    ]
    fields += [
        ("signed by", f"key {short(str(view.key_id))}, checked; report {short(str(view.report_digest))}"),
        ("verify", "`detent verify` checks the whole history; `detent export` makes a file that others can verify"),
    ]
    page.fields(fields, indent="  ")
    if view.artifacts:
        page.line(Cell(f"detent artifacts {view.job_id} --output DIR copies the files", FAINT))


def _fields(result: Mapping[str, Any]) -> list[tuple[str, Cellish]]:
    fields: list[tuple[str, Cellish]] = [("type", str(result["job_type"]))]
    if (error := result.get("error")) is not None:
        fields.append((FAILED, Cell(f"{error['category']} {error['code']}: {error['message']}", BAD)))
    outputs = result.get("outputs", {})
    if outputs.get("result_json") is not None:
        fields.append(("returned", _cut(json.dumps(outputs["result_json"], ensure_ascii=False))))
    for stream in ("stdout", "stderr"):
        if outputs.get(stream):
            cut = " (cut)" if stream in outputs.get("truncated", []) else ""
            fields.append((stream + cut, _cut(outputs[stream].rstrip("\n"))))
    fields += [("log", f"{entry['level']}: {entry['message']}") for entry in result.get("logs", [])[:10]]
    if "duration_ms" in result:
        used = result.get("resource_usage") or {}
        cpu, memory = f"{used.get('cpu_ms', 0)} ms of CPU", f"{used.get('memory_mb_peak', 0)} MB of memory"
        fields.append(("used", f"{duration_text(result['duration_ms'])}, {cpu}, {memory}"))
    environment = result["environment"]
    sandbox = f", sandbox {environment['sandbox']}" if environment.get("sandbox") else ""
    return [*fields, ("environment", f"{environment['env_version']}{sandbox}")]


def _named(artifact: Mapping[str, Any]) -> str:
    name = artifact["metadata"].get("name")
    return f", {name}" if name else ""


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}... (`-o json` has all)"
