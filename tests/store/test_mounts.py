"""Which file systems a ledger may lie on (X-173)."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.errors import HomeError
from detent.store import files
from detent.store.files import network_file_system, refuse_network_file_system

TABLE = """\
/dev/nvme0n1p2 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/export /mnt/team nfs4 rw,vers=4.2 0 0
/dev/sdb1 /mnt/team/local ext4 rw 0 0
//server/share /mnt/share cifs rw 0 0
me@host: /home/me/remote\\040disk fuse.sshfs rw 0 0
/dev/sdc1 /media/stick fuseblk rw 0 0
portal /run/user/1000/doc fuse.portal rw 0 0
overlay /var/lib/box overlay rw 0 0
C:\\134 /mnt/c 9p rw 0 0
old:/x /twice nfs rw 0 0
/dev/sdd1 /twice ext4 rw 0 0
ceph:6789:/ /data ceph rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/project/.detent", None),
        ("/mnt/team/project/.detent", "nfs4"),
        ("/mnt/team", "nfs4"),
        ("/mnt/teamwork/.detent", None),
        ("/mnt/team/local/project", None),
        ("/mnt/share/a", "cifs"),
        ("/home/me/remote disk/project", "fuse.sshfs"),
        ("/media/stick/project", None),
        ("/run/user/1000/doc/x", None),
        ("/var/lib/box/x", None),
        ("/mnt/c/Users/me", "9p"),
        ("/twice/x", None),
        ("/data/x", "ceph"),
        ("/tmp/x", None),
        ("/", None),
    ],
)
def test_the_longest_and_latest_mount_above_a_path_decides(path: str, kind: str | None) -> None:
    assert network_file_system(path, TABLE) == kind


def test_a_table_that_says_nothing_refuses_nothing() -> None:
    assert network_file_system("/home/me", "") is None
    assert network_file_system("/home/me", "garbage\n\n/dev/sda /\n") is None


def test_a_link_into_a_network_file_system_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-173"""
    remote, link, table = tmp_path / "remote", tmp_path / "link", tmp_path / "mounts"
    remote.mkdir()
    link.symlink_to(remote)
    table.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {remote.resolve()} nfs rw 0 0\n")
    monkeypatch.setattr(files, "_MOUNT_TABLE", table)
    with pytest.raises(HomeError, match=r"network file system \(nfs\)") as error:
        refuse_network_file_system(link / "ledger.db")
    assert "DETENT_HOME" in (error.value.hint or "")
    refuse_network_file_system(tmp_path / "ledger.db")


def test_a_machine_without_a_mount_table_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOUNT_TABLE", tmp_path / "none")
    refuse_network_file_system(tmp_path)
