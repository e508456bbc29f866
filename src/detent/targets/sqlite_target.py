"""``sqlite:FILE#TABLE``: rows and the run's cursor are committed in one transaction, so the database itself knows what it has.

The mark on the ledger may be older: then `open` answers with the database's own cursor, and what it has is not written again.
A cursor that is behind the ledger means that the database is not the one that was written to, or an old copy of it.

A database that is made here has a write-ahead log. One that was there keeps its journal mode. Both are written with
``synchronous=EXTRA``, which in a write-ahead log is FULL and elsewhere also makes the end of the transaction durable.

Whether a table still has what a run of a step left in it. Only looks; makes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import apsw

from detent.canon.strict_json import JsonValue
from detent.errors import InvariantBroken
from detent.store.files import DISK
from detent.store.queries import parse_queries
from detent.store.sqlite.database import APPLICATION_ID, close_quietly, insist_on_version
from detent.targets.api import (
    Anew,
    CommitFailed,
    DestinationBusy,
    DestinationChanged,
    DestinationNotEmpty,
    Mark,
    Nothing,
    ValueRefused,
    still_due,
)
from detent.targets.disk import failed, insist_on_directory, shown
from detent.targets.render import TableRows, quoted
from detent.words.quantities import count_text

BUSY_MS: Final = 5_000
"""How long a write waits for another program's transaction."""
_PASSING: Final = (apsw.FullError, apsw.IOError, apsw.NoMemError, apsw.InterruptError, apsw.ProtocolError)
_HINTS: Final[dict[type[apsw.Error], str]] = {
    apsw.FullError: "free some space on its disk",
    apsw.ReadOnlyError: "make the file and its directory writable for you",
    apsw.CantOpenError: "check that its directory exists and that you may write there",
    apsw.PermissionsError: "check the permissions of the file and its directory",
    apsw.NotADBError: "this is not a SQLite database: choose another file",
    apsw.CorruptError: "the database is damaged: restore a copy of it",
    apsw.ConstraintError: "the table does not take this row: use another table, or change what is computed",
}


class SqliteTarget:
    """A table of a database. ``vfs`` is for tests."""

    is_recorded = True

    def __init__(
        self,
        spec: str,
        path: Path,
        table: str,
        *,
        busy_ms: int = BUSY_MS,
        vfs: str | None = None,
        anew: Anew | None = None,
        seqs: Sequence[int] | None = None,
    ) -> None:
        self._seqs = seqs
        self.spec = spec
        self._path = path
        self._table = table
        self._busy_ms = busy_ms
        self._vfs = vfs
        self._anew = anew
        self._run_id = ""
        self._connection: apsw.Connection | None = None
        self._rows: TableRows | None = None
        self._next_seq = 0

    def check(self) -> None:
        """Refuse, with `InvalidInput`, a place that nothing can be written to: better than when there is a run."""
        insist_on_directory(self.spec, self._path)

    def insist_on_room(self) -> None:
        """Refuse, with `DestinationNotEmpty`, what a new run must not begin with. Changes nothing."""
        connection = self._looked_at()
        if connection is None:
            return
        try:
            found = connection.execute(queries()["find_table"], (self._table,)).fetchone()
            if found is not None and found[1] == "table":
                self._make_room(connection, found[0], changes=False)
        except apsw.Error as exc:
            raise self._failed(exc, None) from exc
        finally:
            _close(connection)

    def holds(self, run_id: str, recorded: Mark | None, rows: int) -> bool:
        """Whether the table still has what a run left in it: its cursor, and in a table that was made here its rows."""
        connection = self._looked_at()
        if connection is None:
            return False
        try:
            found = connection.execute(queries()["find_table"], (self._table,)).fetchone()
            if found is None or not _has_cursors(connection):
                return False
            cursor = connection.execute(queries()["read_cursor"], (run_id, found[0])).fetchone()
            if cursor is None or (recorded is not None and cursor[0] < recorded.next_seq):
                return False
            if _said(connection, found[0]) != made_table(found[0]):
                return True
            return bool(_count(connection, found[0]) >= rows)
        except apsw.Error:
            return False
        finally:
            _close(connection)

    def open(self, run_id: str, recorded: Mark | None) -> int:
        """Make database, table and cursor where they are missing; says where the database's cursor stands."""
        self.close()
        self._run_id = run_id
        self._connection = self._opened(0 if recorded is None else recorded.next_seq)
        return self._next_seq

    def begin(self) -> Mark:
        """Where the cursor stands."""
        return Mark(self._next_seq)

    def write(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Mark:
        """Insert a batch and move the cursor, in one transaction."""
        if self._rows is None:
            raise InvariantBroken(f"{self.spec} is written to and not open")
        if self._connection is None:  # The last write failed; the database knows whether it was committed.
            self._connection = self._opened(self._next_seq)
        due = still_due(self._next_seq, first_seq, values)
        if due:
            try:
                self._commit(self._connection, self._rows, due)
            except BaseException:
                self._drop_connection()
                raise
            self._next_seq += len(due)
        return Mark(self._next_seq)

    def close(self) -> None:
        """Let go of the database."""
        self._drop_connection()
        self._rows = None

    def _commit(self, connection: apsw.Connection, rows: TableRows, due: Sequence[JsonValue | Nothing]) -> None:
        statements = queries()
        moved = (self._run_id, self._table, self._next_seq, self._next_seq + len(due))
        seq: int | None = None
        try:
            connection.execute(statements["begin_write"])
            connection.execute(statements["move_cursor"], moved)
            if connection.changes() != 1:
                raise self._changed("has a cursor that another process moved", "let one process write for one run")
            rows.seq = self._next_seq
            try:
                rows.insert(connection, self._next_seq, due)
            except apsw.Error:
                seq = rows.seq
                raise
            connection.execute(statements["commit"])
        except (OverflowError, UnicodeEncodeError) as exc:
            what = (
                "an integer of more than 64 bits"
                if isinstance(exc, OverflowError)
                else "text that is not valid Unicode"
            )
            raise ValueRefused(f"seq {rows.seq} has {what}", spec=self.spec, seq=rows.seq) from exc
        except apsw.Error as exc:
            raise self._failed(exc, seq) from exc

    def _opened(self, committed: int) -> apsw.Connection:
        """A connection to a database that has everything up to ``committed``."""
        insist_on_version(apsw.sqlite_lib_version())
        connection: apsw.Connection | None = None
        try:
            if committed and not self._path.exists():
                raise self._changed("is gone", "put it back as it was, or start a new run")
            connection = self._connected()
            connection.execute(queries()["begin_write"])
            self._next_seq = self._prepared(connection, committed)
            connection.execute(queries()["commit"])
            # If the sync of an earlier commit failed, its frames may be readable and not on disk: settle them before
            # anything rests on them.
            with suppress(apsw.BusyError):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            DISK.sync_directory(self._path.parent)
        except apsw.Error as exc:
            _close(connection)
            raise self._failed(exc, None) from exc
        except OSError as exc:
            _close(connection)
            raise failed(exc, self.spec, self._path) from exc
        except BaseException:
            _close(connection)
            raise
        return connection

    def _connected(self) -> apsw.Connection:
        if self._path.is_symlink():
            raise self._unfit("is a symbolic link", "name the database that it leads to")
        is_new = not self._path.exists() or self._path.stat().st_size == 0
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        try:
            connection = apsw.Connection(str(self._path), flags=flags, vfs=self._vfs)
        except UnicodeEncodeError as exc:
            raise self._unfit("has a name that is not UTF-8, which SQLite cannot open", "choose another name") from exc
        try:
            connection.set_busy_timeout(self._busy_ms)
            if connection.readonly("main"):
                raise apsw.ReadOnlyError("attempt to write a readonly database")
            if connection.pragma("application_id") == APPLICATION_ID:
                raise self._unfit("is a ledger of detent", "results never go into the ledger: choose another file")
            if is_new:
                connection.pragma("journal_mode", "WAL")
            for name, value in (("synchronous", 3), ("fullfsync", 1), ("checkpoint_fullfsync", 1)):
                connection.pragma(name, value)
        except BaseException:
            _close(connection)
            raise
        return connection

    def _prepared(self, connection: apsw.Connection, committed: int) -> int:
        """Find or make table and cursor; gives the cursor."""
        statements = queries()
        found = connection.execute(statements["find_table"], (self._table,)).fetchone()
        if found is not None:
            self._table = found[0]
            if found[1] != "table":
                raise self._unfit(f"has a view {self._table}", "choose another table")
        connection.execute(statements["make_cursors"])
        row = connection.execute(statements["read_cursor"], (self._run_id, self._table)).fetchone()
        cursor: int = -1 if row is None else row[0]
        if max(cursor, 0) < committed or (cursor > 0 and found is None):
            have = "no table" if found is None else f"{max(cursor, 0)} entries of this run"
            raise self._changed(
                f"has {have} {'' if found is None else 'in '}{self._table}, and {max(committed, cursor)} were committed",
                "put it back as it was, or start a new run",
            )
        if found is None:
            connection.execute(made_table(self._table))
        if row is None:
            if found is not None:
                self._make_room(connection, self._table)
            connection.execute(statements["insert_cursor"], (self._run_id, self._table))
        columns = _columns(connection, self._table)
        self._rows = TableRows(self.spec, self._run_id, self._table, columns, self._seqs)
        return max(cursor, 0)

    def _make_room(self, connection: apsw.Connection, table: str, *, changes: bool = True) -> None:
        """Do about the rows of other runs what is to be done: take them away, leave them, or refuse."""
        anew, is_made = self._anew, _said(connection, table) == made_table(table)
        if _count(connection, table, most=1) == 0:
            return
        if anew is None:
            if is_made and self._seqs is None:
                raise self._unfit(
                    f"has rows in {table}, which was made for one run: the seqs of another would be there twice",
                    "choose another table, or make one of your own with the columns run_id and seq",
                    code=DestinationNotEmpty.code,
                )
            return
        own, columns = anew.own_runs(), {name.lower() for name in _columns(connection, table)}
        if is_made:
            runs = {run_id for (run_id,) in connection.execute(queries()["runs_of_table"], (table,))}
        elif "run_id" in columns and anew.refuses_others:
            runs = {run_id for (run_id,) in connection.execute(f"SELECT DISTINCT run_id FROM {quoted(table)}")}  # noqa: S608
        else:
            runs = set()
        known = bool(runs) or (is_made and not anew.refuses_others)
        is_own = known and all(run_id in own for run_id in runs)
        if anew.refuses_others and not (is_own and anew.replaces_own):
            count = _count(connection, table)
            what = f"table {table} of {shown(self._path)} holds {count_text(count, 'row')}"
            left_by = next(iter(runs)) if is_own else None
            raise DestinationNotEmpty.holding(what, spec=self.spec, run_id=left_by, path=shown(self._path), table=table)
        if is_own and changes:
            connection.execute(f"DELETE FROM {quoted(table)}")  # noqa: S608 - quoted
            connection.execute(queries()["drop_cursors"], (table,))

    def _looked_at(self) -> apsw.Connection | None:
        """A connection that only reads; None when there is no database to look at."""
        if self._path.is_symlink() or not self._path.is_file():
            return None
        try:
            connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY, vfs=self._vfs)
            connection.set_busy_timeout(self._busy_ms)
        except (apsw.Error, UnicodeEncodeError):
            return None  # `open` says what is wrong with it.
        return connection

    def _drop_connection(self) -> None:
        """Close the connection, which also rolls back what it has not committed."""
        connection, self._connection = self._connection, None
        _close(connection)

    def _failed(self, exc: apsw.Error, seq: int | None) -> CommitFailed:
        details = {"path": shown(self._path), "table": self._table}
        if isinstance(exc, apsw.BusyError | apsw.LockedError):
            message = f"{shown(self._path)} is locked by another program"
            hint = "wait for its transaction to end"
            return DestinationBusy(message, spec=self.spec, hint=hint, details=details)
        where = "" if seq is None else f" at seq {seq}"
        return CommitFailed(
            f"{shown(self._path)} cannot be written{where}: {exc}",
            spec=self.spec,
            seq=seq,
            hint=next((hint for kind, hint in _HINTS.items() if isinstance(exc, kind)), None),
            details=details,
            retryable=isinstance(exc, _PASSING),
        )

    def _changed(self, what: str, hint: str) -> DestinationChanged:
        return DestinationChanged(
            f"{shown(self._path)} {what}", spec=self.spec, hint=hint, path=shown(self._path), table=self._table
        )

    def _unfit(self, what: str, hint: str, code: str | None = None) -> CommitFailed:
        return CommitFailed(
            f"{shown(self._path)} {what}",
            spec=self.spec,
            code=code,
            hint=hint,
            details={"path": shown(self._path), "table": self._table},
            retryable=False,
        )


def made_table(table: str) -> str:
    """How a table that is made here is written, which the database keeps to the letter."""
    return f"CREATE TABLE {quoted(table)} (seq INTEGER PRIMARY KEY, value TEXT NOT NULL)"


@cache
def queries() -> Mapping[str, str]:
    """The named statements of ``queries.sql``. Those that name the user's table are made where they are used."""
    return parse_queries((files("detent.targets") / "queries.sql").read_text(encoding="utf-8"))


def _said(connection: apsw.Connection, table: str) -> str:
    ((said,),) = connection.execute(queries()["table_said"], (table,))
    return str(said)


def _count(connection: apsw.Connection, table: str, most: int = -1) -> int:
    """How many rows a table has; not more than ``most`` are looked at."""
    asked = f"SELECT count(*) FROM (SELECT 1 FROM {quoted(table)} LIMIT ?1)"  # noqa: S608 - quoted
    ((count,),) = connection.execute(asked, (most,))
    return int(count)


def _columns(connection: apsw.Connection, table: str) -> list[str]:
    return [name for (name,) in connection.execute(queries()["columns"], (table,))]


def _has_cursors(connection: apsw.Connection) -> bool:
    return connection.execute(queries()["find_table"], ("detent_commits",)).fetchone() is not None


def _close(connection: apsw.Connection | None) -> None:
    if connection is not None:
        close_quietly(connection)


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
