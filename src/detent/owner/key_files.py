"""Private keys on disk: one file for each key, readable by the owner of the home alone.

A file is named by role and key id, so that a rotation adds a file and never replaces one; which of them signs is decided
by the trust configuration on the ledger, not by the directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from detent.canon import SigningKey
from detent.errors import HomeError, InvalidInput
from detent.store.files import DISK
from detent.store.no_follow import open_no_follow

ROLES = ("root", "manifest", "transition", "result", "log")
KEY_FILE_CHARS_MAX = 1024
"""Far more than a key file has."""


class KeyFiles:
    """The keys of one home."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add(self, role: str, seed: bytes) -> SigningKey:
        """Store a new key of a role, durable before it is returned; the seed comes from the caller."""
        key = SigningKey(seed)
        path = self._path(role, key.key_id)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(seed.hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        # The name too: a ledger must never announce a key whose file a power cut could still take away.
        DISK.sync_directory(self.directory)
        return key

    def find(self, role: str, key_id: bytes) -> SigningKey:
        """The private key with this id; a missing, readable-by-others or foreign file is a `HomeError` naming it."""
        path = self._path(role, key_id)
        try:
            with os.fdopen(open_no_follow(path), encoding="ascii", errors="replace") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(KEY_FILE_CHARS_MAX).strip()
        except FileNotFoundError:
            raise HomeError(
                f"the {role} key {key_id.hex()[:16]} is not in {self.directory}",
                hint="restore the keys directory from a backup; without this key nothing more can be signed",
                details={"path": str(path)},
            ) from None
        except OSError as exc:
            raise HomeError(f"the key file {path} cannot be read: {exc.strerror}") from exc
        if stat.S_IMODE(mode) & 0o077:
            raise HomeError(
                f"the key file {path} is readable by others (mode {stat.S_IMODE(mode):03o})", hint=f"chmod 600 {path}"
            )
        try:
            key = SigningKey(bytes.fromhex(text))
        except (ValueError, InvalidInput):
            raise HomeError(f"the key file {path} does not hold a key") from None
        if key.key_id != key_id:
            raise HomeError(
                f"the key file {path} holds another key than its name says", hint="restore it from a backup"
            )
        return key

    def holds(self, role: str, key_id: bytes) -> bool:
        """Whether there is a file for this key, usable or not."""
        return self._path(role, key_id).exists()

    def stored(self) -> Iterator[tuple[str, str]]:
        """(role, short key id) of every key file here, by name."""
        for path in sorted(self.directory.glob("*.key")):
            role, _, short = path.stem.rpartition("-")
            yield role, short

    def _path(self, role: str, key_id: bytes) -> Path:
        return self.directory / f"{role}-{key_id.hex()[:16]}.key"
