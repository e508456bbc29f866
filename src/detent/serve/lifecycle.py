"""The life of a server on the ledger: that it started, with which settings, that it drained, and that it stopped.

Each is an `operated` record of the server's own, about the server as a whole. A start without a stop before it was a crash or a kill.
Settings are named by a digest of their file: a reader with the file can tell that it is the one, and the ledger says nothing of what is in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detent.access.changes import Change, server_principal
from detent.access.state import OK
from detent.canon import digest_text, sha256
from detent.errors import DetentError
from detent.kernel import Operate
from detent.owner.operating import commit, new_request_id, operate
from detent.owner.session import Session
from detent.version import __version__

STARTED: Final = "server.started"
DRAINED: Final = "server.drained"
STOPPED: Final = "server.stopped"
CONFIG: Final = "config.changed"
SETTINGS: Final = "settings"
_KIND: Final = "server"


class LastStart:
    """What the ledger says of the last start of a server."""

    def __init__(self) -> None:
        self.settings: str | None = None
        """The digest of its settings; None when none started before."""

    def apply(self, record: Mapping[str, Any], evidence: Mapping[str, Any]) -> None:
        """Take in an `operated` record with its evidence."""
        said = evidence.get("parameters")
        if record.get("action") == STARTED and record.get("outcome_code") == OK and isinstance(said, Mapping):
            settings = said.get(SETTINGS)
            self.settings = settings if isinstance(settings, str) else self.settings


def settings_digest(path: Path) -> str:
    """The digest of the settings as they are; of nothing where there is no file."""
    try:
        return digest_text(sha256(path.read_bytes()))
    except FileNotFoundError:
        return digest_text(sha256(b""))


def record_start(session: Session, last: LastStart, settings: str, url: str) -> None:
    """Record that a server starts, and before it, in the same commit, that its settings are others than at the last start."""
    commands = [_happened(STARTED, {"version": __version__, SETTINGS: settings, "url": url})]
    if last.settings not in {None, settings}:
        commands.insert(0, _happened(CONFIG, {"before": last.settings, "after": settings}))
    commit(session, commands)


def record_end(session: Session, action: str, signal_number: int) -> None:
    """Record that a server has drained, or stops. A home that cannot be written ends it without."""
    with contextlib.suppress(DetentError):
        commit(session, [_happened(action, {"signal": signal_number})])


def _happened(action: str, parameters: Mapping[str, Any]) -> Operate:
    change = Change(action, _KIND, _KIND, None, parameters)
    return operate(server_principal(None), change, request_id=new_request_id(), route=_KIND)
