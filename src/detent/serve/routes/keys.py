"""API keys of a workspace: made, listed, rotated, revoked. A secret is shown once, in the answer that makes it."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from detent.access.changes import (
    DAY_MS,
    KEY_DAYS_MAX,
    KEY_RANDOM_BYTES,
    PRINCIPAL_PATTERN,
    Change,
    KeyDraft,
    create_key,
    revoke_key,
    rotate_key,
)
from detent.access.cursor import read_cursor, write_cursor
from detent.access.state import Key
from detent.access.tokens import SECRET_BYTES, Token
from detent.canon.crypto import key_id_of
from detent.errors import InvalidInput
from detent.owner.names import put_names
from detent.serve.audit import recorded
from detent.serve.call import Answer, Call, Shape
from detent.serve.paging import LIMIT, Cursor, Limit, Name, Role, ScopeName
from detent.serve.table import Route
from detent.serve.times import written_ms

_COMMITTING: Final = ("STORE_UNAVAILABLE", "OUTCOME_UNKNOWN", "HOME_INVALID")


class KeyShown(Shape):
    """An API key, without its secret."""

    key_id: str
    name: str | None
    principal: str
    role: str | None
    """The role it was made with; null where its scopes were listed."""
    scopes: list[str]
    """What it allows now."""
    state: str
    """`active`, `expired` or `revoked`."""
    created_at: str | None
    expires_at: str | None
    """Null: it does not expire."""
    last_used_at: str | None
    """As far as this server remembers."""
    revoked_at: str | None
    made_by: str
    """The credential that made it."""
    old_secret_until: str | None
    """Until when the secret before the last rotation still counts."""
    signing_key: str | None
    """The id of the key with which its holder signs requests: SHA-256 of the public key, as hex digits."""


class KeySecret(Shape):
    """A key with its secret, which is shown here and never again."""

    key: KeyShown
    secret: str


class KeyPage(Shape):
    """Keys, oldest first."""

    items: list[KeyShown]
    next: str | None


class KeysQuery(Shape):
    """Which keys."""

    revoked: bool = False
    """Whether to list keys that were revoked lately, too."""
    limit: Limit = LIMIT
    cursor: Cursor | None = None


class KeyBody(Shape):
    """The key to make."""

    name: Name
    role: Role = "viewer"
    scopes: Annotated[list[ScopeName], Field(min_length=1, max_length=64)] | None = None
    """Single scopes in place of those of the role."""
    expires_days: Annotated[int, Field(ge=1, le=KEY_DAYS_MAX)] | None = None
    """Null: 90 days, or as long as your own key."""
    never_expires: bool = False
    """Only for credentials with server:admin."""
    principal: Annotated[str, Field(pattern=PRINCIPAL_PATTERN)] | None = None
    """The member that it acts for; null: it is a principal of its own."""
    public_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """The Ed25519 key with which its holder signs requests, as hex digits: `detent keys operator` tells it."""


async def _list(call: Call) -> Answer:
    query: KeysQuery = call.query
    access = call.serving.access
    filters = {"revoked": str(query.revoked)}
    after = ""
    if query.cursor is not None:
        after = str(read_cursor(query.cursor, "/v1/keys", filters, (str,))[0])
    found = sorted(access.state.keys(call.workspace, ended=query.revoked), key=lambda key: key.key_id)
    page = [key for key in found if key.key_id > after][: query.limit + 1]
    more = len(page) > query.limit
    shown = page[: query.limit]
    following = write_cursor("/v1/keys", filters, (shown[-1].key_id,)) if more else None
    return Answer(KeyPage(items=[_shown(call, key) for key in shown], next=following))


async def _read(call: Call) -> Answer:
    return Answer(_shown(call, _found(call)))


async def _create(call: Call) -> Answer:
    body: KeyBody = call.body
    access, principal = call.serving.access, call.principal
    assert principal is not None
    lasts_ms = None if body.expires_days is None else body.expires_days * DAY_MS
    draft = KeyDraft(body.role, body.scopes, lasts_ms, body.never_expires, body.principal)
    if body.public_key is not None:
        draft = replace(draft, public_key=bytes.fromhex(body.public_key))
    async with access.changing:
        random = secrets.token_bytes(KEY_RANDOM_BYTES)
        change, token = create_key(access.state, principal, draft, random=random, now_ms=access.now_ms())
        named = {change.object_id: body.name}
        if body.principal is None:
            named[change.parameters["principal_id"]] = body.name
        await asyncio.to_thread(put_names, call.serving.home.path, named)
        return await _committed(call, change, token, 201)


async def _rotate(call: Call) -> Answer:
    access, principal = call.serving.access, call.principal
    assert principal is not None
    async with access.changing:
        random = secrets.token_bytes(SECRET_BYTES)
        change, token = rotate_key(access.state, principal, call.path["key_id"], random=random, now_ms=access.now_ms())
        return await _committed(call, change, token, 200)


async def _revoke(call: Call) -> Answer:
    access, principal = call.serving.access, call.principal
    assert principal is not None
    async with access.changing:
        change = revoke_key(access.state, principal, call.path["key_id"])
        await access.commit(call.serving.hub, recorded(call, change))
    return Answer(_shown(call, _found(call)))


async def _committed(call: Call, change: Change, token: Token, status: int) -> Answer:
    access = call.serving.access
    await access.commit(call.serving.hub, recorded(call, change))
    key = access.state.key(token.token_id)
    if key is None:
        raise InvalidInput("the key was revoked as it was made", code="CONFLICT")
    headers = {"location": f"/v1/keys/{key.key_id}"} if status == 201 else {}
    return Answer(KeySecret(key=_shown(call, key), secret=token.text), status, headers=headers)


def _found(call: Call) -> Key:
    key = call.serving.access.state.any_key(call.workspace, call.path["key_id"])
    if key is None:
        raise InvalidInput(
            "there is no such key in this workspace", code="NOT_FOUND", hint="GET /v1/keys lists the keys"
        )
    return key


def _shown(call: Call, key: Key) -> KeyShown:
    access = call.serving.access
    now_ms = access.now_ms()
    overlaps = key.previous is not None and now_ms < key.previous_until_ms
    return KeyShown(
        key_id=key.key_id,
        name=access.names().get(key.key_id),
        principal=key.principal_id,
        role=key.role,
        scopes=sorted(access.state.scopes_of(key)),
        state=key.state(now_ms),
        created_at=written_ms(key.created_ms),
        expires_at=written_ms(key.expires_ms),
        last_used_at=written_ms(access.authenticator.sessions.last_used(key.key_id)),
        revoked_at=written_ms(key.revoked_ms),
        made_by=key.made_by,
        old_secret_until=written_ms(key.previous_until_ms) if overlaps else None,
        signing_key=None if key.public_key is None else key_id_of(key.public_key).hex(),
    )


ROUTES: Final = (
    Route(
        "GET",
        "/v1/keys",
        _list,
        "List the API keys of this workspace.",
        "keys:write",
        ("HOME_INVALID",),
        {200: KeyPage},
        query=KeysQuery,
        pages=True,
    ),
    Route(
        "POST",
        "/v1/keys",
        _create,
        "Make an API key in this workspace; its secret is shown in this answer only.",
        "keys:write",
        ("NOT_FOUND", "CONFLICT", "ACCESS_FULL", *_COMMITTING),
        {201: KeySecret},
        body=KeyBody,
        audited=True,
        action="key.create",
    ),
    Route(
        "GET",
        "/v1/keys/{key_id}",
        _read,
        "Read one API key.",
        "keys:write",
        ("NOT_FOUND", "HOME_INVALID"),
        {200: KeyShown},
    ),
    Route(
        "POST",
        "/v1/keys/{key_id}/rotate",
        _rotate,
        "Give a key a new secret; the old one stays valid for 24 hours.",
        "keys:write",
        ("NOT_FOUND", "CONFLICT", *_COMMITTING),
        {200: KeySecret},
        audited=True,
        action="key.rotate",
    ),
    Route(
        "DELETE",
        "/v1/keys/{key_id}",
        _revoke,
        "Revoke a key at once, also for streams that it has open.",
        "keys:write",
        ("NOT_FOUND", *_COMMITTING),
        {200: KeyShown},
        audited=True,
        action="key.revoke",
    ),
)
