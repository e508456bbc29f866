"""Finds the files a job left in its output directory, and opens each one exactly once.

Runs in the jail's init when no process of the job is left, so nothing moves any more. Even so nothing is followed: every
name is opened beneath its directory without links, without blocking, and anything that is not a plain file afterwards is ignored.
The walk keeps a list, not a stack of calls, and gives up at the first entry too many.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from detent.executor.sandbox import linux

DEPTH_MAX = 16
DIRECTORIES_MAX = 1000

TOO_MANY, NOT_A_FILE, UNREADABLE = "too many", "not a file", "unreadable"


class Found(NamedTuple):
    """A file, open for reading; or, without a descriptor, the reason why the walk ended here."""

    name: bytes
    descriptor: int | None
    fault: str | None


def walk(directory: int, name: bytes, *, files_max: int) -> Iterator[Found]:
    """Every file below ``name``, with its path relative to it. Ends at the first fault."""
    try:
        top = linux.open_beneath(directory, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError:
        yield Found(b".", None, NOT_A_FILE)
        return
    waiting: list[tuple[bytes, int]] = [(b"", 0)]
    files = directories = 0
    try:
        while waiting:
            prefix, depth = waiting.pop()
            for path, descriptor, fault in _entries(top, prefix):
                if fault is not None:
                    yield Found(path, None, fault)
                    return
                if descriptor is None:
                    directories += 1
                    waiting.append((path, depth + 1))
                else:
                    files += 1
                if files > files_max or directories > DIRECTORIES_MAX or depth >= DEPTH_MAX:
                    if descriptor is not None:
                        os.close(descriptor)
                    yield Found(path, None, TOO_MANY)
                    return
                if descriptor is not None:
                    yield Found(path, descriptor, None)
    finally:
        os.close(top)


def _entries(top: int, prefix: bytes) -> Iterator[Found]:
    """The entries of one directory; a directory among them comes without a descriptor."""
    try:
        here = linux.open_beneath(top, prefix or b".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as exc:
        yield Found(prefix, None, UNREADABLE if isinstance(exc, PermissionError) else NOT_A_FILE)
        return
    try:
        with os.scandir(here) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                yield open_entry(here, name, prefix + b"/" + name if prefix else name)
    finally:
        os.close(here)


def open_entry(directory: int, name: bytes, path: bytes) -> Found:
    """One entry, opened once; what the name refers to later does not matter."""
    try:
        descriptor = linux.open_beneath(directory, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except PermissionError:
        return Found(path, None, UNREADABLE)
    except OSError:
        return Found(path, None, NOT_A_FILE)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return Found(path, descriptor, None)
    os.close(descriptor)
    return Found(path, None, None if stat.S_ISDIR(mode) else NOT_A_FILE)
