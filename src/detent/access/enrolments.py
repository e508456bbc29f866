"""Enrolment tokens: who may bring a worker, for which workspaces and pools, how often and until when.

They are a fold of the ledger's `operated` records, as keys are: the record holds the digest of the secret and what the token allows, never the
secret. How often a token was used is counted by the `worker_enrolled` records, whose proofs name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from detent.access.changes import Change
from detent.access.tokens import ENROLMENT, ID_BYTES, SECRET_BYTES, Token, make_token

CREATE: Final = "enrolment.create"
REVOKE: Final = "enrolment.revoke"
OK: Final = "OK"
USES_MAX: Final = 1_000
TTL_SECONDS: Final = 3_600
TTL_SECONDS_MAX: Final = 30 * 24 * 3_600
KEPT_MAX: Final = 10_000
RANDOM_BYTES: Final = ID_BYTES + SECRET_BYTES
"""Random bytes that a new token takes."""


@dataclass(frozen=True, slots=True)
class EnrolmentToken:
    """What a token allows. Tenants or pools of None mean all."""

    enrolment_id: str
    secret: bytes
    tenants: tuple[str, ...] | None
    pools: tuple[str, ...] | None
    labels: tuple[str, ...]
    uses: int
    created_ms: int
    expires_ms: int
    made_by: str
    revoked: bool = False

    def fault(self, used: int, now_ms: int) -> str | None:
        """Say why it brings no further worker now, or nothing."""
        if self.revoked:
            return "the enrolment token was revoked"
        if now_ms >= self.expires_ms:
            return "the enrolment token has expired"
        if used >= self.uses:
            return f"the enrolment token was used {used} of {self.uses} times"
        return None

    def state(self, used: int, now_ms: int) -> str:
        """`active`, `used`, `expired` or `revoked`."""
        if self.fault(used, now_ms) is None:
            return "active"
        return "revoked" if self.revoked else "used" if used >= self.uses else "expired"

    def parameters(self) -> dict[str, Any]:
        """What the record of its making says."""
        return {
            "secret": self.secret,
            "tenants": None if self.tenants is None else list(self.tenants),
            "pools": None if self.pools is None else list(self.pools),
            "labels": list(self.labels),
            "uses": self.uses,
            "created_ms": self.created_ms,
            "expires_ms": self.expires_ms,
        }

    def creation(self) -> Change:
        """Its making, as it is recorded: it concerns the server as a whole."""
        return Change(CREATE, "enrolment", self.enrolment_id, None, self.parameters())

    def revocation(self) -> Change:
        """Its end, as it is recorded."""
        return Change(REVOKE, "enrolment", self.enrolment_id, None)


@dataclass(frozen=True, slots=True)
class EnrolmentDraft:
    """A token that is wanted."""

    tenants: tuple[str, ...] | None
    """None: all workspaces."""
    pools: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    uses: int = 1
    lasts_ms: int = TTL_SECONDS * 1_000


def create_enrolment(
    draft: EnrolmentDraft, made_by: str, *, random: bytes, now_ms: int
) -> tuple[EnrolmentToken, Token]:
    """Make a token out of `RANDOM_BYTES` random bytes: what is recorded of it, and its text."""
    token = make_token(ENROLMENT, random)
    made = EnrolmentToken(
        token.token_id,
        token.digest,
        None if draft.tenants is None else tuple(sorted(set(draft.tenants))),
        None if draft.pools is None else tuple(sorted(set(draft.pools))),
        tuple(sorted(set(draft.labels))),
        draft.uses,
        now_ms,
        now_ms + draft.lasts_ms,
        made_by,
    )
    return made, token


class EnrolmentTokens:
    """Every token that the records have made so far."""

    def __init__(self) -> None:
        self._tokens: dict[str, EnrolmentToken] = {}

    def __iter__(self) -> Iterator[EnrolmentToken]:
        return iter(self._tokens.values())

    def get(self, enrolment_id: str) -> EnrolmentToken | None:
        """A token by its id."""
        return self._tokens.get(enrolment_id)

    def add(self, token: EnrolmentToken) -> None:
        """Take in a token whose record was just committed."""
        self._tokens.setdefault(token.enrolment_id, token)
        if len(self._tokens) > KEPT_MAX:
            del self._tokens[next(iter(self._tokens))]

    def revoke(self, enrolment_id: str) -> None:
        """End a token."""
        if (known := self._tokens.get(enrolment_id)) is not None:
            self._tokens[enrolment_id] = replace(known, revoked=True)

    def take_in(self, fields: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        """Apply an `operated` record. One that cannot be read makes no token."""
        if fields.get("outcome_code") != OK:
            return
        name = fields.get("object_id")
        if fields.get("action") == REVOKE:
            self.revoke(str(name))
        elif fields.get("action") == CREATE and type(name) is str and name not in self._tokens:
            token = _read(name, str(fields.get("credential_id")), parameters)
            if token is not None:
                self.add(token)


def _read(name: str, made_by: str, said: Mapping[str, Any]) -> EnrolmentToken | None:
    secret = said.get("secret")
    uses, created_ms, expires_ms = (said.get(key) for key in ("uses", "created_ms", "expires_ms"))
    if type(secret) is not bytes or type(uses) is not int or type(created_ms) is not int or type(expires_ms) is not int:
        return None
    names: list[tuple[str, ...] | None] = []
    for key in ("tenants", "pools", "labels"):
        value = said.get(key)
        if value is not None and (type(value) is not list or any(type(one) is not str for one in value)):
            return None
        names.append(None if value is None else tuple(value))
    tenants, pools, labels = names
    return EnrolmentToken(name, secret, tenants, pools, labels or (), uses, created_ms, expires_ms, made_by)
