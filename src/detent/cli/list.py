"""`detent list`: runs, or jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import click

from detent.cli.page import Cell, Cellish, Page, state_cell
from detent.cli.shell import JSON, Shell, teaching, with_shell
from detent.cli.terminal import FAINT, beginning
from detent.words.quantities import age_text, count_text, short_duration, time_text
from detent.words.states import INTERRUPTED, JOB_STATES, SUCCEEDED, kernel_name, state_typed, word_of

if TYPE_CHECKING:
    from detent.owner.content import Content
    from detent.owner.home import Home
    from detent.owner.views import JobView, RunView
    from detent.runs.find_jobs import FoundJob
    from detent.store.api import StoreReader

SHOWN_MAX = 50
"""Rows that a page shows unless told otherwise; JSON has them all."""


class JobState(click.ParamType[str]):
    """The state of a job as people type it: either spelling, either case, the ledger's names too."""

    name = "state"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 - click asks so
        """What stands for it in a help page."""
        return f"[{'|'.join(JOB_STATES)}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The kernel's name for the state that was typed."""
        word = state_typed(value)
        if word not in JOB_STATES:
            self.fail(f"{value!r:.80} is not a job state; use one of {', '.join(JOB_STATES)}", param, ctx)
        return kernel_name(word)


@click.command(
    "list",
    help=teaching(
        "List the runs of this home, newest first, or with --jobs its jobs, the last submitted first. Nothing is changed, and"
        " the home may be in use.",
        """  detent list
  detent list --jobs --state failed
  detent list --jobs --run RUN -o json
  detent list --correlation 5f0c1e9a-0d5e-8c1b-9d0f-2a7be4f6c301
""",
    ),
)
@click.option("--jobs", "show_jobs", is_flag=True, help="List jobs instead of runs.")
@click.option("--run", "run_id", metavar="RUN", help="Only jobs of this run.")
@click.option("--state", type=JobState(), help="Only jobs in this state.")
@click.option("--correlation", metavar="ID", help="Only jobs of the steps that have this correlation id, in any run.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Show at most this many rows; 0 shows all. [text: {SHOWN_MAX}, json: all]",
)
@with_shell
def command(
    shell: Shell,
    *,
    show_jobs: bool,
    run_id: str | None,
    state: str | None,
    correlation: str | None,
    limit: int | None,
) -> int:
    """List runs or jobs."""
    from detent.inspect.replicas import standstill  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner import views  # noqa: PLC0415
    from detent.owner.content import Content  # noqa: PLC0415
    from detent.owner.ticks import SystemClock  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.runs.find_jobs import named_job, the_run  # noqa: PLC0415

    by_job = show_jobs or run_id is not None or state is not None or correlation is not None
    most = (limit or None) if limit is not None else None if shell.format == JSON else SHOWN_MAX
    home, now_ms = shell.home(), SystemClock().wall_ms()
    with Parts().open_reader(home.ledger) as reader:
        if run_id is not None:
            run_id = the_run(reader, run_id).run_id
        fetch = None if most is None else most + 1  # One more, to know whether there is more.
        content = Content(reader, home.content_files())
        if correlation is not None:
            jobs = list(islice(_correlated(reader, content, correlation, run_id, state), fetch))
        else:
            jobs = list(views.jobs(reader, run_id=run_id, state=state, limit=fetch)) if by_job else []
        runs = [] if by_job else list(views.runs(reader, limit=fetch))
        jobs_total = 0 if jobs or runs else sum(reader.job_counts().values())
        waits = standstill(reader)
        found = {view.row.job_id: named_job(content, view.row) for view in jobs[:most]}
        document: list[dict[str, object]] = [
            {
                **view.to_map(),
                "step": (found[view.row.job_id].label if found[view.row.job_id].step else None),
                "elements": found[view.row.job_id].elements or None,
            }
            for view in jobs[:most]
        ]
        steps = {job_id: _called(job) for job_id, job in found.items()}
        if shell.format == JSON:
            document += [
                {**view.to_map(), "steps_reused": views.steps_reused(reader, content, view)} for view in runs[:most]
            ]

    def draw(page: Page) -> None:
        if by_job and jobs:
            _draw_jobs(page, jobs[:most], steps)
        elif runs:
            rows = [_run_row(home, view, now_ms) for view in runs[:most]]
            page.table(("RUN", "NAME", "STATUS", "JOBS", "REUSED", "TOOK", "AGE"), rows)
        else:
            page.line(_nothing(by_job=by_job, jobs_total=jobs_total))

    code = shell.answer(document, draw)
    if most is not None and len(runs) + len(jobs) > most:
        shell.note(f"only the first {count_text(most, 'row')}; --limit 0 shows all")
    if waits is not None:
        shell.note(waits)
    return code


def _correlated(
    reader: StoreReader, content: Content, correlation_id: str, run_id: str | None, state: str | None
) -> Iterator[JobView]:
    """The jobs of the steps with a correlation id, the newest run first."""
    from detent.owner import views  # noqa: PLC0415
    from detent.runs.find_jobs import correlated  # noqa: PLC0415

    for found in correlated(reader, content, correlation_id, run_id):
        for job in found.jobs:
            view = None if job.reused else views.job_view(reader, job.job_id)
            if view is not None and state in {None, view.row.state}:
                yield view


def reason_text(view: JobView) -> str:
    """Why a job stands as it does; one that succeeded needs no reason."""
    return "-" if word_of(view.row.state) == SUCCEEDED else view.job.reason_code or "-"


def attempt_text(view: JobView) -> str:
    """Which attempt a job is in, counted from one; a job that no worker ever had is in none."""
    return str(view.attempt or "-")


def _run_row(home: Home, view: RunView, now_ms: int) -> list[Cellish]:
    from detent.runs.record.inputs import is_driven  # noqa: PLC0415

    row, run, times = view.row, view.run, view.times
    jobs = f"{run.jobs}" if not run.live_jobs else f"{run.jobs} ({run.live_jobs} live)"
    status = state_cell(row.status)
    if row.ended_tick is None and not is_driven(home.path, row.run_id):
        status = state_cell(INTERRUPTED)  # No process works on it: the same line takes it up again.
    started_ms = row.started_tick * times.tick_ms + times.epoch_base_ms
    took_ms = None if row.ended_tick is None else (row.ended_tick - row.started_tick) * times.tick_ms
    return [
        row.run_id,
        row.name,
        status,
        jobs,
        str(run.steps_reused) if run.steps_reused else "-",
        "-" if took_ms is None else short_duration(took_ms),
        Cell(age_text(now_ms - started_ms), FAINT),
    ]


def _called(job: FoundJob) -> str:
    """What people call a job: by its step or its function, and how many calls it is."""
    label = job.label if job.step else ""
    return f"{label} ({count_text(job.elements, 'element')})" if job.elements else label


def _draw_jobs(page: Page, jobs: Sequence[JobView], steps: Mapping[str, str]) -> None:
    """A terminal that is too narrow for whole ids gets their beginnings, which every command takes as well."""
    header: tuple[str, ...] = ("JOB", "STEP", "STATE", "ATTEMPT", "CHANGED (UTC)", "RUN", "REASON")
    rows = [_job_row(view, steps) for view in jobs]
    if not page.fits(header, rows):
        header = ("JOB", "STEP", "STATE", "ATTEMPT", "RUN", "REASON")
        rows = [[beginning(view.row.job_id), *row[1:4], *row[5:]] for view, row in zip(jobs, rows, strict=True)]
    page.table(header, rows)


def _job_row(view: JobView, steps: Mapping[str, str]) -> list[Cellish]:
    changed = str(view.to_map()["changed_at"])
    return [
        view.row.job_id,
        steps.get(view.row.job_id) or "-",
        state_cell(view.row.state),
        attempt_text(view),
        Cell(_seconds(changed), FAINT),
        view.row.run_id or "-",
        reason_text(view),
    ]


def _seconds(iso: str) -> str:
    return time_text(iso).partition(".")[0]


def _nothing(*, by_job: bool, jobs_total: int) -> str:
    if by_job:
        return "no such jobs"
    if jobs_total:
        return f"no runs; {count_text(jobs_total, 'job')} without one, see `detent list --jobs`"
    return "no runs yet"
