"""Reads files of named SQL: ``-- name: lease_next``, a line of description, the statement.

Every database of ours keeps its statements this way, so that a query can be read, searched for and explained without
the Python around it, and so that its text is one constant, which is what a driver's cache of prepared statements needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from detent.canon.late import pattern
from detent.errors import InvariantBroken

_NAME: Final = pattern(r"^-- name: ([a-z][a-z0-9_]*)$", re.MULTILINE)


def parse_queries(text: str) -> Mapping[str, str]:
    """The statements of a file by name. Insists on a description for each and on names that are used once."""
    pieces = _NAME.split(text)
    queries: dict[str, str] = {}
    for name, block in zip(pieces[1::2], pieces[2::2], strict=True):
        lines = block.strip().splitlines()
        if len(lines) < 2 or not lines[0].startswith("-- "):
            raise InvariantBroken(f"query {name!r} needs a line of description and a statement")
        if name in queries:
            raise InvariantBroken(f"query {name!r} stands twice")
        queries[name] = "\n".join(line for line in lines if not line.lstrip().startswith("--"))
    return MappingProxyType(queries)
