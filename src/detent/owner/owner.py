"""The owner: the single writer of one partition.

A loop on one thread takes what waits in a bounded inbox, stamps it with the tick, lets the kernel decide, appends the
records of all of it in one transaction, and only then answers. No caller sees a decision before it is durable, and
memory is never ahead of the ledger: if an append fails, the owner closes, and those who waited learn that the outcome is
unknown (X-173). An owner that is told beforehand that nothing can be written decides nothing: it refuses what it is asked, answers
questions, and looks again every second. To leases that is a stall (X-180).

Weak spot, known: one turn holds the interpreter while the kernel decides, so a caller's own threads wait meanwhile. The
turn is bounded (`TURN_ITEMS_MAX`) for that reason.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from detent.canon import SigningKey
from detent.errors import (
    DetentError,
    EpochLost,
    HomeError,
    InboxFull,
    InvariantBroken,
    Refused,
    StoreUnavailable,
)
from detent.jobs.dedupe import IdempotencyLimits
from detent.kernel import (
    ChangeTrust,
    Command,
    Grant,
    Kernel,
    KernelConfig,
    Outcome,
    RaiseEpoch,
    Record,
)
from detent.kernel.records import SUBMITTED
from detent.kernel.table import State
from detent.owner.ledgers import RENEW_SECONDS
from detent.owner.lock import step_aside
from detent.owner.log_writer import CHECKPOINT_RECORDS, LogWriter, Turn
from detent.owner.recovery import Recovered
from detent.owner.ticks import Clock, SystemClock, Ticker, TickSource
from detent.owner.turn import (
    TURN_COMMANDS_MAX,
    Judge,
    Look,
    Make,
    Reply,
    Request,
    Stop,
    TurnDecider,
    answer_look,
    request_of,
    tell,
    told,
)
from detent.store.api import AnswerRow, Store, TreeHeadRow, WorkRow

INBOX_MAX = 10_000
"""Requests that may wait; one more is refused with `InboxFull`, never silently queued."""
TURN_ITEMS_MAX = 1_000
"""Requests taken into one group commit."""
TURN_RECORDS_MAX = 20_000
"""Records after which a turn goes on in another batch, well below what a batch may hold."""
HEAD_IDLE_MS = 1_000
"""The loop signs a tree head over the last batches after this time."""
LOOK_AGAIN_MS = 60_000
"""Longest sleep of the loop; nothing depends on it."""
HELD_MS = 1_000
"""How soon an owner that may not write looks whether it may again."""

T = TypeVar("T")

logger = logging.getLogger("detent.owner")


class Owner:
    """Owns one partition of a store until it is closed or fails."""

    def __init__(  # noqa: PLR0913 - the parts an owner is wired from
        self,
        store: Store,
        recovered: Recovered,
        *,
        partition: int,
        config: KernelConfig,
        origin: str | None = None,
        batch_key: SigningKey,
        head_key: SigningKey,
        clock: Clock | None = None,
        keep_head: Callable[[TreeHeadRow], None] | None = None,
        on_dispatch: Callable[[Grant], None] | None = None,
        crash_point: Callable[[str], None] | None = None,
        inbox_max: int = INBOX_MAX,
        checkpoint_records: int = CHECKPOINT_RECORDS,
        idempotency: IdempotencyLimits | None = None,
        renew: Callable[[int], bool] | None = None,
        unwritable: Callable[[], DetentError | None] = lambda: None,
    ) -> None:
        """``renew``, where given, says to the other machines that the owner under this epoch works; False: it is deposed.

        ``unwritable`` is asked before each turn why nothing can be written now; None: it can.
        """
        self.partition = partition
        self.config = config
        self.failure: BaseException | None = None
        self.on_failed: Callable[[], None] = lambda: None
        self.given_up = False
        """Whether it closes because another server is to own the partition."""
        self.observers: list[Callable[[int, Sequence[Record]], None]] = []
        """Told of every commit's records and of the position of the first, in order, once their callers were answered.

        They are called within the turn, so they may take note but ask this owner nothing.
        """
        self.takers: Callable[[int], Sequence[Request]] = lambda _jobs: ()
        """Asked at the end of a turn that brought so many jobs into the queue for claims of those who wait for jobs: they are decided in the
        same commit. Called within the turn, so it must not wait.
        """
        self._kernel = recovered.kernel
        self._batch_key = batch_key
        self._crash = crash_point or (lambda _name: None)
        self._log_writer = LogWriter(
            store,
            recovered,
            partition=partition,
            origin=origin,
            batch_key=batch_key,
            head_key=head_key,
            keep_head=keep_head or (lambda _head: None),
            crash_point=self._crash,
            checkpoint_records=checkpoint_records,
        )
        ticks = TickSource(
            clock or SystemClock(),
            tick_ms=config.tick_ms,
            epoch_base_ms=config.epoch_base_ms,
            not_before=recovered.tail.last_tick,
        )
        self._ticker = Ticker(ticks, recovered.kernel, config)
        limits = idempotency or IdempotencyLimits()
        self._turn_decider = TurnDecider(recovered.kernel, recovered.history, store, self._ticker, partition, limits)
        self._on_dispatch = on_dispatch
        self._inbox: SimpleQueue[Request | Look | Stop] = SimpleQueue()
        self._inbox_max = inbox_max
        self._thread: threading.Thread | None = None
        self._turn_lock = threading.Lock()
        self._wake = threading.Event()
        self._wake_at = 0.0
        self._closing = threading.Event()
        self._renew = renew
        self._renew_at = math.inf
        self._unwritable = unwritable
        self._held: DetentError | None = None

    @property
    def kernel(self) -> Kernel:
        """The state that it decides from: for observers to read, within a turn."""
        return self._kernel

    @property
    def epoch(self) -> int:
        """The epoch under which this owner writes."""
        return self._log_writer.epoch

    @property
    def size(self) -> int:
        """Number of batches written so far."""
        return self._log_writer.size

    def insist_on_writable(self) -> None:
        """Raise why nothing can be written now, if that is so: before content is staged for a request that would be refused."""
        why = self._unwritable()
        if why is not None:
            raise why

    @property
    def closed(self) -> bool:
        """Whether this owner takes no more requests."""
        return self._closing.is_set()

    def begin(self, announce: Sequence[Callable[[int], ChangeTrust]] = ()) -> None:
        """Write the first batch of this epoch: trust to announce, then the epoch itself; then redeliver dispatches."""
        config = self.config.encode()
        tick, due = self._ticker.stamp(), self._kernel.next_due()
        if due is not None and due <= tick:
            # What falls due now is decided under the new epoch and its key, so no time may pass before the epoch stands.
            tick = self._kernel.tick
        turn = Turn(tick)
        commands: list[Command] = [make(tick) for make in announce]
        commands.append(RaiseEpoch(tick, self._log_writer.epoch, self._batch_key.key_id, config))
        for command in commands:
            outcome = self._kernel.apply(command)
            if outcome.refusal is not None:
                raise _refused_to_begin(outcome.refusal)
            turn.add(command, outcome)
        self._crash("decided")
        self._log_writer.commit(turn)
        self._crash("committed")
        self._log_writer.keep_new_head()
        if self._on_dispatch is not None:
            for grant in _live_grants(self._kernel):
                self._on_dispatch(grant)

    def start(self) -> None:
        """Run the loop on a thread of its own, and renew the lease from now on."""
        if self._renew is not None:
            self._renew_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"detent-owner-{self.partition}", daemon=True)
        self._thread.start()

    def ask(
        self,
        makes: Sequence[Make],
        *,
        content: Sequence[tuple[bytes, bytes]] = (),
        work: Sequence[WorkRow] = (),
        answers: Sequence[AnswerRow] = (),
        judge: Judge | None = None,
        wake: bool = True,
    ) -> Future[list[Outcome]]:
        """Have commands decided in one turn; the future is answered after the commit, never before.

        ``work`` goes into the index of work in that same commit, each row only if this request submits its job or finds
        it submitted; ``answers`` are kept only if every command of it was granted. ``judge`` makes further commands, or
        refuses them, from what stands when the turn has come. Without ``wake`` the caller has more to ask, and calls
        `take_turn` when it has.

        Raises `InboxFull` when too much is waiting, `StoreUnavailable` when the owner has closed: nothing was done.
        """
        future: Future[list[Outcome]] = Future()
        self._put(request_of(makes, future, content, work, answers, judge))
        if wake:
            self._wake.set()
        return future

    def take_turn(self) -> None:
        """Take a turn for those who wait; when one is under way, the loop takes the next."""
        if not self._turn_lock.acquire(blocking=False):
            self._wake.set()
            return
        try:
            if not self.closed:
                self.step()
            sooner = self._is_due_sooner()
        finally:
            self._turn_lock.release()
        if sooner or not self._inbox.empty():
            self._wake.set()

    def call(
        self,
        makes: Sequence[Make],
        *,
        content: Sequence[tuple[bytes, bytes]] = (),
        work: Sequence[WorkRow] = (),
        answers: Sequence[AnswerRow] = (),
        judge: Judge | None = None,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Like `ask`, and wait for the answer.

        When no turn is under way the caller takes it itself, with everything else that waits: a commit then costs no
        change of threads, which on a small machine takes as long as the commit.
        """
        if not self._turn_lock.acquire(blocking=False):
            asked = self.ask(makes, content=content, work=work, answers=answers, judge=judge)
            step_aside()
            return asked.result(timeout)
        try:
            if self.closed:
                raise self._closed_error()
            reply = Reply()
            self.step(request_of(makes, reply, content, work, answers, judge))
            sooner = self._is_due_sooner()
        finally:
            self._turn_lock.release()
        # The loop is woken for what cannot wait until it looks by itself: most turns leave nothing of the kind, and a
        # thread that wakes for nothing costs as much as the commit. Requests that came during this turn belong to it too.
        if sooner or not self._inbox.empty():
            self._wake.set()
        return reply.result()

    def look(self, question: Callable[[Kernel], T]) -> Future[T]:
        """Ask about the kernel's state between two turns; the question must only read."""
        request = Look(question, Future())
        self._put(request)
        self._wake.set()
        return request.future

    def grants(self, replica_id: str | None = None) -> Future[list[Grant]]:
        """The outbox: leases in force, for redelivery to their holders (X-067)."""
        return self.look(lambda kernel: _live_grants(kernel, replica_id))

    def close(self) -> None:
        """Finish what waits, sign a last tree head, and stop. Safe to call twice."""
        if not self.closed:
            self._inbox.put(Stop(Future()))
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        else:
            while not self.closed:
                self.step()
        self._fail_waiting()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            called = self._wake.wait(max(0.0, self._wake_at - time.monotonic()))
            self._wake.clear()
            with self._turn_lock:
                if not self._closing.is_set():
                    self.step()
                    if not called and not self._closing.is_set():
                        self._idle()
                self._wake_at = self._look_again_at()
                if not self._inbox.empty():
                    self._wake.set()  # One turn takes a bounded number of requests, and nothing else wakes it for the rest.
            if isinstance(self.failure, Exception) and not isinstance(self.failure, DetentError):
                raise self.failure  # A bug of ours. An interrupt has reached the thread it was meant for.

    def _look_again_at(self) -> float:
        """When the loop has to look again by itself, by the monotonic clock."""
        if self._held is not None:
            return min(time.monotonic() + HELD_MS / 1_000, self._renew_at)
        wait_ms = HEAD_IDLE_MS if self._log_writer.owes_head else LOOK_AGAIN_MS
        due_ms = self._ticker.ms_until_due()
        if due_ms is not None:
            wait_ms = min(wait_ms, due_ms)
        return min(time.monotonic() + wait_ms / 1_000, self._renew_at)

    def _is_due_sooner(self) -> bool:
        """Whether a turn that the loop did not take has left something before it wakes by itself."""
        wake_at = self._look_again_at()
        if wake_at >= self._wake_at:
            return False
        self._wake_at = wake_at
        return True

    def step(self, own: Request | None = None) -> None:
        """One turn: take what waits, decide it, commit it, answer it. Only the holder of the turn may call this.

        ``own`` is the request of a caller that takes the turn itself; it comes after those who waited before.
        """
        items: list[Request | Look | Stop] = []
        commands = 0
        while not self._inbox.empty() and len(items) < TURN_ITEMS_MAX and commands < TURN_COMMANDS_MAX:
            items.append(item := self._inbox.get_nowait())
            commands += len(item.makes) if type(item) is Request else 0
        if own is not None:
            items.append(own)
        requests = [item for item in items if type(item) is Request]
        try:
            if time.monotonic() >= self._renew_at:
                self._renew_lease()
            self._held = self._unwritable()
            if self._held is None:
                self._turn(requests)
            else:
                for request in requests:
                    tell(request.future, self._held)
            if len(requests) < len(items):
                self._look_around(items)
        except BaseException as exc:
            self._fail(exc, items)
            if not isinstance(exc, Exception):
                raise  # An interrupt is for the caller that took this turn, too.

    def _renew_lease(self) -> None:
        """Say that this owner works, through the connection it writes through."""
        self._renew_at = time.monotonic() + RENEW_SECONDS
        if self._renew is not None and not self._renew(self.epoch):
            raise EpochLost(
                f"another process has taken over partition {self.partition}: this one was silent for too long",
                hint="nothing was lost; start this process again, and it stands by",
            )

    def _look_around(self, items: Sequence[Request | Look | Stop]) -> None:
        """Answer the questions of a turn, and end with it if a caller asked for that."""
        for item in items:
            if isinstance(item, Look):
                answer_look(item.future, item.ask, self._kernel)
            elif isinstance(item, Stop):
                self._finish()

    def _put(self, item: Request | Look) -> None:
        if self._inbox.qsize() >= self._inbox_max:
            raise InboxFull(
                f"{self._inbox_max} requests are waiting for the owner", hint="wait for answers before asking for more"
            )
        if self.closed:
            raise self._closed_error()
        self._inbox.put(item)
        if self.closed:
            self._fail_waiting()

    def _turn(self, requests: list[Request]) -> None:
        tick = self._ticker.stamp()
        turn = Turn(tick)
        answers: list[tuple[Request, list[Outcome]]] = []
        beats: dict[str, Outcome] = {}
        while (passing := self._ticker.due(tick)) is not None:
            # Each lets a bounded part of what is due happen; all of it is recorded before any request is answered.
            turn.add(passing, self._kernel.apply(passing))
            if len(turn.records) >= TURN_RECORDS_MAX:
                self._settle(turn, [])
                turn = Turn(tick)
        for request in requests:
            if not request.future.set_running_or_notify_cancel():
                continue
            outcomes = self._turn_decider.decide(request, turn, beats)
            if outcomes is None:
                continue  # Its own making failed, and it has been told.
            answers.append((request, outcomes))
            if len(turn.records) >= TURN_RECORDS_MAX:
                self._settle(turn, answers)
                turn, answers, beats = Turn(tick), [], {}
        if len(self._kernel.queue) and (new := sum(record.kind == SUBMITTED for record in turn.records)):
            for request in self.takers(new):
                if (outcomes := self._turn_decider.decide(request, turn, beats)) is not None:
                    answers.append((request, outcomes))
        self._settle(turn, answers)

    def _settle(self, turn: Turn, answers: list[tuple[Request, list[Outcome]]]) -> None:
        """Make a turn durable, then answer it."""
        self._crash("decided")
        if not turn.empty:
            self._log_writer.commit(turn)
        elif answers:
            self._log_writer.keep_beside(turn)
        self._crash("committed")
        for request, outcomes in answers:
            request.future.set_result(outcomes)
        if self._on_dispatch is not None:
            for _, outcomes in answers:
                for outcome in outcomes:
                    for grant in outcome.grants:
                        self._on_dispatch(grant)
        self._log_writer.keep_new_head()
        if self.observers and turn.records:
            self._tell_observers(turn.records)

    def _tell_observers(self, records: Sequence[Record]) -> None:
        first = self._log_writer.next_position - len(records)
        for observer in tuple(self.observers):
            try:
                observer(first, records)
            except Exception:
                logger.exception("an observer of the ledger failed")  # It is a guest here; the commit stands.

    def _idle(self) -> None:
        if self._held is not None or not self._log_writer.owes_head:
            return
        try:
            self._log_writer.sign_head()
        except BaseException as exc:  # noqa: BLE001 - outside a turn, and the owner's end all the same
            self._fail(exc, ())

    def _finish(self) -> None:
        """The last turn."""
        self._log_writer.finish()
        self._closing.set()

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _fail(self, exc: BaseException, items: Sequence[Request | Look | Stop]) -> None:
        self.failure = exc
        self._closing.set()
        for item in items:
            tell(item.future, told(exc))
        self._fail_waiting()
        self._wake.set()
        self.on_failed()

    def _fail_waiting(self) -> None:
        """Tell those who were never looked at that nothing was done for them."""
        while True:
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return
            tell(item.future, self._closed_error())

    def _closed_error(self) -> DetentError:
        if self.given_up:
            return moved(self.partition)
        why = f": {self.failure}" if self.failure is not None else ""
        return StoreUnavailable(f"the owner has closed{why}", hint="open the ledger again and repeat the request")


def moved(partition: int) -> StoreUnavailable:
    """What a server says of a partition that it does not own: nothing was done, and another one is to be asked."""
    return StoreUnavailable(
        f"partition {partition} is not owned here", hint="ask its owner", details={"moved": partition}
    )


def has_moved(error: StoreUnavailable) -> bool:
    """Whether that is why a request was not looked at."""
    return "moved" in error.details


def _refused_to_begin(refusal: Refused) -> Exception:
    """The kernel refuses a new epoch because of the settings it brings, or never."""
    if refusal.code == "INVALID_PARAMS":
        return HomeError(
            f"the settings cannot take effect: {refusal.message}",
            hint="put what is missing back into config.toml until the jobs that need it have ended",
        )
    return InvariantBroken(f"the kernel refused its owner: {refusal.message}")


def _live_grants(kernel: Kernel, replica_id: str | None = None) -> list[Grant]:
    return [
        Grant.of(kernel.jobs[job_id])
        for job_id in sorted(kernel.jobs)
        if kernel.jobs[job_id].state == State.RUNNING and replica_id in {None, kernel.jobs[job_id].lease_holder}
    ]
