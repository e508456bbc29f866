"""The supervisor of the workers of one process, on a home of this machine: a `work_loop` whose steps callers take, too.

The loop's own thread takes the steps, or a caller that waits for their outcome (`drive`). A caller that submits brings what has
finished meanwhile to the owner in the commit of its submission.

Every start has a new name (`worker_identity`), and the next supervisor ends the leases of those that are provably gone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from detent.errors import OutcomeUnknown, Refused, StoreUnavailable
from detent.jobs.order import Order
from detent.owner.backend import Backend, Submission
from detent.owner.socket_messages import Answer
from detent.reuse.witness import Witnessed
from detent.store.api import AnswerRow
from detent.workers.bench import Attempted, Closing
from detent.workers.drive import Drive, HeldSignals
from detent.workers.home_bench import HomeBench
from detent.workers.work_loop import WorkLoop


class Supervisor(WorkLoop):
    """Workers of one process. Leases that `close` gives up can be had at once.

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
        self._home = HomeBench(
            backend,
            witness=witness,
            rouse=lambda: self._rouse(),  # noqa: PLW0108 - looked up when it is called
            look=lambda: self.wake(),  # noqa: PLW0108
            on_refused=on_refused,
        )
        super().__init__(self._home, on_attempted=on_attempted)
        self._home.stopping = self._stopping
        self.claim_ahead = self._home.claim_ahead
        """For a submitter: what it submits may be leased for this supervisor in the same commit."""
        self._drive = Drive()
        self._pid = os.getpid()

    def _rouse(self) -> None:
        # Afterwards there is no thread to wake, and nothing to do it with. A caller that drives looks by itself.
        if not self._stopping.is_set() and not self._drive.is_mine:
            self._sleeper.wake()
            self._drive.call()

    def _wait_idle(self, seconds: float) -> None:
        self.wait(self._idle.is_set, self._idle.wait, seconds)

    def _stop_steps(self) -> None:
        if self._is_here:
            self._drive.close()

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
        answers: Sequence[AnswerRow] = (),
    ) -> list[Answer]:
        """Have submissions decided, as `ClaimAhead.submit` does, together with what has finished meanwhile."""
        if self._may_be_driven():
            with HeldSignals(self._wake_sleeper):
                if self._drive.take_free():
                    try:
                        answered = self._submit_driving(submissions, stop, answers)
                    finally:
                        self._leave_drive()
                    if answered is not None:
                        return answered
        try:
            return self.claim_ahead.submit(submissions, stop, answers=answers)
        finally:
            self._drive.gone()

    def _may_be_driven(self) -> bool:
        return (
            self._thread.is_alive()
            and not self._stopping.is_set()
            and self._failure is None
            and self._home.session.owns
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
                    goes_on = self._goes_through(self._step) and self._home.session.owns
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
        posted: list[Callable[[], Sequence[Attempted | None]]] = []
        vacant = 0

        def before() -> None:
            nonlocal vacant
            self._look_after(time.monotonic())
            self._gather()
            if self._gather_seconds(time.monotonic(), coming=len(submissions)) <= 0:
                closing.extend(self._closing())
            if closing:
                posted.append(self._home.post(closing))
            wanted = self._wanted()
            if self._maybe_queued:
                vacant = self.claim_ahead.free(wanted)
                self._maybe_queued = not vacant
            self.claim_ahead.offer(wanted)

        def after() -> None:
            for attempted in posted:
                self._close(closing, attempted())
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

    def _sleep(self, wait: float, now: float) -> None:
        if self._drive_until is not None:
            wait = min(wait, self._drive_until - now)
        elif self._drive.is_wanted:
            return
        super()._sleep(wait, now)
