"""Schedules of a workspace: contracts that the server runs by their `schedule:`. Created, listed, paused, resumed, deleted."""

from __future__ import annotations

import os
import secrets
from base64 import b32encode
from functools import partial
from typing import Any, Final, Literal

from pydantic import Field, JsonValue

from detent.access.changes import Change
from detent.access.cursor import read_cursor, write_cursor
from detent.access.schedules import CREATE, DELETE, PAUSE, RESUME, SCHEDULES_MAX, Scheduled
from detent.contract.schedule import read_schedule, schedule_text
from detent.errors import DetentError, InvalidInput, RequestRefused
from detent.owner.views import RunView
from detent.runs.erase import erase_scheduled
from detent.runs.schedules.keeper import Outlook, outlook, runs_prefix, schedule_id_of, tick_of_run
from detent.runs.schedules.times import next_occurrence
from detent.serve.audit import recorded
from detent.serve.call import Answer, Call, Shape
from detent.serve.paging import LIMIT, Cursor, Limit
from detent.serve.routes.drive import BODY_BYTES_MAX, LOOKING, NAMING, NewRun, NoBody, looked_at
from detent.serve.table import READING, Route
from detent.serve.times import written_ms
from detent.words.states import word_of

ID_BYTES: Final = 10
_COMMITTING: Final = ("STORE_UNAVAILABLE", "OUTCOME_UNKNOWN")


class NewSchedule(NewRun):
    """A contract with a `schedule:`, and what its runs are started with."""


class ScheduleMade(Shape):
    """A schedule that is on the ledger and that the server follows."""

    schedule_id: str
    name: str
    when: str
    next_at: str | None
    """Its first occurrence."""
    links: dict[str, str]


class LastOccurrence(Shape):
    """The last occurrence that a run was started for."""

    scheduled_for: str
    run_id: str
    status: str
    started_at: str
    ended_at: str | None


class MissedOccurrences(Shape):
    """Occurrences that passed since without a run. The inputs of the next run name them with the reason."""

    count: int
    first: str
    last: str


class ScheduleFailure(Shape):
    """Why no run could be started: the first time in a row."""

    code: str
    reason: str
    at: str
    scheduled_for: str


class ScheduleShown(Shape):
    """A contract that is run on a schedule."""

    schedule_id: str
    name: str
    """The contract's."""
    state: Literal["active", "paused"]
    schedule: dict[str, JsonValue]
    """As the contract says it: `cron`, `timezone`, `every`, `offset`, `overlap`."""
    when: str
    """The same in one line."""
    options: dict[str, JsonValue]
    created_at: str
    created_by: str
    """The principal that its runs are started for."""
    paused_at: str | None
    next_at: str | None
    """Null while it is paused, or when no occurrence is left."""
    upcoming: list[str]
    """The next occurrences, at most five."""
    last: LastOccurrence | None
    missed: MissedOccurrences | None
    failure: ScheduleFailure | None
    """Null once a run was started again."""
    links: dict[str, str]


class SchedulesQuery(Shape):
    """Where to go on."""

    state: Literal["active", "paused"] | None = None
    limit: Limit = LIMIT
    cursor: Cursor | None = None


class SchedulesPage(Shape):
    """Schedules of the workspace, by id."""

    items: list[ScheduleShown]
    next: str | None = Field(description="The cursor of the following page; null on the last one.")


async def _list(call: Call) -> Answer:
    query: SchedulesQuery = call.query
    filters = {"state": query.state}
    after = "" if query.cursor is None else str(read_cursor(query.cursor, "/v1/schedules", filters, (str,))[0])
    wanted = [
        one
        for one in call.serving.access.schedules.of(call.workspace)
        if one.schedule_id > after and query.state in {None, _state(one)}
    ]
    shown = wanted[: query.limit]
    following = write_cursor("/v1/schedules", filters, (shown[-1].schedule_id,)) if len(wanted) > len(shown) else None
    return Answer(SchedulesPage(items=await _shown(call, shown), next=following))


async def _read(call: Call) -> Answer:
    (shown,) = await _shown(call, [_found(call)])
    return Answer(shown)


async def _create(call: Call) -> Answer:
    body: NewSchedule = call.body
    access, driving, workspace = call.serving.access, call.serving.driving, call.workspace
    looked = await looked_at(call, body)
    if looked["schedule"] is None:
        raise _without_schedule(looked["name"])
    since_ms = access.now_ms()
    schedule = read_schedule(looked["schedule"])
    next_ms = await call.serving.writer.run(lambda: next_occurrence(schedule, since_ms))
    async with access.changing:
        if len(access.schedules.of(workspace)) >= SCHEDULES_MAX:
            raise RequestRefused(
                f"the workspace has {SCHEDULES_MAX} schedules",
                code="ACCESS_FULL",
                hint="delete those that are not used",
            )
        schedule_id = schedule_id_of(b32encode(secrets.token_bytes(ID_BYTES)).decode().lower())
        made = ScheduleMade(
            schedule_id=schedule_id,
            name=looked["name"],
            when=schedule_text(schedule),
            next_at=written_ms(next_ms),
            links=_links(looked["name"], schedule_id),
        )
        answer = Answer(made, 201, headers={"location": f"/v1/schedules/{schedule_id}"})
        digest, inline = await driving.keep(workspace, looked)
        parameters = {
            "name": looked["name"],
            "schedule": looked["schedule"],
            "inputs": digest,
            "options": body.options.asked(),
            "since_ms": since_ms,
            **({} if call.traceparent is None else {"traceparent": call.traceparent}),
        }
        change = Change(CREATE, "schedule", schedule_id, workspace, parameters)
        kept = [] if call.once is None else [call.once.row(answer)]
        await access.commit(call.serving.hub, recorded(call, change), content=inline, answers=kept)
    await driving.schedule_changed(schedule_id)
    return answer


async def _pause(call: Call) -> Answer:
    return await _changed(call, PAUSE, "active", {})


async def _resume(call: Call) -> Answer:
    return await _changed(call, RESUME, "paused", {"since_ms": call.serving.access.now_ms()})


async def _changed(call: Call, action: str, before: str, parameters: dict[str, Any]) -> Answer:
    """Pause or resume a schedule; one that is so already stays as it is, without a record."""
    access = call.serving.access
    async with access.changing:
        found = _found(call)
        if _state(found) == before:
            change = Change(action, "schedule", found.schedule_id, call.workspace, parameters)
            await access.commit(call.serving.hub, recorded(call, change))
    await call.serving.driving.schedule_changed(found.schedule_id)
    return await _read(call)


async def _delete(call: Call) -> Answer:
    access = call.serving.access
    async with access.changing:
        found = _found(call)
        record = recorded(call, Change(DELETE, "schedule", found.schedule_id, call.workspace))
        work = partial(erase_scheduled, call.serving.home, found.inputs, environment=os.environ, behind=[record])
        await call.serving.writer.run(work)
        await call.serving.hub.caught_up()
    await call.serving.driving.schedule_changed(found.schedule_id)
    return Answer(None, 204)


def _found(call: Call) -> Scheduled:
    found = call.serving.access.schedules.schedule(call.workspace, call.path["schedule_id"])
    if found is None:
        raise InvalidInput(
            "there is no such schedule in this workspace",
            code="NOT_FOUND",
            hint="GET /v1/schedules lists the schedules",
        )
    return found


def _without_schedule(name: str) -> InvalidInput:
    message = f"{name} has no schedule"
    return InvalidInput(
        message,
        code="VALIDATION_ERROR",
        hint="write `schedule: {every: 15m}` or `schedule: {cron: '0 6 * * 1-5'}` into the contract",
        details={"errors": [{"path": "body.contract", "message": message}]},
    )


def _state(scheduled: Scheduled) -> Literal["active", "paused"]:
    return "active" if scheduled.paused_ms is None else "paused"


def _links(name: str, schedule_id: str) -> dict[str, str]:
    return {"schedule": f"/v1/schedules/{schedule_id}", "runs": f"/v1/runs?q={runs_prefix(name, schedule_id)}"}


async def _shown(call: Call, chosen: list[Scheduled]) -> list[ScheduleShown]:
    prefixes = [runs_prefix(one.name, one.schedule_id) for one in chosen]
    now_ms = call.serving.access.now_ms()
    runs = await call.read(lambda reader: reader.last_runs(call.workspace, prefixes))
    return await call.serving.writer.run(
        lambda: [_one(scheduled, run, now_ms) for scheduled, run in zip(chosen, runs, strict=True)]
    )


def _one(scheduled: Scheduled, run: RunView | None, now_ms: int) -> ScheduleShown:
    when, last_ms, ahead = _ahead(scheduled, run, now_ms)
    upcoming = [_moment(tick) for tick in ahead.upcoming]
    failure = scheduled.failure
    if failure is not None and (last_ms or 0) > failure.tick_ms:
        failure = None
    return ScheduleShown(
        schedule_id=scheduled.schedule_id,
        name=scheduled.name,
        state=_state(scheduled),
        schedule=dict(scheduled.rule),
        when=when,
        options=dict(scheduled.options),
        created_at=_moment(scheduled.created_ms),
        created_by=scheduled.made_by,
        paused_at=written_ms(scheduled.paused_ms),
        next_at=upcoming[0] if upcoming else None,
        upcoming=upcoming,
        last=None if run is None or last_ms is None else _last(run, last_ms),
        missed=_missed(ahead),
        failure=None
        if failure is None
        else ScheduleFailure(
            code=failure.code,
            reason=failure.reason,
            at=_moment(failure.at_ms),
            scheduled_for=_moment(failure.tick_ms),
        ),
        links=_links(scheduled.name, scheduled.schedule_id),
    )


def _ahead(scheduled: Scheduled, run: RunView | None, now_ms: int) -> tuple[str, int | None, Outlook]:
    """When it is run in one line, its last occurrence that was started, and what comes next."""
    nothing = Outlook((), None)
    try:
        schedule = read_schedule(scheduled.rule)
        last_ms = None if run is None else tick_of_run(schedule, run.row.run_id)
        if scheduled.paused_ms is not None:
            return schedule_text(schedule), last_ms, nothing
        running = run is not None and run.row.ended_tick is None
        ahead = outlook(schedule, max(scheduled.since_ms, last_ms or 0), now_ms, running=running)
    except (
        DetentError
    ) as exc:  # A zone that this machine does not know any more: `failure` says so, and the others go on.
        return str(exc), None, nothing
    return schedule_text(schedule), last_ms, ahead


def _last(run: RunView, last_ms: int) -> LastOccurrence:
    row, times = run.row, run.times
    return LastOccurrence(
        scheduled_for=_moment(last_ms),
        run_id=row.run_id,
        status=word_of(row.status),
        started_at=times.iso(row.started_tick),
        ended_at=None if row.ended_tick is None else times.iso(row.ended_tick),
    )


def _missed(ahead: Outlook) -> MissedOccurrences | None:
    if ahead.missed is None or ahead.first_missed_ms is None:
        return None
    first, last = _moment(ahead.first_missed_ms), _moment(ahead.missed.last_ms)
    return MissedOccurrences(count=ahead.missed.count, first=first, last=last)


def _moment(at_ms: int) -> str:
    return str(written_ms(at_ms))


ROUTES: Final = (
    Route(
        "GET",
        "/v1/schedules",
        _list,
        "List the schedules of this workspace, each with its next, last and missed occurrences.",
        "runs:read",
        READING,
        {200: SchedulesPage},
        query=SchedulesQuery,
        pages=True,
    ),
    Route(
        "POST",
        "/v1/schedules",
        _create,
        "Run a contract by its schedule; the server starts a run for every occurrence.",
        "runs:write",
        (*LOOKING, *NAMING, *_COMMITTING, "ACCESS_FULL"),
        {201: ScheduleMade},
        body=NewSchedule,
        body_bytes_max=BODY_BYTES_MAX,
        idempotent=True,
        audited=True,
        action=CREATE,
    ),
    Route(
        "GET",
        "/v1/schedules/{schedule_id}",
        _read,
        "Read one schedule.",
        "runs:read",
        ("NOT_FOUND", *READING),
        {200: ScheduleShown},
    ),
    Route(
        "POST",
        "/v1/schedules/{schedule_id}/pause",
        _pause,
        "Pause a schedule: no run is started until it is resumed. A run that goes on is left alone.",
        "runs:write",
        ("NOT_FOUND", *READING, *_COMMITTING),
        {200: ScheduleShown},
        body=NoBody,
        audited=True,
        action=PAUSE,
    ),
    Route(
        "POST",
        "/v1/schedules/{schedule_id}/resume",
        _resume,
        "Let a schedule go on from now; occurrences during the pause are not made up for.",
        "runs:write",
        ("NOT_FOUND", *READING, *_COMMITTING),
        {200: ScheduleShown},
        body=NoBody,
        audited=True,
        action=RESUME,
    ),
    Route(
        "DELETE",
        "/v1/schedules/{schedule_id}",
        _delete,
        "Delete a schedule and erase what it was to run; runs that it started stay.",
        "runs:write",
        ("NOT_FOUND", *READING, *_COMMITTING),
        {204: None},
        audited=True,
        action=DELETE,
    ),
)
