"""`detent retry`: run again what did not succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from detent.cli.shell import Shell, connectable, teaching
from detent.pages.sheet import Cell
from detent.pages.text import FAINT
from detent.words.states import SUCCEEDED, word_of

if TYPE_CHECKING:
    from detent.owner.content import Content
    from detent.owner.home import Home
    from detent.owner.views import JobView
    from detent.remote.home import RemoteHome
    from detent.store.api import RunRow, StoreReader


@click.command(
    "retry",
    help=teaching(
        """Run the failed and cancelled parts of a run again. This starts a new run of the recorded contract with the recorded
parameters, which reuses every result that succeeded and uses your code as it is now. An interrupted run is resumed. For a
single task or a platform job, it starts a new job with the same arguments or payload.

The history of the earlier run or job does not change; the new one refers to it.""",
        """  detent retry RUN
  detent retry JOB -o json
  detent retry JOB.3              one element of a job that is many calls of a map
""",
    ),
)
@click.argument("identifier", metavar="RUN|JOB")
@click.option(
    "-w", "--workers", type=click.IntRange(1, 1024), help="Number of worker processes.  [default: one per core]"
)
@click.option(
    "--commit-timeout",
    metavar="DURATION",
    help="For `detent map`: time limit for one commit to the destination.  [default: 1h]",
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, only the summary.")
@connectable
def command(shell: Shell, identifier: str, *, workers: int | None, commit_timeout: str | None, quiet: bool) -> int:
    """Retry a run or a job."""
    from detent.cli.retry_job import retry_here  # noqa: PLC0415 - keeps `--help` fast
    from detent.cli.shell import duration_ms  # noqa: PLC0415
    from detent.owner.content import Content  # noqa: PLC0415
    from detent.owner.views import job_view  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.runs.find_jobs import find_jobs  # noqa: PLC0415

    if (server := shell.server()) is not None:
        if workers is not None or commit_timeout is not None:
            raise click.UsageError("--workers and --commit-timeout are for a home on this machine")
        with server:
            return _retry_there(shell, server, identifier, quiet=quiet)
    commit_ms = None if commit_timeout is None else duration_ms("--commit-timeout", commit_timeout)
    home = shell.home(writes=True)
    with Parts().open_reader(home.ledger) as reader:
        content = Content(reader, home.content_files())
        found = find_jobs(reader, content, identifier)
        run = None if found.run_id is None else reader.run(found.run_id)
        job = job_view(reader, found.jobs[0].job_id) if run is None else None
        element = None if run is not None else found.jobs[0].element
        state = None if job is None else _state(reader, content, job, element)
    if run is not None:
        if found.kind != "run":
            _note_whole_run(shell, identifier, run.run_id)
        return _retry_run(shell, home, run, workers=workers, quiet=quiet, commit_ms=commit_ms)
    assert job is not None
    assert state is not None
    return retry_here(shell, home, job.row, element, state, workers=workers)


def _retry_there(shell: Shell, server: RemoteHome, identifier: str, *, quiet: bool) -> int:
    """Have a server run a job again, or what did not succeed of a run, and watch that."""
    from detent.cli.remote_run import watch  # noqa: PLC0415
    from detent.cli.retry_job import retry_there  # noqa: PLC0415
    from detent.remote.runs import RemoteRun  # noqa: PLC0415
    from detent.runs.find_jobs import RUN  # noqa: PLC0415

    found = server.find(identifier)
    if found.run_id is None:
        return retry_there(shell, server, found.jobs[0])
    if found.kind != RUN:
        _note_whole_run(shell, identifier, found.run_id)
    before = server.http.get(f"/v1/runs/{found.run_id}")
    if before["status"] == SUCCEEDED:
        return _nothing_to_retry(shell, found.run_id, before["name"])
    run_id = str(server.http.post(f"/v1/runs/{found.run_id}/retry", {})["run_id"])
    return watch(shell, RemoteRun(server.http, run_id, resumed=run_id == found.run_id), quiet=quiet)


def _note_whole_run(shell: Shell, identifier: str, run_id: str) -> None:
    """Say that more is run again than was named."""
    shell.note(f"{identifier} belongs to run {run_id}; everything in that run that did not succeed is run again")


def _nothing_to_retry(shell: Shell, run_id: str, name: str) -> int:
    """Answer for a run that succeeded."""
    document = {"run_id": run_id, "name": name, "status": SUCCEEDED, "retried": False}
    said = f"{SUCCEEDED}: there is nothing to run again"
    return shell.answer(document, lambda page: page.line(f"run {run_id} ", Cell(said, FAINT)))


def _state(reader: StoreReader, content: Content, view: JobView, element: int | None) -> str:
    """Where a job stands, or an element of it."""
    from detent.inspect.elements import element_of  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.content import order_of  # noqa: PLC0415

    order = None if element is None else order_of(content, view.row)
    if element is None or order is None:
        return view.row.state
    return element_of(reader, content, view, order, element).state


def _retry_run(
    shell: Shell, home: Home, row: RunRow, *, workers: int | None, quiet: bool, commit_ms: int | None
) -> int:
    from detent.cli.map import drive as drive_map  # noqa: PLC0415
    from detent.cli.run import drive  # noqa: PLC0415
    from detent.kernel import Run  # noqa: PLC0415
    from detent.kernel.run import RUNNING  # noqa: PLC0415
    from detent.runs.handle import RunHandle  # noqa: PLC0415
    from detent.runs.ordered.resume import Beginning, ordered_to_retry  # noqa: PLC0415
    from detent.runs.retry import changed_since, run_to_retry  # noqa: PLC0415
    from detent.runs.runtime import Runtime  # noqa: PLC0415

    if word_of(row.status) == SUCCEEDED:
        return _nothing_to_retry(shell, row.run_id, row.name)
    with Runtime(home, workers=workers) as work:
        if (ordered := ordered_to_retry(work.backend, Run.decode(row.body))) is not None:
            # What the run left is added to; one that never began to write has nothing to add to.
            beginning = Beginning(append=row.status != RUNNING)
            more: dict[str, Any] = {"quiet": quiet, "commit_ms": commit_ms, "seqs": ordered.seqs}
            return drive_map(shell, work, ordered.spec, ordered.items, beginning, **more)
        retry = run_to_retry(work.backend, Run.decode(row.body))
        if (file := changed_since(retry.inputs)) is not None:
            shell.note(f"note: {file} has changed since; retry uses the recorded contract, `detent run` the new one")
        handle = RunHandle(work, retry.inputs, taken=retry.taken)
        return drive(shell, work, handle, quiet=quiet)
