"""Sessions: budgets of tokens, time and cost that the jobs of a session share."""

from __future__ import annotations

import secrets
from typing import Annotated, Final

from pydantic import Field

from detent.errors import error_of
from detent.serve.audit import operated
from detent.serve.budgets import closed, headers_of, opened
from detent.serve.call import Answer, Call, Shape
from detent.serve.table import READING, Route
from detent.serve.writing import Writing

AMOUNT_MAX: Final = 1 << 53
Amount = Annotated[int, Field(ge=0, le=AMOUNT_MAX)]


class SessionAsked(Shape):
    """What the jobs of a session may use in all; a budget that is left out is not limited."""

    tokens: Amount | None = None
    time_ms: Amount | None = None
    cost: Amount | None = None
    """In a unit of your own choice."""


class Remaining(Shape):
    """What is left of each budget; null for one that is not limited."""

    tokens: int | None = None
    time_ms: int | None = None
    cost: int | None = None


class SessionShown(Shape):
    """A session, and what is left of its budgets."""

    session_id: str
    remaining: Remaining


class SessionsShown(Shape):
    """The sessions of this workspace."""

    items: list[str]


async def open_session(call: Call) -> Answer:
    """Give a new session its budgets."""
    asked: SessionAsked = call.body
    session_id = f"s_{secrets.token_hex(12)}"
    shown = SessionShown(session_id=session_id, remaining=Remaining(**asked.model_dump()))
    headers = {"location": f"/v1/sessions/{session_id}"}
    answer = Answer(shown.model_dump_json().encode(), 201, headers=headers)

    def make() -> Writing:
        budgets = {name: value for name, value in asked.model_dump().items() if value is not None}
        record = operated(call, "session.open", "session", session_id, parameters=budgets)
        kept = [] if call.once is None else [call.once.row(answer)]
        return Writing(commands=[opened(call.workspace, session_id, asked.model_dump()), record], answers=kept)

    for decided in await call.write(make):
        if decided.refusal is not None:
            raise error_of(decided.refusal)
    return answer


async def list_sessions(call: Call) -> Answer:
    """Name the sessions that are open."""
    return Answer(SessionsShown(items=await call.serving.budgets.listed(call.workspace)))


async def read_session(call: Call) -> Answer:
    """Say what is left of a session's budgets."""
    session_id = call.path["session_id"]
    left = await call.serving.budgets.left(call.workspace, session_id)
    shown = SessionShown(session_id=session_id, remaining=Remaining(**left))
    return Answer(shown, headers=headers_of(left))


async def close_session(call: Call) -> Answer:
    """End a session with its budgets; its jobs go on."""
    session_id = call.path["session_id"]
    left = await call.serving.budgets.left(call.workspace, session_id)

    def make() -> Writing:
        record = operated(call, "session.close", "session", session_id, parameters=left)
        return Writing(commands=[closed(call.workspace, session_id), record])

    for decided in await call.write(make):
        if decided.refusal is not None:
            raise error_of(decided.refusal)
    return Answer(SessionShown(session_id=session_id, remaining=Remaining(**left)))


_WRITING: Final = ("QUEUE_FULL", "INVALID_PARAMS", "OUTCOME_UNKNOWN", "INBOX_FULL", *READING)

ROUTES: Final = (
    Route(
        "POST",
        "/v1/sessions",
        open_session,
        "Open a session with budgets of tokens, time and cost.",
        "sessions:write",
        _WRITING,
        {201: SessionShown},
        body=SessionAsked,
        idempotent=True,
        audited=True,
        action="session.open",
    ),
    Route(
        "GET",
        "/v1/sessions",
        list_sessions,
        "List the sessions that are open.",
        "sessions:read",
        READING,
        {200: SessionsShown},
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}",
        read_session,
        "Read what is left of a session's budgets.",
        "sessions:read",
        ("NOT_FOUND", *READING),
        {200: SessionShown},
    ),
    Route(
        "DELETE",
        "/v1/sessions/{session_id}",
        close_session,
        "End a session with its budgets.",
        "sessions:write",
        ("NOT_FOUND", *_WRITING),
        {200: SessionShown},
        audited=True,
        action="session.close",
    ),
)
