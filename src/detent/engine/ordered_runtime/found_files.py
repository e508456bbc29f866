"""The files of a run: found by patterns, numbered by the bytes of their names, each with the digest it had when it was found.

A file that changes or vanishes between here and its computation is an error of that item, not a silent difference: workers
compare what they read with what stands here. Names are bytes, as the file system has them; one that is not UTF-8 is written
in hexadecimal digits.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from detent.canon import json_encode_trusted
from detent.errors import InvalidInput
from detent.ordered import discover


def found_files(patterns: Sequence[str], base: Path) -> list[bytes]:
    """The regular files that any of the patterns matches, relative to ``base``, in the order of their names' bytes."""
    names: list[bytes] = []
    for pattern in patterns:
        raw = os.fsencode(pattern)
        names += glob.iglob(raw, root_dir=os.fsencode(base), recursive=True)  # noqa: PTH207 - bytes
    root = os.fsencode(base)
    return list(discover(names, lambda name: os.path.isfile(os.path.join(root, name))).names)  # noqa: PTH113, PTH118


def matched_files(patterns: Sequence[str], base: Path) -> list[bytes]:
    """The same; a pattern that matches no file is a mistake and raises `InvalidInput`."""
    for pattern in patterns:
        if not found_files([pattern], base):
            raise InvalidInput(
                f"no file matches {pattern!r:.200}",
                hint=f"patterns start at {base}; quote them, so that the shell leaves them as they are",
                details={"pattern": pattern},
            )
    return found_files(patterns, base)


def file_lines(names: Sequence[bytes], base: Path) -> Iterator[bytes]:
    """The files as items: name, digest and size. Raises `InvalidInput` for one that cannot be read."""
    root = os.fsencode(base)
    for name in names:
        path = os.path.join(root, name)  # noqa: PTH118 - bytes
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = os.fstat(file.fileno()).st_size
        except OSError as exc:
            raise InvalidInput(
                f"{os.fsdecode(name)!r} was found and cannot be read: {exc.strerror}", hint="check its permissions"
            ) from exc
        yield json_encode_trusted([_written(name), digest, size])


def shown_name(said: object) -> str:
    """A file's name as people read it, from its item."""
    raw = bytes.fromhex(said["hex"]) if isinstance(said, dict) else str(said).encode()
    return raw.decode("utf-8", "backslashreplace")


def _written(name: bytes) -> object:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return {"hex": name.hex()}
