"""Opens connections, makes and migrates the schema; what comes back from here is known to be safe to write to.

A server can be told to acknowledge what it has not written, and a pooler between it and us can hand one session to another
client. So what durability and ownership rest on is read back at each opening for writing, and refused where it is not there:

* ``fsync`` and ``full_page_writes`` off: a power cut loses or damages what was acknowledged. ``synchronous_commit`` off: the same for the
  last commits; the append sets it for itself besides, because a setting can leak from one client of a pooler to another.
* A pooler: it answers with a process number of its own, not with that of the server's process. Behind one that shares sessions, two
  clients were seen to hold one advisory lock. One that passes sessions through is refused as well, for they look the same.
* A replica: it is behind by what it has not received, and nothing is decided on that.

A child made by fork must not end its parent's sessions when it lets go of the copies: their sockets are replaced there.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

from detent.canon.late import NamedTuple
from detent.errors import HomeError, StoreUnavailable
from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.sql import migrations, queries, schema_text

try:
    import psycopg
except ImportError as exc:
    raise StoreUnavailable(
        "a ledger in PostgreSQL needs psycopg, which is not installed",
        hint="pip install 'detent[postgres]'",
        retryable=False,
    ) from exc

from detent.store.postgres.errors import moved, translated

VERSION_MIN: Final = 140_000
"""PostgreSQL 14, the oldest that is maintained and tested."""

SETTINGS_WANTED: Final = {"fsync": "on", "full_page_writes": "on", "server_encoding": "UTF8"}

_DEFAULTS: Final = {
    "application_name": "detent",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
}
"""Of a connection, unless the URL says otherwise: a server that is gone is noticed within half a minute."""

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_DECODED: Final = frozenset({"job_id", "run_id", "tenant_id", "name", "workspace", "label", "pool"})
"""Columns that hold the bytes of a text."""

_open: weakref.WeakSet[Connection] = weakref.WeakSet()


class ServerFacts(NamedTuple):
    """A server as it describes itself."""

    version_number: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    server_encoding: str
    backend_pid: int
    is_replica: bool
    version: str
    over_network: bool


def connect(address: PostgresAddress) -> Connection:
    """A connection outside any transaction, whose ids come back as text."""
    given = _parameters(address)
    try:
        connection: Connection = psycopg.connect(
            **{**_DEFAULTS, **given, "client_encoding": "UTF8"},
            autocommit=True,
            cursor_factory=psycopg.RawCursor,
            row_factory=_decoded,
        )
    except psycopg.Error as exc:
        raise translated(exc, address) from exc
    connection.server_cursor_factory = psycopg.RawServerCursor
    _open.add(connection)
    return connection


def open_for_reading(address: PostgresAddress) -> Connection:
    """A connection to an existing ledger."""
    connection = connect(address)
    try:
        facts = server_facts(connection, address)
        _insist_on_primary(facts, address)
        if is_pooled(connection, facts):
            connection.prepare_threshold = None  # The next statement may reach another session.
        _insist_on_known_schema(_schema_version(connection, address)[0], address)
    except BaseException:
        close_quietly(connection)
        raise
    return connection


def open_writer(address: PostgresAddress) -> Connection:
    """A connection for writing to an existing ledger, whose schema is brought up to date."""
    connection = connect(address)
    try:
        insist_on_durable(connection, address)
        version, moved_to = _schema_version(connection, address)
        if moved_to is not None:
            raise moved(address, moved_to)
        _migrate(connection, address, version)
    except BaseException:
        close_quietly(connection)
        raise
    return connection


def insist_on_durable(connection: Connection, address: PostgresAddress) -> None:
    """Refuse a server that could lose what it has acknowledged, or that is not the server itself."""
    facts = server_facts(connection, address)
    _insist_on_primary(facts, address)
    if is_pooled(connection, facts):
        raise StoreUnavailable(
            f"{address} is a pooler, behind which locks and settings can belong to another client",
            hint="connect the owner to PostgreSQL itself: its own host and port, 5432 by default",
            details={"address": str(address)},
            retryable=False,
        )
    for name, wanted in SETTINGS_WANTED.items():
        found = getattr(facts, name)
        if found != wanted:
            raise _unsafe(address, name, found, wanted)
    if facts.synchronous_commit == "off":
        raise _unsafe(address, "synchronous_commit", "off", "on")
    if facts.over_network:
        connection.execute(queries(address.schema)["keep_alive"])


def server_facts(connection: Connection, address: PostgresAddress) -> ServerFacts:
    """What a server says about itself."""
    try:
        row = connection.execute(queries(address.schema)["settings"], binary=True).fetchone()
    except psycopg.Error as exc:
        raise translated(exc, address) from exc
    return ServerFacts(*(row or ()))


def is_pooled(connection: Connection, facts: ServerFacts) -> bool:
    """Whether something answers for the server that is not the server."""
    return connection.info.backend_pid != facts.backend_pid


def create_schema(connection: Connection, address: PostgresAddress, origin: str, partitions: int) -> None:
    """Make an empty ledger within the transaction that the connection is in; refuses a schema that holds anything."""
    sql, schema = queries(address.schema), address.schema
    try:
        connection.execute(sql["create_schema"])
        held = {row[0] for row in connection.execute(sql["schema_objects"], [schema.encode().decode()]).fetchall()}
        if held:
            what = "is another ledger already" if "ledger" in held else "holds tables that are not a ledger's"
            raise HomeError(
                f"{address}: the schema {schema} {what}",
                hint="name another schema with ?schema=NAME, or drop this one if nothing in it is needed",
                details={"address": str(address), "schema": schema},
            )
        run_script(connection, schema_text(schema))
        connection.execute(sql["insert_ledger"], [len(migrations(schema)), origin, partitions])
        connection.execute(sql["insert_partition"], [partitions])
    except psycopg.errors.UniqueViolation as exc:
        raise HomeError(f"{address}: another process makes a ledger there now", hint="use that one") from exc
    except psycopg.Error as exc:
        raise translated(exc, address) from exc


def run_script(connection: Connection, script: str) -> None:
    """Run several statements as they are."""
    result = connection.pgconn.exec_(script.encode())
    if result.status not in (psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.TUPLES_OK):
        raise psycopg.errors.error_from_result(result)


def close_quietly(connection: Connection) -> None:
    """Let go of a connection for which nothing depends on how that ends."""
    with suppress(psycopg.Error, OSError):
        connection.close()


def _migrate(connection: Connection, address: PostgresAddress, version: int) -> None:
    """Bring an older schema forward, all steps in one transaction; refuse one from the future."""
    _insist_on_known_schema(version, address)
    scripts, sql = migrations(address.schema), queries(address.schema)
    if version == len(scripts):
        return
    try:
        with connection.transaction():
            for script in scripts[version:]:
                run_script(connection, script)
            connection.execute(sql["set_schema_version"], [len(scripts)])
    except psycopg.Error as exc:
        raise translated(exc, address) from exc


def _schema_version(connection: Connection, address: PostgresAddress) -> tuple[int, str | None]:
    try:
        row = connection.execute(queries(address.schema)["schema_version"]).fetchone()
    except psycopg.Error as exc:
        raise translated(exc, address) from exc
    if row is None:
        raise StoreUnavailable(
            f"{address} holds an unfinished copy of a ledger",
            hint="give the same `detent copy FROM TO` again, which goes on where it ended",
            details={"address": str(address)},
            retryable=False,
        )
    return row[0], row[1]


def _insist_on_known_schema(version: int, address: PostgresAddress) -> None:
    known = len(migrations(address.schema))
    if version > known:
        raise StoreUnavailable(
            f"{address} was written by a newer detent (schema {version}; this one knows {known})",
            hint="upgrade: pip install --upgrade detent",
            details={"address": str(address), "schema": version, "schema_known": known},
            retryable=False,
        )


def _insist_on_primary(facts: ServerFacts, address: PostgresAddress) -> None:
    if facts.version_number < VERSION_MIN:
        raise StoreUnavailable(
            f"{address} is PostgreSQL {facts.version}; 14 or newer is needed",
            hint="upgrade the server",
            details={"address": str(address), "version": facts.version},
            retryable=False,
        )
    if facts.is_replica:
        raise StoreUnavailable(
            f"{address} is a replica, which may lack what was committed last",
            hint="connect to the primary; add target_session_attrs=read-write to a URL with several hosts",
            details={"address": str(address)},
        )


def _unsafe(address: PostgresAddress, name: str, found: str, wanted: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{address}: PostgreSQL runs with {name}={found}, where {wanted} is needed to keep what was acknowledged",
        hint=f"set {name} = {wanted} in postgresql.conf, for the database or for the role",
        details={"address": str(address), "setting": name, "found": found, "wanted": wanted},
        retryable=False,
    )


def _parameters(address: PostgresAddress) -> dict[str, Any]:
    try:
        return psycopg.conninfo.conninfo_to_dict(address.url)
    except psycopg.Error:
        # Its message quotes a piece of the URL, which may be one of the password.
        raise StoreUnavailable(
            f"{address} is not a URL that PostgreSQL's library can read",
            hint="write special characters in names as %40 for @ and so on; check the names of the parameters",
            details={"address": str(address)},
            retryable=False,
        ) from None


def _decoded(cursor: psycopg.Cursor[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Rows as plain tuples, in which what users named is text again."""
    columns = cursor.description
    places = [number for number, column in enumerate(columns or ()) if column.name in _DECODED]
    if not places:
        return tuple

    def made(values: Any) -> tuple[Any, ...]:
        row = list(values)
        for place in places:
            value = row[place]
            if value is not None:
                row[place] = value.decode() if isinstance(value, bytes) else value
        return tuple(row)

    return made


def _let_go_in_child() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(_open):
        with suppress(Exception):
            os.dup2(nowhere, connection.pgconn.socket)
    os.close(nowhere)


os.register_at_fork(after_in_child=_let_go_in_child)
