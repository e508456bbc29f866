"""A keeper of tree heads outside the home: one small file for each ledger in the user's state directory.

Replacing a home by an older copy, by malice or from a backup, replaces its tree heads too; the one kept
here is still there, and the owner refuses to sign on top of a ledger that is shorter than what it once was (X-178).
"""

from __future__ import annotations

import glob
import re
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from detent.canon import decode, encode
from detent.canon.cbor import NotCanonical
from detent.errors import HomeError
from detent.owner.home_permissions import refuse_foreign_state
from detent.store.no_follow import read_no_follow, replace_no_follow

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Room for the heads of as many partitions as a ledger can have."""


def state_directory(environment: Mapping[str, str]) -> Path:
    """Where tree heads are kept: ``XDG_STATE_HOME``, else ``~/.local/state``."""
    base = environment.get("XDG_STATE_HOME")
    home = environment.get("HOME") or Path("~").expanduser()
    return (Path(base) if base else Path(home) / ".local" / "state") / "detent" / "heads"


class KeptHeads:
    """Keeps the newest tree head of each partition of one ledger."""

    def __init__(self, directory: Path, origin: str) -> None:
        self.path = directory / (re.sub(r"[^A-Za-z0-9.-]", "_", origin) + ".heads")
        self._lock = threading.Lock()  # The owners of all partitions keep their heads in this one file.

    def heads(self) -> dict[int, tuple[int, str]]:
        """Partition -> (size, note) of what is kept; empty when nothing is.

        Raises `HomeError` when the file is there but not readable as such: a keeper that forgets silently keeps nothing.
        """
        refuse_foreign_state(self.path.parent)
        try:
            data = read_no_follow(self.path)
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise HomeError(f"the kept tree heads in {self.path} cannot be read: {exc.strerror}") from exc
        try:
            entries = decode(data, bytes_max=KEPT_BYTES_MAX)
            return {partition: (size, note) for partition, size, note in entries}
        except (NotCanonical, TypeError, ValueError) as exc:
            raise HomeError(
                f"the kept tree heads in {self.path} are damaged",
                hint="compare the ledger with a tree head kept elsewhere, then remove the file",
            ) from exc

    def prepare(self) -> None:
        """Make sure that something can be kept, before an owner begins that would fail with its first tree head."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
            self._sweep()
        except OSError as exc:
            raise self._unwritable(exc) from exc

    def keep(self, partition: int, size: int, note: str) -> None:
        """Replace the kept head of a partition by a newer one; an older one changes nothing."""
        with self._lock:
            heads = self.heads()
            if partition in heads and heads[partition][0] >= size:
                return
            heads[partition] = (size, note)
            try:
                self._write(encode([[number, *heads[number]] for number in sorted(heads)]))
            except OSError as exc:
                raise self._unwritable(exc) from exc

    def forget(self) -> None:
        """Drop what is kept: only when a ledger's rollback is accepted on purpose."""
        self.path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what processes left that were killed while they wrote, these heads or the place of their home."""
        for left in self.path.parent.glob(f"{glob.escape(self.path.stem)}.*.tmp"):
            pid = left.name.split(".")[-2]
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                left.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> HomeError:
        return HomeError(
            f"a tree head cannot be kept in {self.path}: {error.strerror or error}",
            hint="make that directory writable, or set XDG_STATE_HOME to one that is",
        )

    def _write(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_no_follow(self.path, data)
