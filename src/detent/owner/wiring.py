"""The one place that picks concrete parts: store, clock, queue, keeper, and puts an owner together from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from detent.canon import SigningKey, digest_text
from detent.canon.late import dataclass
from detent.canon.merkle import root_at
from detent.errors import HomeError, InvalidInput, Refused, RolledBack, StoreUnavailable, TrustError
from detent.kernel import ChangeTrust, EnrollWorker, Grant, KernelConfig, VerifiedManifest
from detent.kernel.partition_state import MakeQueue
from detent.ledger import SignedTrust, Trust, TrustConfig, verify_manifest
from detent.ledger.note import parse_head, parse_note
from detent.ledger.trust_config import ROOT
from detent.owner.acceptance import VerifiedReport, judge
from detent.owner.content import Content
from detent.owner.enrolled import Certificates, announcements, enrolment_refusal
from detent.owner.home import Home, environment_policy
from detent.owner.ledgers import LedgerPlace, hold, lease_of, no_room, open_ledger, open_store
from detent.owner.lock import OwnerLock
from detent.owner.owner import Owner
from detent.owner.owner_address import TRANSITION, sign_address, tell_address
from detent.owner.policies import carried_over
from detent.owner.recovery import recover, tree_node
from detent.owner.settings import Settings
from detent.owner.socket_client import Connection
from detent.owner.socket_server import SocketServer
from detent.owner.state_directory import KeptHeads, displaced_heads, forget_bound_heads, settle_in, state_directory
from detent.owner.ticks import Clock, SystemClock
from detent.owner.turn import Judge
from detent.scheduling.scheduler import Scheduler
from detent.store.api import LedgerReader, Store, StoreReader, TreeHeadRow
from detent.store.sqlite.database import Options
from detent.store.uploads import uploads_kept

if TYPE_CHECKING:
    from detent.owner.telemetry import Telemetry

Judging: TypeAlias = (
    "Callable[[bytes | VerifiedReport, Sequence[tuple[bytes, bytes]]], tuple[Judge, Sequence[tuple[bytes, bytes]]]]"
)
"""Says what has to be decided about a report and what came with it, and which content is kept if it is accepted."""


class Sharing(Protocol):
    """The partitions of a ledger that servers share, as far as this process owns or reaches them (`holdings.py`)."""

    on_news: Callable[[], None]

    def lead(self, store: Store, trusts: Sequence[Trust]) -> tuple[dict[int, Owner], list[Trust]]:
        """Begin to own the first partition, which the store holds."""

    def settle(self, stand_by: Callable[[StoreUnavailable], None] | None) -> None:
        """Wait until every partition can be asked."""

    def step_down(self) -> None:
        """Forget the first partition: leading did not work out."""

    def each(self, prepare: Callable[[Owner], None]) -> None:
        """Prepare every owner that is here now, and every one that comes."""

    def reach(self, partition: int) -> Connection:
        """The connection to the server that owns a partition."""

    def close(self) -> None:
        """Give up everything."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What an owner is made of beside its home; tests put fakes here."""

    clock: Clock = field(default_factory=SystemClock)
    make_queue: MakeQueue = Scheduler
    open_store: Callable[..., Store] = open_store
    """Opens a ledger for writing by its place."""
    crash_point: Callable[[str], None] | None = None
    on_dispatch: Callable[[Grant], None] | None = None
    checkpoint_records: int | None = None
    accept_rollback: bool = False
    stand_by: Callable[[StoreUnavailable], None] | None = None
    """Called while a process elsewhere owns the ledger, which is taken over when that ends or is silent; None: that is an error."""
    address: str = ""
    """Where a server takes requests, as HOST:PORT, for those that stand by; empty for any other process."""
    holdings: Sharing | None = None
    """The partitions that this server shares with others; None where one process owns all of them."""
    serves: bool = False
    """Whether the owner is a server: it announces a key that certifies workers, where the ledger has none."""

    def read_ledger(self, ledger: LedgerPlace) -> LedgerReader:
        """A reader, for the caller to close."""
        return open_ledger(ledger)

    @contextmanager
    def open_reader(self, ledger: LedgerPlace, *, any_schema: bool = False) -> Iterator[StoreReader]:
        """A reader for as long as the block lasts; of a file with a changed schema only where that is said anyway."""
        reader = open_ledger(ledger, Options(any_schema=any_schema))
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def open_still(self, ledger: LedgerPlace) -> Iterator[StoreReader]:
        """A reader for as long as the block lasts, for the holder of the home's lock; works on a full disk, too."""
        reader = open_ledger(ledger, Options(still=True))
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def open_snapshot(self, ledger: LedgerPlace, *, any_schema: bool = False) -> Iterator[StoreReader]:
        """A reader that sees the commits of this moment and none that follow, for as long as the block lasts."""
        reader = open_ledger(ledger, Options(any_schema=any_schema))
        try:
            with reader.snapshot() as snapshot:
                yield snapshot
        finally:
            reader.close()

    def damage(self, ledger: LedgerPlace) -> list[str]:
        """What the store's own check finds in the file."""
        reader = open_ledger(ledger, Options(any_schema=True))
        try:
            return reader.damage()
        finally:
            reader.close()

    def schema_faults(self, ledger: LedgerPlace) -> list[str]:
        """In what the file differs from the store's own schema."""
        reader = open_ledger(ledger, Options(any_schema=True))
        try:
            return reader.schema_faults()
        finally:
            reader.close()


class Checking:
    """How what comes from elsewhere is checked before a partition decides it, by the trust in force there now."""

    def __init__(
        self, home: Home, trusts: Sequence[Trust], owners: Mapping[int, Owner], certificates: Certificates
    ) -> None:
        self._home, self._trusts, self._owners, self._certificates = home, trusts, owners, certificates

    def verified(self, partition: int, signed: tuple[bytes, bytes, bytes]) -> VerifiedManifest | Refused:
        """A manifest from another process, if the key that signed it may."""
        return verify_manifest(self._trusts[partition], signed, self._owners[partition].size, partition=partition)

    def judging(self, partition: int) -> Judging:
        """How the owner of a partition comes to decide about a report."""
        return partial(
            judge,
            self._trusts[partition],
            position=self._owners[partition].size,
            partition=partition,
            has_file=self._home.content_files().has,
            certificate_of=partial(self._certificates.of, partition),
        )

    def insist_on_enrolment(self, partition: int, command: EnrollWorker) -> None:
        """Refuse a worker whose certificate or proof does not hold now in the partition, before the kernel hears of it."""
        position = self._owners[partition].size
        if refusal := enrolment_refusal(self._trusts[partition], command, position, partition):
            raise InvalidInput(refusal.message, code=refusal.code, details=dict(refusal.details))


class OwnedHome:
    """A home this process owns: an owner for each partition, or for some where servers share them, and the socket for all other processes."""

    def __init__(  # noqa: PLR0913 - the parts an owned home is made of
        self,
        home: Home,
        lock: OwnerLock,
        owners: Mapping[int, Owner],
        stores: Sequence[Store],
        trusts: Sequence[Trust],
        service: SocketServer | None,
        telemetry: Telemetry | None = None,
        *,
        checking: Checking,
        holdings: Sharing | None = None,
    ) -> None:
        self.home = home
        self.owners = owners
        """By partition. Those of a ledger that servers share come and go."""
        self.trusts = trusts
        self.checking = checking
        self.holdings = holdings
        """What knows the owners of the other partitions; None where there are none."""
        self._lock = lock
        self._stores = stores
        self._service = service
        self._telemetry = telemetry

    @property
    def trust(self) -> Trust:
        """The trust of the first partition; the others announce the same versions."""
        return self.trusts[0]

    @property
    def partitions(self) -> int:
        """How many partitions the ledger has."""
        return len(self.trusts)

    @property
    def failed(self) -> bool:
        """Whether an owner has closed: the home must be opened again."""
        return any(owner.closed for owner in [*self.owners.values()])

    @property
    def failure(self) -> BaseException | None:
        """Why an owner has closed, if one has failed."""
        return next((owner.failure for owner in [*self.owners.values()] if owner.failure is not None), None)

    def each(self, prepare: Callable[[Owner], None]) -> None:
        """Prepare every owner that is here now, and every one that comes."""
        if self.holdings is not None:
            self.holdings.each(prepare)
            return
        for owner in self.owners.values():
            prepare(owner)

    def watch(self, on_failed: Callable[[OwnedHome], None]) -> None:
        """Have it told when an owner fails, which may be at once."""

        def follow(owner: Owner) -> None:
            owner.on_failed = partial(on_failed, self)

        self.each(follow)
        if self.failed:
            on_failed(self)

    def close(self) -> None:
        """Stop listening, finish what waits, give the home up."""
        if self._service is not None:
            self._service.close()
        if self.holdings is not None:
            self.holdings.close()
        for owner in [*self.owners.values()]:
            owner.close()
        for store in self._stores:
            store.close()
        if self._telemetry is not None:
            self._telemetry.close()
        with suppress(StoreUnavailable):  # The next owner tries again; what is closed stays closed.
            self.home.content_files().sweep_abandoned()
        self._lock.release()


def open_owned(
    home: Home, lock: OwnerLock, parts: Parts, *, environment: Mapping[str, str], listen: bool = True
) -> OwnedHome:
    """Open a home whose lock is held: check it, recover every partition, begin a new epoch in each, listen."""
    opened: list[Store] = []
    service: SocketServer | None = None
    try:
        settings = home.settings()
        place = home.ledger
        if parts.serves and (full := no_room(place)) is not None:
            raise full  # Each start writes an epoch: a server that is started over and over must not use up the rest.
        first = parts.open_store(place)
        opened.append(first)
        hold(first, place, home.socket, [0], stand_by=parts.stand_by)
        # Queue and policies first, then trust, then the log (PIPE-107 to PIPE-109).
        for partition in range(first.partitions):
            parts.make_queue(_config(home, settings, first, partition))
        trusts = [load_trust(first, settings, partition) for partition in range(first.partitions)]
        keeper = KeptHeads(state_directory(environment), trusts[0].origin)
        keeper.prepare()
        if any(trust.origin != trusts[0].origin for trust in trusts):
            raise HomeError(
                f"the home {home.path} is a copy that has its own name in some of its partitions only",
                hint="`detent copy` was cut short: run it again",
            )
        if isinstance(place, Path):
            settle_in(home, trusts[0].origin, environment)
        if parts.accept_rollback:
            forget_bound_heads(home, trusts[0], environment)
        for partition, kept in displaced_heads(home, trusts[0], environment):
            check_kept_head(first, kept, partition)
        if parts.holdings is not None:
            owners, trusts = parts.holdings.lead(first, trusts)
        else:
            for partition in range(1, first.partitions):
                opened.append(parts.open_store(place))
                hold(opened[-1], place, home.socket, [partition], stand_by=parts.stand_by)
            announce = announcements(home, first, trusts) if parts.serves else [()] * len(opened)
            owners = {
                partition: begin_owner(
                    home, store, settings, trusts[partition], keeper, parts, partition, announce=announce[partition]
                )
                for partition, store in enumerate(opened)
            }
            if any(announce):
                trusts[:] = [load_trust(first, settings, partition) for partition in range(first.partitions)]
            for partition, store in enumerate(opened):
                tell_own_address(home, store, owners[partition], trusts[partition], parts.address)
        checking = Checking(home, trusts, owners, Certificates(partial(parts.open_reader, place), trusts))
        files = home.content_files()
        files.sweep_abandoned()
        Content(first, files).sweep(lambda: uploads_kept(home.uploads, files))
        telemetry = None
        if parts.holdings is None and (telemetry := telemetry_of(home, settings, parts)) is not None:
            for owner in owners.values():
                telemetry.attach(owner)
        if listen:
            # Before the owners' loops: if the socket cannot be opened, nothing runs yet that would have to be stopped.
            server = SocketServer(home.socket, checking, owners, len(trusts), parts.holdings)
            server.start()
            service = server
        if parts.holdings is not None:
            parts.holdings.settle(parts.stand_by)
        else:
            for owner in owners.values():
                owner.start()
        if telemetry is not None:
            telemetry.start()
        return OwnedHome(
            home, lock, owners, opened, trusts, service, telemetry, checking=checking, holdings=parts.holdings
        )
    except BaseException:
        if service is not None:
            service.close()
        if parts.holdings is not None:
            parts.holdings.step_down()
        for store in opened:
            store.close()
        lock.release()
        raise


def tell_own_address(home: Home, store: Store, owner: Owner, trust: Trust, address: str) -> None:
    """Say where this server takes requests, signed by the key of the owner's next batch; other processes say nothing."""
    if address:
        key = signing_key(home, trust, TRANSITION, owner.size, owner.partition)
        proof = sign_address(key, trust.origin, owner.partition, owner.epoch, address)
        tell_address(store, home.ledger, owner.partition, address, proof)


def telemetry_of(home: Home, settings: Settings, parts: Parts) -> Telemetry | None:
    """What tells monitoring of this home; None where the settings ask for nothing."""
    if settings.textfile is None and settings.log is None:
        return None
    from detent.owner.telemetry import Telemetry  # noqa: PLC0415 - most homes need none of it

    return Telemetry(
        home.path,
        partial(parts.read_ledger, home.ledger),
        files=home.content_files(),
        textfile=settings.textfile,
        log=settings.log,
    )


def begin_ledger(home: Home, signed: SignedTrust, store: Store, *, parts: Parts | None = None) -> None:
    """Write the first batch of a new ledger: the trust configuration and the first epoch; `make_home` syncs them."""
    parts = parts or Parts()
    trust = Trust.start(signed.envelope())
    for partition in range(store.partitions):
        owner = _owner(home, store, home.settings(), trust, None, parts, partition)
        owner.begin([partial(_announce, signed=signed)])
        owner.close()


def load_trust(store: StoreReader, settings: Settings, partition: int = 0) -> Trust:
    """The trust of a partition as its own batches announce it, pinned to the root its home was made with."""
    try:
        trust = announced_trust(store, partition)
    except TrustError as exc:
        raise TrustError(
            f"{settings.path.with_name('ledger.db')}: {exc}",
            hint="`detent verify` shows what was changed; restore the file from a backup",
        ) from exc
    if trust.root_digest != settings.root:
        raise TrustError(
            f"the ledger's root is {digest_text(trust.root_digest)}, but {settings.path} pins {digest_text(settings.root)}",
            hint="the ledger or the settings were replaced; restore the one that belongs here",
        )
    return trust


def announced_trust(store: StoreReader, partition: int = 0) -> Trust:
    """The trust of a partition as its own batches announce it, whatever its root is."""
    announced = store.records_of_kind(partition, "trust_changed")
    return Trust.build((row.batch_no, row.evidence or b"") for row in announced)


def signing_key(home: Home, trust: Trust, role: str, position: int, partition: int = 0) -> SigningKey:
    """The private key of this home that signs for a role at a position of the log, as the trust configuration says.

    Each server of a ledger has keys of its own.
    """
    listed = [entry.key_id for entry in trust.keys(role, position, partition)]
    if role != ROOT and home.join_request.exists() and not any(home.keyring.holds(role, key_id) for key_id in listed):
        raise TrustError(
            f"the ledger does not trust the {role} key of the home {home.path}",
            hint=f"run `detent keys admit` with {home.join_request} on the home that has the root key",
        )
    key = home.keyring.first(role, listed)
    if key is not None:
        return key
    raise TrustError(f"the trust configuration has no {role} key for position {position}", hint="rotate the key")


def check_kept_head(store: StoreReader, kept: tuple[int, str], partition: int) -> None:
    """Refuse a ledger that is shorter than, or differs from, a tree head kept outside it (X-178)."""
    size, note = kept
    now = store.head(partition).size
    hint = (
        "it is an older copy of its home, or a copy was worked on elsewhere: go on with the newest, or restore it here;"
        " if the loss is accepted, `detent doctor --accept-rollback`"
    )
    if now < size:
        raise RolledBack(f"the ledger has {now} batches, but a tree head over {size} was kept outside it", hint=hint)
    if root_at(size, partial(tree_node, store, partition)) != parse_head(parse_note(note).text).root:
        raise RolledBack(f"the first {size} batches are not those a kept tree head was signed over", hint=hint)


def begin_owner(  # noqa: PLR0913 - the parts an owner is wired from
    home: Home,
    store: Store,
    settings: Settings,
    trust: Trust,
    keeper: KeptHeads,
    parts: Parts,
    partition: int,
    *,
    announce: Sequence[SignedTrust] = (),
) -> Owner:
    """An owner of one partition that has begun its epoch, in a batch that also announces versions of the trust.

    Refuses, with `RolledBack`, a ledger that is not the one whose tree head was kept outside it.
    """
    kept = keeper.heads().get(partition)
    if kept is not None:
        check_kept_head(store, kept, partition)
    later = trust
    for signed in announce:
        # Refused here, before anything is written, if it does not follow on what is in force.
        later = later.extend(signed.envelope(), store.head(partition).size)
    owner = _owner(home, store, settings, trust, keeper, parts, partition, later=later)
    owner.begin([partial(_announce, signed=signed) for signed in announce])
    return owner


def _owner(  # noqa: PLR0913 - the parts an owner is wired from
    home: Home,
    store: Store,
    settings: Settings,
    trust: Trust,
    keeper: KeptHeads | None,
    parts: Parts,
    partition: int,
    *,
    later: Trust | None = None,
) -> Owner:
    """Recover a partition and put its owner together.

    ``later`` is the trust after the owner's first batch, when that batch announces some: every tree head the owner signs
    covers that batch and is signed by the log key that is in force after it.
    """
    if store.origin != settings.origin:
        raise HomeError(
            f"{home.ledger} is the ledger {store.origin}, but {settings.path} belongs to {settings.origin}",
            hint="put the file back that belongs to this home",
        )
    config = _config(home, settings, store, partition, serves=parts.serves)
    recovered = recover(store, partition, config, make_queue=parts.make_queue)
    config = carried_over(config, recovered.kernel.config, recovered.kernel.jobs.values())
    size = recovered.tail.size
    keep: Callable[[TreeHeadRow], None] | None = None
    if keeper is not None:
        kept = keeper
        keep = lambda head: kept.keep(head.partition, head.size, head.note)  # noqa: E731 - a name would say no more
    options = {} if parts.checkpoint_records is None else {"checkpoint_records": parts.checkpoint_records}
    return Owner(
        store,
        recovered,
        partition=partition,
        config=config,
        origin=(later or trust).origin,
        batch_key=signing_key(home, trust, "transition", size, partition),
        head_key=signing_key(home, later or trust, "log", size + 1, partition),
        clock=parts.clock,
        keep_head=keep,
        on_dispatch=parts.on_dispatch,
        crash_point=parts.crash_point,
        idempotency=settings.idempotency,
        renew=lease_of(store, home.ledger, partition),
        unwritable=partial(no_room, home.ledger) if parts.serves else lambda: None,
        **options,
    )


def _config(
    home: Home, settings: Settings, store: StoreReader, partition: int, *, serves: bool = False
) -> KernelConfig:
    environment = environment_policy(home)
    return settings.kernel_config(
        partitions=store.partitions, partition_id=partition, environment=environment, serves=serves
    )


def _announce(tick: int, *, signed: SignedTrust) -> ChangeTrust:
    return ChangeTrust(tick, TrustConfig.parse(signed.body).version, signed.digest(), signed.envelope())
