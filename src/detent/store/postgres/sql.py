"""The SQL that comes with the package, for a ledger in a schema of any name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from detent.store.queries import parse_queries

_HERE: Final = Path(__file__).parent
_WRITTEN: Final = "detent."
"""How the files write the schema."""


@cache
def queries(schema: str) -> Mapping[str, str]:
    """The named statements."""
    named = parse_queries((_HERE / "queries.sql").read_text(encoding="utf-8"))
    return MappingProxyType({name: _in(text, schema) for name, text in named.items()})


def schema_text(schema: str) -> str:
    """The present schema."""
    return _in((_HERE / "schema.sql").read_text(encoding="utf-8"), schema)


@cache
def migrations(schema: str) -> tuple[str, ...]:
    """What leads to it, oldest first."""
    found = sorted((_HERE / "migrations").glob("*.sql"))
    return tuple(_in(path.read_text(encoding="utf-8"), schema) for path in found)


def _in(text: str, schema: str) -> str:
    # A schema's name is letters, digits and _ (`address.py`), so it needs no quotes but those against reserved words.
    named = text.replace("CREATE SCHEMA IF NOT EXISTS detent", f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    return named.replace('ON SCHEMA "detent"', f'ON SCHEMA "{schema}"').replace(_WRITTEN, f'"{schema}".')
