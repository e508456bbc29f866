"""Turns the driver's exceptions into ours, here and nowhere else.

Each answer names the file and the way out. The table goes by exception class, which in ``apsw`` is SQLite's primary
result code. What is in no row means that we used the driver wrongly: `InvariantBroken`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from detent.canon.late import NamedTuple
from detent.errors import DetentError, EpochLost, InvariantBroken, OutcomeUnknown, StoreCorrupt, StoreUnavailable
from detent.store.checks import integer_too_large


class _Answer(NamedTuple):
    error: type[DetentError]
    what: str
    hint: str
    retryable: bool


_RESTORE: Final = "keep a copy of the file, then restore a backup; `detent verify` on it says what can still be proved"
_LOCAL_DISK: Final = "check the disk and its mount; the system log says more. DETENT_HOME can point to another disk"

_ANSWERS: Final[dict[type[apsw.Error], _Answer]] = {
    apsw.BusyError: _Answer(
        StoreUnavailable, "is locked by another process", "close the other program that has it open, or try again", True
    ),
    apsw.LockedError: _Answer(StoreUnavailable, "is locked within this process", "try again", True),
    apsw.ProtocolError: _Answer(StoreUnavailable, "is too busy to be locked", "try again", True),
    apsw.FullError: _Answer(
        StoreUnavailable, "cannot grow: the disk is full", "free some space on that disk; nothing was written", True
    ),
    apsw.ReadOnlyError: _Answer(
        StoreUnavailable,
        "cannot be written: it is read-only",
        "make the file and its directory writable for you, or set DETENT_HOME to a directory that is",
        False,
    ),
    apsw.CantOpenError: _Answer(
        StoreUnavailable,
        "cannot be opened",
        "check that it exists and that you may read and write it and its directory",
        False,
    ),
    apsw.PermissionsError: _Answer(
        StoreUnavailable, "may not be accessed", "check the permissions of the file and its directory", False
    ),
    apsw.IOError: _Answer(StoreUnavailable, "could not be read or written", _LOCAL_DISK, False),
    apsw.NoLFSError: _Answer(StoreUnavailable, "is too large for this file system", _LOCAL_DISK, False),
    apsw.NoMemError: _Answer(StoreUnavailable, "needs more memory than there is", "free some memory", True),
    apsw.InterruptError: _Answer(
        StoreUnavailable, "was being used when the program was interrupted", "try again", True
    ),
    apsw.CorruptError: _Answer(StoreCorrupt, "is damaged", _RESTORE, False),
    apsw.FormatError: _Answer(StoreCorrupt, "is damaged", _RESTORE, False),
    apsw.NotADBError: _Answer(
        StoreCorrupt,
        "is not a database, or its first page is damaged",
        "check that this is the right file; " + _RESTORE,
        False,
    ),
    # SQLITE_ERROR: our statements are fixed and tested, so the tables they name are not there.
    apsw.SQLError: _Answer(StoreCorrupt, "does not have the tables of a ledger", _RESTORE, False),
}

_TAKEN: Final = (
    apsw.SQLITE_CONSTRAINT_UNIQUE,
    apsw.SQLITE_CONSTRAINT_PRIMARYKEY,
    apsw.SQLITE_CONSTRAINT_ROWID,
)
"""What a lost compare-and-swap looks like: a row that must be new is there already."""


def translated(error: Exception, path: Path) -> Exception:
    """The error of ours that an exception of the driver stands for; raise it ``from`` that one."""
    if isinstance(error, OverflowError):
        return integer_too_large()
    if isinstance(error, UnicodeDecodeError):
        # SQLite stores any bytes as text; only a damaged or edited file holds bytes that are not text.
        return StoreCorrupt(
            f"{path} is damaged (a text in it is not UTF-8)", hint=_RESTORE, details={"path": str(path), "sqlite": None}
        )
    if isinstance(error, apsw.ConstraintError):
        return _constraint(error, path)
    if isinstance(error, apsw.TooBigError):
        return StoreUnavailable(
            f"{path}: a value is larger than SQLite can keep",
            hint="fewer live jobs make a smaller checkpoint; larger content belongs in files",
            details=_details(error, path),
            retryable=False,
        )
    answer = next((answer for kind, answer in _ANSWERS.items() if isinstance(error, kind)), None)
    if answer is None:
        return InvariantBroken(f"{path}: the database driver was used wrongly: {error}", details=_details(error, path))
    return answer.error(
        f"{path} {answer.what} ({error})", hint=answer.hint, details=_details(error, path), retryable=answer.retryable
    )


def translated_commit(error: apsw.Error, path: Path) -> Exception:
    """The same for a failed COMMIT, where some failures leave open whether the commit is durable.

    SQLite reports a full disk, a lock and a write-protected file before the last frame of the transaction is whole, so
    nothing of it can come back. After any other failure the frames may all be in the log, and whether they are is for
    the next opening to find out.
    """
    if isinstance(error, apsw.FullError | apsw.BusyError | apsw.ReadOnlyError):
        return translated(error, path)
    return OutcomeUnknown(
        f"{path}: the commit failed while it was being made durable ({error}); it may or may not be there",
        hint="open the ledger again and look; repeating the same request is safe",
        details=_details(error, path),
    )


def _constraint(error: apsw.ConstraintError, path: Path) -> Exception:
    details = _details(error, path)
    if _extended(error) in _TAKEN:
        return EpochLost(
            f"{path}: another owner wrote first ({error})",
            hint="another process has taken over; open the ledger again as its client",
            details=details,
        )
    return InvariantBroken(f"{path}: a row breaks an invariant of the ledger: {error}", details=details)


def _details(error: Exception, path: Path) -> dict[str, object]:
    code = _extended(error)
    name = apsw.mapping_extended_result_codes.get(code) or apsw.mapping_result_codes.get(code)
    return {"path": str(path), "sqlite": name}


def _extended(error: Exception) -> int:
    # The driver sets it on what SQLite reports, and not on what it finds out itself.
    code: int = getattr(error, "extendedresult", -1)
    return code
