"""Turns the driver's exceptions into ours, here and nowhere else. Each answer names the address, without a password.

The table goes by SQLSTATE, first by the whole code and then by its class of two characters. A lost connection is
`StoreUnavailable` for a read; for a commit it leaves open whether that is durable (`lost_commit`).
"""

from __future__ import annotations

from typing import Final

import psycopg

from detent.canon.late import NamedTuple
from detent.errors import DetentError, EpochLost, InvariantBroken, OutcomeUnknown, StoreCorrupt, StoreUnavailable
from detent.store.checks import integer_too_large
from detent.store.postgres.address import PostgresAddress

EPOCH_LOST: Final = "DT001"
MOVED: Final = "DT004"

_TAKEN_OVER: Final = "another process has taken over; open the ledger again as its client"


class _Answer(NamedTuple):
    error: type[DetentError]
    what: str
    hint: str
    retryable: bool


_DOWN: Final = _Answer(
    StoreUnavailable, "cannot be reached", "check that PostgreSQL runs and that the address is right", True
)
_ROLE: Final = _Answer(
    StoreUnavailable,
    "does not let this user in",
    "check the user, and give the password in PGPASSWORD, a password file or [store] url_file",
    False,
)
_NO_LEDGER: Final = _Answer(
    StoreUnavailable, "holds no ledger", "make one with `detent init --store URL`, or correct the address", False
)

_ANSWERS: Final[dict[str, _Answer]] = {
    "08": _DOWN,
    "28": _ROLE,
    "3D000": _Answer(StoreUnavailable, "names a database that does not exist", "create it with `createdb`", False),
    "3F000": _NO_LEDGER,
    "42P01": _NO_LEDGER,
    "42883": _Answer(StoreCorrupt, "has lost a function of its schema", "restore a backup of the database", False),
    "42703": _Answer(StoreCorrupt, "has lost a column of its schema", "restore a backup of the database", False),
    "42501": _Answer(
        StoreUnavailable, "may not be used by this role", "let the owner of the schema grant it what it needs", False
    ),
    "25006": _Answer(
        StoreUnavailable, "cannot be written: it is read-only", "connect to the primary, not to a replica", False
    ),
    "53": _Answer(StoreUnavailable, "has run out of a resource", "make room, or raise the limit it names", True),
    "55P03": _Answer(StoreUnavailable, "is locked by another session", "try again", True),
    "57014": _Answer(StoreUnavailable, "gave up on a statement", "raise statement_timeout for this role", True),
    "57": _Answer(StoreUnavailable, "is shutting down or starting up", "try again", True),
    "40": _Answer(StoreUnavailable, "could not serialize a transaction", "try again", True),
    "58": _Answer(StoreUnavailable, "has trouble with its own disk", "read the log of PostgreSQL", False),
    "XX": _Answer(StoreCorrupt, "is damaged", "read the log of PostgreSQL, then restore a backup", False),
}


def translated(error: Exception, address: PostgresAddress) -> Exception:
    """The error of ours that an exception of the driver stands for; raise it ``from`` that one."""
    if isinstance(error, UnicodeDecodeError):
        return StoreCorrupt(f"{address} is damaged (an id in it is not UTF-8)", details=_details(None, address))
    if not isinstance(error, psycopg.Error):
        return error
    state = error.sqlstate
    if state == MOVED:
        return moved(address, _said(error))
    if state in {EPOCH_LOST, "23505"}:
        return EpochLost(f"{address}: {_said(error)}", hint=_TAKEN_OVER, details=_details(state, address))
    if state == "22003" or (isinstance(error, psycopg.DataError) and state is None):
        return integer_too_large()
    answer = _ANSWERS.get(state or "08") or _ANSWERS.get((state or "08")[:2])
    if answer is None:
        return InvariantBroken(f"{address}: {_said(error)}", details=_details(state, address))
    return answer.error(
        f"{address} {answer.what} ({_said(error)})",
        hint=answer.hint,
        details=_details(state, address),
        retryable=answer.retryable,
    )


def lost_commit(error: Exception, address: PostgresAddress) -> OutcomeUnknown:
    """That the connection ended before the answer to a commit came."""
    return OutcomeUnknown(
        f"{address}: the connection was lost while a commit was being made ({_said(error)}); it may or may not be there",
        hint="open the ledger again and look; repeating the same request is safe",
        details=_details(None, address),
    )


def moved(address: PostgresAddress, to: str) -> StoreUnavailable:
    """That the ledger lives elsewhere now."""
    return StoreUnavailable(
        f"the ledger in {address} was moved to {to}; nothing is written here any more",
        hint=f'set [store] url = "{to}" in config.toml, or DETENT_STORE',
        details={"address": str(address), "moved_to": to},
        retryable=False,
    )


def _said(error: Exception) -> str:
    """The first line of what the server or the driver said; neither ever repeats a password."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _details(state: str | None, address: PostgresAddress) -> dict[str, object]:
    return {"address": str(address), "sqlstate": state}
