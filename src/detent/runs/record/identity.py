"""Which run it is, and whose: ids that people can read, and the lock of the process that drives a run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from detent.canon.late import pattern
from detent.errors import InvalidInput
from detent.owner.lock import is_held
from detent.owner.place import LOCKS
from detent.store.files import open_no_follow

CANCEL: Final = ".cancel"
"""How the name of a file ends by which the driver of a run is asked to cancel it."""
SNAPSHOT: Final = ".snapshot.json"
"""How the name of a file ends that an ordered run leaves beside its lock."""
RUN_ID_BYTES: Final = 5
NAME_CHARS_MAX: Final = 40
_NOT_IN_ID: Final = pattern(r"[^a-z0-9]+")


def new_run_id(name: str, random: Callable[[int], bytes]) -> str:
    """An id that people can read and no two runs share."""
    slug = _NOT_IN_ID.sub("-", name.lower()).strip("-")[:NAME_CHARS_MAX].strip("-")
    return f"{slug or 'run'}-{random(RUN_ID_BYTES).hex()}"


def ask_to_cancel(home: Path, run_id: str) -> None:
    """Ask the driver of a run to cancel it, where it has no job by whose end it would learn of that; it looks soon (X-193)."""
    with suppress(FileExistsError):
        os.close(os.open(_asked(home, run_id), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def is_asked_to_cancel(home: Path, run_id: str) -> bool:
    """Whether the driver of a run was asked to cancel it."""
    return os.path.lexists(_asked(home, run_id))


def _asked(home: Path, run_id: str) -> Path:
    return home / LOCKS / f"{run_id}{CANCEL}"


def is_driven(home: Path, run_id: str) -> bool:
    """Whether a process drives a run at this moment; nothing is made by looking."""
    return is_held(home / LOCKS / f"{run_id}.lock")


class RunLock:
    """Held by the process that drives a run, so that no second one does. Ends with the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, home: Path, run_id: str) -> Self | None:
        """The lock of a run; None when another process has it."""
        if "/" in run_id or run_id.startswith("."):
            raise InvalidInput(f"{run_id!r:.80} cannot be the id of a run that is driven here")
        directory = home / LOCKS
        directory.mkdir(mode=0o700, exist_ok=True)
        path = directory / f"{run_id}.lock"
        while True:
            descriptor = open_no_follow(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return cls(path, descriptor)
            os.close(descriptor)  # Removed between the opening and the lock.

    @classmethod
    def sweep(cls, home: Path, open_runs: Container[str]) -> None:
        """Remove the files of drivers that were killed, but for those of runs that have not ended."""
        for path in (home / LOCKS).glob("*.lock"):
            run_id = path.name.removesuffix(".lock")
            lock = cls.take(home, run_id) if run_id not in open_runs else None
            if lock is not None:
                lock.release()
        for path in (home / LOCKS).glob(f"*{SNAPSHOT}"):
            if path.name.removesuffix(SNAPSHOT) not in open_runs:
                path.unlink(missing_ok=True)

    def release(self) -> None:
        """Give it up, and leave no file behind; once more does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        for path in (self._path.with_suffix(CANCEL), self._path):
            with suppress(FileNotFoundError):
                path.unlink()
        os.close(descriptor)
