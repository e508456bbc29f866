"""`detent result`: the signed result envelope of a platform job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Cell, Cellish, Page, state_cell
from detent.cli.shell import Shell, duration_ms, teaching, with_shell
from detent.cli.terminal import BAD, FAINT, STRONG, short
from detent.errors import EXIT_FAILED
from detent.words.quantities import duration_text, size_text
from detent.words.states import FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from detent.inspect.job_results import JobResultView
    from detent.sdk.client import Client

SHOWN_CHARS_MAX = 2000


@click.command(
    "result",
    help=teaching(
        """Print the result of a platform job: its status, what it returned and printed, its artifacts, its log, what it used, and
the environment that it ran in. The signature of the executor and every digest are checked first.

The exit code is 0 if the job succeeded, 1 if it failed, was cancelled or ran out of time, and 4 if it has not ended. A prefix
of the job's id is enough.""",
        """  detent result JOB
  detent result JOB -o json
  detent result JOB --wait --timeout 5m
""",
    ),
)
@click.argument("identifier", metavar="JOB")
@click.option("--wait", is_flag=True, help="Run what is queued here, and wait for the end of the job.")
@click.option("--timeout", metavar="TIME", help="With --wait: how long to wait.")
@with_shell
def command(shell: Shell, identifier: str, *, wait: bool, timeout: str | None) -> int:
    """Print a result."""
    from detent.inspect.job_results import job_result  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.content import Content  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415

    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait")
    home = shell.home(writes=wait)
    with Parts().open_snapshot(home.ledger) as reader:
        content = Content(reader, home.content_files())
        job_id = job_meant(content, identifier)
        if not wait:
            return answer_result(shell, job_result(home, content, job_id))
    from detent.sdk.client import Client  # noqa: PLC0415

    seconds = None if timeout is None else duration_ms("--timeout", timeout) / 1000
    with Client(home.path) as client:
        return answer_result(shell, awaited(client, job_id, seconds))


def awaited(client: Client, job_id: str, seconds: float | None) -> JobResultView:
    """The result of a job once it has ended; `RequestRefused` (``RESULT_NOT_READY``) when that takes longer."""
    from detent.errors import RequestRefused  # noqa: PLC0415

    try:
        return client.result_of(job_id, seconds)
    except TimeoutError as exc:
        raise RequestRefused(
            str(exc),
            code="RESULT_NOT_READY",
            hint=f"it stays in the queue: `detent result {job_id} --wait` goes on with it",
            details={"job_id": job_id},
        ) from exc


def job_meant(content: Any, identifier: str) -> str:
    """The job that is meant by its id, or by the beginning of it."""
    from detent.errors import InvalidInput  # noqa: PLC0415
    from detent.runs.find_jobs import find_jobs  # noqa: PLC0415

    if content.reader.job(identifier) is not None:
        return identifier
    found = find_jobs(content.reader, content, identifier)
    if len(found.jobs) != 1:
        raise InvalidInput(f"{identifier!r} is not one job", hint=f"`detent show {identifier}` lists its jobs")
    return str(found.jobs[0].job_id)


def answer_result(shell: Shell, view: JobResultView, *, submitted: dict[str, Any] | None = None) -> int:
    """Print a checked result, and give the exit code that its status stands for."""
    document = view.to_map() if submitted is None else {**submitted, **view.to_map()}
    return shell.answer(document, lambda page: _draw(page, view), code=0 if view.ok else EXIT_FAILED)


def _draw(page: Page, view: JobResultView) -> None:
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
    import json  # noqa: PLC0415

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
