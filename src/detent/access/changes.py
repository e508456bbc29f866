"""Changes to access: what may be made, rotated, revoked and granted, by whom, and with which parameters it is recorded.

One rule runs through all of them: no caller can hand out more than its own credential has. A key's scopes, workspace and end lie within
those of its maker; rotating a key shows its secret, so it needs all that the key may do; a role is given and taken
only by a principal that has all of its scopes.

Each function decides and gives a `Change`; the caller commits it as an `operated` record, and the fold (`state`) takes it from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from detent.access.scopes import ROLES, SCOPES, Principal, with_implied
from detent.access.state import LOCAL, AccessState, Key
from detent.access.tokens import API_KEY, ID_BYTES, SECRET_BYTES, Token, make_secret, make_token, new_id
from detent.canon.crypto import check_public_key
from detent.errors import DetentError, InvalidInput, RequestRefused

DAY_MS: Final = 24 * 3_600_000
KEY_DAYS: Final = 90
KEY_DAYS_MAX: Final = 400
OVERLAP_MS: Final = DAY_MS
"""How long the old secret of a rotated key still counts."""
KEYS_MAX: Final = 1_000
"""Keys of one workspace that are not revoked."""
MEMBERS_MAX: Final = 10_000
WORKSPACES_MAX: Final = 10_000
ADMIN: Final = "server:admin"
KEY_RANDOM_BYTES: Final = 2 * ID_BYTES + SECRET_BYTES
"""Random bytes that a new key takes: its id, its secret, and the id of a principal."""
QUOTAS: Final = frozenset(
    {"stored_bytes", "upload_bytes_per_day", "uploads_at_once", "reads_per_second", "writes_per_second", "streams"}
)
"""What a workspace can have a number of its own for; the settings say the rest."""
QUOTA_MAX: Final = 2**53 - 1
WORKSPACE_PATTERN: Final = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
SERVER: Final = "p_server"
"""The principal of what a server does in its own name."""
RESERVED: Final = frozenset({"p_local", SERVER, "p_webhooks"})
"""Principals that the server itself acts as, or for the user of the home: none of them is a member."""
PRINCIPAL_PATTERN: Final = r"^p_[A-Za-z0-9]{1,40}$"


@dataclass(frozen=True, slots=True)
class Change:
    """One action on access, as it is recorded."""

    action: str
    object_kind: str
    object_id: str
    workspace: str | None
    """None: it concerns the server as a whole."""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyDraft:
    """A key that is wanted."""

    role: str | None = None
    scopes: Sequence[str] | None = None
    """None: those of the role."""
    lasts_ms: int | None = None
    """None: 90 days, or as long as its maker's credential."""
    never_expires: bool = False
    principal_id: str | None = None
    """The member that it acts for; None: a principal of its own."""
    public_key: bytes | None = None
    """The Ed25519 key with which its holder signs requests."""


def create_key(
    state: AccessState, maker: Principal, draft: KeyDraft, *, random: bytes, now_ms: int
) -> tuple[Change, Token]:
    """Make a key in the maker's workspace, out of `KEY_RANDOM_BYTES` random bytes."""
    if sum(1 for _ in state.keys(maker.workspace)) >= KEYS_MAX:
        raise _full(f"the workspace has {KEYS_MAX:,} keys", "revoke those that are not used")
    scopes = _wanted_scopes(draft)
    _within(scopes, maker)
    principal_id = draft.principal_id
    if principal_id is None:
        principal_id = f"p_{new_id(random[-ID_BYTES:])}"
    else:
        role = state.role(maker.workspace, principal_id)
        if role is None:
            raise InvalidInput(
                f"{principal_id[:60]} is not a member of this workspace",
                code="NOT_FOUND",
                hint="give it a role first; without a member the key is a principal of its own",
            )
        if not scopes <= ROLES[role]:
            extra = ", ".join(sorted(scopes - ROLES[role]))
            raise _fault("body.scopes", f"the member's role {role} does not have {extra}")
    token = make_token(API_KEY, random[: ID_BYTES + SECRET_BYTES])
    if state.any_key(maker.workspace, token.token_id) is not None or state.key(token.token_id) is not None:
        raise RequestRefused("the id of the new key is taken", code="CONFLICT", hint="try again", retryable=True)
    parameters = {
        "principal_id": principal_id,
        "role": draft.role if draft.scopes is None else None,
        "scopes": sorted(scopes),
        "secret": token.digest,
        "expires_ms": _end(draft, maker, now_ms),
    }
    if draft.public_key is not None:
        parameters["public_key"] = _public_key(draft.public_key)
    return Change("key.create", "key", token.token_id, maker.workspace, parameters), token


def rotate_key(
    state: AccessState, maker: Principal, key_id: str, *, random: bytes, now_ms: int, overlap_ms: int = OVERLAP_MS
) -> tuple[Change, Token]:
    """Give a key a second secret; the old one counts for another day. The key lasts as long again as it was made to last."""
    key = _own_key(state, maker, key_id)
    _within(key.scopes, maker)
    if not key.counts(now_ms):
        raise RequestRefused(f"key {key_id} is {key.state(now_ms)}", code="CONFLICT", hint="make another one")
    token = make_secret(API_KEY, key.key_id, random)
    span = None if key.expires_ms is None else key.expires_ms - key.created_ms
    draft = KeyDraft(lasts_ms=None if span is None else min(span, KEY_DAYS_MAX * DAY_MS), never_expires=span is None)
    if span is not None and maker.expires_ms is not None:
        draft = KeyDraft(lasts_ms=min(draft.lasts_ms or span, maker.expires_ms - now_ms))
    parameters = {
        "secret": token.digest,
        "previous_until_ms": now_ms + overlap_ms,
        "expires_ms": _end(draft, maker, now_ms),
    }
    return Change("key.rotate", "key", key.key_id, key.workspace, parameters), token


def revoke_key(state: AccessState, maker: Principal, key_id: str) -> Change:
    """End a key at once. Refusing what may do more than oneself is not needed here: it only takes away."""
    key = _own_key(state, maker, key_id)
    return Change("key.revoke", "key", key.key_id, key.workspace)


def set_member(state: AccessState, maker: Principal, principal_id: str, role: str) -> Change:
    """Give a principal a role in the maker's workspace, in place of the one it has."""
    if not re.fullmatch(PRINCIPAL_PATTERN, principal_id):
        raise _fault("path.principal", "a principal is written p_ and up to 40 letters and digits")
    if principal_id in RESERVED:
        raise _fault("path.principal", "is a name that the server itself acts under")
    if role not in ROLES:
        raise _fault("body.role", f"is not one of {', '.join(ROLES)}")
    members = state.members(maker.workspace)
    if principal_id not in members and len(members) >= MEMBERS_MAX:
        raise _full(f"the workspace has {MEMBERS_MAX:,} members", "remove those that have left")
    _within(ROLES[role] | ROLES[members.get(principal_id, role)], maker)
    return Change("member.set", "member", principal_id, maker.workspace, {"role": role})


def remove_member(state: AccessState, maker: Principal, principal_id: str) -> Change:
    """Take a principal's role in the maker's workspace away, and with it the principal's keys there."""
    role = state.role(maker.workspace, principal_id)
    if role is None:
        raise InvalidInput(
            "there is no such member in this workspace", code="NOT_FOUND", hint="GET /v1/members lists the members"
        )
    _within(ROLES[role], maker)
    return Change("member.remove", "member", principal_id, maker.workspace)


def create_workspace(
    state: AccessState, workspace_id: str, plan: Mapping[str, Any] | None, quotas: Mapping[str, int] | None
) -> Change:
    """Make a workspace. The plan was checked by the caller, in the words of the settings."""
    if not re.fullmatch(WORKSPACE_PATTERN, workspace_id):
        raise _fault("body.workspace", "a workspace is written in 1 to 63 small letters, digits and inner hyphens")
    if state.workspace(workspace_id) is not None:
        raise RequestRefused(f"the workspace {workspace_id} exists", code="CONFLICT", hint="choose another name")
    if sum(1 for _ in state.workspaces()) >= WORKSPACES_MAX:
        raise _full(f"the server has {WORKSPACES_MAX:,} workspaces", "use one of them")
    return Change("workspace.create", "workspace", workspace_id, None, _settings(plan, quotas))


def change_workspace(
    state: AccessState, workspace_id: str, plan: Mapping[str, Any] | None, quotas: Mapping[str, int] | None
) -> Change:
    """Give a workspace another plan and other quotas, whole."""
    if state.workspace(workspace_id) is None:
        raise InvalidInput("there is no such workspace", code="NOT_FOUND", hint="GET /v1/workspaces lists them")
    return Change("workspace.change", "workspace", workspace_id, None, _settings(plan, quotas))


def local_principal(credential_id: str, workspace: str = LOCAL) -> Principal:
    """The user whose home it is, who may do everything in every workspace."""
    return Principal("p_local", credential_id, workspace, ROLES["server_admin"])


def server_principal(workspace: str | None) -> Principal:
    """The server itself, which records what it notices."""
    return Principal(SERVER, SERVER, workspace or "", frozenset())


def _public_key(public_key: bytes) -> bytes:
    try:
        return check_public_key(public_key)
    except DetentError as exc:
        raise _fault("body.public_key", str(exc)) from exc


def _wanted_scopes(draft: KeyDraft) -> frozenset[str]:
    if draft.scopes is not None:
        scopes = frozenset(draft.scopes)
        if unknown := sorted(scopes - SCOPES):
            raise _fault("body.scopes", f"{unknown[0][:60]!r} is not a scope; known: {', '.join(sorted(SCOPES))}")
        if not scopes:
            raise _fault("body.scopes", "a key needs at least one scope")
        return scopes
    if draft.role is None:
        raise _fault("body.role", "a key needs a role or scopes")
    if draft.role not in ROLES:
        raise _fault("body.role", f"is not one of {', '.join(ROLES)}")
    return ROLES[draft.role]


def _within(scopes: frozenset[str], maker: Principal) -> None:
    if extra := sorted(scopes - with_implied(maker.scopes)):
        raise _fault("body.scopes", f"your own credential does not have {', '.join(extra)}")


def _end(draft: KeyDraft, maker: Principal, now_ms: int) -> int | None:
    """When a key ends; never later than the credential that makes it."""
    most = KEY_DAYS_MAX * DAY_MS if maker.expires_ms is None else maker.expires_ms - now_ms
    if draft.never_expires:
        if not maker.may(ADMIN) or maker.expires_ms is not None:
            raise _fault("body.expires", "only a credential with server:admin that does not expire makes such keys")
        return None
    lasts = draft.lasts_ms if draft.lasts_ms is not None else min(KEY_DAYS * DAY_MS, most)
    if not 0 < lasts <= KEY_DAYS_MAX * DAY_MS:
        raise _fault("body.expires", f"a key lasts at most {KEY_DAYS_MAX} days")
    if lasts > most:
        raise _fault("body.expires", "a key ends no later than the credential that makes it")
    return now_ms + lasts


def _own_key(state: AccessState, maker: Principal, key_id: str) -> Key:
    key = state.key(key_id)
    if key is None or key.workspace != maker.workspace:
        raise InvalidInput(
            "there is no such key in this workspace", code="NOT_FOUND", hint="GET /v1/keys lists the keys"
        )
    return key


def _settings(plan: Mapping[str, Any] | None, quotas: Mapping[str, int] | None) -> dict[str, Any]:
    for name, most in (quotas or {}).items():
        if name not in QUOTAS:
            raise _fault("body.quotas", f"{name[:60]!r} is not a quota; known: {', '.join(sorted(QUOTAS))}")
        if type(most) is not int or not 1 <= most <= QUOTA_MAX:
            raise _fault(f"body.quotas.{name}", "is not a whole number from 1 on")
    return {"plan": None if plan is None else dict(plan), "quotas": None if quotas is None else dict(quotas)}


def _fault(path: str, message: str) -> DetentError:
    name = path.partition(".")[2]
    return InvalidInput(
        f"{name}: {message}", code="VALIDATION_ERROR", details={"errors": [{"path": path, "message": message}]}
    )


def _full(what: str, hint: str) -> DetentError:
    return RequestRefused(what, code="ACCESS_FULL", hint=hint)
