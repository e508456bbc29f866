"""Source trees laid out on the disk of a home: one directory for each, named by its digest, read-only, made once.

A tree is laid out beside its place and moved there when it is whole, so a directory that is there is complete. Every file is made
anew, never through a link, and its bytes are checked against the digest while they are copied.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from detent.errors import InvalidInput, StoreCorrupt, StoreUnavailable
from detent.jobs.source_tree import SourceTree, TreeFile, read_tree
from detent.store.content import ContentFiles, marked_name

DIRECTORY: Final = "trees"
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
    if place.is_dir() and not place.is_symlink():
        return place
    temporary = place.with_name(marked_name())
    try:
        temporary.mkdir(mode=0o700, parents=True)
        for one in tree.files:
            _copy(temporary, one, content)
        temporary.rename(place)
    except OSError as exc:
        if place.is_dir():
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
    if written != one.size_bytes:
        raise StoreCorrupt(f"the file {one.path} has {written:,} bytes, and its source tree says {one.size_bytes:,}")
