"""The runs of a home, or its jobs, in a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from detent.errors import InvalidInput
from detent.inspect.replicas import standstill
from detent.owner import views
from detent.owner.content import Content
from detent.pages.sheet import Cell, Cellish, Sheet, Told, state_cell, told
from detent.pages.text import FAINT, beginning
from detent.runs.find_jobs import correlated, named_job, the_run
from detent.runs.record.inputs import is_driven
from detent.store.api import JobsWanted
from detent.words.quantities import age_text, count_text, short_duration, time_text
from detent.words.states import INTERRUPTED, SUCCEEDED, word_of

if TYPE_CHECKING:
    from detent.owner.home import Home
    from detent.owner.views import JobView, RunView
    from detent.runs.find_jobs import FoundJob
    from detent.store.api import JobRow, StoreReader


PAGE_ROWS = 200
"""Rows that are read at a time where a label or a pool is wanted."""
_FIELDS = {"run": "run_id"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows, and how many."""

    show_jobs: bool = False
    run_id: str | None = None
    state: str | None = None
    """The kernel's name of a job's state."""
    correlation: str | None = None
    most: int | None = None
    """None: all."""
    whole: bool = False
    """Whether the document is wanted, which has more of a run than the table."""
    label: str | None = None
    pool: str | None = None

    @property
    def by_job(self) -> bool:
        """Whether jobs are listed, and not runs."""
        return self.show_jobs or self.state is not None or bool(self.leading)

    @property
    def leading(self) -> list[str]:
        """Those filters that each have an index of their own."""
        return [
            name
            for name in ("run", "correlation", "label", "pool")
            if getattr(self, _FIELDS.get(name, name)) is not None
        ]


def list_rows(home: Home, reader: StoreReader, wanted: Wanted, *, now_ms: int, tenant: str | None = None) -> Told:
    """List runs or jobs; those of one tenant alone where it is named, whose reader has no others to rebuild the scheduler from."""
    by_job, most, state = wanted.by_job, wanted.most, wanted.state
    by_name = wanted.label is not None or wanted.pool is not None
    if by_name and len(wanted.leading) > 1:
        names = " and ".join(f"--{name}" for name in wanted.leading)
        raise InvalidInput(f"no index answers {names} together", hint="give one of them; --state goes with each")
    run_id = None if wanted.run_id is None else the_run(reader, wanted.run_id).run_id
    fetch = None if most is None else most + 1  # One more, to know whether there is more.
    content = Content(reader, home.content_files())
    if by_name:
        jobs = list(islice(_named(reader, wanted, tenant), fetch))
    elif wanted.correlation is not None:
        jobs = list(islice(_correlated(reader, content, wanted.correlation, run_id, state), fetch))
    else:
        jobs = list(views.jobs(reader, run_id=run_id, state=state, limit=fetch)) if by_job else []
    runs = [] if by_job else list(views.runs(reader, limit=fetch))
    jobs_total = 0 if jobs or runs else sum(reader.job_counts().values())
    found = {view.row.job_id: named_job(content, view.row) for view in jobs[:most]}
    document: list[dict[str, object]] = [
        {
            **view.to_map(),
            "step": (found[view.row.job_id].label if found[view.row.job_id].step else None),
            "elements": found[view.row.job_id].elements or None,
        }
        for view in jobs[:most]
    ]
    if wanted.whole:
        document += [
            {**view.to_map(), "steps_reused": views.steps_reused(reader, content, view)} for view in runs[:most]
        ]

    def draw(page: Sheet) -> None:
        if by_job and jobs:
            _draw_jobs(page, jobs[:most], {job_id: _called(job) for job_id, job in found.items()})
        elif runs:
            rows = [_run_row(home, view, now_ms) for view in runs[:most]]
            page.table(("RUN", "NAME", "STATUS", "JOBS", "REUSED", "TOOK", "AGE"), rows)
        else:
            page.line(_nothing(by_job=by_job, jobs_total=jobs_total))

    answer = told(document, draw)
    if most is not None and len(runs) + len(jobs) > most:
        answer.notes.append(f"only the first {count_text(most, 'row')}; --limit 0 shows all")
    if tenant is None and (waits := standstill(reader)) is not None:
        answer.notes.append(waits)
    return answer


def _named(reader: StoreReader, wanted: Wanted, tenant: str | None) -> Iterator[JobView]:
    """The jobs under a label or of a pool, in every workspace or in one, newest first."""
    tenants = [tenant] if tenant is not None else sorted({name for name, _ in reader.tenant_counts()[0]})
    times = views.Times.of(reader)
    for _, row in merge(*(_pages(reader, one, wanted) for one in tenants), key=itemgetter(0), reverse=True):
        yield views.view_of_job(row, times)


def _pages(reader: StoreReader, tenant: str, wanted: Wanted) -> Iterator[tuple[int, JobRow]]:
    asked = JobsWanted(tenant, state=wanted.state, label=wanted.label, pool=wanted.pool)
    while page := reader.jobs_page(asked, limit=PAGE_ROWS):
        yield from page
        asked = asked._replace(before=page[-1][0])


def _correlated(
    reader: StoreReader, content: Content, correlation_id: str, run_id: str | None, state: str | None
) -> Iterator[JobView]:
    """The jobs of the steps with a correlation id, the newest run first."""
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


def _draw_jobs(page: Sheet, jobs: Sequence[JobView], steps: Mapping[str, str]) -> None:
    """A terminal that is too narrow for whole ids gets their beginnings, which every command takes as well."""
    header = ("JOB", "STEP", "STATE", "ATTEMPT", "CHANGED (UTC)", "RUN", "REASON")
    rows = [_job_row(view, steps) for view in jobs]
    shorter = [[beginning(view.row.job_id), *row[1:4], *row[5:]] for view, row in zip(jobs, rows, strict=True)]
    page.table(header, rows, narrow=(("JOB", "STEP", "STATE", "ATTEMPT", "RUN", "REASON"), shorter))


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
