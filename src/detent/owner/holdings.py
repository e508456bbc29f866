"""The partitions of a shared ledger that a server owns, which change as servers come, go or fall silent.

    a row for each server, renewed  ->  who owns what, who is connected  ->  the rule (`spreading.py`)  ->  give one up, or take one

The server that owns the first partition leads. It connects to every other server whose row a key of the ledger has signed, answers all
requests, and passes commands on (`links.py`). A server that the leader is not connected to takes nothing, and after a while gives up what
it has: nobody could ask it. Like the lease of a partition, none of this decides who may write. The epoch does (X-172).

One thread looks at the database twice a second. Owners have threads of their own, and renew their leases by themselves.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from detent.canon import SigningKey, encode, verify
from detent.errors import DetentError, StoreUnavailable
from detent.ledger import Trust
from detent.owner.enrolled import Certificates, announcements, missed_versions
from detent.owner.home import Home
from detent.owner.ledgers import RENEW_SECONDS, SILENT_MS, hold, process_mark
from detent.owner.link_keys import CERTIFICATE_BYTES_MAX, LinkKey
from detent.owner.links import SILENT_SECONDS, LinkServer, TlsStream
from detent.owner.owner import Owner, moved
from detent.owner.owner_address import TRANSITION, parse_address
from detent.owner.socket_client import Connection
from detent.owner.spreading import LEADING, partition_to_give_up, partition_to_take
from detent.owner.state_directory import KeptHeads, state_directory
from detent.owner.wiring import Checking, Parts, begin_owner, load_trust, signing_key, telemetry_of, tell_own_address
from detent.store.api import Store
from detent.store.postgres.store import PostgresStore, ServerRow

SERVER_LABEL: Final = b"detent/server/v1\0"
UNLINKED_SECONDS: Final = 5.0
"""How long a server keeps partitions while another leads that is not connected to it."""
FORGOTTEN_SECONDS: Final = 3600.0
"""After which silence the row of a server is removed."""

logger = logging.getLogger("detent.owner")


class Holdings:
    """What one server owns of a ledger in PostgreSQL, from its start to its end."""

    def __init__(
        self, home: Home, parts: Parts, listener: socket.socket, address: str, environment: Mapping[str, str]
    ) -> None:
        """``listener`` is where the leader connects to this server, which others know as ``address``."""
        self.owners: dict[int, Owner] = {}
        self.on_news: Callable[[], None] = lambda: None
        """Called when another server has committed something, on a thread of a connection."""
        self._home, self._parts, self._environment = home, parts, environment
        self._settings, self._place = home.settings(), home.ledger
        self._address = address
        self._key = LinkKey()
        self._process = process_mark()
        self._stores: dict[int, Store] = {}
        self._prepare: list[Callable[[Owner], None]] = []
        self._links: dict[str, Connection] = {}
        self._connecting: set[str] = set()
        self._signed: dict[bytes, bool] = {}
        """Rows of servers that were looked at, by their proofs."""
        self._held: dict[int, str | None] = {}
        """Which server owns each partition, at the last look."""
        self._followed = 0
        """The epoch of the leader whose trust the partitions here have."""
        self._unlinked_at = time.monotonic()
        self._leads = False
        self._lock = threading.RLock()
        self._soon = threading.Event()
        self._closing = False
        self._presence: PostgresStore | None = None
        with parts.open_reader(self._place) as reader:
            self._trusts = [load_trust(reader, self._settings, number) for number in range(reader.partitions)]
            position = reader.head(LEADING).size
        proof = _proof(signing_key(home, self._trusts[LEADING], TRANSITION, position), self._said())
        self._row = ServerRow(*self._said()[1:], proof, 0)
        self._keeper = KeptHeads(state_directory(environment), self._trusts[LEADING].origin)
        self._certificates = Certificates(partial(parts.open_reader, self._place), self._trusts)
        checking = Checking(home, self._trusts, self.owners, self._certificates)
        self._telemetry = telemetry_of(home, self._settings, parts)
        self._server = LinkServer(listener, self._key, checking, self.owners, len(self._trusts))
        self._server.start()
        if self._telemetry is not None:
            self._telemetry.start()
        self._thread = threading.Thread(target=self._run, name="detent-holdings", daemon=True)
        self._thread.start()

    def _said(self) -> tuple[str, str, str, str, bytes]:
        """What a key signs of this server: the ledger, then what others need."""
        origin = self._trusts[LEADING].origin
        return origin, self._process, socket.gethostname(), self._address, self._key.certificate

    # -- for the session of the server that leads ----------------------------------------------------------------------

    def lead(self, store: Store, trusts: Sequence[Trust]) -> tuple[dict[int, Owner], list[Trust]]:
        """Begin to own the first partition, which the store holds; gives the owners and trusts of all, which change as these do."""
        with self._lock:
            self._trusts[:] = trusts
            self._own(store, LEADING)
            self._leads = True
        return self.owners, self._trusts

    def settle(self, stand_by: Callable[[StoreUnavailable], None] | None) -> None:
        """Wait until every partition has an owner that can be asked: here, or on a server that this one is connected to."""
        with self._lock:
            self.owners[LEADING].start()
        while (missing := self._missing()) is not None:
            self._look_now()
            if stand_by is not None and self._missing() is not None:
                stand_by(
                    StoreUnavailable(f"partition {missing} has no owner that can be reached from here", retryable=True)
                )

    def step_down(self) -> None:
        """Forget the first partition: leading did not work out, and its store is closed by whoever opened it."""
        with self._lock:
            self._leads = False
            owner = self.owners.pop(LEADING, None)
            self._stores.pop(LEADING, None)
            if owner is not None:
                owner.close()

    def each(self, prepare: Callable[[Owner], None]) -> None:
        """Prepare every owner that is here now, and every one that comes."""
        with self._lock:
            self._prepare.append(prepare)
            for owner in self.owners.values():
                prepare(owner)

    def reach(self, partition: int) -> Connection:
        """The connection to the server that owns a partition; `StoreUnavailable` while none is known."""
        link = self._links.get(self._held.get(partition) or "")
        if link is None:
            self._soon.set()
            raise moved(partition)
        return link

    def close(self) -> None:
        """Give up everything, in order, and be gone for the others. Safe to call twice."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._soon.set()
        self._thread.join()
        self._server.close()
        for link in [*self._links.values()]:
            link.close()
        for partition in sorted(self.owners, reverse=True):
            self._give_up(partition)
        if self._telemetry is not None:
            self._telemetry.close()
        if self._presence is not None:
            with contextlib.suppress(DetentError):
                self._presence.forget_servers(self._process, FORGOTTEN_SECONDS)
            self._presence.close()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self._look_now()
            except Exception:
                logger.exception("a look at the servers of the ledger failed")
            self._soon.wait(RENEW_SECONDS)
            self._soon.clear()

    def _look_now(self) -> None:
        try:
            with self._lock:
                if not self._closing:
                    self._look()
        except DetentError as exc:
            # The database is away, or another was quicker. The owners notice for themselves if they can commit nothing.
            logger.debug("a look at the servers of the ledger failed: %s", exc)
            with self._lock:
                presence, self._presence = self._presence, None
                if presence is not None:
                    presence.close()

    def _look(self) -> None:
        if not self._leads:
            self._drop_failed()
        presence = self._connected()
        linked = self._server.linked
        presence.renew_server(self._row._replace(linked=linked))
        epoch = presence.head(LEADING).epoch
        servers = {row.process: row for row in presence.servers(SILENT_MS) if self._is_signed(presence, row)}
        self._held = self._holders(presence)
        leader = self._held[LEADING]
        if self._leads:
            self._hang_up_on_silent(servers)
            self._connect(servers, self.owners[LEADING].epoch)
            members = {self._process, *self._links}
        else:
            members = {name for name, row in servers.items() if name == leader or row.linked == epoch}
            if leader in servers:
                self._server.trust(servers[leader].certificate)
        if linked or leader is None or self._leads:
            self._unlinked_at = time.monotonic()
        elif time.monotonic() - self._unlinked_at > UNLINKED_SECONDS:
            for partition in sorted(self.owners, reverse=True):
                self._give_up(partition)
        if leader is None or self._process not in members or (leader == self._process and not self._leads):
            return
        if epoch != self._followed:
            self._follow_trust(presence)
            self._followed = epoch
        while (wanted := partition_to_take(self._process, self._held, members)) is not None:
            self._take(wanted)
            self._held[wanted] = self._process
        if (surplus := partition_to_give_up(self._process, self._held, members)) is not None:
            self._give_up(surplus)

    def _connected(self) -> PostgresStore:
        if self._presence is None:
            store = self._parts.open_store(self._place)
            assert isinstance(store, PostgresStore)
            self._presence = store
            store.presence()
            store.forget_servers(self._process, FORGOTTEN_SECONDS)
        return self._presence

    def _holders(self, presence: PostgresStore) -> dict[int, str | None]:
        """Which process owns each partition; None for one whose owner is silent, too: it may be deposed."""
        found = presence.holders()
        held: dict[int, str | None] = {}
        for partition in range(len(self._trusts)):
            process, silent_ms = found.get(partition, (None, 0))
            if partition in self.owners:
                held[partition] = self._process
            elif process == self._process:
                held[partition] = ""  # It was given up, and the database has yet to notice.
            else:
                held[partition] = None if process is None or silent_ms > SILENT_MS else process
        return held

    def _is_signed(self, presence: PostgresStore, row: ServerRow) -> bool:
        """Whether a key that may sign batches of the ledger has signed a server's row."""
        if row.process == self._process:
            return True
        known = self._signed.get(row.proof)
        if known is None:
            trust, position = load_trust(presence, self._settings, LEADING), presence.head(LEADING).size
            said = _message((trust.origin, *row[:4]))
            known = len(row.certificate) <= CERTIFICATE_BYTES_MAX and any(
                verify(entry.public_key, said, row.proof) for entry in trust.keys(TRANSITION, position, LEADING)
            )
            self._signed[row.proof] = known
        return known

    def _follow_trust(self, presence: PostgresStore) -> None:
        """Give up the partitions that lack a version of trust which the leader has announced; whoever takes them announces it there."""
        newest = load_trust(presence, self._settings, LEADING).config.version
        for partition in [*self.owners]:
            if self._trusts[partition].config.version < newest:
                self._give_up(partition)
                self._held[partition] = None

    def _missing(self) -> int | None:
        """The first partition that can be asked nowhere."""
        for partition in range(len(self._trusts)):
            if partition not in self.owners and (self._held.get(partition) or "") not in self._links:
                return partition
        return None

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _take(self, partition: int) -> None:
        """Own a partition that nobody owns, or whose owner is silent."""
        store = self._parts.open_store(self._place)
        try:
            hold(store, self._place, self._home.socket, [partition])
            self._trusts[:] = [load_trust(store, self._settings, number) for number in range(len(self._trusts))]
            self._own(store, partition)
            self.owners[partition].start()
        except BaseException:
            self.owners.pop(partition, None)
            self._stores.pop(partition, None)
            store.close()
            raise

    def _own(self, store: Store, partition: int) -> None:
        """Begin an epoch in a partition that the store holds."""
        self._keeper.prepare()
        if partition == LEADING:
            announce = announcements(self._home, store, self._trusts)[partition]
        else:  # A new version is begun by the leader alone; two servers would begin two.
            announce = missed_versions(store, self._trusts[LEADING], self._trusts[partition])
        owner = begin_owner(
            *(self._home, store, self._settings, self._trusts[partition], self._keeper, self._parts, partition),
            announce=announce,
        )
        if announce:
            self._trusts[partition] = load_trust(store, self._settings, partition)
        tell_own_address(self._home, store, owner, self._trusts[partition], self._parts.address)
        if self._telemetry is not None:
            self._telemetry.attach(owner)
        self._server.attach(owner)
        for prepare in self._prepare:
            prepare(owner)
        self.owners[partition], self._stores[partition] = owner, store

    def _give_up(self, partition: int) -> None:
        """Leave a partition to the next owner, when what waits has been decided."""
        owner, store = self.owners.pop(partition), self._stores.pop(partition)
        owner.given_up = True
        owner.close()
        store.close()

    def _drop_failed(self) -> None:
        for partition in [number for number, owner in self.owners.items() if owner.closed]:
            logger.warning("partition %d is not owned here any more: %s", partition, self.owners[partition].failure)
            self.owners.pop(partition)
            self._stores.pop(partition).close()

    # -- connections to the other servers ------------------------------------------------------------------------------

    def _connect(self, servers: Mapping[str, ServerRow], epoch: int) -> None:
        """Connect to the servers that this one is not connected to, each on a thread of its own: one that hangs holds up nothing."""
        for name, row in servers.items():
            if name != self._process and name not in self._links and name not in self._connecting:
                self._connecting.add(name)
                threading.Thread(target=self._link, args=(row, epoch), name="detent-link", daemon=True).start()

    def _link(self, row: ServerRow, epoch: int) -> None:
        try:
            with contextlib.suppress(DetentError, OSError, TimeoutError):
                address = parse_address(row.address)
                if address is None:
                    return
                stream = TlsStream(*address, self._key.connecting(row.certificate))
                link = Connection(
                    stream,
                    partial(self._unlink, row.process),
                    said={"epoch": epoch},
                    on_news=self.on_news,
                )
                with self._lock:
                    if self._closing:
                        link.close()
                    else:
                        self._links[row.process] = link
        finally:
            self._connecting.discard(row.process)
            self._soon.set()

    def _hang_up_on_silent(self, servers: Mapping[str, ServerRow]) -> None:
        """End the connections to servers that are silent, here or in the database: what they were asked has to be asked again."""
        for name, link in [*self._links.items()]:
            if name not in servers or time.monotonic() - link.heard_at > SILENT_SECONDS:
                self._unlink(name, link)
                link.close()

    def _unlink(self, process: str, link: Connection) -> None:
        if self._links.get(process) is link:
            del self._links[process]
        self._soon.set()


def _message(said: tuple[str, str, str, str, bytes]) -> bytes:
    origin, process, host, address, certificate = said
    fields = {"origin": origin, "process": process, "host": host, "address": address, "certificate": certificate}
    return SERVER_LABEL + encode(fields)


def _proof(key: SigningKey, said: tuple[str, str, str, str, bytes]) -> bytes:
    return key.sign(_message(said))
