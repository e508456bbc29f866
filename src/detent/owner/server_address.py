"""Where the server of a home listens, as it wrote it down: for commands, for the next server that tries to start, and for clients
with workers of their own that would share the home with other workspaces.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from detent.errors import RequestRefused
from detent.kernel.records import OPERATED
from detent.owner.home import Home
from detent.owner.lock import owner_pid, try_lock
from detent.owner.names import DIRECTORY
from detent.store.api import StoreReader

ADDRESS_FILE: Final = "address.json"
LOCK_FILE: Final = "lock"


def told_address(home: Path) -> str | None:
    """The address that a server wrote down; None where there is none that can be read."""
    try:
        return str(json.loads((home / DIRECTORY / ADDRESS_FILE).read_bytes())["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def running(home: Path) -> str | None:
    """The address of the server that runs on a home; None where none does. A file left by a killed server is not one."""
    if not (home / DIRECTORY / LOCK_FILE).exists():
        return None
    held = try_lock(home / DIRECTORY / LOCK_FILE)
    if held is not None:
        held.release()
        return None
    return told_address(home)


def insist_on_sharing(home: Home, reader: StoreReader) -> None:
    """Refuse a process with workers of its own beside a server of several workspaces.

    Its workers would run jobs of every workspace, with the rights and the environment of the user who started it.
    """
    if home.settings().embedded_may_join or (url := running(home.path)) is None or not has_workspaces(reader):
        return
    raise RequestRefused(
        f"the server at {url} serves {home.path} to several workspaces; workers of this process would run their jobs, too",
        code="EMBEDDED_REFUSED",
        hint=f'run it at the server: `detent run FILE --connect {url}`; or set embedded = "join" under [serve]',
    )


def has_workspaces(reader: StoreReader) -> bool:
    """Whether the ledger has a workspace beside the home's own."""
    return any(b"workspace.create" in row.body for row in reader.records_of_kind(0, OPERATED))


def insist_on_owning(home: Home, reader: StoreReader, *, owns: bool) -> None:
    """Refuse to serve several workspaces while another process owns the home: its workers would run their jobs."""
    if owns or home.settings().embedded_may_join or not has_workspaces(reader):
        return
    pid = owner_pid(home.lock)
    raise RequestRefused(
        f"process {pid or 'unknown'} has {home.path}, and its workers would run the jobs of all workspaces",
        code="EMBEDDED_REFUSED",
        hint='wait for its end, or set embedded = "join" under [serve]',
    )
