"""Who has access: workspaces, members and API keys, as a fold of the ledger's `operated` records.

There is no table beside the ledger. A server reads the records once when it starts and applies each new one as it is committed; a
command without a server does the same. What counts is therefore what the signed history says, and `verify` needs no second truth.

Only granted actions count (`outcome_code` OK). A record whose parameters cannot be read takes away and never gives: a key that
cannot be read is not made, a rotation that cannot be read ends the key.

A record holds the digest of a secret and never the secret; names of people and of keys lie beside the ledger (`owner/names.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from detent.access.scopes import ROLES, SCOPES

LOCAL: Final = "local"
"""The home's own workspace, which every home has."""
DIGEST_BYTES: Final = 32
OK: Final = "OK"
"""The outcome of an action that was granted."""
ENDED_KEPT_MAX: Final = 10_000
"""Revoked keys that are still listed; the ledger has all of them."""


@dataclass(frozen=True, slots=True)
class Key:
    """An API key as the ledger has it."""

    key_id: str
    workspace: str
    principal_id: str
    role: str | None
    """The role it was made with; None where its scopes were listed."""
    scopes: frozenset[str]
    secret: bytes
    """The digest of its secret."""
    created_ms: int
    expires_ms: int | None
    """None: it does not expire."""
    made_by: str
    """The credential that made it."""
    previous: bytes | None = None
    """The digest of the secret before the last rotation, which counts until `previous_until_ms`."""
    previous_until_ms: int = 0
    revoked_ms: int | None = None
    public_key: bytes | None = None
    """The key with which its holder signs requests; None where it does not."""

    def counts(self, now_ms: int) -> bool:
        """Whether it can be used now."""
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)

    def state(self, now_ms: int) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked_ms is not None:
            return "revoked"
        return "active" if self.counts(now_ms) else "expired"

    def secrets(self, now_ms: int) -> tuple[bytes, ...]:
        """The digests of the secrets that open it now."""
        if self.previous is not None and now_ms < self.previous_until_ms:
            return (self.secret, self.previous)
        return (self.secret,)


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace: its plan and its quotas where they differ from the settings."""

    workspace_id: str
    created_ms: int = 0
    plan: Mapping[str, Any] | None = None
    """As a section of `[plans]` says it; None: as the settings say."""
    quotas: Mapping[str, int] | None = None


class AccessState:
    """Everything that the records say about access so far."""

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}
        self._ended: OrderedDict[str, Key] = OrderedDict()
        self._members: dict[str, dict[str, str]] = {}
        self._workspaces: dict[str, Workspace] = {LOCAL: Workspace(LOCAL)}

    # -- what there is -------------------------------------------------------------------------------------------------

    def key(self, key_id: str) -> Key | None:
        """A key that was not revoked."""
        return self._keys.get(key_id)

    def keys(self, workspace: str, *, ended: bool = False) -> Iterator[Key]:
        """The keys of a workspace, oldest first; with ``ended`` those that were revoked lately, too."""
        if ended:
            yield from (key for key in self._ended.values() if key.workspace == workspace)
        yield from (key for key in self._keys.values() if key.workspace == workspace)

    def any_key(self, workspace: str, key_id: str) -> Key | None:
        """A key of a workspace, also one that was revoked lately."""
        key = self._keys.get(key_id) or self._ended.get(key_id)
        return key if key is not None and key.workspace == workspace else None

    def members(self, workspace: str) -> Mapping[str, str]:
        """The roles of a workspace's members, by principal."""
        return self._members.get(workspace, {})

    def role(self, workspace: str, principal_id: str) -> str | None:
        """The role of a principal in a workspace; None for one that is not a member."""
        return self.members(workspace).get(principal_id)

    def workspaces_of(self, principal_id: str) -> list[str]:
        """The workspaces that a principal is a member of."""
        return sorted(name for name, members in self._members.items() if principal_id in members)

    def workspace(self, workspace_id: str) -> Workspace | None:
        """A workspace, if it exists."""
        return self._workspaces.get(workspace_id)

    def workspaces(self) -> Iterator[Workspace]:
        """All workspaces, in the order in which they were made."""
        return iter(self._workspaces.values())

    def scopes_of(self, key: Key) -> frozenset[str]:
        """What a key allows now: its own scopes, within the member's role where it acts for a member."""
        role = self.role(key.workspace, key.principal_id)
        return key.scopes if role is None else key.scopes & ROLES[role]

    # -- what happens --------------------------------------------------------------------------------------------------

    def apply(self, record: Mapping[str, Any], evidence: Mapping[str, Any], *, at_ms: int) -> bool:
        """Take in an `operated` record with its evidence; whether it changed anything about access."""
        change = _CHANGES.get(record.get("action", ""))
        if change is None or record.get("outcome_code") != OK:
            return False
        said = evidence.get("parameters")
        change(self, record, said if isinstance(said, Mapping) else {}, at_ms)
        return True

    def _key_created(self, record: Mapping[str, Any], said: Mapping[str, Any], at_ms: int) -> None:
        key_id, workspace = record["object_id"], record["tenant_id"]
        scopes, secret, expires = _scopes(said), _digest(said.get("secret")), said.get("expires_ms")
        known = self._workspaces.get(workspace)
        if not scopes or secret is None or known is None or key_id in self._keys or key_id in self._ended:
            return
        if not isinstance(said.get("principal_id"), str) or not (expires is None or type(expires) is int):
            return
        public_key = said.get("public_key")
        if public_key is not None and _digest(public_key) is None:
            return
        role = said.get("role")
        self._keys[key_id] = Key(
            key_id,
            workspace,
            said["principal_id"],
            role if role in ROLES else None,
            scopes,
            secret,
            at_ms,
            expires,
            record["credential_id"],
            public_key=public_key,
        )

    def _key_rotated(self, record: Mapping[str, Any], said: Mapping[str, Any], at_ms: int) -> None:
        key = self._keys.get(record["object_id"])
        if key is None:
            return
        secret, until, expires = _digest(said.get("secret")), said.get("previous_until_ms"), said.get("expires_ms")
        if secret is None or type(until) is not int or not (expires is None or type(expires) is int):
            self._revoke(key, at_ms)
            return
        self._keys[key.key_id] = replace(
            key, secret=secret, previous=key.secret, previous_until_ms=until, expires_ms=expires
        )

    def _key_revoked(self, record: Mapping[str, Any], _said: Mapping[str, Any], at_ms: int) -> None:
        key = self._keys.get(record["object_id"])
        if key is not None:
            self._revoke(key, at_ms)

    def _member_set(self, record: Mapping[str, Any], said: Mapping[str, Any], at_ms: int) -> None:
        role = said.get("role")
        if not isinstance(role, str) or role not in ROLES:
            self._member_removed(record, said, at_ms)
        elif record["tenant_id"] in self._workspaces:
            self._members.setdefault(record["tenant_id"], {})[record["object_id"]] = role

    def _member_removed(self, record: Mapping[str, Any], _said: Mapping[str, Any], at_ms: int) -> None:
        """A principal that leaves a workspace takes its keys along: they would count without a role otherwise."""
        workspace, principal = record["tenant_id"], record["object_id"]
        if self._members.get(workspace, {}).pop(principal, None) is None:
            return
        for key in [key for key in self.keys(workspace) if key.principal_id == principal]:
            self._revoke(key, at_ms)

    def _workspace_created(self, record: Mapping[str, Any], said: Mapping[str, Any], at_ms: int) -> None:
        name = record["object_id"]
        if name not in self._workspaces:
            self._workspaces[name] = _settled(Workspace(name, at_ms), said)

    def _workspace_changed(self, record: Mapping[str, Any], said: Mapping[str, Any], _at_ms: int) -> None:
        known = self._workspaces.get(record["object_id"])
        if known is not None:
            self._workspaces[known.workspace_id] = _settled(known, said)

    def _revoke(self, key: Key, at_ms: int) -> None:
        del self._keys[key.key_id]
        self._ended[key.key_id] = replace(key, revoked_ms=at_ms)
        if len(self._ended) > ENDED_KEPT_MAX:
            self._ended.popitem(last=False)


_CHANGES: Final = {
    "key.create": AccessState._key_created,  # noqa: SLF001 - its own table of changes
    "key.rotate": AccessState._key_rotated,  # noqa: SLF001
    "key.revoke": AccessState._key_revoked,  # noqa: SLF001
    "member.set": AccessState._member_set,  # noqa: SLF001
    "member.remove": AccessState._member_removed,  # noqa: SLF001
    "workspace.create": AccessState._workspace_created,  # noqa: SLF001
    "workspace.change": AccessState._workspace_changed,  # noqa: SLF001
}


def _scopes(said: Mapping[str, Any]) -> frozenset[str]:
    """The scopes that parameters name; none where one of them does not exist."""
    named = said.get("scopes")
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        return frozenset()
    found = frozenset(named)
    return found if found <= SCOPES else frozenset()


def _digest(value: object) -> bytes | None:
    return value if isinstance(value, bytes) and len(value) == DIGEST_BYTES else None


def _settled(workspace: Workspace, said: Mapping[str, Any]) -> Workspace:
    plan, quotas = said.get("plan"), said.get("quotas")
    return replace(
        workspace,
        plan=plan if isinstance(plan, Mapping) else None,
        quotas=quotas if isinstance(quotas, Mapping) else None,
    )
