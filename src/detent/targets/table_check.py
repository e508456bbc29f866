"""Whether a table still has what a run of a step left in it. Only looks; makes nothing."""

from __future__ import annotations

from pathlib import Path

import apsw

from detent.store.sqlite.database import close_quietly
from detent.targets.disk import shown
from detent.targets.sqlite_target import made_table, queries
from detent.targets.table_rows import quoted


def table_fault(path: Path, table: str, total: int, rows: int) -> str:
    """What has become of a table that had so many items of one run; empty when nothing speaks against it.

    The rows of a table that was made here are counted. In a table of the user's own it is not known whose they are; there the
    run's cursor has to do.
    """
    if not path.exists():
        return f"its database {shown(path)} is gone"
    statements, connection = queries(), None
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        found = connection.execute(statements["find_table"], (table,)).fetchone()
        if found is None:
            return f"its table {table} is gone"
        name = found[0]
        if connection.execute(statements["find_table"], ("detent_commits",)).fetchone() is None:
            return f"its table {name} was rewritten by another program"
        if connection.execute(statements["ended_runs"], (name, total)).fetchone() is None:
            return f"its table {name} was rewritten"
        ((said,),) = connection.execute(statements["table_said"], (name,))
        if said == made_table(name):
            ((count,),) = connection.execute(f"SELECT count(*) FROM {quoted(name)}")  # noqa: S608 - quoted
            if count != rows:
                return f"its table {name} has {count:,} rows, and {rows:,} were committed"
    except (apsw.Error, UnicodeEncodeError) as exc:
        return f"its database {shown(path)} cannot be read: {exc}"
    finally:
        if connection is not None:
            close_quietly(connection)
    return ""
