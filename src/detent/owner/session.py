"""A process's way to a ledger: it owns the home, or it is a client of the process that does, and need not care which.

The first process takes the lock, raises the epoch and listens; every other one connects. When the owner ends, however it
ends, a client takes the lock and goes on as the owner under a higher epoch (X-172). What was in flight at that moment is
`OutcomeUnknown`; asking again is safe, because every request is decided once.

A child of a server never takes over: the server's next start should own the home, and a child that runs code of users must not
write the ledger. It waits for the next owner instead, and is told when none comes.

Asking again: for requests that are safe to repeat, while the owner that answers them may come back (X-173).

An owner that ends is replaced within moments, and a failed commit may have been made or not; either way the same request
again gets the same answer. A disk that stays full does not get better by asking: after a while the caller gets an error. A child of
a server has none to tell, and what it has finished must not be lost: it asks for as long as the server is there.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar, Unpack

from detent.errors import DetentError, InvalidInput, OutcomeUnknown, StoreUnavailable
from detent.kernel import Command, EnrollWorker, Grant, RefusedManifest, Submit, VerifiedManifest, partition_of
from detent.kernel.commands import stamped
from detent.ledger import signer_refusal
from detent.owner.acceptance import ENVELOPE_BYTES_MAX, VerifiedReport, job_of
from detent.owner.home import Home
from detent.owner.lock import is_held, owner_pid, step_aside, try_lock
from detent.owner.owner import Owner, has_moved, moved
from detent.owner.questions import Question, question_of
from detent.owner.routing import FIRST, Pieces, Rounds, Routed, only_partition, whole
from detent.owner.socket_client import Connection, NotSent
from detent.owner.socket_messages import OWNER_COMMANDS, Answer, answer_of
from detent.owner.store_history import GRANTS_PAGE, Observer, Tail, check_asker, open_grants
from detent.owner.turn import Carried, Judge, Make, Request
from detent.owner.wiring import OwnedHome, Parts, open_owned
from detent.owner.worker_turn import WorkerTurn
from detent.store.api import CONTENT_INLINE_BYTES_MAX

_T = TypeVar("_T")

CONNECT_SECONDS = 10.0
"""How long a process tries to own or reach a home before it says that neither works."""
CONNECT_PAUSE_SECONDS = 0.02
OWNERLESS_SECONDS: Final = 60.0
"""How long a session that may not take over waits for another owner."""
REOPEN_SECONDS = 60.0
"""An owner that failed sooner than this after its opening is opened again on the next request, not by itself."""


class Session:
    """A ledger, open for asking."""

    def __init__(
        self,
        home: Home,
        parts: Parts | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        listen: bool = True,
        on_failed: Callable[[BaseException | None], None] | None = None,
        take_over: bool = True,
    ) -> None:
        """Own the home or reach its owner; with ``take_over=False`` the latter alone.

        ``on_failed``, where given, is told when an owner here fails, and why, which is not opened again, and when a session that may
        not take over has found no owner for `OWNERLESS_SECONDS`.
        """
        self.home = home
        self._parts = parts or Parts()
        self._environment = os.environ if environment is None else environment
        self._listen = listen
        self._on_failed = on_failed
        self.may_own = take_over
        """Whether it takes over when the owner ends; a child of a server does not."""
        self._lock = threading.RLock()
        self._link: OwnedHome | Connection | None = None
        self._tail: Tail | None = None
        self._takers: Callable[[int], Sequence[Request]] | None = None
        self._closed = False
        self._pid = os.getpid()
        self._opened_at = 0.0
        self._partition_count: int | None = None
        self.rounds = Rounds()
        """In which order partitions are asked for work."""
        self._connect()

    @property
    def owns(self) -> bool:
        """Whether this process is the home's owner now."""
        return isinstance(self._link, OwnedHome)

    def owns_partition(self, partition: int) -> bool:
        """Whether this process is the owner of a partition now."""
        return (owned := self.owned) is not None and partition in owned.owners

    @property
    def linked(self) -> bool:
        """Whether an owner can be asked now: this process, or one that is connected."""
        link = self._link
        return link is not None and not (isinstance(link, OwnedHome) and link.failed)

    @property
    def owned(self) -> OwnedHome | None:
        """The owned home, when this process is the owner."""
        link = self._link
        return link if isinstance(link, OwnedHome) else None

    def insist_on_writable(self) -> None:
        """Raise `StoreUnavailable` if an owner of this process may write nothing now. An owner elsewhere says so when it is asked."""
        for owner in () if self.owned is None else [*self.owned.owners.values()]:
            owner.insist_on_writable()

    def ask(
        self,
        commands: Sequence[Command],
        *,
        partition: int | None = None,
        timeout: float | None = None,
        content_of: Sequence[Pieces] | None = None,
        **carried: Unpack[Carried],
    ) -> list[Answer]:
        """Have commands decided and wait for the answers, in order. Their ticks are set by the owner.

        They go to the partition they are about, unless one is named, and are decided together there. Where they are about several
        partitions, each decides its own part, and ``answers`` are kept with the last, if all parts were granted. A claim goes round
        the partitions until it has what it asks for. ``content_of`` has the content of each command.

        Refuses, with `InvalidInput`, what only an owner may say by itself.
        """
        _refuse_owner_commands(commands)
        if partition is None:
            partition = only_partition(commands, self.partitions)
        if partition is None:
            return self._ask_round(Routed.of(commands, self.partitions, content_of, carried), timeout)
        return self._ask_one(commands, partition, timeout, whole(carried, content_of))

    def _ask_one(
        self, commands: Sequence[Command], partition: int, timeout: float | None, carried: Carried
    ) -> list[Answer]:
        """Have commands decided by one partition, in one commit."""

        def here(link: OwnedHome) -> list[Answer]:
            owner = _owner(link, partition)
            makes = [_make(command, link, owner) for command in commands]
            outcomes = _answered(partial(owner.call, makes, timeout=timeout, **carried), timeout)
            return [answer_of(outcome) for outcome in outcomes]

        def there(link: Connection) -> list[Answer]:
            asked = link.ask(partition, commands, **carried)
            step_aside()
            return _answered(partial(asked.result, timeout), timeout)

        return self._reach(partition, here, there)

    def _ask_round(self, request: Routed, timeout: float | None) -> list[Answer]:
        """Have each partition decide what is its own, and claim from one after the other what is left to claim."""
        for number in self.rounds.order(self.partitions):
            asked, carried = request.part(number, claims=self.may_have_work(number))
            if asked and request.take(number, self._ask_one(asked, number, timeout, carried)):
                self.rounds.served(number)
        return request.answers()

    def may_have_work(self, partition: int) -> bool:
        """Whether jobs may be waiting in a partition. What comes into its queue after the look is told by its commit."""
        owned = self.owned
        owner = None if owned is None else owned.owners.get(partition)
        return owner is None or len(owner.kernel.queue) > 0

    def post(self, commands: Sequence[Command], content_of: Sequence[Pieces]) -> Callable[[], list[Answer]]:
        """Have commands decided together with the next request of this thread, in one commit; returns how to take the answers.

        They are taken after that request, or without one. Only where this process owns the home: raises `StoreUnavailable` elsewhere.
        """
        if not isinstance(self._ready(), OwnedHome):
            raise StoreUnavailable("another process owns the home", hint="ask, and wait for the answer")
        return self.send(commands, content_of=content_of)

    def send(
        self,
        commands: Sequence[Command],
        *,
        partition: int | None = None,
        judge: Judge | None = None,
        content_of: Sequence[Pieces] | None = None,
        **carried: Unpack[Carried],
    ) -> Callable[[], list[Answer]]:
        """Ask without waiting; returns how to take the answers. What a thread sends before it takes any shares a commit.

        It goes where `ask` would send it; a ``judge`` needs one partition. ``judge`` is for an owner of this process; an owner elsewhere cannot be given one: `StoreUnavailable`.
        """
        _refuse_owner_commands(commands)
        if partition is None:
            partition = only_partition(commands, self.partitions)
        if partition is not None:
            return self._send_one(commands, partition, whole(carried, content_of), judge)
        request = Routed.of(commands, self.partitions, content_of, carried)
        if judge is not None:
            raise InvalidInput("a judgement is made by one partition", hint="say by which")
        if request.claim is not None or carried.get("answers"):
            return partial(self._ask_round, request, None)  # Each part depends on the outcome of those before it.
        sent = []
        for number in request.partitions:
            asked, beside = request.part(number)
            sent.append((number, self._send_one(asked, number, beside)))

        def taken() -> list[Answer]:
            for number, answered in sent:
                request.take(number, answered())
            return request.answers()

        return taken

    def _send_one(
        self, commands: Sequence[Command], partition: int, carried: Carried, judge: Judge | None = None
    ) -> Callable[[], list[Answer]]:
        def here(link: OwnedHome) -> Callable[[], list[Answer]]:
            owner = _owner(link, partition)
            makes = [_make(command, link, owner) for command in commands]
            asked = owner.ask(makes, judge=judge, wake=False, **carried)

            def taken() -> list[Answer]:
                if not asked.done():
                    owner.take_turn()
                return [answer_of(outcome) for outcome in asked.result()]

            return taken if link.holdings is None else again(taken)

        def there(link: Connection) -> Callable[[], list[Answer]]:
            if judge is not None:
                raise StoreUnavailable("another process owns the home", hint="ask again when that process has ended")
            asked = link.ask(partition, commands, **carried)
            return again(asked.result)

        def again(taken: Callable[[], list[Answer]]) -> Callable[[], list[Answer]]:
            """Ask the next owner if this one has given the partition up before it looked at the request."""

            def answers() -> list[Answer]:
                try:
                    return taken()
                except StoreUnavailable as exc:
                    if not has_moved(exc) or judge is not None:
                        raise
                return self._ask_one(commands, partition, None, carried)

            return answers

        return self._reach(partition, here, there)

    def grants(self, replica_id: str, *, partition: int | None = None, timeout: float | None = None) -> list[Grant]:
        """The leases that a worker holds, by job id: what to ask after a claim whose answer was lost (X-173).

        In all partitions, unless one is named.
        """
        replica_id, _ = check_asker(replica_id, None)
        asked = range(self.partitions) if partition is None else (partition,)
        found = [grant for number in asked for grant in self._grants_in(number, replica_id, timeout)]
        return sorted(found, key=attrgetter("job_id"))

    def _grants_in(self, partition: int, replica_id: str, timeout: float | None) -> list[Grant]:
        found: list[Grant] = []
        while True:
            after = found[-1].job_id if found else None
            look = partial(open_grants, replica_id=replica_id, after=after)
            asked = self._reach(
                partition,
                lambda link: _owner(link, partition).look(look),  # noqa: B023
                lambda link: link.grants(partition, replica_id, after),  # noqa: B023
            )
            page = _answered(partial(asked.result, timeout), timeout)
            found += page
            if len(page) < GRANTS_PAGE:
                return found

    def report(
        self,
        report: bytes | VerifiedReport,
        *,
        content: Sequence[tuple[bytes, bytes]] = (),
        timeout: float | None = None,
    ) -> Answer:
        """Hand in a worker's signed report and wait for the answer to the attempt's end.

        A `VerifiedReport`, which this process signed itself, is not verified again where this process owns the home. What
        the report names comes as ``content`` or is a file of the home already; the envelope, when large, becomes one here.
        """
        envelope = report if isinstance(report, bytes) else report.envelope
        if len(envelope) > CONTENT_INLINE_BYTES_MAX:
            if len(envelope) > ENVELOPE_BYTES_MAX:
                raise InvalidInput(f"a signed report has at most {ENVELOPE_BYTES_MAX} bytes, not {len(envelope)}")
            self.home.content_files().put(envelope)
        partition = self._partition_of_report(report)

        def here(link: OwnedHome) -> Answer:
            owner = _owner(link, partition)
            judge, kept = link.checking.judging(partition)(report, content)
            call = partial(owner.call, (), content=kept, judge=judge, timeout=timeout)
            return answer_of(_answered(call, timeout)[-1])

        def there(link: Connection) -> Answer:
            asked = link.result(partition, envelope, content=content)
            return _answered(partial(asked.result, timeout), timeout)[-1]

        return self._reach(partition, here, there)

    def worker_turn(self, turn: WorkerTurn, partition: int) -> Sequence[Grant]:
        """Have a partition decide its part of a worker's turn, in one commit; gives the leases that were granted."""

        def here(link: OwnedHome) -> Sequence[Grant]:
            content = turn.prepare(link.checking.judging(partition))
            outcomes = _owner(link, partition).call((), content=content, judge=turn.judge)
            return turn.read([answer_of(outcome) for outcome in outcomes])

        return self._reach(partition, here, lambda link: turn.take_in(link.turn(partition, turn.to_list()).result()))

    def look(self, question: Question[Any], partition: int, *about: str | None) -> Future[Any]:
        """Ask the owner of a partition between two turns; `Question.read` reads what comes back."""
        answer = question_of(question.name, list(about))
        return self._reach(
            partition,
            lambda link: _owner(link, partition).look(answer),
            lambda link: link.look(partition, question.name, list(about)),
        )

    def _partition_of_report(self, report: bytes | VerifiedReport) -> int:
        return FIRST if (name := job_of(report)) is None else self.partition(name)

    def take_jobs(self, takers: Callable[[int], Sequence[Request]]) -> None:
        """Have claims decided in the commits that bring jobs into the queue, whenever this process owns the home; see `Owner.takers`."""
        with self._lock:
            self._takers = takers
            self._set_takers()

    def _set_takers(self) -> None:
        takers = self._takers
        if takers is not None and isinstance(self._link, OwnedHome):
            self._link.each(lambda owner: setattr(owner, "takers", takers))

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Receive every record that is committed to the home from now on, in order, under any owner.

        In the owning process it is called within the turn that committed, right after the callers were answered; it may
        take note and wake others, but must not wait for this session. Gives back what ends it.
        """
        self._ready()
        with self._lock:
            if self._tail is None:
                self._tail = Tail(self._parts.read_ledger(self.home.ledger), lambda: self.owns)
                self._feed()
            tail = self._tail
        return tail.add(observer)

    def partition(self, name: str) -> int:
        """The partition that owns a job or a run, by its id."""
        return partition_of(name, self.partitions)

    def close(self) -> None:
        """End the session; an owner finishes what waits and gives the home up."""
        if self._forked:
            return  # It is the parent's, and still open there.
        self._closed = True  # Before the lock is had: a thread that looks for an owner holds it, and ends by this.
        with self._lock:
            link, self._link = self._link, None
            tail, self._tail = self._tail, None
        if link is not None:
            link.close()
        if tail is not None:
            tail.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def partitions(self) -> int:
        """How many partitions the ledger has, which never changes."""
        link = self._link
        if self._partition_count is None and isinstance(link, OwnedHome):
            self._partition_count = link.partitions
        if self._partition_count is None:
            with self._parts.open_reader(self.home.ledger) as reader:
                self._partition_count = reader.partitions
        return self._partition_count

    @property
    def _forked(self) -> bool:
        """Whether this is a copy in a child of the process that opened the session: its threads are not here."""
        return os.getpid() != self._pid

    def _reach(self, partition: int, here: Callable[[OwnedHome], _T], there: Callable[[Connection], _T]) -> _T:
        """Ask the owner of a partition, here or the one that is connected; if that one is gone before it was asked, the next."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            home = link = self._ready()
            try:
                link = self._owner_of(home, partition)
                if isinstance(link, OwnedHome):
                    return here(link)
                return there(link)
            except NotSent:
                if home is link:
                    self._take_over(home)
                    continue
                if time.monotonic() > deadline:
                    raise
            except StoreUnavailable as exc:
                if not has_moved(exc) or time.monotonic() > deadline:
                    raise
            time.sleep(CONNECT_PAUSE_SECONDS)  # Its next owner is being found.

    def _owner_of(self, home: OwnedHome | Connection, partition: int) -> OwnedHome | Connection:
        """Who owns a partition: this process, the one that is connected, or another server. The one place that knows."""
        if isinstance(home, Connection) or home.holdings is None or partition in home.owners:
            return home
        return home.holdings.reach(partition)

    def _ready(self) -> OwnedHome | Connection:
        if self._forked:
            raise StoreUnavailable(
                "this session was opened before the process forked",
                hint="open another one in the child",
                retryable=False,
            )
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the session is closed")
            if isinstance(self._link, OwnedHome) and self._link.failed:
                self._link.close()
                self._link = None
            if self._link is None:
                self._connect()
            if self._link is None:
                raise StoreUnavailable("the ledger is not open")
            return self._link

    def _connect(self) -> None:
        """Own the home, or reach its owner; the same loop serves the start and a take-over."""
        with self._lock:
            deadline = time.monotonic() + (CONNECT_SECONDS if self.may_own else OWNERLESS_SECONDS)
            while not self._closed:
                held = try_lock(self.home.lock) if self.may_own else None
                if held is not None:
                    try:
                        self._link = open_owned(
                            self.home, held, self._parts, environment=self._environment, listen=self._listen
                        )
                    except StoreUnavailable as exc:
                        self._link = self._neighbour(exc)
                        return
                    self._opened_at = time.monotonic()
                    self._set_takers()
                    self._feed()
                    self._link.watch(self._lost)
                    return
                try:
                    self._link = Connection.to(self.home.socket, self._lost)
                    self._feed()
                    return
                except (OSError, OutcomeUnknown, NotSent, TimeoutError):
                    if time.monotonic() > deadline:
                        raise self._unreachable() from None
                time.sleep(CONNECT_PAUSE_SECONDS)

    def _neighbour(self, refusal: StoreUnavailable) -> Connection:
        """The owner of the same ledger under another home of this machine; raises the refusal where there is none to reach."""
        socket = refusal.details.get("owner_socket")
        if not socket or not os.path.exists(str(socket)):  # noqa: PTH110 - a path of another process's own
            raise refusal
        try:
            return Connection.to(Path(str(socket)), self._lost)
        except (OSError, OutcomeUnknown, NotSent, TimeoutError):
            raise refusal from None

    def _feed(self) -> None:
        """Have those who observe told by the owners of this process, if it owns the home now."""
        if self._tail is None:
            return
        if isinstance(self._link, OwnedHome):
            hear = self._tail.hear
            self._link.each(lambda owner: owner.observers.append(partial(hear, owner.partition)))
            if self._link.holdings is not None:
                self._link.holdings.on_news = self._tail.look
        self._tail.look()  # Commits before this moment are not announced.

    def _lost(self, link: OwnedHome | Connection) -> None:
        """The owner went away, or failed here: go on in the background, so that leases and retries are looked after.

        The calling thread may be the one that `close` waits for, so nothing is done on it.
        """
        if isinstance(link, OwnedHome) and self._on_failed is not None:
            self._on_failed(link.failure)  # A server ends and is started again.
            return
        threading.Thread(target=self._take_over, args=(link,), name="detent-take-over", daemon=True).start()

    def _take_over(self, link: OwnedHome | Connection) -> None:
        with self._lock:
            if self._closed or self._link is not link:
                return
            self._link = None
            link.close()
            if self._tail is not None:
                self._tail.look()
            # A home that fails whenever it is opened must not be opened over and over: each time writes an epoch.
            if isinstance(link, OwnedHome) and time.monotonic() - self._opened_at < REOPEN_SECONDS:
                return
            # What does not work now is tried again by the next request, which tells its caller.
            with contextlib.suppress(DetentError):
                self._connect()
        if not self.may_own and not self._closed and self._link is None and self._on_failed is not None:
            self._on_failed(None)

    def _unreachable(self) -> StoreUnavailable:
        pid = owner_pid(self.home.lock)
        if not self.may_own and not is_held(self.home.lock):
            return StoreUnavailable(
                f"no process owns the home {self.home.path}",
                hint="start one with `detent serve`, then this one again",
                retryable=False,
            )
        return StoreUnavailable(
            f"the home {self.home.path} is owned by process {pid or 'unknown'}, which does not answer",
            hint="wait for that process, or end it; the ledger itself is fine",
        )


def _refuse_owner_commands(commands: Sequence[Command]) -> None:
    for command in commands:
        if isinstance(command, OWNER_COMMANDS):
            raise InvalidInput(f"{type(command).__name__} is the owner's own and cannot be asked for")


def _owner(link: OwnedHome, partition: int) -> Owner:
    owner = link.owners.get(partition) if type(partition) is int else None
    if owner is None and link.holdings is not None and partition in range(link.partitions):
        raise moved(partition)
    if owner is None:
        raise InvalidInput(f"the ledger has no partition {partition!r}: they go from 0 to {link.partitions - 1}")
    return owner


def _answered(wait: Callable[[], list[_T]], timeout: float | None) -> list[_T]:
    try:
        return wait()
    except TimeoutError:
        raise OutcomeUnknown(f"no answer within {timeout} s", hint="repeat the request, or wait longer") from None


def _make(command: Command, link: OwnedHome, owner: Owner) -> Make:
    """A command without its tick; a submission by a key that may not submit is refused by the kernel, and so logged."""
    if isinstance(command, Submit) and isinstance(command.manifest, VerifiedManifest):
        refusal = signer_refusal(link.trusts[owner.partition], command.manifest, owner.size, owner.partition)
        if refusal is not None:
            refused = RefusedManifest(refusal, command.manifest.job_id)
            return lambda tick: Submit(tick, refused, command.run_id)
    elif isinstance(command, EnrollWorker):
        link.checking.insist_on_enrolment(owner.partition, command)
    return partial(stamped, command)


PATIENCE_SECONDS: Final = 20.0
"""How long a request is repeated; longer than it takes to take over a home from an owner that ended."""
PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 0.4

T = TypeVar("T")


class MayOwn(Protocol):
    """A session, as far as it says how long to ask."""

    @property
    def may_own(self) -> bool: ...


def ask_again(
    session: MayOwn,
    ask: Callable[[], T],
    stop: threading.Event,
    *,
    before_again: Callable[[], None] = lambda: None,
    seconds: float = PATIENCE_SECONDS,
    once: bool = False,
) -> T:
    """What ``ask`` answers, however often it has to be asked, unless it is to be asked ``once``.

    Raises what it raised last when ``stop`` or the time ends it.
    """
    pause = PAUSE_SECONDS
    deadline = time.monotonic() + (seconds if session.may_own else math.inf)
    while True:
        try:
            return ask()
        except (OutcomeUnknown, StoreUnavailable) as exc:
            over = once or not exc.retryable or time.monotonic() > deadline
            if over or stop.wait(pause):
                raise
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
            before_again()
