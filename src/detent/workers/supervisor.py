"""The supervisor: supervises the workers of one process. Claims in batches, keeps leases alive, signs and reports results.

User code runs in children of its executors, which hold no key and cannot stall a heartbeat (X-179). The supervisor works in steps:
it hands out what it was granted, gathers what has finished, and brings both to the owner in one commit. A job that
is cancelled, or whose lease is gone, is ended at once; what it still reports is not recorded.

One thread at a time takes these steps: the supervisor's own, or a caller's that waits for their outcome (`drive`). A caller that
submits brings what has finished meanwhile to the owner in the commit of its submission.

Every start has a new name (`worker_identity`), and the next supervisor ends the leases of those that are provably gone.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Final, NamedTuple, Protocol

from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, OutcomeUnknown, Refused, StoreUnavailable
from detent.executor.assignment import Assignment
from detent.jobs.elements import Elements
from detent.jobs.order import Order
from detent.jobs.work import Failure, Result, WorkReport, failed
from detent.kernel import Claim, Command, Finish, Grant, Heartbeat, Job, QuotaPolicy
from detent.kernel.history import Record
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.kernel.quota import left_of
from detent.kernel.table import TERMINAL, State
from detent.owner.backend import Backend, Reported, Submission, joined
from detent.owner.session import ask_again
from detent.owner.socket_messages import Answer
from detent.reuse.ingredients import env_version
from detent.reuse.work_keys import Witnessed
from detent.store.api import AnswerRow
from detent.workers.action_leases import ActionLeases, HeldAction
from detent.workers.claim_ahead import ClaimAhead, given_up
from detent.workers.drive import Drive, HeldSignals
from detent.workers.executor import Executor
from detent.workers.identity import is_gone, worker_identity
from detent.workers.reports import Reporter, closing_commands
from detent.workflow.vocabulary import EpochConflictError, LeaseExpiredError

CLAIM_MAX: Final = 256
"""Jobs asked for in one claim."""
LOOK_SECONDS: Final = 1.0
"""How often it looks by itself for work and for leases of workers that are gone; nothing depends on being told."""
BEATS_PER_LEASE: Final = 3
GATHER_SECONDS: Final = 0.004
"""How long a result waits at most for others to share its commit, while there are others under way."""
MOVED_MAX: Final = 4096
"""Jobs remembered that moved on while they were not held here."""
GATHER_MAX: Final = 100
"""Results that are enough for one commit."""


ANSWER_SECONDS: Final = 0.05
"""How long a caller that drives waits for an answer although its own time is over."""


_IN_QUEUE: Final = b"kretry_ready"
"""How evidence of a job's return to the queue is written: a text of eleven bytes."""


_DISPATCH: Final = b"hdispatch"


def ends_attempt(record: Record) -> bool:
    """Whether a record may be the end of an attempt; evidence is looked at as bytes, because that is cheap."""
    return record.kind == "transition" and _DISPATCH not in (record.evidence or b"")


class Sleeper(Protocol):
    """What the supervisor waits on: something in an executor, or `wake` from another thread."""

    def wait(self, timeout: float) -> None: ...

    def wake(self) -> None: ...


@dataclass(slots=True)
class HeldLease:
    """A lease that the supervisor holds, and the assignment under it."""

    grant: Grant
    executor: Executor
    order: Order
    beat_seconds: float
    beat_at: float
    """When its lease is extended next."""
    action: HeldAction | None
    finishing: bool = False
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt that this supervisor has closed on the ledger, and where the job stands since."""

    job_id: str
    state: str
    digest: bytes | None
    report: WorkReport | None


class Closing(NamedTuple):
    """An attempt that is over, and the commands that close it, the end itself last."""

    number: int
    held: HeldLease
    result: Result
    reported: Reported | None
    commands: list[Command]


def _asked_by(closing: Sequence[Closing]) -> tuple[list[Command], list[tuple[bytes, bytes]]]:
    """The commands that close some attempts, and the content that goes with them."""
    commands = [command for one in closing for command in one.commands]
    return commands, joined(one.reported.inline for one in closing if one.reported is not None)


class Asleep:
    """What a supervisor without workers sleeps on: nothing wakes it."""

    def wait(self, timeout: float) -> None:
        """Come back at once."""

    def wake(self) -> None:
        """Do nothing."""


class Supervisor:
    """Workers of one process. `start` begins, `close` ends what runs; leases given up that way can be had at once.

    A supervisor that is not started takes nothing: submitted work is left to other processes.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        witness: Callable[[Order, float], Witnessed],
        on_attempted: Callable[[Sequence[Attempted]], None] | None = None,
        on_refused: Callable[[Refused], None] = lambda _refusal: None,
    ) -> None:
        self.identity = str(worker_identity(backend.random(4).hex()))
        self._backend = backend
        self._executors: Mapping[str, Executor] = {}
        self._all_executors: tuple[Executor, ...] = ()
        self._sleeper: Sleeper = Asleep()
        self._reporter = Reporter(backend, self.identity)
        self._quotas = {quota.hash(): quota for quota in backend.policies.quotas.values() if quota != UNLIMITED_QUOTA}
        """The quotas that limit something; one that the settings have dropped is still decided by the kernel."""
        self._beat_seconds = {
            name: min(policy.lease_ttl_ticks, policy.heartbeat_extension_ticks) / 1000 / BEATS_PER_LEASE
            for name, policy in backend.policies.leases.items()
        }
        """How often each lease is extended, by the name of its policy."""
        self._on_attempted = on_attempted or (lambda _attempted: None)
        self._witness = witness
        self._action_leases = ActionLeases(lambda: backend.reader)
        self.claim_ahead = ClaimAhead(
            backend.session, self.identity, rouse=self._rouse, look=self.wake, on_refused=on_refused
        )
        """For a submitter: what it submits may be leased for this supervisor in the same commit."""
        self._held: dict[int, HeldLease] = {}
        self._number_of: dict[str, int] = {}
        self._numbers = 0
        self._revoked: deque[str] = deque()
        self._moved: OrderedDict[str, None] = OrderedDict()
        """Jobs with a recent record: one that is cancelled on its way here is not begun unnoticed."""
        self._maybe_queued = True
        self._finished: list[tuple[int, Result]] = []
        self._gathering_since = 0.0
        self._stopping = threading.Event()
        self._draining = False
        self._idle = threading.Event()
        """Set once nothing is held that could end while no more is taken."""
        self._failure: BaseException | None = None
        self._unobserve: Callable[[], None] = lambda: None
        self._next_beat = self._next_look = 0.0
        self._drive = Drive()
        self._drive_until: float | None = None
        """When the caller that drives has to be back; None while the supervisor's own thread takes the steps."""
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="detent-supervisor", daemon=True)

    @property
    def failure(self) -> BaseException | None:
        """Why the supervisor ended by itself; None while it runs or was closed."""
        return self._failure

    @property
    def busy(self) -> int:
        """Leases held now."""
        return len(self._held)

    @property
    def held(self) -> list[str]:
        """The jobs whose leases are held now."""
        return [held.grant.job_id for held in tuple(self._held.values())]

    def start(self, executors: Mapping[str, Executor], sleeper: Sleeper) -> None:
        """Begin to work, with these executors by the kinds of work they do."""
        self._executors, self._all_executors, self._sleeper = (
            executors,
            tuple(dict.fromkeys(executors.values())),
            sleeper,
        )
        self._unobserve = self._backend.session.observe(self._observe)
        self._thread.start()

    def wake(self) -> None:
        """Tell the supervisor that there may be work; from any thread."""
        self._maybe_queued = True
        self._rouse()

    def _rouse(self) -> None:
        # Afterwards there is no thread to wake, and nothing to do it with. A caller that drives looks by itself.
        if not self._stopping.is_set() and not self._drive.is_mine:
            self._sleeper.wake()
            self._drive.call()

    def drain(self, timeout: float) -> bool:
        """Take nothing more, and wait for the end of what is held; False when the time is over before that."""
        if not self._thread.is_alive():
            return not self._held
        self._draining = True
        self._rouse()
        deadline = time.monotonic() + timeout
        while not self._idle.is_set() and (left := deadline - time.monotonic()) > 0:
            self.wait(self._idle.is_set, self._idle.wait, min(left, LOOK_SECONDS))
        return self._idle.is_set()

    def close(self) -> None:
        """End what runs and give its leases up: those attempts count as interrupted, not as failed."""
        if self._stopping.is_set():
            return
        self._unobserve()
        self._stopping.set()
        self._sleeper.wake()
        if self._is_here:
            self._drive.close()
        if self._thread.is_alive():
            self._thread.join()
        for executor in self._all_executors:
            executor.close()
        left = given_up([*(held.grant for held in self._held.values()), *self.claim_ahead.close()])
        self._held.clear()
        if left:
            with suppress(DetentError):  # Then the next supervisor finds that this process is gone.
                self._backend.session.ask(left)

    # -- for callers ---------------------------------------------------------------------------------------------------

    def wait(self, is_done: Callable[[], bool], sleep: Callable[[float], object], seconds: float) -> None:
        """Wait until something is so, or for so many seconds. The caller takes the supervisor's steps meanwhile if it can.

        Else it sleeps, by ``sleep``, which ends when it is so: while another caller drives, and where every step waits for another
        process, which owns the home.
        """
        deadline = time.monotonic() + seconds
        if is_done() or self._is_driven_until(is_done, deadline):
            return
        with self._drive.sleeping() if self._is_here else nullcontext():
            if not is_done():
                sleep(max(0.0, deadline - time.monotonic()))

    def nudge(self) -> None:
        """What a caller waits for may be so now: have the one that drives look."""
        if not self._stopping.is_set() and self._drive.is_anothers:
            self._sleeper.wake()

    def submit(
        self,
        submissions: Sequence[Submission],
        stop: threading.Event,
        *,
        partition: int = 0,
        answers: Sequence[AnswerRow] = (),
    ) -> list[Answer]:
        """Have submissions decided, as `ClaimAhead.submit` does, together with what has finished meanwhile."""
        if partition == 0 and self._may_be_driven():
            with HeldSignals(self._wake_sleeper):
                if self._drive.take_free():
                    try:
                        answered = self._submit_driving(submissions, stop, answers)
                    finally:
                        self._leave_drive()
                    if answered is not None:
                        return answered
        try:
            return self.claim_ahead.submit(submissions, stop, partition=partition, answers=answers)
        finally:
            self._drive.gone()

    def _may_be_driven(self) -> bool:
        return (
            self._thread.is_alive()
            and not self._stopping.is_set()
            and self._failure is None
            and self._backend.session.owns
            and self._is_here
        )

    @property
    def _is_here(self) -> bool:
        """Whether this is the process that started it; in a child that was forked, its locks may be held by threads that are not there."""
        return os.getpid() == self._pid

    def _is_driven_until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Take steps until something is so or the time is over; False when this thread cannot, or the steps need the other one."""
        if not self._may_be_driven():
            return False
        goes_on = True
        with HeldSignals(self._wake_sleeper) as signals:
            if not self._drive.take(deadline - time.monotonic(), self._wake_sleeper):
                return False
            try:
                self._drive_until = deadline
                while goes_on and not is_done() and not signals.arrived:
                    if self._stopping.is_set() or time.monotonic() >= deadline:
                        break
                    goes_on = self._goes_through(self._step) and self._backend.session.owns
            finally:
                self._leave_drive()
        return goes_on

    def _submit_driving(
        self, submissions: Sequence[Submission], stop: threading.Event, kept: Sequence[AnswerRow]
    ) -> list[Answer] | None:
        """Have submissions decided in the commit that reports what has finished, and begin what was leased.

        None if that did not work: nothing is lost then, and the caller submits them alone.
        """
        self._drive_until = time.monotonic()
        closing: list[Closing] = []
        posted: list[Callable[[], Sequence[Answer]]] = []
        vacant = 0

        def before() -> None:
            nonlocal vacant
            self._look_after(time.monotonic())
            self._gather()
            closing.extend(self._closing())
            if closing:
                posted.append(self._backend.session.post(*_asked_by(closing)))
            wanted = self._wanted()
            if self._maybe_queued:
                vacant = self.claim_ahead.free(wanted)
                self._maybe_queued = not vacant
            self.claim_ahead.offer(wanted)

        def after() -> None:
            for answers in posted:
                self._close(closing, answers())
            busy = self.busy
            self._begin_granted()
            if vacant and self.busy - busy >= vacant:
                self._maybe_queued = True

        if not self._goes_through(before):
            self._give_back(closing)
            return None
        try:
            return self.claim_ahead.submit(submissions, stop, answers=kept, more=vacant, once=True)
        except (OutcomeUnknown, StoreUnavailable) as exc:
            if not exc.retryable:
                raise
            return None  # Submitting the same again is safe.
        finally:
            if not self._goes_through(after):
                self._give_back(closing)

    def _leave_drive(self) -> None:
        self._drive_until = None
        self._drive.leave(has_work=self._failure is not None or self._has_news() or self._may_claim())

    def _wake_sleeper(self) -> None:
        self._sleeper.wake()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set() and self._failure is None:
            self._drive.rest()
            with self._drive.turn() as is_free:
                if is_free and not self._stopping.is_set() and self._failure is None:
                    self._goes_through(self._step)

    def _goes_through(self, step: Callable[[], None]) -> bool:
        """Take a step, or a part of one; False when it was cut short. What was under way then is not lost: it is done again.

        A request that does not get through keeps the supervisor's own thread, which tries again, and no caller with a deadline. Any
        other error is the end of this supervisor, on whichever thread it shows.
        """
        try:
            step()
        except (OutcomeUnknown, StoreUnavailable) as exc:
            if self._drive_until is None or not exc.retryable:
                self._fail(exc)
            self._cut_short()
            return False
        except BaseException as exc:
            if isinstance(exc, Exception) or self._drive_until is None:
                self._fail(exc)
                return False
            self._cut_short()
            raise  # For the caller that drives, from a handler of its own.
        return True

    def _fail(self, exc: BaseException) -> None:
        self._failure = exc
        self._idle.set()
        self._on_attempted([Attempted("", "", None, None)])

    def _cut_short(self) -> None:
        """Have the next step find out what a step that was cut short had begun."""
        self.claim_ahead.lose()
        self._next_look = self._next_beat = 0.0
        for held in self._held.values():
            held.beat_at = 0.0

    def _step(self) -> None:
        now = time.monotonic()
        self._look_after(now)
        self._gather()
        wait = self._gather_seconds(now)
        if wait <= 0:
            if self._finished or self._may_claim():
                with self._backend.turn as has_waited:
                    if has_waited:
                        self._gather()  # What has come while others had the turn.
                    self._settle(self._wanted() if self._maybe_queued else 0)
                return
            if self._draining and not self._held:
                self._idle.set()
            wait = min(self._next_beat, self._next_look) - now
            self.claim_ahead.offer(self._wanted())
        if self._drive_until is not None:
            wait = min(wait, self._drive_until - now)
        elif self._drive.is_wanted:
            return
        if not self._has_news():  # It may have come while the executors were asked, which ends one call of `wake`.
            self._sleeper.wait(max(0.0, wait))

    def _look_after(self, now: float) -> None:
        """What has its time: leases that are to be extended or are gone, and a look by itself for work."""
        self._revoke()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._release_orphans()
            self._maybe_queued = True
        if now >= self._next_beat:  # First of all: however much there is to report, no lease may run out over it.
            self._beat()

    def _has_news(self) -> bool:
        """Whether another thread has left something to do."""
        return bool(self._revoked) or self.claim_ahead.has_news()

    def _may_claim(self) -> bool:
        return self._maybe_queued and self.claim_ahead.free(self._wanted()) > 0

    def _gather(self) -> None:
        """Begin what was leased for us by others, and take what has come back."""
        self._begin_granted()
        for executor in self._all_executors:
            self._finished += executor.finished()

    def _begin_granted(self) -> None:
        for grant in self.claim_ahead.granted():
            self._begin(grant)
        if self.claim_ahead.lost():
            self._begin_lost()

    def _wanted(self) -> int:
        """How many jobs to ask for. Their kinds are unknown: none while any executor is full, else what the most can use."""
        if self._draining:
            return 0
        wanted = [executor.wanted() for executor in self._all_executors]
        return min(CLAIM_MAX, max(wanted)) if min(wanted) else 0

    def _gather_seconds(self, now: float) -> float:
        """How much longer to wait for further results before a commit: not at all when nothing else is under way."""
        if not self._finished:
            self._gathering_since = now
            return 0.0
        if len(self._finished) >= GATHER_MAX or len(self._finished) >= len(self._held):
            return 0.0
        return self._gathering_since + GATHER_SECONDS - now

    def _settle(self, wanted: int) -> None:
        """Report what has finished and claim more, in one commit; then hand out what was granted."""
        closing = self._closing()
        commands, content = _asked_by(closing)
        if wanted := self.claim_ahead.withdraw(wanted) if wanted else 0:
            self._maybe_queued = False
            commands.append(Claim(0, self.identity, wanted))
        if not commands:
            return
        try:
            answers = self._ask(commands, content)
        except BaseException:
            self._give_back(closing)
            raise
        self._close(closing, answers)
        if wanted:
            grants = self.claim_ahead.hear(answers[-1])
            self.claim_ahead.leased(len(grants))
            if len(grants) == wanted:
                self._maybe_queued = True
            for grant in grants:
                self._begin(grant)

    def _closing(self) -> list[Closing]:
        """Take what has finished: what closes those attempts, as far as their leases are still held."""
        ended: list[tuple[int, HeldLease, Result]] = []
        for number, result in self._finished:
            held = self._held.get(number)
            if held is None or held.revoked:
                self._forget(number)
                continue
            if held.action is not None:
                held.action.check()  # The result is its action's: what was begun under the lease is reported under it.
            ended.append((number, held, result))
        closing = [
            Closing(number, held, result, reported, closing_commands(held.grant, result, reported))
            for (number, held, result), reported in zip(ended, self._reports(ended), strict=True)
        ]
        self._finished = []
        for one in closing:
            one.held.finishing = True
        return closing

    def _close(self, closing: Sequence[Closing], answers: Sequence[Answer]) -> None:
        """Record how attempts ended, and tell the listeners."""
        became, place = [], -1
        for one in closing:
            self._forget(one.number)
            place += len(one.commands)
            became.append(self._became(one.held.grant.job_id, answers[place], one.reported))
        self._tell(became)

    def _give_back(self, closing: Sequence[Closing]) -> None:
        """Have attempts closed by a later step: it is not known whether they are."""
        for one in closing:
            one.held.finishing = False
        self._finished = [*((one.number, one.result) for one in closing), *self._finished]

    def _reports(self, ended: Sequence[tuple[int, HeldLease, Result]]) -> list[Reported | None]:
        """The reports of attempts that are over, signed together; None for one whose worker was lost."""
        now = time.monotonic()
        signed = iter(
            self._reporter.report(
                [
                    (held.grant, result, self._witness(held.order, now), held.order)
                    for _, held, result in ended
                    if result.is_told
                ]
            )
        )
        return [next(signed) if result.is_told else None for _, _, result in ended]

    def _ask(self, commands: Sequence[Command], content: Sequence[tuple[bytes, bytes]]) -> Sequence[Answer]:
        """Have commands decided; what may or may not have been done is asked for again, which is safe (X-173)."""
        asked = list(commands)

        def reconcile() -> None:
            if isinstance(asked[-1], Claim):
                # The answer that granted leases may be lost: they are there all the same, and the next step finds them.
                self.claim_ahead.lose()
                asked[-1] = Claim(0, self.identity, 1)
                self._maybe_queued = True

        # A caller that drives has to be back in time, and leaves it to the supervisor's thread to ask again.
        until = self._drive_until
        return ask_again(
            lambda: self._backend.session.ask(
                asked, content=content, timeout=None if until is None else max(ANSWER_SECONDS, until - time.monotonic())
            ),
            self._stopping,
            before_again=reconcile,
            once=until is not None,
        )

    def _begin_lost(self) -> None:
        """Begin what was leased by claims whose answers were lost: all that this supervisor has, but does not hold."""
        try:
            grants = self._backend.session.grants(self.identity)
        except DetentError:
            self.claim_ahead.lose()  # The next step asks again.
            return
        held = {one.grant.lease_id for one in self._held.values()}
        for grant in grants:
            if grant.lease_id not in held:
                self._begin(grant)

    # -- beginning -----------------------------------------------------------------------------------------------------

    def _begin(self, grant: Grant) -> None:
        self._numbers += 1
        number = self._numbers
        try:
            order = self._backend.order(grant.payload_digest)
            executor = self._executors.get(order.call.kind)
            if executor is None:
                raise InvalidInput(f"no worker here runs work of kind {order.call.kind!r}")
            action = self._action_leases.held(grant.run_id, order.origin.action)
            values = {}
            for named in order.results():
                if named not in values:
                    values[named] = self._backend.result_value(named)
        except (LeaseExpiredError, EpochConflictError) as exc:
            self._refuse(grant, Failure("VALIDATION_ERROR", exc.code, str(exc)))
            return
        except DetentError as exc:
            self._refuse(grant, Failure("DEPENDENCY_ERROR", exc.code, str(exc)))
            return
        # A policy that the settings have dropped since: the shortest is safe.
        beat_seconds = self._beat_seconds.get(grant.lease_policy_id) or min(self._beat_seconds.values())
        beat_at = time.monotonic() + beat_seconds
        self._held[number] = HeldLease(grant, executor, order, beat_seconds, beat_at, action)
        self._next_beat = min(self._next_beat, beat_at)
        self._number_of[grant.job_id] = number
        if grant.job_id in self._moved:  # After it became known under its number: later events find it there.
            self._moved.pop(grant.job_id, None)
            self._revoked.append(grant.job_id)
            self._rouse()
        try:
            executor.take(
                Assignment(
                    number,
                    grant.job_id,
                    grant.attempt_id,
                    order,
                    values,
                    self._left(grant),
                    *self._earlier(grant, order),
                )
            )
        except InvalidInput as exc:  # What an executor does not take, such as a variable that cannot be written.
            self._refuse(grant, Failure("VALIDATION_ERROR", "VALIDATION_ERROR", str(exc)), order)
            self._forget(number)

    def _left(self, grant: Grant) -> QuotaPolicy | None:
        """What the attempt may use of its job's budgets, after the attempts before it."""
        policy = self._quotas.get(grant.quota_policy_hash)
        row = None if policy is None else self._backend.reader.job(grant.job_id)
        return None if policy is None or row is None else left_of(Job.read(row.body).usage, policy)

    def _earlier(self, grant: Grant, order: Order) -> tuple[Elements | None, frozenset[str]]:
        """Of an array: what earlier attempts came to, and the categories of failures that are tried again."""
        row = self._backend.reader.job(grant.job_id) if order.elements else None
        if row is None:
            return None, frozenset()
        found = self._backend.array_report(grant.job_id) if grant.attempt_id else None
        return None if found is None else found[1].carried(), frozenset(Job.read(row.body).retry_categories)

    def _refuse(self, grant: Grant, failure: Failure, order: Order | None = None) -> None:
        """Fail an attempt that cannot even begin; without an order, because that cannot be read."""
        witnessed = Witnessed(env_version({})) if order is None else self._witness(order, time.monotonic())
        result = failed(failure, self._backend.now_ms())
        (reported,) = self._reporter.report([(grant, result, witnessed, None)])
        *_, answer = self._ask(closing_commands(grant, result, reported), list(reported.inline))
        self._tell([self._became(grant.job_id, answer, reported)])

    # -- ending --------------------------------------------------------------------------------------------------------

    def _became(self, job_id: str, answer: Answer, reported: Reported | None) -> Attempted | None:
        """What became of an attempt. A refused report has become nothing: then the ledger says what did."""
        if answer.refusal is not None or answer.job is None:
            return self._ended_otherwise(job_id)
        if reported is None or not answer.ok:
            return Attempted(job_id, answer.job.state, None, None)
        return Attempted(job_id, answer.job.state, reported.digest, reported.report)

    def _ended_otherwise(self, job_id: str) -> Attempted | None:
        """How a job ended without us: those who wait leave it to us to tell, as long as we hold it."""
        row = self._backend.reader.job(job_id)
        if row is None or row.state not in TERMINAL:
            return None
        digest, report = self._backend.report_of(job_id) or (None, None)
        return Attempted(job_id, row.state, digest, report)

    def _tell(self, attempted: Iterable[Attempted | None]) -> None:
        """Pass on the outcomes of attempts, all at once: each waiting thread is woken once."""
        if told := [one for one in attempted if one is not None]:
            self._on_attempted(told)

    def _forget(self, number: int) -> None:
        held = self._held.pop(number, None)
        # The job may be held under another number by now, if it came back to this supervisor.
        if held is not None and self._number_of.get(held.grant.job_id) == number:
            del self._number_of[held.grant.job_id]

    # -- leases --------------------------------------------------------------------------------------------------------

    def holds(self, job_id: str) -> bool:
        """Whether a lease of this job is held here, so that its end will be told by this supervisor."""
        held = self._held.get(self._number_of.get(job_id, 0))
        return held is not None and not held.revoked

    def _observe(self, records: Sequence[Record]) -> None:
        """Called after commits, on the thread that made them: only takes note."""
        queued: set[str | None] = set()
        revoked = False
        for record in records:
            job_id, evidence = record.job_id, record.evidence or b""
            if record.kind == "submitted" or _IN_QUEUE in evidence:
                queued.add(job_id)  # Also if it is the very job that is being given back: it is in the queue again.
            elif job_id in queued and _DISPATCH in evidence:
                queued.discard(job_id)  # Another supervisor has it already.
            elif job_id is not None:
                if ends_attempt(record):
                    self._moved[job_id] = None
                    if len(self._moved) > MOVED_MAX:
                        self._moved.popitem(last=False)
                held = self._held.get(self._number_of.get(job_id, 0))
                if held is not None and not held.finishing:
                    self._revoked.append(held.grant.job_id)
                    revoked = True
        if queued:
            self.wake()
        elif revoked:
            self._rouse()

    def _revoke(self) -> None:
        """End what runs under a lease that is no longer ours."""
        while self._revoked:
            number = self._number_of.get(self._revoked.popleft())
            held = None if number is None else self._held.get(number)
            if number is None or held is None or held.finishing or held.revoked:
                continue
            row = self._backend.reader.job(held.grant.job_id)
            if row is not None and row.state == State.RUNNING and Job.decode(row.body).lease_id == held.grant.lease_id:
                continue
            held.revoked = True
            held.executor.cancel(number)
            self._tell([self._ended_otherwise(held.grant.job_id)])

    def _beat(self) -> None:
        now = time.monotonic()
        live = [one for one in self._held.values() if not one.revoked and not one.finishing]
        # With those that are due, the ones that soon will be: one commit serves them all. After a stop of this process all of
        # them: one that was granted before it and begun after it is older than it looks, and the owner waits a third of it (0006).
        was_stopped = now - self._next_beat >= min(self._beat_seconds.values())
        held = [one for one in live if was_stopped or one.beat_at - now <= one.beat_seconds / 2]
        for one in held:
            one.beat_at = now + one.beat_seconds
        self._next_beat = min((one.beat_at for one in live), default=now + max(self._beat_seconds.values()))
        if not held:
            return
        answers = self._ask([Heartbeat(0, one.grant.job_id, one.grant.lease_id) for one in held], [])
        for one, answer in zip(held, answers, strict=True):
            if answer.refusal is not None:
                self._revoked.append(one.grant.job_id)

    def _release_orphans(self) -> None:
        """End the leases of workers that are provably gone, so that their jobs need not wait for the leases' end."""
        commands: list[Command] = []
        for row in self._backend.reader.jobs(state=State.RUNNING.value):
            if row.job_id in self._number_of:
                continue
            job = Job.decode(row.body)
            if job.lease_holder and job.lease_id and is_gone(job.lease_holder):
                commands.append(
                    Finish(0, job.job_id, job.lease_id, kind="worker_lost", ok=False, reason_code="WORKER_LOST")
                )
        if commands:
            self._ask(commands, [])
            self._maybe_queued = True
