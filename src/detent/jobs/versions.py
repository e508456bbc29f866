"""Versions of envelopes: ``major.minor``, where a minor only ever adds (X-161).

A reader takes every minor of its own major. An older document is brought up to date by one function per minor; a newer
one is read as it is, and what this reader does not know yet is kept and written back. Another major is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from detent.canon.show import show
from detent.errors import InvariantBroken

Document: TypeAlias = dict[str, Any]
Upgrades: TypeAlias = Mapping[int, Callable[[Document], Document]]
"""For each minor the function that makes a document of the next one out of it."""

_VERSION = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")


class Version(NamedTuple):
    """A schema version. Compares as a reader expects: 1.10 comes after 1.9."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


SCHEMA_VERSION: Final = Version(1, 0)
"""What this code writes."""
PAYLOAD_UPGRADES: Final[Upgrades] = {}
RESULT_UPGRADES: Final[Upgrades] = {}


def parse_version(text: object) -> Version | None:
    """Read a version; None when the text is none."""
    found = _VERSION.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else Version(int(found[1]), int(found[2]))


def version_fault(text: object, *, current: Version = SCHEMA_VERSION) -> str | None:
    """Say why a document of this version cannot be read here, or nothing."""
    version = parse_version(text)
    if version is None:
        return f"must be a version such as {current}, not {show(text)}"
    if version.major != current.major:
        return f"is {version}; this reader supports major version {current.major}"
    return None


def upgrade(document: Document, upgrades: Upgrades, *, current: Version = SCHEMA_VERSION) -> Document:
    """Bring a document of an older minor to the current one; leave a current or newer one as it is.

    The document has passed `version_fault`. It is not changed; a missing step is our own bug.
    """
    version = parse_version(document["schema_version"])
    if version is None or version.major != current.major:
        raise InvariantBroken("upgrade is asked for documents of the current major version only")
    for minor in range(version.minor, current.minor):
        if minor not in upgrades:
            raise InvariantBroken(f"no upgrade from version {version.major}.{minor}")
        document = {**upgrades[minor](dict(document)), "schema_version": str(Version(version.major, minor + 1))}
    return document
