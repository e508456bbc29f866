"""Folders that supervisors of sandboxes have left behind: found without loading the sandbox, which takes time.

The folder is locked as long as its process lives; the kernel lets go of the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "detent-sandbox-"


def abandoned_folders() -> Iterator[Path]:
    """The abandoned folders of this user. Each is locked as long as the caller looks at it."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # Gone meanwhile, held, or another user's.
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(handle).st_uid == os.geteuid():
                    yield path
            finally:
                os.close(handle)


def has_leftovers() -> bool:
    """Whether there is anything to sweep."""
    return next(abandoned_folders(), None) is not None
