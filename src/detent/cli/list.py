"""`detent list`: runs, or jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.page import FAINT, Cell, Cellish, Page, state_cell
from detent.cli.shell import JSON, Shell, teaching, with_shell
from detent.cli.text import count_text, time_text

if TYPE_CHECKING:
    from detent.engine.inspect import JobView, RunView

SHOWN_MAX = 50
"""Rows that a page shows unless told otherwise; JSON has them all."""
STATES = ("QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "FAILED", "CANCELED")


@click.command(
    "list",
    help=teaching(
        "List the runs of this home, newest first, or with --jobs its jobs by id. Nothing is changed, and the home may be"
        " in use.",
        """  detent list
  detent list --jobs --state FAILED
  detent list --jobs --run RUN -o json
""",
    ),
)
@click.option("--jobs", "show_jobs", is_flag=True, help="List jobs instead of runs.")
@click.option("--run", "run_id", metavar="RUN", help="Only jobs of this run.")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only jobs in this state.")
@click.option(
    "--limit", type=click.IntRange(min=0), help=f"At most so many rows; 0 means all. [text: {SHOWN_MAX}, json: all]"
)
@with_shell
def command(shell: Shell, *, show_jobs: bool, run_id: str | None, state: str | None, limit: int | None) -> int:
    """List runs or jobs."""
    from detent.engine import inspect  # noqa: PLC0415 - keeps `--help` fast
    from detent.engine.wiring import Parts  # noqa: PLC0415
    from detent.errors import InvalidInput  # noqa: PLC0415

    by_job = show_jobs or run_id is not None or state is not None
    most = (limit or None) if limit is not None else None if shell.format == JSON else SHOWN_MAX
    with Parts().open_reader(shell.home().ledger) as reader:
        if run_id is not None and reader.run(run_id) is None:
            raise InvalidInput(f"there is no run {run_id!r}", code="UNKNOWN_RUN", hint="`detent list` shows the runs")
        fetch = None if most is None else most + 1  # One more, to know whether there is more.
        jobs = list(inspect.jobs(reader, run_id=run_id, state=state, limit=fetch)) if by_job else []
        runs = [] if by_job else list(inspect.runs(reader, limit=fetch))
        jobs_total = 0 if jobs or runs else sum(reader.job_counts().values())

    def draw(page: Page) -> None:
        if by_job and jobs:
            rows = [_job_row(view) for view in jobs[:most]]
            page.table(("JOB", "STATE", "ATTEMPT", "CHANGED (UTC)", "RUN", "REASON"), rows)
        elif runs:
            rows = [_run_row(view) for view in runs[:most]]
            page.table(("RUN", "NAME", "STATUS", "JOBS", "STARTED (UTC)", "ENDED (UTC)"), rows)
        else:
            page.line(_nothing(by_job=by_job, jobs_total=jobs_total))

    document = [view.to_map() for view in runs[:most]] + [view.to_map() for view in jobs[:most]]
    code = shell.answer(document, draw)
    if most is not None and len(runs) + len(jobs) > most:
        shell.note(f"only the first {count_text(most, 'row')}; --limit 0 shows all")
    return code


def attempt_text(view: JobView) -> str:
    """Which attempt a job is in, counted from one; a job that no worker ever had is in none."""
    return str(view.row.attempt_id + 1) if view.job.ever_dispatched else "-"


def _run_row(view: RunView) -> list[Cellish]:
    shown = view.to_map()
    jobs = f"{view.run.jobs}" if not view.run.live_jobs else f"{view.run.jobs} ({view.run.live_jobs} live)"
    ended = shown["ended_at"]
    return [
        view.row.run_id,
        view.row.name,
        state_cell(view.row.status),
        jobs,
        Cell(_seconds(str(shown["started_at"])), FAINT),
        Cell(_seconds(str(ended)) if ended else "-", FAINT),
    ]


def _job_row(view: JobView) -> list[Cellish]:
    changed = str(view.to_map()["changed_at"])
    return [
        view.row.job_id,
        state_cell(view.row.state),
        attempt_text(view),
        Cell(_seconds(changed), FAINT),
        view.row.run_id or "-",
        view.job.reason_code or "-",
    ]


def _seconds(iso: str) -> str:
    return time_text(iso).partition(".")[0]


def _nothing(*, by_job: bool, jobs_total: int) -> str:
    if by_job:
        return "no such jobs"
    if jobs_total:
        return f"no runs; {count_text(jobs_total, 'job')} without one, see `detent list --jobs`"
    return "no runs yet"
