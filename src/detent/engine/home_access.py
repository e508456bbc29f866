"""Whether this user may read a home and write to it, and what to do when not."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from detent.errors import StoreUnavailable


def no_access(path: Path, what: str) -> StoreUnavailable:
    """That this user may not ``read`` or ``write`` a home, whose it is, and what to do."""
    owner = path.stat().st_uid
    another = "name another home with --home or DETENT_HOME"
    if owner == os.geteuid():
        message, hint = f"the home {path} does not let you {what} it", f"chmod 700 {path}, or {another}"
    else:
        message = f"the home {path} belongs to {user_name(owner)}, and you may not {what} it"
        hint = f"{another}, or ask {user_name(owner)} for what you need: `detent export` writes it to a file"
    return StoreUnavailable(message, hint=hint, details={"home": str(path)}, retryable=False)


def insist_on_writable(path: Path) -> None:
    """Refuse, with `StoreUnavailable`, a home that this user may not write to, or that lies where nobody may.

    One that is not there is for others to miss.
    """
    if os.access(path, os.W_OK | os.X_OK, effective_ids=True) or not path.exists():
        return
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise StoreUnavailable(
            f"the home {path} cannot be written to: its file system is read-only",
            hint="mount it for writing, or name another home with --home or DETENT_HOME",
            details={"home": str(path)},
            retryable=False,
        )
    raise no_access(path, "write to")


def user_name(number: int) -> str:
    """A user for people: by name where the system knows one."""
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
