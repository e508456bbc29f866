"""`detent result`: the signed result envelope of a platform job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.shell import Shell, connectable, duration_ms, teaching

if TYPE_CHECKING:
    from detent.inspect.job_results import JobResultView
    from detent.sdk.client import Client


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
@connectable
def command(shell: Shell, identifier: str, *, wait: bool, timeout: str | None) -> int:
    """Print a result."""
    from detent.inspect.job_results import job_result  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.content import Content  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.pages.result import job_meant, result_page  # noqa: PLC0415

    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait")
    if (server := shell.server()) is not None:
        seconds = None if timeout is None else duration_ms("--timeout", timeout) / 1000
        with server:
            job_id = server.one_job(identifier)
            if wait:
                server.await_job(job_id, seconds)
            return shell.tell(server.page("result", id=job_id))
    home = shell.home(writes=wait)
    with Parts().open_snapshot(home.ledger) as reader:
        content = Content(reader, home.content_files())
        job_id = job_meant(content, identifier)
        if not wait:
            return shell.tell(result_page(job_result(home, content, job_id)))
    from detent.sdk.client import Client  # noqa: PLC0415

    seconds = None if timeout is None else duration_ms("--timeout", timeout) / 1000
    with Client(home.path) as client:
        return shell.tell(result_page(awaited(client, job_id, seconds)))


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
