"""Where a supervisor keeps copies of its jobs' files: a folder that goes with the supervisor, however that ends.

The folder is locked as long as its process lives; the kernel releases the lock. The supervisor that creates the next folder
removes those without a lock holder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from detent.executor.leftovers import PREFIX, abandoned_folders
from detent.executor.sandbox import collect


class Staging:
    """A folder for temporary files, locked."""

    def __init__(self) -> None:
        sweep()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            try:
                self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # Swept before it was locked.
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            if self.path.exists():
                return
            os.close(self._handle)

    def close(self) -> None:
        """Remove the folder with all that is in it; safe to call twice."""
        if self._handle >= 0:
            _remove(self.path)
            os.close(self._handle)
            self._handle = -1


def sweep() -> None:
    """Remove the folders of supervisors that are gone."""
    for path in abandoned_folders():
        _remove(path)


def _remove(path: Path) -> None:
    for directory in path.glob("job-*"):
        collect.remove_tree(directory)
    shutil.rmtree(path, ignore_errors=True)
