"""Who asks, and browsers that log in and out."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from pydantic import Field

from detent.access.browser import set_cookie
from detent.access.changes import ADMIN, local_principal
from detent.access.problem import Problem
from detent.access.scopes import ANY, PUBLIC, Principal
from detent.access.tokens import LOGIN, Token, read_token
from detent.canon.crypto import key_id_of
from detent.errors import InvalidInput
from detent.serve.audit import operated
from detent.serve.call import Answer, Call, Shape
from detent.serve.login import use_login
from detent.serve.refusal import Refusal
from detent.serve.table import Route
from detent.serve.times import written_ms


class Me(Shape):
    """The principal of this request."""

    principal: str
    name: str | None
    credential: str
    via: str
    """`key`, `session` or `proxy`."""
    workspace: str
    workspaces: list[str]
    """Those that `Detent-Workspace` may name; at most 200 are listed."""
    scopes: list[str]
    expires_at: str | None
    csrf: str | None
    """What unsafe requests of a browser say in `Detent-CSRF`; null for a key, which needs none."""
    signing_key: str | None
    """The id of the key with which the holder of this API key signs requests; null where it does not."""
    origin: str
    """The name of the ledger, which signatures name."""
    now_ms: int
    """The server's clock."""


class LoginBody(Shape):
    """A token of a login link, or an API key."""

    token: Annotated[str, Field(min_length=1, max_length=100)]


class LoggedIn(Shape):
    """A session has begun; its cookie is in the answer's headers."""

    principal: str
    csrf: str


WORKSPACES_SHOWN_MAX: Final = 200


async def _me(call: Call) -> Answer:
    principal, known, access = call.principal, call.known, call.serving.access
    assert principal is not None
    assert known is not None
    workspaces = access.state.workspaces_of(principal.principal_id)
    if principal.may(ADMIN):
        workspaces = [one.workspace_id for one in access.state.workspaces()]
    key = access.state.key(principal.credential_id)
    public_key = None if key is None else key.public_key
    shown = Me(
        signing_key=None if public_key is None else key_id_of(public_key).hex(),
        origin=call.serving.origin,
        now_ms=access.now_ms(),
        principal=principal.principal_id,
        name=access.names().get(principal.principal_id),
        credential=principal.credential_id,
        via=known.via,
        workspace=principal.workspace,
        workspaces=sorted({*workspaces, principal.workspace})[:WORKSPACES_SHOWN_MAX],
        scopes=sorted(principal.scopes),
        expires_at=written_ms(principal.expires_ms),
        csrf=known.csrf,
    )
    return Answer(shown)


async def _login(call: Call) -> Answer:
    """Begin a session. A token that is not good is answered like one that never was."""
    access, caller = call.serving.access, call.caller
    assert caller is not None
    access.gate.count_login(caller)
    body: LoginBody = call.body
    token = read_token(body.token)
    if token is None:
        raise _not_good()
    principal = await _principal(call, token)
    value = access.authenticator.begin_session(None if token.kind == LOGIN else principal.credential_id)
    known = access.authenticator.by_cookie(value)
    assert known is not None
    command = operated(call.acting_as(known), "login", "session", known.principal.credential_id, outcome_code="OK")
    await access.commit(call.serving.hub, command)
    headers = {"set-cookie": set_cookie(value, caller.header(b"host"), secure=caller.secure)}
    return Answer(LoggedIn(principal=known.principal.principal_id, csrf=known.csrf or ""), 201, headers=headers)


async def _principal(call: Call, token: Token) -> Principal:
    access = call.serving.access
    if token.kind == LOGIN:
        home, now_ms = call.serving.home.path, access.now_ms()
        if not await asyncio.to_thread(use_login, home, token, now_ms=now_ms):
            raise _not_good()
        return local_principal(token.token_id)
    known = access.authenticator.by_token(token)
    if known is None:
        raise _not_good()
    if known.principal.principal_id == local_principal("").principal_id:
        raise Refusal(
            Problem(
                "UNAUTHENTICATED", "the home's own token does not begin sessions", "use a link: `detent serve --login`"
            )
        )
    return known.principal


async def _logout(call: Call) -> Answer:
    access, known, caller = call.serving.access, call.known, call.caller
    assert known is not None
    assert caller is not None
    if known.session is None:
        raise InvalidInput("only a browser session logs out", code="NOT_FOUND", hint="DELETE /v1/keys/ID revokes a key")
    command = operated(call, "logout", "session", known.principal.credential_id, outcome_code="OK")
    await access.commit(call.serving.hub, command)
    access.authenticator.sessions.end(known.session)
    access.open.judge()
    ended = set_cookie("", caller.header(b"host"), secure=caller.secure)
    return Answer(None, 204, headers={"set-cookie": ended, "clear-site-data": '"cache"'})


def _not_good() -> Refusal:
    return Refusal(
        Problem(
            "UNAUTHENTICATED",
            "the token is not valid, was used before, or is too old",
            "`detent serve --login` prints another link",
        )
    )


ROUTES: Final = (
    Route("GET", "/v1/me", _me, "Say who asks, in which workspace and with which scopes.", ANY, (), {200: Me}),
    Route(
        "POST",
        "/v1/login",
        _login,
        "Begin a browser session with the token of a login link or with an API key.",
        PUBLIC,
        ("UNAUTHENTICATED", "STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"),
        {201: LoggedIn},
        body=LoginBody,
        audited=True,
        action="login",
    ),
    Route(
        "DELETE",
        "/v1/login",
        _logout,
        "End the browser session of this request.",
        ANY,
        ("NOT_FOUND", "STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"),
        {204: None},
        audited=True,
        action="logout",
    ),
)
