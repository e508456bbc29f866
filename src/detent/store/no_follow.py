"""Opens files of a home, and never through a link (X-195).

A link that another user planted in a home would have this user read or overwrite a file of the other's choice. So every
file of a home, and of the state directory beside it, is opened here: a link, a pipe or a device in its place is an error
that names it, and so is a second name of a file that is opened for writing.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from detent.errors import HomeUntrusted

_WRITES = os.O_WRONLY | os.O_RDWR


def open_no_follow(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of a regular file; `HomeUntrusted` for anything else. Errors of the system are the caller's."""
    try:
        # Without O_NONBLOCK a planted pipe would hold the opening up for ever; a regular file does not know it.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    except OSError as exc:
        if exc.errno == errno.ELOOP and Path(path).is_symlink():
            raise untrusted_file(path, "is a symbolic link") from exc
        if exc.errno == errno.ENXIO:
            raise untrusted_file(path, "is not a regular file") from exc
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise untrusted_file(path, "is not a regular file")
    if flags & _WRITES and found.st_nlink > 1:
        os.close(descriptor)
        raise untrusted_file(path, "has a second name: it is a hard link")
    return descriptor


def read_no_follow(path: Path) -> bytes:
    """All bytes of a file that is not a link."""
    with os.fdopen(open_no_follow(path), "rb") as file:
        return file.read()


def replace_no_follow(path: Path, data: bytes) -> None:
    """Replace what has the name by a file of these bytes, whole and synced or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # Left by a process of this number that was killed, or planted.
    with os.fdopen(open_no_follow(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def refuse_links(*paths: Path) -> None:
    """Refuse a link in the place of any of these files, for those that others will open; one that is missing is fine."""
    for path in paths:
        if path.is_symlink():
            raise untrusted_file(path, "is a symbolic link")


def untrusted_file(path: Path | str, what: str) -> HomeUntrusted:
    """That a file of a home is not what it must be, and what to do."""
    return HomeUntrusted(
        f"{path} {what}, and no file of a home is opened through one" if "link" in what else f"{path} {what}",
        hint=f"look at it with `ls -li {path}`; put the file itself there, or remove what is there, and find out who made it",
        details={"path": str(path)},
    )
