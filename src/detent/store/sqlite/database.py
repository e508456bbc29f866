"""Opens, makes and migrates the database file; what comes back from here is known to be safe to write to.

SQLite answers many wishes by silently doing something else: a write-protected file is opened for reading, a journal mode
that cannot be had is left as it was, an old library has bugs that lose data. So everything that durability rests on is
asked for and then read back, and an opening that did not get it fails.

The settings, and why:

* WAL with ``synchronous=FULL``: a commit returns after its frames are synced. With NORMAL they are synced at the next
  checkpoint only, and a power cut takes acknowledged commits with it; ``tests/store/test_power_cut.py`` shows both.
* ``fullfsync`` asks macOS to really flush; elsewhere it does nothing.
* ``secure_delete``: erased content is overwritten in the file, not merely unlinked from its tree.
* ``mmap_size=0``: a failing disk gives an error, not a signal that ends the process.
* ``cell_size_check`` and a schema that is not trusted: a damaged or hostile file is found out early.

What SQLite says about a ledger's file, for `detent doctor`: versions, settings and its own integrity check.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from detent.canon.late import dataclass
from detent.errors import HomeError, StoreCorrupt, StoreUnavailable
from detent.store.files import DISK, refuse_links, refuse_network_file_system
from detent.store.sqlite.errors import translated
from detent.store.sqlite.schema_check import insist_on_schema, migrations, queries, schema

APPLICATION_ID: Final = 0x44544E54
"""``DTNT`` in the file's header: what ``file`` and we know a ledger by."""

SQLITE_VERSION_MIN: Final = (3, 51, 3)
"""Versions 3.7.0 to 3.51.2 can lose commits when one process restarts the WAL while another checkpoints it."""

SCHEMA_READABLE_MIN: Final = 1
"""A ledger from this schema on is read as it is: later additions have tables of their own, which a reader can do without."""

_WRITER_CACHE_KIB: Final = 32 * 1024
_READER_CACHE_KIB: Final = 8 * 1024
_SETTLE_MS_MAX: Final = 500
"""How long an opening waits for readers to let go of the WAL that the last owner left."""

_WAL_BYTES_KEPT_MAX: Final = 64 * 1024 * 1024
"""A checkpoint of the kernel may make the WAL large once; afterwards the file is cut back to this."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to open a database. The defaults are the only values that keep the store's promises; tests bend them."""

    synchronous: str = "FULL"
    busy_timeout_ms: int = 5_000
    wal_pages_max: int = 2_000
    """The WAL is copied into the database when it has grown to this many pages (8 MB)."""
    vfs: str | None = None
    any_schema: bool = False
    """For reading what a changed schema left: `verify` and `doctor` say what was changed, every other command refuses it."""
    still: bool = False
    """No writer is active: the WAL's shared memory is not needed, which takes room that a full disk does not have."""


DEFAULT_OPTIONS: Final = Options()
UNSYNCED: Final = Options(synchronous="OFF")
"""For a ledger in a directory that is not a home yet: the directory is synced as a whole before it becomes one."""

_SYNCHRONOUS: Final = {"OFF": 0, "NORMAL": 1, "FULL": 2, "EXTRA": 3}


def open_writer(path: Path, options: Options) -> apsw.Connection:
    """Open a ledger for writing, bring its schema up to date, and settle what the last owner left in the WAL."""
    connection = _open(path, apsw.SQLITE_OPEN_READWRITE, options)
    try:
        _insist_on_writing(connection)
        _insist_on_ledger(connection, path)
        connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", options.synchronous)
        connection.pragma("journal_size_limit", _WAL_BYTES_KEPT_MAX)
        connection.wal_autocheckpoint(0)  # the store does it itself, apart from the commits
        _insist_on_settings(connection, path, options)
        insist_on_schema(connection, path)  # Before anything is written, for which a planted trigger would act.
        migrate(connection, path, migrations())
        settle_wal(connection, options, wait_ms=_SETTLE_MS_MAX)
    except (apsw.Error, OverflowError) as exc:
        close_quietly(connection)
        raise translated(exc, path) from exc
    except BaseException:
        close_quietly(connection)
        raise
    return connection


def open_for_reading(path: Path, options: Options) -> apsw.Connection:
    """Open a ledger without the right to change it."""
    connection = _open(path, apsw.SQLITE_OPEN_READONLY, options)
    try:
        connection.pragma("query_only", 1)
        _insist_on_ledger(connection, path)
        _insist_on_readable_schema(connection, path)
        if not options.any_schema:
            insist_on_schema(connection, path)
    except apsw.Error as exc:
        close_quietly(connection)
        raise translated(exc, path) from exc
    except BaseException:
        close_quietly(connection)
        raise
    return connection


def create_file(path: Path, origin: str, partitions: int, options: Options) -> None:
    """Make an empty ledger at a path where nothing is.

    It is built under another name and linked into place when it is whole and synced, so a power cut leaves no half-made
    ledger behind, and of two processes that make one at the same time only one succeeds.
    """
    directory = path.parent
    refuse_network_file_system(directory)
    for left_over in directory.glob(f"{path.name}.*.new*"):
        left_over.unlink(missing_ok=True)
    try:
        # mkstemp makes it 0600, and SQLite gives its WAL the same mode.
        handle, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".new", dir=directory)
        os.close(handle)
    except OSError as exc:
        raise _cannot_create(path, exc) from exc
    unfinished = Path(name)
    try:
        _build(unfinished, origin, partitions, options)
        if options.synchronous != UNSYNCED.synchronous:
            DISK.sync_file(unfinished)
        os.link(unfinished, path)
        if options.synchronous != UNSYNCED.synchronous:
            DISK.sync_directory(directory)
    except FileExistsError as exc:
        raise _already_there(path) from exc
    except OSError as exc:
        raise _cannot_create(path, exc) from exc
    except apsw.Error as exc:
        raise translated(exc, path) from exc
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(name + suffix).unlink(missing_ok=True)


def migrate(connection: apsw.Connection, path: Path, scripts: Sequence[str]) -> None:
    """Bring an older schema forward, all steps in one transaction; refuse one from the future."""
    version = connection.pragma("user_version")
    if version > len(scripts):
        raise StoreUnavailable(
            f"{path} was written by a newer detent (schema {version}; this one knows {len(scripts)})",
            hint="upgrade: pip install --upgrade detent",
            details={"path": str(path), "schema": version, "schema_known": len(scripts)},
            retryable=False,
        )
    if version == len(scripts):
        return
    connection.execute(queries()["begin_write"])
    try:
        for script in scripts[version:]:
            connection.execute(script)
        connection.pragma("user_version", len(scripts))
        connection.execute(queries()["commit"])
    except BaseException:
        if connection.in_transaction:
            connection.execute(queries()["rollback"])
        raise


def empty_wal(path: Path, options: Options = DEFAULT_OPTIONS, *, wait_ms: int = _SETTLE_MS_MAX) -> bool:
    """Empty a ledger's WAL from beside its owner, so that nothing that was overwritten is left in it; False: a reader needs it."""
    try:
        with closing(_open(path, apsw.SQLITE_OPEN_READWRITE, options)) as connection:
            connection.set_busy_timeout(wait_ms)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error:
        return False
    return True


def settle_wal(connection: apsw.Connection, options: Options, *, wait_ms: int) -> None:
    """Copy the whole WAL into the database, sync that, and empty the WAL, unless a reader is in the way for too long.

    At opening this is more than tidiness. If the last owner's sync failed, its frames may sit in the page cache, readable
    and never written to disk; new commits stacked on such frames would vanish with them. Once copied and synced, nothing
    rests on them any more.
    """
    connection.set_busy_timeout(min(wait_ms, options.busy_timeout_ms))
    try:
        with suppress(apsw.BusyError):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.set_busy_timeout(options.busy_timeout_ms)


def close_quietly(connection: apsw.Connection) -> None:
    """Let go of a connection for which nothing depends on how that ends."""
    with suppress(apsw.Error):
        connection.close(force=True)


def insist_on_version(version: str) -> None:
    """Refuse to run on an SQLite with the WAL-reset bug."""
    if tuple(int(part) for part in version.split(".")) < SQLITE_VERSION_MIN:
        raise StoreUnavailable(
            f"SQLite {version} can lose commits; 3.51.3 or newer is needed",
            hint="pip install --upgrade apsw, which brings its own SQLite",
            details={"sqlite_version": version},
            retryable=False,
        )


def _open(path: Path, flags: int, options: Options) -> apsw.Connection:
    insist_on_version(apsw.sqlite_lib_version())
    if not path.exists():
        raise StoreUnavailable(
            f"{path} does not exist",
            hint=f"restore it from a copy; or move {path.parent} away, and `detent init` begins anew",
            details={"path": str(path)},
            retryable=False,
        )
    refuse_network_file_system(path)
    refuse_links(path)
    try:
        return _connect(path, flags, options)
    except apsw.Error as exc:
        raise translated(exc, path) from exc


def _connect(path: Path, flags: int, options: Options) -> apsw.Connection:
    # SQLite refuses a link anywhere in the name; those that lead to the home are the user's own.
    path = path.parent.resolve() / path.name
    name, how = os.fspath(path), flags | apsw.SQLITE_OPEN_NOFOLLOW
    if options.still and not _has_wal(path):
        name, how = path.as_uri() + "?immutable=1", how | apsw.SQLITE_OPEN_URI
    else:
        # SQLite itself follows no link to these; its answer would not say why.
        refuse_links(*(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")))
    connection = apsw.Connection(name, flags=how, vfs=options.vfs)
    connection.set_busy_timeout(options.busy_timeout_ms)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    # Plans never depend on the values bound: otherwise SQLite looks at them and prepares some statements anew each time.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    for name, value in (
        ("cache_size", -(_READER_CACHE_KIB if flags == apsw.SQLITE_OPEN_READONLY else _WRITER_CACHE_KIB)),
        ("mmap_size", 0),
        ("cell_size_check", 1),
        ("fullfsync", 1),
        ("checkpoint_fullfsync", 1),
        ("secure_delete", 1),
        ("foreign_keys", 1),
        ("recursive_triggers", 1),
    ):
        connection.pragma(name, value)
    return connection


def _has_wal(path: Path) -> bool:
    """Whether commits wait in the WAL, which a reader in immutable mode would not see."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _build(path: Path, origin: str, partitions: int, options: Options) -> None:
    with closing(_connect(path, apsw.SQLITE_OPEN_READWRITE, options)) as connection:
        connection.pragma("synchronous", options.synchronous)
        connection.pragma("journal_mode", "WAL")
        statements = queries()
        connection.execute(statements["begin_write"])
        connection.pragma("application_id", APPLICATION_ID)
        connection.execute(schema())
        connection.execute(statements["insert_ledger"], (origin, partitions))
        connection.executemany(statements["insert_partition"], ((number,) for number in range(partitions)))
        connection.pragma("user_version", len(migrations()))
        connection.execute(statements["commit"])


def _insist_on_writing(connection: apsw.Connection) -> None:
    if connection.readonly("main"):
        # SQLite falls back to reading when it may not write; the first append would be too late to say so.
        raise apsw.ReadOnlyError("attempt to write a readonly database")


def _insist_on_readable_schema(connection: apsw.Connection, path: Path) -> None:
    if connection.pragma("user_version") < SCHEMA_READABLE_MIN:
        raise StoreUnavailable(
            f"{path} was written by an older detent and has not been opened for writing since",
            hint="open it for writing once, with any command that changes something, to bring it up to date",
            details={"path": str(path)},
            retryable=False,
        )


def _insist_on_settings(connection: apsw.Connection, path: Path, options: Options) -> None:
    wanted: dict[str, object] = {
        "journal_mode": "wal",
        "synchronous": _SYNCHRONOUS[options.synchronous],
        "secure_delete": 1,
        "foreign_keys": 1,
        "locking_mode": "normal",
        "encoding": "UTF-8",
    }
    for name, value in wanted.items():
        found = connection.pragma(name)
        if found != value:
            raise StoreUnavailable(
                f"{path}: SQLite answers {name}={found!r} where {value!r} was asked for",
                hint="the file system may lack shared memory or locks; set DETENT_HOME to a directory on a local disk",
                details={"path": str(path), "pragma": name, "found": found, "wanted": value},
                retryable=False,
            )


def _insist_on_ledger(connection: apsw.Connection, path: Path) -> None:
    if connection.pragma("application_id") == APPLICATION_ID:
        if connection.pragma("user_version") > len(migrations()):
            migrate(connection, path, migrations())  # which refuses it
        return
    raise StoreCorrupt(
        f"{path} is a database, but not a ledger of detent",
        hint="check that this is the right file",
        details={"path": str(path)},
    )


def _already_there(path: Path) -> HomeError:
    return HomeError(f"{path} is already there", hint="open it instead of making it", details={"path": str(path)})


def _cannot_create(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path} cannot be made: {error.strerror or error}",
        hint="check that its directory exists, is writable and has space, or set DETENT_HOME to one that does",
        details={"path": str(path), "errno": error.errno},
        retryable=False,
    )


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A ledger's file as SQLite sees it."""

    sqlite_version: str
    sqlite_version_min: str
    schema: int
    schema_known: int
    journal_mode: str
    page_bytes: int
    pages: int
    free_pages: int


def file_facts(path: Path) -> FileFacts:
    """Read the file's own settings; raises what opening it raises."""
    with closing(open_for_reading(path, Options(any_schema=True))) as connection, _translating(path):
        return FileFacts(
            apsw.sqlite_lib_version(),
            ".".join(map(str, SQLITE_VERSION_MIN)),
            connection.pragma("user_version"),
            len(migrations()),
            connection.pragma("journal_mode"),
            connection.pragma("page_size"),
            connection.pragma("page_count"),
            connection.pragma("freelist_count"),
        )


@contextmanager
def _translating(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as exc:
        raise translated(exc, path) from exc
