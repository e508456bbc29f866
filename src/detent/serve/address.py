"""Where the server of a home listens, as it wrote it down: for commands, and for the next server that tries to start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from detent.owner.lock import try_lock
from detent.owner.names import DIRECTORY

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
