"""The loop of a supervisor: begins what it is granted, gathers what has finished, and settles both with its bench.

It works in steps, and one thread at a time takes them. User code runs in children of its executors, which hold no key and cannot
stall a heartbeat (X-179). A job that is cancelled, or whose lease is gone, is ended at once; what it still reports is not recorded.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput
from detent.jobs.order import Order
from detent.jobs.work import Failure, Result, failed
from detent.kernel import Grant
from detent.owner.backend import Reported
from detent.reuse.ingredients import env_version
from detent.reuse.witness import Witnessed
from detent.workers.action_leases import HeldAction
from detent.workers.bench import Attempted, Bench, Closing, assignment_of
from detent.workers.executor import Asleep, Executor, Sleeper
from detent.workflow.vocabulary import EpochConflictError, LeaseExpiredError

CLAIM_MAX: Final = 256
"""Jobs asked for in one claim."""
LOOK_SECONDS: Final = 1.0
"""How often it looks by itself for work and for leases of workers that are gone; nothing depends on being told."""
GATHER_SECONDS: Final = 0.004
"""How long a result waits at most for others to share its commit, while there are others under way or being submitted."""
MOVED_MAX: Final = 4096
"""Jobs remembered that moved on while they were not held here."""
GATHER_MAX: Final = 100
"""Results that are enough for one commit."""


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


class WorkLoop:
    """The steps of a supervisor, and the thread that takes them. `start` begins, `close` ends what runs.

    A loop that is not started takes nothing.
    """

    def __init__(self, bench: Bench, *, on_attempted: Callable[[Sequence[Attempted]], None] | None = None) -> None:
        self.identity = bench.identity
        self._bench = bench
        self._executors: Mapping[str, Executor] = {}
        self._all_executors: tuple[Executor, ...] = ()
        self._sleeper: Sleeper = Asleep()
        self._on_attempted = on_attempted or (lambda _attempted: None)
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
        self._detach: Callable[[], None] = lambda: None
        self._next_beat = self._next_look = 0.0
        self._drive_until: float | None = None
        """When the caller that takes the steps has to be back; None while the loop's own thread does."""
        self._thread = threading.Thread(target=self._run, name="detent-supervisor", daemon=True)

    @property
    def failure(self) -> BaseException | None:
        """Why the loop ended by itself; None while it runs or was closed."""
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
        self._detach = self._bench.attach(self)
        self._thread.start()

    def wake(self) -> None:
        """Tell the loop that there may be work; from any thread."""
        self._maybe_queued = True
        self._rouse()

    def _rouse(self) -> None:
        # Afterwards there is no thread to wake, and nothing to do it with.
        if not self._stopping.is_set():
            self._sleeper.wake()

    def drain(self, timeout: float) -> bool:
        """Take nothing more, and wait for the end of what is held; False when the time is over before that."""
        if not self._thread.is_alive():
            return not self._held
        self._draining = True
        self._rouse()
        deadline = time.monotonic() + timeout
        # A loop that has ended never becomes idle.
        while not self._idle.is_set() and self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            self._wait_idle(min(left, LOOK_SECONDS))
        return self._idle.is_set()

    def _wait_idle(self, seconds: float) -> None:
        self._idle.wait(seconds)

    def close(self) -> None:
        """End what runs and give its leases up: those attempts count as interrupted, not as failed."""
        if self._stopping.is_set():
            return
        self._detach()
        self._stopping.set()
        self._sleeper.wake()
        self._stop_steps()
        if self._thread.is_alive():
            self._thread.join()
        for executor in self._all_executors:
            executor.close()
        left = [held.grant for held in self._held.values()]
        self._held.clear()
        self._bench.close(left)

    def _stop_steps(self) -> None:
        """Let no thread begin a further step."""

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set() and self._failure is None:
            self._goes_through(self._step)

    def _goes_through(self, step: Callable[[], None]) -> bool:
        """Take a step, or a part of one; False when it was cut short. Any error is the end of this loop."""
        try:
            step()
        except BaseException as exc:  # noqa: BLE001 - kept for those who wait, and told by `failure`
            self._fail(exc)
            return False
        return True

    def _fail(self, exc: BaseException) -> None:
        self._failure = exc
        self._idle.set()
        self._on_attempted([Attempted("", "", None, None)])

    def _cut_short(self) -> None:
        """Have the next step find out what a step that was cut short had begun."""
        self._bench.cut_short()
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
                with self._bench.turn as has_waited:
                    if has_waited:
                        self._gather()  # What has come while others had the turn.
                    self._settle(self._wanted() if self._maybe_queued else 0)
                return
            if self._draining and not self._held:
                self._idle.set()
            wait = min(self._next_beat, self._next_look) - now
            self._bench.offer(self._wanted())
        self._sleep(wait, now)

    def _sleep(self, wait: float, now: float) -> None:  # noqa: ARG002 - for a loop whose steps callers take
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
        return bool(self._revoked) or self._bench.has_news()

    def _may_claim(self) -> bool:
        return self._maybe_queued and self._bench.free(self._wanted()) > 0

    def _gather(self) -> None:
        """Begin what was leased for us by others, and take what has come back."""
        self._begin_granted()
        for executor in self._all_executors:
            self._finished += executor.finished()

    def _begin_granted(self) -> None:
        for grant in self._bench.granted():
            self._begin(grant)
        if self._bench.has_news():
            for grant in self._bench.lost({one.grant.lease_id for one in self._held.values()}):
                self._begin(grant)

    def _wanted(self) -> int:
        """How many jobs to ask for. Their kinds are unknown: none while any executor is full, else what the most can use."""
        if self._draining:
            return 0
        wanted = [executor.wanted() for executor in self._all_executors]
        return min(CLAIM_MAX, max(wanted)) if min(wanted) else 0

    def _gather_seconds(self, now: float, coming: int = 0) -> float:
        """How much longer to wait for further results before a commit: not at all when nothing else is under way or ``coming``."""
        if not self._finished:
            self._gathering_since = now
            return 0.0
        if len(self._finished) >= min(GATHER_MAX, len(self._held) + coming):
            return 0.0
        return self._gathering_since + GATHER_SECONDS - now

    def _settle(self, wanted: int) -> None:
        """Report what has finished and claim more, in one commit; then hand out what was granted."""
        closing = self._closing()
        if wanted := self._bench.withdraw(wanted) if wanted else 0:
            self._maybe_queued = False
        if not closing and not wanted:
            return
        try:
            settled = self._bench.settle(closing, wanted, self._drive_until)
        except BaseException:
            self._give_back(closing)
            raise
        self._close(closing, settled.attempted)
        if settled.may_be_more:
            self._maybe_queued = True
        for grant in settled.grants:
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
            Closing(number, held.grant, result, reported)
            for (number, held, result), reported in zip(ended, self._reports(ended), strict=True)
        ]
        self._finished = []
        self._gathering_since = time.monotonic()
        for _, held, _ in ended:
            held.finishing = True
        return closing

    def _close(self, closing: Sequence[Closing], attempted: Sequence[Attempted | None]) -> None:
        """Take note that attempts are closed, and tell the listeners."""
        for one in closing:
            self._forget(one.number)
        self._tell(attempted)

    def _give_back(self, closing: Sequence[Closing]) -> None:
        """Have attempts closed by a later step: it is not known whether they are."""
        for one in closing:
            if (held := self._held.get(one.number)) is not None:
                held.finishing = False
        self._finished = [*((one.number, one.result) for one in closing), *self._finished]

    def _reports(self, ended: Sequence[tuple[int, HeldLease, Result]]) -> list[Reported | None]:
        """The reports of attempts that are over, signed together; None for one whose worker was lost."""
        now = time.monotonic()
        signed = iter(
            self._bench.sign(
                [
                    (held.grant, result, self._bench.witness(held.order, now), held.order)
                    for _, held, result in ended
                    if result.is_told
                ]
            )
        )
        return [next(signed) if result.is_told else None for _, _, result in ended]

    # -- beginning -----------------------------------------------------------------------------------------------------

    def _begin(self, grant: Grant) -> None:
        self._numbers += 1
        number = self._numbers
        try:
            order = self._bench.order(grant)
            executor = self._executors.get(order.call.kind)
            if executor is None:
                raise InvalidInput(f"no worker here runs work of kind {order.call.kind!r}")
            inputs = self._bench.inputs(grant, order)
        except (LeaseExpiredError, EpochConflictError) as exc:
            self._refuse(grant, Failure("VALIDATION_ERROR", exc.code, str(exc)))
            return
        except DetentError as exc:
            self._refuse(grant, Failure("DEPENDENCY_ERROR", exc.code, str(exc)))
            return
        # A policy that the settings have dropped since: the shortest is safe.
        beats = self._bench.beat_seconds
        beat_seconds = beats.get(grant.lease_policy_id) or min(beats.values())
        beat_at = time.monotonic() + beat_seconds
        self._held[number] = HeldLease(grant, executor, order, beat_seconds, beat_at, inputs.action)
        self._next_beat = min(self._next_beat, beat_at)
        self._number_of[grant.job_id] = number
        if grant.job_id in self._moved:  # After it became known under its number: later events find it there.
            self._moved.pop(grant.job_id, None)
            self._revoked.append(grant.job_id)
            self._rouse()
        try:
            executor.take(assignment_of(number, grant, order, inputs, self._bench.allowance(grant, order)))
        except InvalidInput as exc:  # What an executor does not take, such as a variable that cannot be written.
            self._refuse(grant, Failure("VALIDATION_ERROR", "VALIDATION_ERROR", str(exc)), order)
            self._forget(number)

    def _refuse(self, grant: Grant, failure: Failure, order: Order | None = None) -> None:
        """Fail an attempt that cannot even begin; without an order, because that cannot be read."""
        witnessed = Witnessed(env_version({})) if order is None else self._bench.witness(order, time.monotonic())
        result = failed(failure, self._bench.now_ms())
        (reported,) = self._bench.sign([(grant, result, witnessed, None)])
        settled = self._bench.settle([Closing(0, grant, result, reported)], 0, self._drive_until)
        self._tell(settled.attempted)

    # -- ending --------------------------------------------------------------------------------------------------------

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

    def hear(self, moved: Sequence[tuple[str, bool]], *, queued: bool) -> None:
        """Take note of jobs that have moved; called on whichever thread learns of it."""
        revoked = False
        for job_id, may_have_ended in moved:
            if may_have_ended:
                self._moved[job_id] = None
                if len(self._moved) > MOVED_MAX:
                    self._moved.popitem(last=False)
            held = self._held.get(self._number_of.get(job_id, 0))
            if held is not None and not held.finishing:
                self._revoked.append(job_id)
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
            if self._bench.in_force(held.grant):
                continue
            held.revoked = True
            held.executor.cancel(number)
            self._tell([self._bench.ended(held.grant.job_id)])

    def _beat(self) -> None:
        now = time.monotonic()
        intervals = self._bench.beat_seconds.values()
        live = [one for one in self._held.values() if not one.revoked and not one.finishing]
        # With those that are due, the ones that soon will be: one commit serves them all. After a stop of this process all of
        # them: one that was granted before it and begun after it is older than it looks, and the owner waits a third of it (0006).
        was_stopped = now - self._next_beat >= min(intervals)
        held = [one for one in live if was_stopped or one.beat_at - now <= one.beat_seconds / 2]
        for one in held:
            one.beat_at = now + one.beat_seconds
        self._next_beat = min((one.beat_at for one in live), default=now + max(intervals))
        if not held:
            return
        in_force = self._bench.beat([one.grant for one in held], self._drive_until)
        self._revoked += [one.grant.job_id for one, is_so in zip(held, in_force, strict=True) if not is_so]

    def _release_orphans(self) -> None:
        """End the leases of workers that are provably gone."""
        if self._bench.release_orphans(self._number_of, self._drive_until):
            self._maybe_queued = True
