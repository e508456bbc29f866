"""Where a home keeps large content: in itself, or in a directory that several machines share.

``[content] url = "file:///mnt/shared"`` in ``config.toml`` names such a directory. The content of each ledger has a directory of its own
there, named after the ledger, so that garbage collection of one ledger never takes what another one needs. The directory that the URL
names is never made here: if it is missing, a volume is not mounted, and content that was written below the mount point would be
hidden as soon as it is.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from detent.canon.late import pattern
from detent.errors import HomeError, StoreUnavailable
from detent.store.files import read_no_follow

_SECTION: Final = pattern(rb"^[ \t]*\[?[ \t]*content\b", re.MULTILINE)


def content_place(home: Path) -> Path:
    """The directory of a home's large content. Raises for a URL that names none, and for a directory that is not there."""
    config = home / "config.toml"
    try:
        data = read_no_follow(config)
    except OSError:
        return home / "content"
    if _SECTION.search(data) is None:
        return home / "content"
    try:
        raw = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return home / "content"  # What is wrong with the settings is said by those who read all of them.
    section, ledger = raw.get("content", {}), raw.get("ledger", {})
    if not isinstance(section, dict) or "url" not in section or not isinstance(ledger, dict):
        return home / "content"
    shared = _directory(config, section["url"])
    if not shared.is_dir():
        raise StoreUnavailable(
            f"the directory of content.url in {config} is not there: {shared}",
            hint="mount the volume, or correct the setting; the directory is never made here",
            details={"path": str(shared)},
        )
    place = shared / str(ledger.get("origin", "")).replace("/", "-")
    if place.exists() and os.geteuid() not in {0, place.stat().st_uid}:
        raise StoreUnavailable(
            f"the directory of this ledger's content belongs to another user: {place}",
            hint="run every process that works with this ledger as the same user, on all machines",
            details={"path": str(place)},
            retryable=False,
        )
    return place


def _directory(config: Path, url: Any) -> Path:
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - most homes keep their content themselves

    parts = urlsplit(url) if isinstance(url, str) else None
    plain = parts is not None and parts.scheme == "file" and parts.netloc in {"", "localhost"}
    if parts is None or not plain or parts.query or parts.fragment or not parts.path.startswith("/"):
        raise HomeError(
            f"{config}: content.url must name a directory, as file:///mnt/shared does",
            hint="object stores hold artifacts of platform jobs, not the content of a ledger; share a directory",
        )
    return Path(unquote(parts.path))
