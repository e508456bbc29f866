"""One run or one job, with its records as a timeline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from detent.errors import InvalidInput
from detent.inspect.elements import elements_of
from detent.inspect.environment import environment_of_job
from detent.inspect.job_ledger import ledger_of
from detent.inspect.logs import attempts_of, job_times
from detent.jobs.status import project_job, timeline
from detent.owner import views
from detent.owner.content import Content, order_of
from detent.owner.ticks import SystemClock
from detent.pages.list import attempt_text, reason_text
from detent.pages.ordered import OrderedJobs, ordered_fields, show_snapshot
from detent.pages.sheet import Cell, Cellish, Sheet, Told, state_cell, told
from detent.pages.show_elements import array_map, draw_elements, element_fields, proof_map
from detent.pages.show_run import (
    RunSteps,
    action_map,
    draw_error,
    order_fields,
    order_map,
    report_fields,
    report_map,
)
from detent.pages.text import BAD, FAINT, STRONG, WARN, short
from detent.runs.cancel import cancel_note
from detent.runs.find_jobs import find_jobs
from detent.runs.ordered.recorded import read_snapshot, recorded_ordered
from detent.runs.record.recorded_run import Live, recorded_run, report_of
from detent.words.quantities import count_text, duration_text, size_text, time_text
from detent.words.states import FAILED, QUEUED, RUNNING, SUCCEEDED, word_of
from detent.workers.live_output import live_since
from detent.workers.next_attempt import unreported, unreported_category

if TYPE_CHECKING:
    from detent.inspect.job_ledger import JobLedger
    from detent.owner.home import Home
    from detent.owner.views import JobView, RecordView, RunView
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
        return _show_job(home, reader, content, job, element)
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
        listed = jobs if parts is None else parts.chunks
        shown = listed[:JOBS_SHOWN_MAX]
        if steps is not None:
            steps.draw(page)
            page.line()
        elif shown:
            rows: list[list[Cellish]] = [
                [job.row.job_id, state_cell(job.row.state), attempt_text(job), reason_text(job)] for job in shown
            ]
            page.table(("JOB", "STATE", "ATTEMPT", "REASON"), rows)
            if len(listed) > len(shown):
                page.line(Cell(f"... and {len(listed) - len(shown):,} more: `detent list --run`", FAINT))
            page.line()
        _draw_timeline(page, records[:RECORDS_SHOWN_MAX] + asked, {} if steps is None else steps.names)
        if len(records) > RECORDS_SHOWN_MAX:
            page.line(Cell(f"... and {len(records) - RECORDS_SHOWN_MAX:,} more: `-o json` has all", FAINT))

    return told(document, draw)


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


def _show_job(home: Home, reader: StoreReader, content: Content, view: JobView, element: int | None = None) -> Told:

    records = views.timeline_of_job(reader, content, view)
    asked = views.actions_on(reader, content, view)
    order, report = order_of(content, view.row), report_of(reader, content, view.row)
    array = order
    elements = [] if order is None or not order.elements else list(elements_of(reader, content, view, order))
    shown = None if element is None else elements[element]
    if shown is not None:
        order, report = shown.order, shown.report
    note = cancel_note(reader, content, view.row)
    times = _times(records, view)
    place, size = views.whereabouts(reader, content, view.job.payload_digest)
    job, settings = view.job, home.settings()
    ledger = ledger_of(reader, content, view, settings.policies(), settings.path)
    attempts = sum(1 for record in records if record.fields.get("dispatch") is True)
    since_ms = live_since(home.path).get(view.row.job_id)
    waited_ms, ran_ms = job_times(view, attempts_of(reader, content, view), since_ms, SystemClock().wall_ms())
    failed = job.reason_code if word_of(view.row.state) == FAILED and report is None else None
    surroundings = environment_of_job(reader, view.row.job_id, view.row.partition)
    document: dict[str, Any] = {
        "kind": "job",
        **view.to_map(),
        "status": word_of(project_job(job).status),
        "category": None if failed is None else unreported_category(failed),
        "job_kind": job.job_kind,
        "action": action_map(order, view),
        "attempts": attempts,
        "waited_ms": waited_ms,
        "ran_ms": ran_ms,
        "failures": job.failures,
        "interruptions": job.interruptions,
        "max_retries": job.max_retries,
        "job_manifest_hash": views.plain(job.manifest_hash),
        "head": views.plain(view.row.head),
        "payload": {"digest": views.plain(job.payload_digest), "content": place, "size_bytes": size},
        "lease": None
        if job.lease_id is None
        else {
            "lease_id": views.plain(job.lease_id),
            "holder": job.lease_holder,
            **view.times.to_map("expiry", job.lease_expiry),
        },
        **view.times.to_map("ready", job.ready_tick),
        **ledger.to_map(),
        "order": order_map(order),
        "report": report_map(content, report),
        "environment": None if surroundings is None else surroundings.to_map(),
        "reason": note.get("reason"),
        "superseded_by": note.get("superseded_by"),
        "timeline": times,
        **({} if shown is None else {"kind": "element", **shown.to_map(), "array": view.row.job_id}),
        **({} if shown is None or array is None else {"proof": proof_map(reader, content, view, shown)}),
        **({} if shown is not None or not elements else {"elements": array_map(elements)}),
        "records": [record.to_map() for record in records],
        "operated": [record.to_map() for record in asked],
    }

    def draw(page: Sheet) -> None:
        if shown is not None:
            page.line(Cell("element ", STRONG), Cell(shown.name, STRONG), "  ", state_cell(shown.state))
        else:
            page.line(Cell("job ", STRONG), Cell(view.row.job_id, STRONG), "  ", state_cell(view.row.state))
        payload = _payload_cell(str(document["payload"]["digest"]), place, size)
        fields = _job_fields(view, document, ledger, payload)
        if "reason" in note:
            fields.append(("reason", note["reason"]))
        if failed is not None:
            said = unreported(failed, "it ended without a report")
            fields.append(("error", f"{failed} ({unreported_category(failed)}): {said}"))
        fields += [] if shown is None else element_fields(shown, view)
        fields += [] if order is None else order_fields(order)
        fields += [] if report is None else report_fields(content, report)
        fields += [] if surroundings is None or not surroundings.locks else [("environment", surroundings.text)]
        page.fields(fields, indent="  ")
        if report is not None:
            draw_error(page, report)
        page.line()
        if elements and shown is None:
            draw_elements(page, content, elements)
            page.line()
        _draw_timeline(page, records + asked)

    return told(document, draw)


def _job_fields(
    view: JobView, document: Mapping[str, Any], ledger: JobLedger, payload: Cellish
) -> list[tuple[str, Cellish]]:
    """What every job has: where it belongs, how often it was tried, what it used, its lease and its next attempt."""
    job = view.job
    spent = f"{job.failures} failed of at most {job.max_retries} retries"
    waited, ran = duration_text(document["waited_ms"]), duration_text(document["ran_ms"])
    fields: list[tuple[str, Cellish]] = [
        ("run", view.row.run_id or "-"),
        ("tenant", view.row.tenant_id),
        ("kind", f"{job.job_kind}, priority {job.priority}"),
        ("attempts", f"{document['attempts']} ({spent}, {count_text(job.interruptions, 'interruption')})"),
        ("time", f"waited {waited}, ran {ran}"),
        ("used", ledger.used_text),
        *([("quota", ledger.quota_text)] if ledger.limited else []),
        ("payload", payload),
    ]
    if document["lease"] is not None:
        fields.append(("lease", f"{job.lease_holder} until {time_text(str(document['lease']['expiry_at']))}"))
    if job.ready_tick is not None:
        fields.append(("retry at", time_text(str(document["ready_at"]))))
    if document["timeline"] is not None:
        fields.append(("status", _times_text(document["timeline"])))
    return fields


def _times(records: list[RecordView], view: JobView) -> dict[str, Any] | None:
    """The statuses that a platform job has had, with their times, by its records alone; None for another kind of job."""
    if view.job.job_kind != "platform" or not all(record.fields for record in records):
        return None

    told = timeline(record.fields for record in records)
    answer = told.answer(tick_ms=view.times.tick_ms, epoch_base_ms=view.times.epoch_base_ms)
    return {**answer, "history": [word_of(status) for status in told.history], "status": word_of(told.status)}


def _times_text(times: Mapping[str, Any]) -> str:
    """The way of a job through its statuses in one line: ``queued 10:00:00.000, running, succeeded``."""
    at = {
        QUEUED: times["submitted_at"],
        RUNNING: times["first_started_at"],
        times["history"][-1]: times["finished_at"],
    }
    way = [f"{word} {time_text(str(at[word]))[11:]}" if at.get(word) else word for word in times["history"]]
    again = (
        f"; attempt {times['attempt'] + 1} began {time_text(str(times['started_at']))[11:]}" if times["attempt"] else ""
    )
    return f"{' > '.join(way)}{again}"


def _payload_cell(digest: str, place: str, size: int | None) -> Cell:
    if size is not None:
        return Cell(f"{short(digest)} {size_text(size)}")
    words = {"erased": "erased", "absent": "not stored here", "damaged": "damaged: `detent verify` says more"}
    return Cell(f"{short(digest)} {words.get(place, place)}", BAD if place == "damaged" else WARN)


def _draw_timeline(page: Sheet, records: list[RecordView], names: Mapping[str, str] | None = None) -> None:
    page.table(
        ("RECORD", "TIME (UTC)", "WHAT", "WHY"),
        [
            [
                str(record.row.position),
                Cell(time_text(record.times.iso(record.tick)) if record.tick is not None else "?", FAINT),
                _what(record),
                _why(record, names or {}),
            ]
            for record in records
        ],
    )


def _what(record: RecordView) -> Cell:
    fields = record.fields
    if not fields:
        return Cell(f"{record.row.kind}: unreadable", BAD)
    if record.row.kind == "transition":
        before, after = word_of(str(fields.get("from_state"))), state_cell(str(fields.get("to_state")))
        return Cell(f"{before} -> {after.text}", after.style)
    if record.row.kind == "operated":
        return Cell(f"operated: {fields.get('action')}")
    return Cell(record.row.kind.replace("_", " "))


def _taken(fields: Mapping[str, Any]) -> str:
    """What a run took of another one; the record may be damaged."""
    count, excepted = fields.get("steps_reused"), fields.get("except_steps")
    taken = f"{count_text(count, 'job') if type(count) is int else 'jobs'} of run {fields['reused_run_id']}"
    return taken + (f", {count_text(len(excepted), 'step')} excepted" if type(excepted) is list and excepted else "")


def _why(record: RecordView, names: Mapping[str, str]) -> str:
    if not record.fields:
        return "`detent verify` says what is wrong"
    evidence = record.evidence
    if record.row.kind == "operated":
        fields = record.fields
        return f"{fields.get('outcome_code')}, by {fields.get('principal_id')} ({fields.get('credential_id')})"
    if evidence is None:
        step, bracket, index = str(record.fields.get("step_id") or "").partition("[")
        if "reused_run_id" in record.fields:
            return _taken(record.fields)
        if step in names:
            return f"{names[step]}{bracket}{index} from job {record.fields.get('job_id')}"
        return str(word_of(str(record.fields.get("status") or "")) or record.fields.get("step_id") or "")
    succeeded = word_of(str(record.fields.get("to_state"))) == SUCCEEDED
    said = succeeded or evidence.reason_code.lower().startswith(evidence.kind)
    what = evidence.kind if said else f"{evidence.kind}: {evidence.reason_code}"
    if evidence.replica_id is not None:
        what += f" to {evidence.replica_id}" if evidence.kind == "dispatch" else f" by {evidence.replica_id}"
    words = [what]
    if evidence.category is not None:
        words.append(evidence.category)
    if record.detail is not None and evidence.detail_digest is not None:
        words.append(f"{short('sha256:' + evidence.detail_digest.hex(), 8)} {record.detail}")
    return ", ".join(words)
