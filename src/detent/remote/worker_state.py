"""What a worker on another machine keeps between its starts: its key, its certificate, and where its server is.

The key never leaves the machine. Files are for the user alone, mode 0600, in a directory of mode 0700.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from detent.canon import SigningKey
from detent.canon.crypto import SEED_BYTES
from detent.errors import HomeError, InvalidInput
from detent.store.files import read_no_follow, replace_no_follow

KEY_FILE: Final = "key"
STATE_FILE: Final = "worker.json"
WORK: Final = "work"
"""Where content is cached and jobs run, below the worker's directory."""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A worker as it was enrolled."""

    url: str
    pin: str | None
    worker_id: str
    origin: str
    certificate: str


def worker_directory(environment: Mapping[str, str]) -> Path:
    """Where a user's worker keeps its state: below ``XDG_STATE_HOME``, else ``~/.local/state``."""
    base = environment.get("XDG_STATE_HOME")
    home = environment.get("HOME") or Path("~").expanduser()
    return (Path(base) if base else Path(home) / ".local" / "state") / "detent" / "worker"


class WorkerState:
    """The directory of one worker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        except OSError as exc:
            raise HomeError(
                f"{directory} cannot be made: {exc.strerror}", hint="name another one: --state DIR"
            ) from exc
        if directory.stat().st_uid != os.getuid() or directory.stat().st_mode & 0o077:
            raise HomeError(
                f"{directory} can be used by others", hint=f"`chmod 700 {directory}`, or name another one: --state DIR"
            )

    @property
    def work(self) -> Path:
        """Where content is cached and jobs run."""
        path = self.directory / WORK
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def enrolled(self) -> Enrolled | None:
        """The worker that was enrolled here; None where none was."""
        try:
            data = read_no_follow(self.directory / STATE_FILE)
        except FileNotFoundError:
            return None
        try:
            return Enrolled(**json.loads(data))
        except (ValueError, TypeError) as exc:
            raise self._damaged(STATE_FILE) from exc

    def keep(self, enrolled: Enrolled) -> None:
        """Write down an enrolment."""
        replace_no_follow(self.directory / STATE_FILE, json.dumps(asdict(enrolled), indent=1).encode())

    def key(self) -> SigningKey:
        """The key of the worker that was enrolled here."""
        try:
            return SigningKey(bytes.fromhex(read_no_follow(self.directory / KEY_FILE).decode("ascii").strip()))
        except FileNotFoundError:
            raise HomeError(f"{self.directory} holds no key", hint="enrol the worker again: --enrol dte_...") from None
        except (ValueError, InvalidInput) as exc:
            raise self._damaged(KEY_FILE) from exc

    def new_key(self) -> SigningKey:
        """Make a key and keep it; an earlier one is replaced, and with it what was enrolled."""
        seed = secrets.token_bytes(SEED_BYTES)
        (self.directory / STATE_FILE).unlink(missing_ok=True)
        replace_no_follow(self.directory / KEY_FILE, f"{seed.hex()}\n".encode())
        return SigningKey(seed)

    def _damaged(self, name: str) -> HomeError:
        return HomeError(
            f"{self.directory / name} cannot be read", hint="remove it and enrol the worker again: --enrol dte_..."
        )
