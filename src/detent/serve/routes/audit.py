"""What operators did: the ledger's `operated` records of a workspace, each with what it takes to check it."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any, Final

from pydantic import JsonValue

from detent.access.changes import ADMIN
from detent.access.cursor import read_cursor, write_cursor
from detent.access.scopes import roles_hint
from detent.canon import digest_text
from detent.errors import InvalidInput, RequestRefused
from detent.serve.call import Answer, Call, Shape
from detent.serve.paging import LIMIT, ActionName, Cursor, Id, JobId, Limit, Moment, moment_ms
from detent.serve.table import READING, Route
from detent.serve.tenant_reader import SCANNED_MAX, Action

_PLACE: Final = re.compile(r"([0-9]{1,5}):([0-9]{1,12})")


class ActionShown(Shape):
    """One action of an operator."""

    record: str
    """Its place on the ledger, partition:position; GET /v1/audit/RECORD proves it."""
    batch: int
    at: str
    workspace: str | None
    principal: str
    name: str | None
    """What the principal is called; beside the ledger, and not part of the record."""
    credential: str
    action: str
    object_kind: str
    object_id: str
    outcome: str
    """`OK`, or the code with which it was refused."""
    request_id: str | None
    route: str | None
    parameters: dict[str, JsonValue]
    """Digests as text; never a secret."""
    reason: str | None
    signed_by_operator: bool
    """Whether the operator's own signature is in the record; otherwise the server asserts it."""


class AuditPage(Shape):
    """Actions, newest first."""

    items: list[ActionShown]
    next: str | None


class ActionProof(Shape):
    """An action with its bytes: the record is bound by the batch, the batch is signed, and the path leads to the tree's root."""

    action: ActionShown
    partition: int
    record_body: str
    """The canonical CBOR of the record, in base64."""
    evidence: str | None
    """The canonical CBOR that the record's evidence_digest names, in base64."""
    batch_body: str
    batch_signature: str
    size: int
    root: str
    leaf: str
    path: list[str]


class AuditQuery(Shape):
    """Which actions."""

    principal: Id | None = None
    action: ActionName | None = None
    object: JobId | None = None
    since: Moment | None = None
    """Done then or later."""
    until: Moment | None = None
    """Done before."""
    server: bool = False
    """Whether to list what concerns the whole server instead of this workspace; needs server:admin."""
    limit: Limit = LIMIT
    cursor: Cursor | None = None


async def _list(call: Call) -> Answer:
    query: AuditQuery = call.query
    workspace = _workspace(call, query.server)
    filters = {
        name: None if value is None else str(value)
        for name, value in query.model_dump(exclude={"limit", "cursor"}).items()
    }
    before = None
    if query.cursor is not None:
        tick, partition, position = read_cursor(query.cursor, "/v1/audit", filters, (int, int, int))
        before = (int(tick), int(partition), int(position))
    places = call.serving.access.places(workspace, before, SCANNED_MAX)
    found = await call.read(lambda reader: reader.actions(workspace, places, query.limit, _wanted(query)))
    last = found.last
    following = None if last is None else write_cursor("/v1/audit", filters, last)
    return Answer(AuditPage(items=[_shown(call, one) for one in found.actions], next=following))


async def _read(call: Call) -> Answer:
    """One action; one of another workspace does not exist."""
    place = _PLACE.fullmatch(call.path["record"])
    if place is None:
        raise InvalidInput("an action is named by partition:position", code="NOT_FOUND")
    principal = call.principal
    assert principal is not None
    seen: list[str | None] = [call.workspace, *([None] if principal.may(ADMIN) else [])]
    found = await call.read(lambda reader: reader.action(seen, int(place[1]), int(place[2])))
    action, batch, included = found
    shown = ActionProof(
        action=_shown(call, action),
        partition=action.row.partition,
        record_body=_base64(action.row.body),
        evidence=None if action.row.evidence is None else _base64(action.row.evidence),
        batch_body=_base64(batch.body),
        batch_signature=_base64(batch.signature),
        size=included.size,
        root=digest_text(included.root),
        leaf=digest_text(included.leaf),
        path=[_base64(one) for one in included.path],
    )
    return Answer(shown)


def _workspace(call: Call, server: bool) -> str | None:
    assert call.principal is not None
    if server and not call.principal.may(ADMIN):
        raise RequestRefused(f"the credential lacks the scope {ADMIN}", code="FORBIDDEN", hint=roles_hint(ADMIN))
    return None if server else call.workspace


def _wanted(query: AuditQuery) -> Any:
    """Whether an action passes the filters; `at_ms` comes with it."""
    since_ms, until_ms = moment_ms(query.since), moment_ms(query.until)

    def wanted(body: dict[str, Any], at_ms: int) -> bool:
        return (
            (query.principal is None or body["principal_id"] == query.principal)
            and (query.action is None or body["action"] == query.action)
            and (query.object is None or body["object_id"] == query.object)
            and (since_ms is None or at_ms >= since_ms)
            and (until_ms is None or at_ms < until_ms)
        )

    return wanted


def _shown(call: Call, action: Action) -> ActionShown:
    body, evidence = action.body, action.evidence
    return ActionShown(
        record=f"{action.row.partition}:{action.row.position}",
        batch=action.row.batch_no,
        at=action.at,
        workspace=body["tenant_id"],
        principal=body["principal_id"],
        name=call.serving.access.names().get(body["principal_id"]),
        credential=body["credential_id"],
        action=body["action"],
        object_kind=body["object_kind"],
        object_id=body["object_id"],
        outcome=body["outcome_code"],
        request_id=evidence.get("request_id"),
        route=evidence.get("route"),
        parameters=_plain(evidence.get("parameters", {})),
        reason=evidence.get("reason"),
        signed_by_operator="signature" in evidence,
    )


def _plain(value: Any) -> Any:
    """Values of a record as JSON has them."""
    if isinstance(value, bytes):
        return digest_text(value) if len(value) == 32 else value.hex()
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


ROUTES: Final = (
    Route(
        "GET",
        "/v1/audit",
        _list,
        "List what operators did in this workspace, newest first.",
        "audit:read",
        ("HOME_INVALID", *READING),
        {200: AuditPage},
        query=AuditQuery,
        pages=True,
    ),
    Route(
        "GET",
        "/v1/audit/{record}",
        _read,
        "Read one action with the bytes and the path that prove it.",
        "audit:read",
        ("NOT_FOUND", "HOME_INVALID", *READING),
        {200: ActionProof},
    ),
)
