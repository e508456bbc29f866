"""`detent submit`: a platform job from its payload, durable when the command returns, and run here with --wait."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.result import awaited
from detent.cli.shell import Shell, connectable, duration_ms, resources_of, teaching
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD
from detent.words.states import word_of

if TYPE_CHECKING:
    from detent.remote.home import RemoteHome

STANDARD_INPUT = "-"


@click.command(
    "submit",
    help=teaching(
        """Submit a platform job: a JSON payload that says what to execute, render, export or draw as a thumbnail, with its limits.
Creates a home here if there is none.

The payload is checked whole, and every fault is reported with its path. Limits above the plan of its workspace are
refused. Equal work that succeeded before is not done again: the command then names the earlier job. The job is durable when
the command returns. Without --wait it runs as soon as a process with workers works on this home. With --connect the workers of
the server run it.""",
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
@click.option("--pool", metavar="NAME", help="Have only workers elsewhere of this pool take the job.")
@click.option(
    "--label", "labels", metavar="NAME", multiple=True, help="Ask for a worker with this label; may be repeated."
)
@click.option(
    "--resource", "resources", metavar="NAME=N", multiple=True, help="Say what the job takes: gpu=1; may be repeated."
)
@click.option("-w", "--workers", type=click.IntRange(1, 1024), help="With --wait: worker processes.  [default: 1]")
@connectable
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
    pool: str | None,
    labels: tuple[str, ...],
    resources: tuple[str, ...],
    workers: int | None,
) -> int:
    """Submit a platform job."""
    if not wait and (timeout is not None or workers is not None):
        raise click.UsageError("--timeout and --workers are for --wait")
    seconds = None if timeout is None else duration_ms("--timeout", timeout) / 1000
    document = sys.stdin.buffer.read() if payload == STANDARD_INPUT else Path(payload).read_bytes()
    options: dict[str, Any] = {
        "idempotency_key": idempotency_key,
        "reuse_failed": reuse_failed,
        "join": join,
        "files": files,
    }
    place: dict[str, Any] = {"pool": pool, "labels": labels, "resources": resources_of(resources)}
    from detent.sdk.client import Client  # noqa: PLC0415 - keeps `--help` fast
    from detent.sdk.options import place_of  # noqa: PLC0415

    if (server := shell.server()) is not None:
        if user_id is not None or workers is not None:
            raise click.UsageError(
                "--user and --workers are for a home on this machine; the key says who asks a server"
            )
        with server:
            options["place"] = place_of(**place)
            return _submit_there(shell, server, document, options, wait=wait, seconds=seconds)
    with Client(shell.home_option, workers=(workers or 1) if wait else 0) as client:
        job = client.submit_job(document, user_id=user_id, **options, **place)
        submitted = {**job.submitted.to_map(), "status": word_of(job.status)}
        if wait:
            from detent.pages.result import result_page  # noqa: PLC0415

            return shell.tell(result_page(awaited(client, job.job_id, seconds), submitted=submitted))
    return shell.answer(submitted, lambda page: _draw(page, submitted))


def _submit_there(
    shell: Shell, server: RemoteHome, payload: bytes, options: dict[str, Any], *, wait: bool, seconds: float | None
) -> int:
    """Submit to a server, whose workers run the job."""
    from detent.canon import json_decode  # noqa: PLC0415 - keeps `--help` fast
    from detent.remote.jobs import submit_payload, submitted_map  # noqa: PLC0415
    from detent.remote.uploads import Uploads  # noqa: PLC0415

    key = options.pop("idempotency_key")
    taken = submit_payload(server.http, Uploads(server.http), json_decode(payload, name="payload"), key=key, **options)
    submitted = submitted_map(taken)
    if not wait:
        return shell.answer(submitted, lambda page: _draw(page, submitted))
    server.await_job(taken["job_id"], seconds)
    told = server.page("result", id=taken["job_id"])
    told.document = {**submitted, **told.document}
    return shell.tell(told)


def _draw(page: Page, document: dict[str, Any]) -> None:
    found = document["deduplicated"]
    page.line(Cell("found" if found else "submitted", GOOD), f" job {document['job_id']}  {document['status']}")
    if found:
        page.line(Cell("  an earlier job does the same work; nothing was submitted", FAINT))
    page.fields(
        [
            ("type", document["job_type"]),
            ("workspace", f"{document['workspace_id']}, plan {document['plan']}"),
            ("user", document["user_id"]),
            *[("supersedes", other) for other in document.get("superseded", ())],
            ("next", f"detent result {document['job_id']} --wait"),
        ],
        indent="  ",
    )
