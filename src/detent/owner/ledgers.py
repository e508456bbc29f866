"""In which store a home's ledger is, and how it is opened: the one place that knows all of them.

A home is a directory: keys, settings, what workers do. Its ledger is ``ledger.db`` in it, or lies in PostgreSQL, which ``[store]`` in
``config.toml`` or ``DETENT_STORE`` says. The lock on ``owner.lock`` elects the owner among the processes of one machine; a ledger in
PostgreSQL can be reached from others as well, so its owner holds a lock of the database besides, on the connection it
writes through, and says through it every second that it still works. An owner that ends loses the lock; one that is silent for
`SILENT_MS`, by the clock of the database, has its connection ended by the next process that wants to own the ledger. Neither is what
keeps two owners apart in the end: that is the epoch (X-172), so an owner that is deposed writes nothing, however late it wakes up.
"""

from __future__ import annotations

import os
import re
import socket
import time
import tomllib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from detent.canon.late import NamedTuple, pattern
from detent.errors import HomeError, InvalidInput, StoreUnavailable
from detent.owner.lock import is_held, owner_pid
from detent.store.api import LedgerReader, Store, StoreReader
from detent.store.files import free_bytes, read_no_follow, replace_no_follow
from detent.store.sqlite import SqliteStore
from detent.store.sqlite.database import UNSYNCED, Options

if TYPE_CHECKING:
    from detent.store.postgres.address import PostgresAddress
    from detent.store.postgres.reader import Holder, PostgresReader
    from detent.store.postgres.store import PostgresStore

LedgerPlace: TypeAlias = "Path | PostgresAddress"
"""Where a ledger is: a file, or an address of PostgreSQL."""

LEDGER_FILE: Final = "ledger.db"
STORE_VARIABLE: Final = "DETENT_STORE"
_MOVED: Final = ".moved"
_SECTION: Final = pattern(rb"^[ \t]*\[?[ \t]*store\b", re.MULTILINE)
_STORE_SECTION: Final = pattern(r"^[ \t]*\[[ \t]*store[ \t]*\][^\n]*\n(?:(?![ \t]*\[)[^\n]*(?:\n|\Z))*", re.MULTILINE)
_KEYS: Final = frozenset({"url", "url_file"})
_URL_BYTES_MAX: Final = 4096
_GHOSTS_MAX: Final = 100
_GHOST_SECONDS: Final = 0.05
"""How often, and how long, it is waited for the session of a dead holder to end."""
ROOM_BYTES_MIN: Final = 64 * 1024 * 1024
"""Room on the ledger's disk below which a server takes nothing more. A commit that finds no room at all ends the server."""
NO_ROOM_RETRY_MS: Final = 5_000
RENEW_SECONDS: Final = 0.5
"""How often an owner renews its lease of a partition."""
SILENT_MS: Final = 3_000
"""An owner that has not renewed its lease for so long may be deposed: it is stopped, or cannot reach the database."""
_OPENING_SECONDS: Final = 60.0
"""How long an owner need not renew its lease at first: it reads the ledger meanwhile."""
_MAINTENANCE_SECONDS: Final = 24 * 3600.0
"""How long a process that holds a ledger without owning it, to move it or to change its keys, need not renew."""

_holding: weakref.WeakSet[PostgresStore] = weakref.WeakSet()
"""The stores of this process that hold something."""


class CheckedReader(LedgerReader, Protocol):
    """A reader that can also say what is wrong with its store."""

    def damage(self) -> list[str]: ...

    def schema_faults(self) -> list[str]: ...


def ledger_of(home: Path, environment: Mapping[str, str]) -> LedgerPlace:
    """Where the ledger of a home is: as the environment says, else as its settings do, else in the home itself."""
    if url := environment.get(STORE_VARIABLE):
        return _address(url, STORE_VARIABLE)
    config = home / "config.toml"
    try:
        data = read_no_follow(config)
    except OSError:
        return home / LEDGER_FILE
    if _SECTION.search(data) is None:
        return home / LEDGER_FILE
    try:
        section = tomllib.loads(data.decode()).get("store", {})
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return home / LEDGER_FILE  # What is wrong with the settings is said by those who read all of them.
    return _said(config, section) or home / LEDGER_FILE


def parse_store(url: str, source: str, *, password: bool) -> PostgresAddress:
    """The address of a store that a user gave; where others could read it, one with a password is refused."""
    address = _address(url, source)
    if address.has_password and not password:
        raise InvalidInput(
            f"{source} holds a password, which other users of this machine or readers of the file could see",
            hint="leave it out and set PGPASSWORD, write it to ~/.pgpass, or put the whole URL into a file: [store] url_file",
        )
    return address


def open_store(place: LedgerPlace) -> Store:
    """Open a ledger for writing."""
    if isinstance(place, Path):
        refuse_moved(place)
        return SqliteStore.open(place)
    from detent.store.postgres.store import PostgresStore  # noqa: PLC0415 - most homes have no PostgreSQL

    return PostgresStore.open(place)


def open_ledger(place: LedgerPlace, options: Options | None = None) -> CheckedReader:
    """Open a ledger for reading; the options are about a file."""
    if isinstance(place, Path):
        return SqliteStore.open_reader(place, _options=options or Options())
    from detent.store.postgres.reader import PostgresReader  # noqa: PLC0415

    return PostgresReader.open(place)


def new_ledger(place: LedgerPlace, origin: str, partitions: int) -> Store:
    """Begin a ledger where nothing is; `finish_ledger` makes it durable."""
    if isinstance(place, Path):
        SqliteStore.make(place, origin, partitions, _options=UNSYNCED)
        return SqliteStore.open(place, _options=UNSYNCED)
    from detent.store.postgres.store import PostgresStore  # noqa: PLC0415

    return PostgresStore.begin(place, origin, partitions)


def finish_ledger(store: Store) -> None:
    """Have a new ledger be there; one in a file is there with its directory."""
    if not isinstance(store, SqliteStore):
        store.finish()  # type: ignore[attr-defined]
    store.close()


# Who holds a ledger that several machines can reach


def hold(
    store: Store,
    place: LedgerPlace,
    listens_at: Path,
    partitions: Sequence[int],
    *,
    stand_by: Callable[[StoreUnavailable], None] | None = None,
    lease_seconds: float = _OPENING_SECONDS,
) -> None:
    """Hold partitions of a ledger in PostgreSQL for as long as the store is open.

    `StoreUnavailable` names the process and the host that holds one; its details have the socket, for a process on the same host.
    With ``stand_by``, this is called with it instead, and tries again after that. A holder that is dead or silent is deposed.
    """
    if isinstance(place, Path):
        return
    held: PostgresStore = store  # type: ignore[assignment]
    said = (socket.gethostname(), process_mark(), str(listens_at), lease_seconds)
    for partition in partitions:
        ghosts = 0
        while (holder := held.hold(partition, *said)) is not None:
            if holder.silent_ms > SILENT_MS or _is_dead(holder):
                if ghosts == _GHOSTS_MAX:
                    raise _held_elsewhere(place, partition, holder)
                ghosts += 1
                held.end_holder(holder)  # Its session outlives it while the network still believes in it.
                time.sleep(_GHOST_SECONDS)
            elif stand_by is None:
                raise _held_elsewhere(place, partition, holder)
            else:
                stand_by(_held_elsewhere(place, partition, holder))
    _holding.add(held)


def lease_of(store: Store, place: LedgerPlace, partition: int) -> Callable[[int], bool] | None:
    """How the owner of a partition renews its lease under an epoch; None where no other machine can own it."""
    if isinstance(place, Path):
        return None
    held: PostgresStore = store  # type: ignore[assignment]
    return partial(held.renew, partition)


def no_room(place: LedgerPlace) -> StoreUnavailable | None:
    """Why a server writes nothing more to a ledger: its disk is nearly full. None where there is room, or no disk of ours."""
    if not isinstance(place, Path) or free_bytes(place) >= ROOM_BYTES_MIN:
        return None
    return StoreUnavailable(
        f"the disk of the home is full: less than {ROOM_BYTES_MIN >> 20} MiB are left, which the server keeps free",
        hint="free some space on that disk; nothing was written, and a server that runs goes on by itself",
        details={"retry_after_ms": NO_ROOM_RETRY_MS},
    )


class OwnerView(NamedTuple):
    """The process that owns a partition."""

    pid: int | None
    host: str
    silent_ms: int | None = None
    """Since it last renewed its lease; None where owners need none."""
    address: str | None = None
    """Where it takes requests over HTTP, as it says; None for one that is not a server, or has no need to say."""


def owner_of(reader: StoreReader, place: LedgerPlace, lock: Path, partition: int) -> OwnerView | None:
    """The process that owns a partition now, of a ledger that was opened for reading; None while none does."""
    if isinstance(place, Path):
        return OwnerView(owner_pid(lock), socket.gethostname()) if is_held(lock) else None
    shared: PostgresReader = reader  # type: ignore[assignment]
    holder = shared.holder(partition)
    if holder is None:
        return None
    return OwnerView(_pid_of(holder), holder.host, max(holder.silent_ms, 0), holder.address or None)


@contextmanager
def held_ledger(place: LedgerPlace, listens_at: Path) -> Iterator[None]:
    """Keep every other owner away for as long as the block lasts; for a file the home's lock does that."""
    if isinstance(place, Path):
        yield
        return
    store = open_store(place)
    try:
        hold(store, place, listens_at, range(store.partitions), lease_seconds=_MAINTENANCE_SECONDS)
        yield
    finally:
        store.close()


def process_mark(pid: int | None = None) -> str:
    """A process of this machine's present boot, told apart from any later one with its number and from those of other containers."""
    number = os.getpid() if pid is None else pid
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link whose target is what counts
    started = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{boot}/{space}/{number}/{started}"


def _is_dead(holder: Holder) -> bool:
    """Whether a holder is known to have ended: this very process under another connection, or one of this machine that is gone."""
    with suppress(OSError, ValueError, IndexError):
        mine = process_mark()
        if holder.process == mine:
            return all(store.backend_pid != holder.backend_pid for store in _holding)
        if holder.process.split("/")[:2] != mine.split("/")[:2]:
            return False
        number = int(holder.process.split("/")[2])
        try:
            return process_mark(number) != holder.process
        except OSError:
            return True
    return False


def _held_elsewhere(place: PostgresAddress, partition: int, holder: Holder) -> StoreUnavailable:
    return StoreUnavailable(
        f"partition {partition} of the ledger in {place} is owned by process {_pid_of(holder) or 'unknown'} on host {holder.host}",
        hint=f"work on {holder.host}, or connect to its server with --server; or stop that process",
        details={
            "address": str(place),
            "partition": partition,
            "owner_host": holder.host,
            "owner_socket": holder.socket,
            "owner_process": holder.process,
        },
    )


def _pid_of(holder: Holder) -> int | None:
    """The number of a holder's process on its own host."""
    words = holder.process.split("/")
    return int(words[2]) if len(words) > 2 and words[2].isdigit() else None


# A ledger that lives elsewhere now


def mark_moved(place: LedgerPlace, to: str) -> None:
    """Refuse every further write to a ledger that was copied elsewhere."""
    if isinstance(place, Path):
        replace_no_follow(place.with_name(place.name + _MOVED), f"{to}\n".encode())
        return
    from detent.store.postgres.store import PostgresStore  # noqa: PLC0415

    store = PostgresStore.open(place)
    try:
        store.set_moved(to)
    finally:
        store.close()


def moved_to(place: LedgerPlace) -> str | None:
    """Where a ledger in a file was moved to; None for one that was not."""
    if not isinstance(place, Path):
        return None
    try:
        return read_no_follow(place.with_name(place.name + _MOVED)).decode(errors="replace").strip()
    except OSError:
        return None


def unmark_moved(place: Path) -> None:
    """Forget that a ledger was moved away from a file: another one takes its place."""
    place.with_name(place.name + _MOVED).unlink(missing_ok=True)


def set_store(home: Path, place: LedgerPlace) -> None:
    """Have the settings of a home name a place; the rest of the file stays as it is."""
    config = home / "config.toml"
    text = _STORE_SECTION.sub("", read_no_follow(config).decode()).rstrip()
    if not isinstance(place, Path):
        text += f"\n\n{store_section(place)}"
    replace_no_follow(config, f"{text.rstrip()}\n".encode())


def store_section(address: PostgresAddress) -> str:
    """What says in the settings where the ledger is."""
    return f'[store]\n# A password belongs into PGPASSWORD, ~/.pgpass or a url_file.\nurl = "{address}"\n'


def refuse_moved(place: Path) -> None:
    """Refuse to write to a ledger that lives elsewhere now."""
    to = moved_to(place)
    if to is not None:
        raise StoreUnavailable(
            f"the ledger in {place} was moved to {to}; nothing is written here any more",
            hint=f'set [store] url = "{to}" in config.toml, or DETENT_STORE',
            details={"path": str(place), "moved_to": to},
            retryable=False,
        )


def _said(config: Path, section: Any) -> PostgresAddress | None:
    if not isinstance(section, dict) or not section:
        return None
    if len(section) != 1 or not _KEYS.issuperset(section):
        raise HomeError(f"{config}: [store] has either url or url_file, and nothing else", hint="remove the rest")
    ((key, value),) = section.items()
    if not isinstance(value, str):
        raise HomeError(f"{config}: store.{key} must be a text")
    if key == "url":
        return parse_store(value, f"store.url in {config}", password=False)
    path = config.parent / Path(value).expanduser()
    try:
        data = path.read_bytes()
        mode = path.stat().st_mode
    except OSError as exc:
        raise HomeError(f"{path}, which store.url_file names, cannot be read: {exc.strerror}") from exc
    if mode & 0o077:
        raise HomeError(f"{path}, which store.url_file names, can be read by other users", hint=f"chmod 600 {path}")
    if len(data) > _URL_BYTES_MAX:
        raise HomeError(f"{path}, which store.url_file names, holds more than a URL")
    return _address(data.decode(errors="replace").strip(), str(path))


def _address(url: str, source: str) -> PostgresAddress:
    from detent.store.postgres.address import parse_address  # noqa: PLC0415

    return parse_address(url, source)
