"""Files of a home: how they are opened, written and synced, and which file systems are refused.

The few things the content store asks of a file system, so that a test can replace one and cut its power.

A write is durable when its file has been synced, and a name when its directory has. Nothing else here promises anything.

Opens files of a home, and never through a link (X-195).

A link that another user planted in a home would have this user read or overwrite a file of the other's choice. So every
file of a home, and of the state directory beside it, is opened here: a link, a pipe or a device in its place is an error
that names it, and so is a second name of a file that is opened for writing.

Refuses network file systems, where locks and syncs do not mean what the ledger relies on (X-173).

SQLite's write-ahead log shares memory between the processes that use it, which cannot work across machines, and on most
network file systems a lock may be granted twice and a sync may return before the server has the bytes. The damage would
show weeks later, so the store says no at the start and names the way out.

The decision is a function of the mount table's text; only `_mount_table` reads the machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from detent.errors import HomeError, HomeUntrusted

_DIRECT: Final = getattr(os, "O_DIRECT", 0)


class NewFile(Protocol):
    """A file being written for the first time."""

    def write(self, data: bytes | memoryview) -> None:
        """Append all of the bytes."""

    def sync(self) -> None:
        """Return when every byte written so far would survive a power cut."""

    def close(self) -> None:
        """Let go of the file."""


class Files(Protocol):
    """A file system."""

    def make_directory(self, path: Path) -> bool:
        """Make a directory for the owner alone; False when it was there."""

    def create(self, path: Path, *, streamed: bool = False) -> NewFile:
        """Make a new file for the owner alone; the name must not exist.

        ``streamed`` says that much will be written, in whole blocks but for the last piece.
        """

    def open(self, path: Path) -> BinaryIO:
        """Open a file for reading."""

    def size(self, path: Path) -> int | None:
        """The file's length, or None when there is none."""

    def touch(self, path: Path) -> None:
        """Make a file look as young as a new one."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name at once, replacing what has it."""

    def remove(self, path: Path) -> bool:
        """Remove a file; False when there was none."""

    def names(self, directory: Path) -> list[str]:
        """What a directory holds, sorted; nothing when it is not one."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory would survive a power cut."""


class _NewDiskFile:
    """A file that is being written; a streamed one goes past the page cache where the file system lets it.

    Everything written here is synced before it is announced, so the cache would only copy the bytes once more and
    push out what others use. Measured: storing 1 GiB takes a third of the time that it takes through the cache.
    """

    def __init__(self, path: Path, *, streamed: bool = False) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Set afterwards: asked for in `open`, a file system that cannot do it makes the file and then fails.
        self._direct = streamed and self._set_direct(on=True)

    def write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._handle, rest) :]
            except OSError as exc:
                if not self._direct or exc.errno != errno.EINVAL:
                    raise
                # No whole blocks: the last piece, or a device whose blocks are larger than ours.
                self._direct = self._set_direct(on=False)

    def _set_direct(self, *, on: bool) -> bool:
        """Write past the page cache or not; gives back whether it does now."""
        flags = fcntl.fcntl(self._handle, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._handle, fcntl.F_SETFL, flags | _DIRECT if on else flags & ~_DIRECT)
        except OSError:
            return False
        return on and bool(_DIRECT)

    def sync(self) -> None:
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)


class DiskFiles:
    """The machine's own file system."""

    def make_directory(self, path: Path) -> bool:
        """Make a directory for the owner alone; False when it was there."""
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def create(self, path: Path, *, streamed: bool = False) -> NewFile:
        """Make a new file for the owner alone; the name must not exist."""
        return _NewDiskFile(path, streamed=streamed)

    def open(self, path: Path) -> BinaryIO:
        """Open a file for reading."""
        return os.fdopen(open_no_follow(path), "rb")

    def size(self, path: Path) -> int | None:
        """The file's length, or None when there is none."""
        try:
            found = path.lstat()
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(found.st_mode):
            raise untrusted_file(path, "is a symbolic link")
        return found.st_size

    def touch(self, path: Path) -> None:
        """Make a file look as young as a new one."""
        os.utime(path, follow_symlinks=False)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name at once, replacing what has it."""
        source.replace(target)

    def remove(self, path: Path) -> bool:
        """Remove a file; False when there was none."""
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        return True

    def names(self, directory: Path) -> list[str]:
        """What a directory holds, sorted; nothing when it is not one."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(entry.name for entry in directory.iterdir())
        return []

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory would survive a power cut."""
        self._sync(path, os.O_DIRECTORY)

    def sync_file(self, path: Path) -> None:
        """Return when a finished file would survive a power cut."""
        self._sync(path, 0)

    def _sync(self, path: Path, flags: int) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


DISK: Final = DiskFiles()


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


def free_bytes(path: Path) -> int:
    """Room on the disk of a path, for programs without special rights."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


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


NETWORK_TYPES: Final = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "cvmfs", "davfs", "fhgfs", "gfs", "gfs2", "glusterfs",
        "gpfs", "ibrix", "lustre", "mfs", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "panfs", "pvfs2", "smb2", "smb3",
        "smbfs", "vboxsf", "vmhgfs", "weka", "wekafs",
    }
)  # fmt: skip
"""File system types that cross a network, or a boundary between machines that behaves like one."""

NETWORK_FUSE_TYPES: Final = frozenset(
    {
        "afpfs", "cephfs", "curlftpfs", "davfs", "davfs2", "gcsfuse", "glusterfs", "goofys", "gvfsd-fuse", "hdfs",
        "juicefs", "mfs", "moosefs", "mount-s3", "mountpoint-s3", "nfs", "onedrive", "quobyte", "rclone", "s3fs",
        "seaweedfs", "smbnetfs", "sshfs", "vmhgfs-fuse",
    }
)  # fmt: skip
"""The same behind FUSE, where the type reads ``fuse.sshfs``. A plain ``fuseblk`` (NTFS, exFAT) is a local disk."""

_MOUNT_TABLE: Final = Path("/proc/self/mounts")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def network_file_system(path: str, mount_table: str) -> str | None:
    """The type of the network file system that holds an absolute path, or None when it lies on a local one."""
    kind = file_system(path, mount_table)
    return kind if _is_network(kind) else None


def file_system(path: str, mount_table: str) -> str:
    """The type of the file system that holds an absolute path; empty when the table does not say.

    The longest mount point above the path decides; of several on the same point the last one mounted covers the others.
    """
    longest, holder = -1, ""
    for line in mount_table.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[1])
        if _is_above(point, path) and len(point) >= longest:
            longest, holder = len(point), fields[2]
    return holder


def mount_of(path: Path) -> str | None:
    """The type of the file system a path lies on, where the machine says so."""
    table = _mount_table()
    return None if table is None else file_system(os.path.realpath(path), table) or None


def refuse_network_file_system(path: Path) -> None:
    """Raise `HomeError` when the path lies on a network file system.

    Where there is no mount table to read (other systems than Linux) nothing is known and nothing is refused.
    """
    table = _mount_table()
    if table is None:
        return
    kind = network_file_system(os.path.realpath(path), table)
    if kind is not None:
        raise HomeError(
            f"{path} lies on a network file system ({kind}), where a ledger cannot be kept safe",
            hint="set DETENT_HOME to a directory on a local disk",
            details={"path": str(path), "file_system": kind},
        )


def _mount_table() -> str | None:
    try:
        return os.fsdecode(_MOUNT_TABLE.read_bytes())
    except OSError:
        return None


def _is_above(point: str, path: str) -> bool:
    return (path.rstrip("/") + "/").startswith(point.rstrip("/") + "/")


def _is_network(kind: str) -> bool:
    family, _, program = kind.partition(".")
    return kind in NETWORK_TYPES or (family == "fuse" and program in NETWORK_FUSE_TYPES)
