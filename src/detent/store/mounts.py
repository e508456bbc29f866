"""Refuses network file systems, where locks and syncs do not mean what the ledger relies on (X-173).

SQLite's write-ahead log shares memory between the processes that use it, which cannot work across machines, and on most
network file systems a lock may be granted twice and a sync may return before the server has the bytes. The damage would
show weeks later, so the store says no at the start and names the way out.

The decision is a function of the mount table's text; only `_mount_table` reads the machine.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from detent.errors import HomeError

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
