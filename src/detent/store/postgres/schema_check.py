"""Whether a ledger has the schema that its version says: nothing planted in it, nothing missing, nothing changed.

A trigger acts whenever a process writes, with the rights of that process, and a rule or a view can take the place of a table. The
same schema is built once more among the session's temporary objects, in a transaction that is rolled back, and what the
catalogue says about both is compared: so the texts are those of the very server, whatever its version makes of them.
"""

from __future__ import annotations

from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.database import Connection, run_script
from detent.store.postgres.sql import queries, schema_text

_TEMPORARY = "pg_temp"


def schema_faults(connection: Connection, address: PostgresAddress) -> list[str]:
    """In what a ledger's schema differs from the present one."""
    with connection.transaction(force_rollback=True):
        run_script(connection, schema_text(_TEMPORARY).replace(f'"{_TEMPORARY}"', _TEMPORARY))
        row = connection.execute(queries(address.schema)["temporary_schema"]).fetchone()
        wanted = objects(connection, address, "" if row is None else row[0])
        found = objects(connection, address, address.schema)
    added = [f"{kind} {name} was added" for kind, name in sorted(found.keys() - wanted.keys())]
    lost = [f"{kind} {name} is missing" for kind, name in sorted(wanted.keys() - found.keys())]
    changed = [
        f"{kind} {name} was changed"
        for kind, name in sorted(wanted)
        if found.get((kind, name), "") != wanted[kind, name]
    ]
    return [*added, *lost, *(fault for fault in changed if fault.replace("was changed", "is missing") not in lost)]


def objects(connection: Connection, address: PostgresAddress, schema: str) -> dict[tuple[str, str], str]:
    """What a schema holds, by kind and name, each with the server's own text of it; the schema's name is left out."""
    names = (f'"{schema}".', f"{schema}.", f"{_TEMPORARY}.")
    found: dict[tuple[str, str], str] = {}
    for kind, name, text in connection.execute(queries(address.schema)["schema_texts"], [schema]).fetchall():
        for written in names:
            name, text = name.replace(written, ""), text.replace(written, "")  # noqa: PLW2901 - the same, less its schema
        found[kind, name] = text
    return found
