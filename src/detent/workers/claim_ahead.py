"""Work that is claimed in the very commit that submits it, when there are workers to spare.

Otherwise every job costs a commit to submit it and another to lease it, and a change of threads between the two. So the supervisor
says how many jobs it could begin at once, and a submitter claims as many for it in the same request.

A full queue is not asked for more than has left it since: every refusal is a row in the decision log, which has an end, and
should be about what readers want to know.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, Unpack

from detent.errors import NO_ROOM, DetentError, Refused
from detent.kernel import Claim, Command, Finish, Grant, Submit
from detent.kernel.outcome import REFUSED
from detent.owner.backend import Submission, commands_of
from detent.owner.routing import Pieces
from detent.owner.session import MayOwn, ask_again
from detent.owner.socket_messages import Answer
from detent.owner.turn import Carried
from detent.store.api import AnswerRow

_UNASKED: Final = Answer(REFUSED, None, None, Refused("QUEUE_FULL", "the queue was full a moment ago"), (), None)


class Asks(MayOwn, Protocol):
    """What decides commands: a session."""

    def ask(
        self,
        commands: Sequence[Command],
        *,
        content_of: Sequence[Pieces] | None = None,
        **carried: Unpack[Carried],
    ) -> Sequence[Answer]: ...

    def partition(self, name: str) -> int: ...


class ClaimAhead:
    """How many jobs a supervisor could begin now, and what was leased for it by others. Safe for several threads."""

    def __init__(
        self,
        session: Asks,
        worker: str,
        *,
        rouse: Callable[[], None],
        look: Callable[[], None],
        on_refused: Callable[[Refused], None] = lambda _refusal: None,
    ) -> None:
        self._session = session
        self._on_refused = on_refused
        self._worker = worker
        self._rouse = rouse
        """Have the supervisor take what was leased for it."""
        self._look = look
        """Have the supervisor look into the queue."""
        self._lock = threading.Lock()
        self._closed = False
        self._vacant = 0
        self._room: dict[int, int] = {}
        """Submissions that the queue of a partition takes, as far as this process sees: unknown until it was full, or once it took more."""
        self._claimed = 0
        """Leases that submissions under way ask for: each may fill a worker as soon as it is answered."""
        self._granted: deque[Grant] = deque()
        self._lost = False
        self._refused = False

    def offer(self, vacant: int) -> None:
        """How many jobs the supervisor could begin from now on, beside what was or is being leased for it already."""
        with self._lock:
            self._vacant = 0 if self._closed or self._lost else self._free(vacant)

    def free(self, vacant: int) -> int:
        """How many of the jobs that the supervisor could begin are left for it to claim by itself."""
        with self._lock:
            return self._free(vacant)

    def withdraw(self, vacant: int) -> int:
        """Offer nothing until the next offer; returns what is `free` then, for the supervisor to claim."""
        with self._lock:
            self._vacant = 0
            return self._free(vacant)

    def _free(self, vacant: int) -> int:
        return max(0, vacant - len(self._granted) - self._claimed)

    def granted(self) -> list[Grant]:
        """Take what was leased for the supervisor since the last time."""
        if not self._granted:
            return []
        with self._lock:
            granted = list(self._granted)
            self._granted.clear()
        return granted

    def lose(self) -> None:
        """Take note that the answer to a claim was lost. Nothing is offered until the supervisor has asked for its leases."""
        with self._lock:
            self._lost, self._vacant = True, 0

    def lost(self) -> bool:
        """Whether to ask now for leases whose answers were lost since the last time.

        Not while another lease is on its way to the supervisor: it would be found as well, and begun again when it arrives.
        """
        if not self._lost:
            return False
        with self._lock:
            if self._claimed or self._granted:
                return False
            self._lost = False
        return True

    def has_news(self) -> bool:
        """Whether there is something for the supervisor to begin, or to ask for."""
        return bool(self._granted) or (self._lost and not self._claimed)

    def close(self) -> list[Grant]:
        """Lease nothing more for the supervisor, and take what was leased for it; what still comes is given up where it comes."""
        with self._lock:
            self._closed, self._vacant = True, 0
        return self.granted()

    def hear(self, answer: Answer) -> Sequence[Grant]:
        """What a claim was granted. A claim that is refused is told once: from outside, waiting for ever looks like waiting."""
        refusal = answer.refusal
        if refusal is not None and not self._refused:
            self._on_refused(refusal)
        self._refused = refusal is not None
        return answer.grants

    def leased(self, grants: Sequence[Grant]) -> None:
        """Jobs have left the queue for the supervisor."""
        if not self._room:
            return
        with self._lock:
            for grant in grants:
                partition = self._session.partition(grant.job_id)
                if partition in self._room:
                    self._room[partition] += 1

    def submit(
        self,
        submissions: Sequence[Submission],
        stop: threading.Event,
        *,
        answers: Sequence[AnswerRow] = (),
        more: int = 0,
        once: bool = False,
    ) -> list[Answer]:
        """Have submissions decided, and lease at once what the supervisor has workers for; an answer for each, in order.

        So many leases are asked for where ``more`` is more than there are submissions: other jobs may be in the queue.
        What may or may not have been done is asked for again, unless it is to be asked ``once``; that is safe (X-173), but nothing is
        claimed then.
        """
        asked = self._within_room(submissions)
        claim = self._claim(max(len(asked), more))
        commands: list[Command] = [*commands_of(asked)]
        answered, taken, leased = self._ask(
            commands if claim is None else [*commands, claim],
            stop,
            once=once,
            content_of=[submission.inline for submission in asked],
            work=[submission.work for submission in asked],
            answers=answers,
        )
        if taken > leased:
            self._look()  # There is more to claim; where this process owns the home the supervisor has heard of it already.
        return [*answered, *[_UNASKED] * (len(submissions) - len(asked))]

    def _within_room(self, submissions: Sequence[Submission]) -> Sequence[Submission]:
        """As many submissions, from the first on, as their queues take; one of each partition is offered in any case."""
        if not self._room:
            return submissions
        with self._lock:
            left = {partition: max(1, room) for partition, room in self._room.items()}
        for place, submission in enumerate(submissions):
            partition = self._session.partition(submission.manifest.job_id)
            if left.get(partition) == 0:
                return submissions[:place]
            if partition in left:
                left[partition] -= 1
        return submissions

    def _ask(
        self, commands: list[Command], stop: threading.Event, *, once: bool, **beside: Any
    ) -> tuple[Sequence[Answer], int, int]:
        """The answers to submissions, how many were taken, and how many jobs the claim behind them was granted."""
        claim = commands[-1] if commands and isinstance(commands[-1], Claim) else None

        def again() -> None:
            nonlocal claim
            if claim is not None:
                commands.pop()
                self._hand_over(claim, None)
                claim = None

        try:
            answered = ask_again(
                self._session,
                lambda: self._session.ask(commands, **beside),
                stop,
                before_again=again,
                once=once,
            )
            if claim is None:
                return answered, self._count(commands, answered, ()), 0
            answered, grants = answered[:-1], self.hear(answered[-1])
            taken = self._count(commands, answered, grants)
            self._hand_over(claim, grants)
        except BaseException:
            again()
            raise
        return answered, taken, len(grants)

    def _count(self, commands: Sequence[Command], answered: Sequence[Answer], grants: Sequence[Grant]) -> int:
        """Take note of the room that is left; returns how many submissions were taken."""
        refused = [answer.refusal for answer in answered if answer.refusal is not None]
        if self._room or any(refusal.code in NO_ROOM for refusal in refused):
            with self._lock:
                self._count_room(commands, answered, grants)
        return len(answered) - len(refused)

    def _count_room(self, commands: Sequence[Command], answered: Sequence[Answer], grants: Sequence[Grant]) -> None:
        taken, leased, full = Counter[int](), Counter[int](), set[int]()
        for command, answer in zip(commands, answered, strict=False):
            partition = self._session.partition(command.manifest.job_id or "") if isinstance(command, Submit) else 0
            taken[partition] += answer.refusal is None
            if answer.refusal is not None and answer.refusal.code in NO_ROOM:
                full.add(partition)
        for grant in grants:
            leased[self._session.partition(grant.job_id)] += 1
        for partition in full:
            self._room[partition] = leased[partition]
        for partition in self._room.keys() - full:
            left = self._room[partition] - taken[partition]
            if left >= 0:
                self._room[partition] = left + leased[partition]
            else:
                del self._room[partition]

    def _claim(self, wanted: int) -> Claim | None:
        with self._lock:
            taken = min(self._vacant, wanted)
            self._vacant -= taken
            self._claimed += taken
        return Claim(0, self._worker, taken) if taken else None

    def _hand_over(self, claim: Claim, grants: Sequence[Grant] | None) -> None:
        """Let the supervisor take what a claim was granted; None: the answer was lost, and the supervisor has to ask."""
        if grants is None:
            self.lose()  # Before the claim is no longer under way, or the supervisor would offer again in between.
        with self._lock:
            self._claimed -= claim.limit
            if grants and not self._closed:
                self._granted.extend(grants)
            closed = self._closed
        if closed and grants:
            with suppress(DetentError):  # Then the next supervisor finds that this process is gone.
                self._session.ask(given_up(grants))
        self._rouse()


def given_up(grants: Iterable[Grant]) -> list[Command]:
    """The commands that give leases back: those attempts count as interrupted, not as failed."""
    return [
        Finish(0, grant.job_id, grant.lease_id, kind="interrupted", ok=False, reason_code="INTERRUPTED")
        for grant in grants
    ]
