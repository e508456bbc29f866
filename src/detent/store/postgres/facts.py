"""What `detent doctor` says about the server that a ledger is on."""

from __future__ import annotations

from contextlib import closing

from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.database import connect, insist_on_durable, server_facts
from detent.store.postgres.sql import queries


def describe(address: PostgresAddress) -> str:
    """The server and its settings in one line; raises what opening the ledger for writing raises."""
    with closing(connect(address)) as connection:
        insist_on_durable(connection, address)
        facts = server_facts(connection, address)
        (version,) = connection.execute(queries(address.schema)["schema_version"]).fetchall()
    return (
        f"PostgreSQL {facts.version} (at least 14 is needed) at {address}, schema {version[0]}, fsync {facts.fsync},"
        f" synchronous_commit {facts.synchronous_commit}"
    )
