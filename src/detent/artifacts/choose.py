"""Which store an address means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from detent.artifacts.api import ArtifactStore, DirectoryStore
from detent.canon.late import pattern
from detent.canon.show import show
from detent.errors import InvalidInput

_BUCKET: Final = pattern(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def open_store(place: str | Path) -> ArtifactStore:
    """The store at a path, a ``file:///path`` or an ``s3://bucket/prefix``.

    A directory is made when its parent exists; a bucket is not. Refuses addresses with a user, a query or a fragment, which
    have no meaning here and often a secret in them.
    """
    if isinstance(place, Path):
        return DirectoryStore(place)
    parts = urlsplit(place)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidInput(
            f"a store's address has no user, query or fragment: {parts.scheme}://...",
            hint="credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return DirectoryStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc):
        from detent.artifacts.s3 import S3Store  # noqa: PLC0415 - loads an extra

        return S3Store(parts.netloc, _prefix(parts.path))
    raise InvalidInput(f"not a store's address: {show(place)}", hint="write s3://bucket/prefix or file:///path")


def _prefix(path: str) -> str:
    prefix = path.strip("/")
    if prefix and not all(part.strip(".") and re.fullmatch(r"[A-Za-z0-9._=-]+", part) for part in prefix.split("/")):
        raise InvalidInput(f"a prefix is words of letters, digits and ._=- between slashes: {show(prefix)}")
    return prefix
