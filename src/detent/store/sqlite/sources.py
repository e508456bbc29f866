"""The SQL that comes with the package: statements, the present schema, and the migrations that lead to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from detent.store.queries import parse_queries


@cache
def queries() -> Mapping[str, str]:
    """The named statements of ``queries.sql``."""
    return parse_queries(_resource("queries.sql"))


@cache
def schema() -> str:
    """The present schema, as a script."""
    return _resource("schema.sql")


@cache
def migrations() -> tuple[str, ...]:
    """All migration scripts in order; the number of the last one is the schema's version."""
    folder = files("detent.store.sqlite") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


def _resource(name: str) -> str:
    return (files("detent.store.sqlite") / name).read_text(encoding="utf-8")
