"""What a home's environment is pinned to: the versions of Detent's own dependencies, and the lock files of the project.

Versions are read without `importlib.metadata`, which takes longer to load than all else of a home.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from detent.canon import digest_text

_VERSION = re.compile(rb"^Version: *(\S+)\s*$", re.MULTILINE)
_HEADER_BYTES_MAX = 4096
"""How much of a distribution's description is read; its version stands at the top."""

LOCK_FILES: Final = ("pylock.toml", "uv.lock", "poetry.lock", "pdm.lock", "requirements.lock")
"""Files that pin everything a project needs."""
LOCK_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger file is not taken for a lock."""
_PROJECT_MARKS: Final = ("pyproject.toml", ".git")


def project_locks(start: Path) -> dict[str, str]:
    """The lock files of the project that a directory belongs to, each with its digest; none where there is none.

    They lie in the directory itself, or in the nearest one above it that is the root of a project.
    """
    for directory in (start, *start.parents):
        is_root = any((directory / mark).exists() for mark in _PROJECT_MARKS)
        found = _locks_in(directory) if is_root or directory == start else {}
        if found or is_root:
            return found
    return {}


def _locks_in(directory: Path) -> dict[str, str]:
    found = {}
    for name in LOCK_FILES:
        path = directory / name
        try:
            if path.is_file() and path.stat().st_size <= LOCK_BYTES_MAX:
                with path.open("rb") as file:
                    found[name] = digest_text(hashlib.file_digest(file, "sha256").digest())
        except OSError:
            continue  # What this user may not read pins nothing for them.
    return found


@cache
def installed_version(name: str) -> str:
    """The version of an installed distribution, as `importlib.metadata.version` tells it; raises what that raises."""
    for directory in _found(_normal(name)):
        try:
            with open(f"{directory}/METADATA", "rb") as file:  # noqa: PTH123 - before `pathlib` is worth its time
                header = file.read(_HEADER_BYTES_MAX)
        except OSError:
            break
        if (match := _VERSION.search(header)) is not None:
            return match[1].decode()
        break
    from importlib import metadata  # noqa: PLC0415 - an egg, an archive, or an importer of its own

    return metadata.version(name)


def _found(normal: str) -> Iterator[str]:
    """Descriptions of a distribution, in the order in which modules are found; one that is not a directory ends it."""
    for place in sys.path:
        try:
            entries = os.listdir(place or ".")  # noqa: PTH208
        except OSError:
            continue
        for entry in entries:
            stem, dot, kind = entry.rpartition(".")
            if dot and kind in {"dist-info", "egg-info"} and _normal(stem.partition("-")[0]) == normal:
                yield f"{place or '.'}/{entry}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
