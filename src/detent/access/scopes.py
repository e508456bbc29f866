"""Scopes, the roles that are sets of them, and the principal that a request acts for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

PUBLIC: Final = "public"
"""The scope of a route that needs no credential. A route says so; it is never the default."""
ANY: Final = "any"
"""The scope of a route for every valid credential: it tells a caller about itself, or what every caller may know."""

WORKER: Final = "worker"
"""The scope of a route that a worker asks by a signed request; what it may see is what its leases name."""
BY_ENROLMENT: Final = "enrolment"
"""The scope of the route that takes an enrolment token in its body."""
OWN_CREDENTIAL: Final = frozenset({WORKER, BY_ENROLMENT})
"""Scopes of routes whose handlers check a credential of their own."""

READ: Final = frozenset(
    {"runs:read", "jobs:read", "logs:read", "artifacts:read", "queue:read", "workers:read", "sessions:read"}
)
_SUBMIT: Final = frozenset({"jobs:write", "artifacts:write"})
_CODE: Final = frozenset({"tasks:write", "runs:write"})
"""Code with the rights of a worker: an application that gets `jobs:write` alone runs nothing outside the sandbox."""
_OPERATE: Final = frozenset({"jobs:cancel", "runs:cancel", "sessions:write"})
_CANCEL_OWN: Final = frozenset({"jobs:cancel-own", "runs:cancel-own"})
"""To cancel what the same principal submitted, where `jobs:cancel` and `runs:cancel` are about all that the workspace has."""
_AUDIT: Final = frozenset({"audit:read", "ledger:read", "ledger:export"})
_ADMIN: Final = frozenset({"keys:write", "members:write", "webhooks:write"})
_SERVER: Final = frozenset({"workers:write", "metrics:read", "server:audit", "server:admin"})
"""About the whole server. `server:audit` exports and verifies the whole ledger, and changes nothing."""

SCOPES: Final = READ | _SUBMIT | _CODE | _CANCEL_OWN | _OPERATE | _AUDIT | _ADMIN | _SERVER
"""Every scope there is."""

LOOKING: Final = READ | _AUDIT | {"metrics:read", "server:audit"}
"""What changes nothing: all that a server allows which only shows a home."""

ROLES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "viewer": READ,
        "submitter": READ | _SUBMIT | _CODE | _CANCEL_OWN,
        "operator": READ | _SUBMIT | _CODE | _CANCEL_OWN | _OPERATE,
        "auditor": READ | _AUDIT,
        "admin": READ | _SUBMIT | _CODE | _CANCEL_OWN | _OPERATE | _AUDIT | _ADMIN,
        "server_admin": SCOPES,
    }
)


def own_scope(scope: str) -> str | None:
    """The scope that allows the same for what the principal submitted itself; None where there is none."""
    return f"{scope}-own" if f"{scope}-own" in SCOPES else None


def roles_hint(scope: str) -> str:
    """Which keys allow what a scope stands for, for someone whose own does not."""
    roles = [role for role, scopes in ROLES.items() if scope in scopes]
    return f"it takes a key of the role {' or '.join(roles)}: `detent keys create NAME --role {roles[0]}`"


def with_implied(scopes: frozenset[str]) -> frozenset[str]:
    """Scopes together with those that they include: all includes one's own."""
    return scopes | {own for scope in scopes if (own := own_scope(scope)) is not None}


@dataclass(frozen=True, slots=True)
class Principal:
    """On whose behalf a request is made: opaque ids, one workspace, and what its credential allows."""

    principal_id: str
    credential_id: str
    workspace: str
    scopes: frozenset[str]
    expires_ms: int | None = None
    """When the credential ends; None: not by itself."""

    def may(self, scope: str) -> bool:
        """Whether the credential allows what a scope stands for."""
        return scope in {PUBLIC, ANY} or scope in self.scopes
