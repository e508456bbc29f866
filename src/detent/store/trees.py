"""Source trees laid out on the disk of a home: one directory for each, named by its digest, read-only, made once.

A tree is laid out beside its place, synced, and moved there when it is whole, so a directory that is there is complete, also after a crash.
Every file is made anew, never through a link, and its bytes are checked against the digest while they are copied. A tree that is there
is checked before it is used: once whole, and then by the times and inodes of its files, which a change moves. One that was damaged is laid
out again. What interpreters leave in ``__pycache__`` is not part of a tree.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from detent.errors import InvalidInput, StoreCorrupt, StoreUnavailable
from detent.jobs.source_tree import SourceTree, TreeFile, read_tree
from detent.store.content import ContentFiles, marked_name
from detent.store.files import DiskFiles, open_no_follow

DIRECTORY: Final = "trees"
PYCACHE: Final = "__pycache__"
CHECKED_MAX: Final = 1_000
_DISK: Final = DiskFiles()
_FILE: Final = 0o444
_EXECUTABLE: Final = 0o555


def lay_out_again(home: Path, digest: bytes, content: ContentFiles) -> Path:
    """The directory of a tree by its digest, laid out from its stored list if it is not there."""
    place = home / DIRECTORY / digest.hex()
    if place.is_dir() and not place.is_symlink():
        return place
    data = content.get(digest)
    if data is None:
        raise InvalidInput("the list of the source tree is not stored here", code="CONTENT_GONE")
    return laid_out(home, read_tree(data), content)


def laid_out(home: Path, tree: SourceTree, content: ContentFiles) -> Path:
    """The directory of a tree, made if it is not there. Raises `CONTENT_GONE` for a file whose bytes are not stored."""
    place = home / DIRECTORY / tree.digest().hex()
    if is_whole(place, tree):
        return place
    temporary = place.with_name(marked_name())
    try:
        temporary.mkdir(mode=0o700, parents=True)
        for one in tree.files:
            _copy(temporary, one, content)
        for directory, _, _ in os.walk(temporary):
            _DISK.sync_directory(Path(directory))
        if is_whole(place, tree):
            return place  # Another was first, and jobs may run in it.
        if place.is_symlink() or place.is_dir():
            _set_aside(place)
        temporary.rename(place)
        _DISK.sync_directory(place.parent)
        _DISK.sync_directory(home)
    except OSError as exc:
        if is_whole(place, tree):
            return place  # Another process was first.
        raise StoreUnavailable(f"the source tree cannot be laid out in {place}: {exc.strerror}") from exc
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return place


def _copy(root: Path, one: TreeFile, content: ContentFiles) -> None:
    stream = content.stream(one.digest)
    if stream is None:
        raise InvalidInput(f"the file {one.path} of the source tree is not stored here", code="CONTENT_GONE")
    path = root / one.path
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with stream, os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        shutil.copyfileobj(stream, file)
        written = file.tell()
        os.fchmod(file.fileno(), _EXECUTABLE if one.executable else _FILE)
        file.flush()
        os.fsync(file.fileno())
    if written != one.size_bytes:
        raise StoreCorrupt(f"the file {one.path} has {written:,} bytes, and its source tree says {one.size_bytes:,}")


def is_whole(place: Path, tree: SourceTree) -> bool:
    """Whether a directory has exactly the files of a tree, with their bytes and modes."""
    stamps = _stamps(place)
    if stamps is None:
        return False
    if _checked.get(place) == stamps:
        return True
    wanted = {one.path: one for one in tree.files}
    if stamps.keys() != wanted.keys():
        return False
    for path, one in wanted.items():
        mode = _EXECUTABLE if one.executable else _FILE
        if stamps[path][0] & 0o777 != mode or stamps[path][1] != one.size_bytes:
            return False
        with os.fdopen(open_no_follow(place / path), "rb") as file:
            if hashlib.file_digest(file, "sha256").digest() != one.digest:
                return False
    if len(_checked) >= CHECKED_MAX:
        _checked.clear()
    _checked[place] = stamps
    return True


_checked: dict[Path, dict[str, tuple[int, ...]]] = {}
"""Trees that were checked whole in this process, with what their files looked like then."""


def _stamps(place: Path) -> dict[str, tuple[int, ...]] | None:
    """Mode, size, times and inode of every file; None where there is no such directory, or something that is no file in it."""
    if place.is_symlink() or not place.is_dir():
        return None
    found: dict[str, tuple[int, ...]] = {}
    for directory, directories, names in os.walk(place):
        directories[:] = [name for name in directories if name != PYCACHE]
        for name in (*directories, *names):
            path = Path(directory, name)
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode):
                stamp = (facts.st_mode, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
                found[path.relative_to(place).as_posix()] = stamp
            elif not stat.S_ISDIR(facts.st_mode):
                return None
    return found


def _set_aside(place: Path) -> None:
    """Take a tree away that is not what its name says."""
    aside = place.with_name(marked_name())
    place.rename(aside)
    if aside.is_symlink():
        aside.unlink()
    else:
        shutil.rmtree(aside, ignore_errors=True)


def old_trees(home: Path, young: Callable[[Path], bool]) -> list[Path]:
    """Trees, and what interrupted processes left of some, that are older than the grace of a garbage collection."""
    try:
        return [path for path in sorted((home / DIRECTORY).iterdir()) if not young(path)]
    except FileNotFoundError:
        return []


def remove_tree(path: Path) -> int:
    """Take a tree away; how many bytes that were."""
    size = sum(one.lstat().st_size for one in path.rglob("*") if one.is_file() and not one.is_symlink())
    _set_aside(path)
    return size
