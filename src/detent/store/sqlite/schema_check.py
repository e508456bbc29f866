"""Whether a file has the schema that its version says: nothing planted in it, nothing missing, nothing changed.

A trigger acts whenever a process writes, with the rights of that process, and a view can take the place of a table. So the schema
is compared before a ledger is used. The comparison is one query and one digest; only when the digest is another one is the
schema of that version built, to say which object differs.

The SQL that comes with the package: statements, the present schema, and the migrations that lead to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final

import apsw

from detent.errors import StoreCorrupt
from detent.store.queries import parse_queries

Objects = Mapping[tuple[str, str], tuple[str, str | None]]
"""By kind and name: the table that an object belongs to, and its text."""

_HERE: Final = Path(__file__).parent

DIGESTS: Final = (
    "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
    "19c7ad33c2c08a28e413741eb818db9cb54a521e50d660767c7e0b5b669c7727",
    "c27e7e77bfaaea3c3847a02c264f834016e3c2cd05061b9b750defb9bff671ce",
    "5e349245b6195eba80e22afa67e2f34fcd3f7b998afd77ae211a83c6f8c8733a",
    "d3f494213c1e79bd430028a9b5bce0a893caf0633cac4d8df437e5de3f234094",
    "1c3be2cbb7c2abc755eaccf5aa4a07476a4ebf9d871f255ab5d7f127052e3b42",
    "3981f8618d8607e484c127b5bde07a38683d70fb4eee01a23a37f7531b6bdd10",
    "d262514e38f1e4d3d5241909fad70b79a0c824ec95f24dee070ffc9bb866aa1b",
    "c6e3794956caeddc1517efdc5ac41ec087d6c6eda1a8153a921ef0ae489fdb00",
)
"""The digest of the schema of each version, from none on; a test compares them with what the migrations give."""


def insist_on_schema(connection: apsw.Connection, path: Path) -> None:
    """Refuse a ledger whose schema is not that of its version."""
    version, found = connection.pragma("user_version"), _objects(connection)
    if 0 <= version < len(DIGESTS) and digest_of(found) == DIGESTS[version]:
        return
    if faults := _faults(objects_of(max(version, 0)), found):
        raise StoreCorrupt(
            f"the schema of {path} was changed: {'; '.join(faults[:3])}{f'; and {len(faults) - 3} more' if faults[3:] else ''}",
            hint="`detent verify` lists each object; drop what was planted with the sqlite3 shell, or restore a backup of the file",
            details={"path": str(path), "faults": faults},
        )


def schema_faults(connection: apsw.Connection) -> list[str]:
    """In what a database differs from the schema that it says it has."""
    return _faults(objects_of(connection.pragma("user_version")), _objects(connection))


@cache
def objects_of(version: int) -> Objects:
    """The tables, indexes and triggers of a schema's version, with the text of each."""
    with closing(apsw.Connection(":memory:")) as connection:
        for script in migrations()[:version]:
            connection.execute(script)
        return _objects(connection)


def digest_of(objects: Objects) -> str:
    """One digest over all objects, independent of their order in the file."""
    return hashlib.sha256(repr(sorted(objects.items())).encode()).hexdigest()


def _faults(expected: Objects, found: Objects) -> list[str]:
    faults = [f"the {kind} {name!r} is not of its schema" for kind, name in sorted(found.keys() - expected.keys())]
    faults += [f"the {kind} {name!r} is missing" for kind, name in sorted(expected.keys() - found.keys())]
    both = sorted(expected.keys() & found.keys())
    return faults + [
        f"the {kind} {name!r} was changed" for kind, name in both if expected[kind, name] != found[kind, name]
    ]


def _objects(connection: apsw.Connection) -> Objects:
    rows = connection.execute(queries()["schema_objects"])
    return {(str(kind), str(name)): (str(table), None if sql is None else str(sql)) for kind, name, table, sql in rows}


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
    return tuple(path.read_text(encoding="utf-8") for path in sorted((_HERE / "migrations").glob("*.sql")))


def _resource(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
