"""Browser sessions, and when keys were last used: what a server remembers of its callers beside the ledger.

Both lie in one file of the home, so that sessions survive a restart. It holds digests, never secrets, and is written at most once a minute:
a crash can lose the last minute of "last used", and a session that was begun in it, which costs its user another login.

A session ends 12 hours after its last request, 7 days after its beginning, with the key that it stands for, or by logout.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from detent.access.browser import IDLE_MS, LIFE_MS, SECRET_BYTES, session_id, stored
from detent.owner.names import DIRECTORY
from detent.store.files import read_no_follow, replace_no_follow

SESSIONS_FILE: Final = "sessions.json"
SESSIONS_MAX: Final = 10_000
USED_MAX: Final = 20_000
SAVE_MS: Final = 60_000


@dataclass(slots=True)
class BrowserSession:
    """One browser that is logged in."""

    session_id: str
    key_id: str | None
    """The key that it stands for; None: the user of the home."""
    begun_ms: int
    used_ms: int
    stored: bytes = b""

    def counts(self, now_ms: int) -> bool:
        """Whether it has not ended by itself."""
        return now_ms - self.used_ms < IDLE_MS and now_ms - self.begun_ms < LIFE_MS


class BrowserSessions:
    """The sessions of a server. For the HTTP loop alone."""

    def __init__(self, home: Path) -> None:
        self._path = home / DIRECTORY / SESSIONS_FILE
        self._sessions: dict[bytes, BrowserSession] = {}
        self._last_used: dict[str, int] = {}
        self._saved_ms = 0
        self._load()

    def begin(self, key_id: str | None, now_ms: int) -> str:
        """Begin a session; gives its secret, which is kept nowhere."""
        value = secrets.token_hex(SECRET_BYTES)
        for name in [name for name, held in self._sessions.items() if not held.counts(now_ms)]:
            del self._sessions[name]
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        held = BrowserSession(session_id(value), key_id, now_ms, now_ms, stored(value))
        self._sessions[held.stored] = held
        self.save(now_ms)
        return value

    def find(self, value: str, now_ms: int) -> BrowserSession | None:
        """The session of a secret, which is used now."""
        held = self.get(stored(value), now_ms)
        if held is not None:
            held.used_ms = now_ms
            self._save_soon(now_ms)
        return held

    def get(self, name: bytes, now_ms: int) -> BrowserSession | None:
        """A session by what is stored of its secret, unless it has ended."""
        held = self._sessions.get(name)
        return held if held is not None and held.counts(now_ms) else None

    def end(self, name: bytes) -> None:
        """End a session."""
        if self._sessions.pop(name, None) is not None:
            self.save(self._saved_ms)

    def used(self, key_id: str, now_ms: int) -> None:
        """Take note that a key was used."""
        self._last_used.pop(key_id, None)
        self._last_used[key_id] = now_ms
        if len(self._last_used) > USED_MAX:
            del self._last_used[next(iter(self._last_used))]
        self._save_soon(now_ms)

    def last_used(self, key_id: str) -> int | None:
        """When a key was last used, as far as this home remembers."""
        return self._last_used.get(key_id)

    def save(self, now_ms: int) -> None:
        """Write everything down. A full disk fails no request."""
        sessions = [{**asdict(held), "stored": held.stored.hex()} for held in self._sessions.values()]
        self._saved_ms = now_ms
        with contextlib.suppress(OSError):
            data = json.dumps({"sessions": sessions, "last_used": self._last_used}).encode()
            replace_no_follow(self._path, data)

    def _save_soon(self, now_ms: int) -> None:
        if now_ms - self._saved_ms >= SAVE_MS:
            self.save(now_ms)

    def _load(self) -> None:
        """Read what was written; a file that cannot be read only ends sessions."""
        try:
            kept = json.loads(read_no_follow(self._path))
            held = [BrowserSession(**{**one, "stored": bytes.fromhex(one["stored"])}) for one in kept["sessions"]]
            self._last_used = {str(key): int(at) for key, at in kept["last_used"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        self._sessions = {one.stored: one for one in held}
