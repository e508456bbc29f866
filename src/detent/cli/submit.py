"""`detent submit`: a platform job from its payload, durable when the command returns, and run here with --wait."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.result import awaited
from detent.cli.shell import Shell, duration_ms, teaching, with_shell
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD
from detent.words.states import word_of

if TYPE_CHECKING:
    from detent.runs.platform_jobs import SubmittedJob

STANDARD_INPUT = "-"


@click.command(
    "submit",
    help=teaching(
        """Submit a platform job: a JSON payload that says what to execute, render, export or draw as a thumbnail, with its limits.
Creates a home here if there is none.

The payload is checked whole, and every fault is reported with its path. Limits above the plan of its workspace are
refused. Equal work that succeeded before is not done again: the command then names the earlier job. The job is durable when
the command returns. Without --wait it runs as soon as a process with workers works on this home.""",
        """  detent submit payload.json
  detent submit payload.json --wait -o json
  detent submit payload.json --file points.csv       store a file that the payload names by digest
  make-payload | detent submit - --idempotency-key order-4711
""",
    ),
)
@click.argument("payload", metavar="FILE|-")
@click.option("--wait", is_flag=True, help="Run the job here, wait for its end and print its result.")
@click.option("--timeout", metavar="TIME", help="With --wait: how long to wait for the end of the job.")
@click.option(
    "--idempotency-key", metavar="KEY", help="Submit this request once: the same key and payload name the same job."
)
@click.option("--user", "user_id", metavar="ID", help="Who asks.  [default: requested_by of the payload, else local]")
@click.option("--reuse-failed", is_flag=True, help="Accept the failure of an earlier job that did the same work.")
@click.option("--join", is_flag=True, help="Accept a job that does the same work and has not ended.")
@click.option(
    "--file",
    "files",
    metavar="PATH",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Store a file that the payload names by digest; may be repeated.",
)
@click.option("-w", "--workers", type=click.IntRange(1, 1024), help="With --wait: worker processes.  [default: 1]")
@with_shell
def command(  # noqa: PLR0913 - a command's options
    shell: Shell,
    payload: str,
    *,
    wait: bool,
    timeout: str | None,
    idempotency_key: str | None,
    user_id: str | None,
    reuse_failed: bool,
    join: bool,
    files: tuple[Path, ...],
    workers: int | None,
) -> int:
    """Submit a platform job."""
    from detent.sdk.client import Client  # noqa: PLC0415 - keeps `--help` fast

    if not wait and (timeout is not None or workers is not None):
        raise click.UsageError("--timeout and --workers are for --wait")
    seconds = None if timeout is None else duration_ms("--timeout", timeout) / 1000
    document = sys.stdin.buffer.read() if payload == STANDARD_INPUT else Path(payload).read_bytes()
    with Client(shell.home_option, workers=(workers or 1) if wait else 0) as client:
        job = client.submit_job(
            document,
            user_id=user_id,
            idempotency_key=idempotency_key,
            reuse_failed=reuse_failed,
            join=join,
            files=files,
        )
        submitted = {**job.submitted.to_map(), "status": word_of(job.status)}
        if wait:
            from detent.pages.result import result_page  # noqa: PLC0415

            return shell.tell(result_page(awaited(client, job.job_id, seconds), submitted=submitted))
    return shell.answer(submitted, lambda page: _draw(page, job.submitted, submitted))


def _draw(page: Page, job: SubmittedJob, document: dict[str, Any]) -> None:
    word = "found" if job.deduplicated else "submitted"
    page.line(Cell(word, GOOD), f" job {job.job_id}  {document['status']}")
    if job.deduplicated:
        page.line(Cell("  an earlier job does the same work; nothing was submitted", FAINT))
    page.fields(
        [
            ("type", job.job_type),
            ("workspace", f"{job.workspace_id}, plan {job.plan}"),
            ("user", job.user_id),
            *[("supersedes", other) for other in job.superseded],
            ("next", f"detent result {job.job_id} --wait"),
        ],
        indent="  ",
    )
