"""Versions of what Detent is pinned to, without `importlib.metadata`, which takes longer to load than all else of a home."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache

_VERSION = re.compile(rb"^Version: *(\S+)\s*$", re.MULTILINE)
_HEADER_BYTES_MAX = 4096
"""How much of a distribution's description is read; its version stands at the top."""


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
