"""One run or one job, with its records as a timeline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from detent.errors import InvalidInput
from detent.owner import views
from detent.owner.content import Content
from detent.owner.ticks import SystemClock
from detent.pages.list import attempt_text, reason_text
from detent.pages.ordered import OrderedJobs, ordered_fields, show_snapshot
from detent.pages.sheet import Cell, Cellish, Sheet, Told, state_cell, told
from detent.pages.show_job import show_job
from detent.pages.show_run import RunSteps
from detent.pages.text import FAINT, STRONG, short
from detent.pages.timeline import draw_timeline
from detent.runs.find_jobs import find_jobs
from detent.runs.ordered.recorded import read_snapshot, recorded_ordered
from detent.runs.record.recorded_run import Live, recorded_run
from detent.words.quantities import time_text
from detent.workers.live_output import live_since

if TYPE_CHECKING:
    from detent.owner.home import Home
    from detent.owner.views import JobView, RunView
    from detent.store.api import StoreReader

JOBS_SHOWN_MAX = 50
RECORDS_SHOWN_MAX = 50


def show(
    home: Home,
    reader: StoreReader,
    identifier: str,
    what: str | None = None,
    *,
    raw: bool = False,
    snapshot: bool = False,
    local: bool = True,
) -> Told:
    """Show one run or job; ``what`` says which of the two is meant, where an id may be both."""
    content = Content(reader, home.content_files())
    run = views.run_view(reader, identifier) if what != "job" else None
    element = None
    if run is None and what is None and reader.job(identifier) is None:
        identifier, element = _whole(reader, content, identifier)
        run = views.run_view(reader, identifier)
    job = views.job_view(reader, identifier) if what != "run" and run is None else None
    if snapshot:
        return show_snapshot(home, identifier, run)
    if run is not None:
        answer = _show_run(home, reader, content, run, local=local) if not raw else _show_raw(reader, content, run)
        if what is None and reader.job(identifier) is not None:
            answer.notes.append(f"there is also a job {identifier!r}: `detent show --job`")
        return answer
    if job is not None and raw:
        return _show_raw(reader, content, job)
    if job is not None:
        return show_job(home, reader, content, job, element)
    raise InvalidInput(
        f"there is no {what} {identifier!r} here",
        code="UNKNOWN_RUN" if what == "run" else "UNKNOWN_JOB",
        hint="`detent list` and `detent list --jobs` show all of them",
    )


def _whole(reader: StoreReader, content: Content, beginning: str) -> tuple[str, int | None]:
    """The id that is meant by its beginning, or the run of a step that they name; and which element of a job."""
    found = find_jobs(reader, content, beginning)
    if found.kind == "job" or (found.kind == "step" and len(found.jobs) == 1):
        return found.jobs[0].job_id, found.jobs[0].element
    return found.run_id or beginning, None


def _show_run(home: Home, reader: StoreReader, content: Content, view: RunView, *, local: bool) -> Told:
    now_ms = SystemClock().wall_ms()
    recorded = recorded_run(reader, content, view.run, Live(live_since(home.path), now_ms))
    ordered = recorded_ordered(reader, content, view.run) if recorded is None else None
    steps = None if recorded is None else RunSteps(home, reader, content, recorded, now_ms, local=local)

    records = views.timeline_of_run(reader, content, view)
    asked = views.actions_on(reader, content, view)
    jobs = [*views.jobs(reader, run_id=view.row.run_id)][::-1]  # As they were submitted.
    parts = None if ordered is None else OrderedJobs(view.row.run_id, jobs)
    states = views.state_counts(reader, view.row.run_id)
    digests = {
        name: views.plain(getattr(view.run, name)) for name in ("contract_digest", "bindings_digest", "inputs_digest")
    }
    document = {
        "kind": "run",
        **view.to_map(),
        "steps_reused": views.steps_reused(reader, content, view),
        "operation_id": view.run.operation_id,
        **digests,
        "states": states,
        **({} if steps is None else steps.to_map()),
        **({} if ordered is None else ordered.to_map()),
        **({} if ordered is None else {"snapshot": read_snapshot(home.path, view.row.run_id)}),
        "job_list": [
            job.to_map() if parts is None else {**job.to_map(), "note": parts.notes.get(job.row.job_id)} for job in jobs
        ],
        "records": [record.to_map() for record in records],
        "operated": [record.to_map() for record in asked],
    }

    def draw(page: Sheet) -> None:
        page.line(Cell("run ", STRONG), Cell(view.row.run_id, STRONG), "  ", state_cell(view.row.status))
        ended = document["ended_at"]
        page.fields(
            [
                ("name", view.row.name),
                ("tenant", view.row.tenant_id),
                ("started", time_text(str(document["started_at"]))),
                ("ended", time_text(str(ended)) if ended else "-"),
                ("contract", short(str(digests["contract_digest"]))),
                ("jobs", parts.states_text() if parts is not None else _states_text(states)),
                *(() if steps is None else steps.fields()),
                *(() if ordered is None else ordered_fields(ordered)),
            ],
            indent="  ",
        )
        page.line()
        if steps is not None:
            steps.draw(page)
            page.line()
        else:
            _draw_jobs(page, jobs if parts is None else parts.chunks)
        draw_timeline(page, records[:RECORDS_SHOWN_MAX] + asked, {} if steps is None else steps.names)
        if len(records) > RECORDS_SHOWN_MAX:
            page.line(Cell(f"... and {len(records) - RECORDS_SHOWN_MAX:,} more: `-o json` has all", FAINT))

    return told(document, draw)


def _draw_jobs(page: Sheet, jobs: Sequence[JobView]) -> None:
    shown = jobs[:JOBS_SHOWN_MAX]
    if not shown:
        return
    rows: list[list[Cellish]] = [
        [job.row.job_id, state_cell(job.row.state), attempt_text(job), reason_text(job)] for job in shown
    ]
    page.table(("JOB", "STATE", "ATTEMPT", "REASON"), rows)
    if len(jobs) > len(shown):
        page.line(Cell(f"... and {len(jobs) - len(shown):,} more: `detent list --run`", FAINT))
    page.line()


def _show_raw(reader: StoreReader, content: Content, view: RunView | JobView) -> Told:
    if isinstance(view, views.RunView):
        kind, records, refused = "run", views.timeline_of_run(reader, content, view), []
    else:
        kind, records = "job", views.timeline_of_job(reader, content, view)
        refused = views.refusals_of_job(reader, view.row.job_id, limit=RECORDS_SHOWN_MAX)
    records += views.actions_on(reader, content, view)
    shown = [{**record.to_map(), **record.raw()} for record in records]
    document = {"kind": kind, **view.to_map(), "records": shown, "refusals": refused}

    def draw(page: Sheet) -> None:
        for record in records:
            page.line(Cell(f"record {record.row.position}, {record.row.kind}", STRONG))
            for part, fields in record.raw().items():
                page.fields(
                    [(f"{part}.{name}", json.dumps(value)) for name, value in sorted(fields.items())], indent="  "
                )

    return told(document, draw)


def _states_text(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items()) or "none"
