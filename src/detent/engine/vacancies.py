"""Work that is claimed in the very commit that submits it, when there are workers to spare.

Otherwise every job costs a commit to submit it and another to lease it, and a change of threads between the two. So the crew
says how many jobs it could begin at once, and whoever submits some claims as many for it in the same request.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from detent.engine.patience import ask_again
from detent.engine.wire import Answer
from detent.errors import DetentError
from detent.kernel import Claim, Command, Finish, Grant
from detent.store.api import AnswerRow, WorkRow


class Asks(Protocol):
    """What decides commands: a session."""

    def ask(
        self,
        commands: Sequence[Command],
        *,
        partition: int = 0,
        content: Sequence[tuple[bytes, bytes]] = (),
        work: Sequence[WorkRow] = (),
        answers: Sequence[AnswerRow] = (),
    ) -> Sequence[Answer]: ...


class Vacancies:
    """How many jobs a crew could begin now, and what was leased for it by others. Safe for several threads."""

    def __init__(self, session: Asks, worker: str, *, rouse: Callable[[], None], look: Callable[[], None]) -> None:
        self._session = session
        self._worker = worker
        self._rouse = rouse
        """Have the crew take what was leased for it."""
        self._look = look
        """Have the crew look into the queue."""
        self._lock = threading.Lock()
        self._closed = False
        self._vacant = 0
        self._granted: deque[Grant] = deque()
        self._lost = False

    def offer(self, vacant: int) -> None:
        """How many jobs the crew could begin from now on, beside what was granted for it already."""
        with self._lock:
            self._vacant = 0 if self._closed else max(0, vacant - len(self._granted))

    def granted(self) -> list[Grant]:
        """Take what was leased for the crew since the last time."""
        if not self._granted:
            return []
        with self._lock:
            granted = list(self._granted)
            self._granted.clear()
        return granted

    def lost(self) -> bool:
        """Whether the answer to a claim was lost since the last time: then there may be leases that nobody knows of."""
        if not self._lost:
            return False
        with self._lock:
            self._lost = False
        return True

    def close(self) -> list[Grant]:
        """Lease nothing more for the crew, and take what was leased for it; what still comes is given up where it comes."""
        with self._lock:
            self._closed, self._vacant = True, 0
        return self.granted()

    def submit(
        self,
        commands: Sequence[Command],
        stop: threading.Event,
        *,
        partition: int = 0,
        content: Sequence[tuple[bytes, bytes]] = (),
        work: Sequence[WorkRow] = (),
        answers: Sequence[AnswerRow] = (),
    ) -> Sequence[Answer]:
        """Have submissions decided, and lease at once what the crew has workers for.

        What may or may not have been done is asked for again, which is safe (X-173), but nothing is claimed then.
        """
        claim = self._claim(len(commands)) if partition == 0 else None
        asked = [*commands] if claim is None else [*commands, claim]

        def again() -> None:
            if len(asked) > len(commands):
                asked.pop()
                self._hand_over(None)

        try:
            answered = ask_again(
                lambda: self._session.ask(asked, partition=partition, content=content, work=work, answers=answers),
                stop,
                before_again=again,
            )
        except BaseException:
            again()
            raise
        grants = answered[-1].grants if len(asked) > len(commands) else ()
        if grants:
            self._hand_over(grants)
        answered = answered[: len(commands)]
        if sum(answer.refusal is None for answer in answered) > len(grants):
            self._look()  # There is more to claim; where this process owns the home the crew has heard of it already.
        return answered

    def _claim(self, submissions: int) -> Claim | None:
        with self._lock:
            taken = min(self._vacant, submissions)
            self._vacant -= taken
        return Claim(0, self._worker, taken) if taken else None

    def _hand_over(self, grants: Sequence[Grant] | None) -> None:
        with self._lock:
            if grants is None:
                self._lost = True
            elif not self._closed:
                self._granted.extend(grants)
            closed = self._closed
        if closed and grants:
            with suppress(DetentError):  # Then whoever comes next finds that this process is gone.
                self._session.ask(given_up(grants))
        self._rouse()


def given_up(grants: Iterable[Grant]) -> list[Command]:
    """The commands that give leases back: those attempts count as interrupted, not as failed."""
    return [
        Finish(0, grant.job_id, grant.lease_id, kind="interrupted", ok=False, reason_code="INTERRUPTED")
        for grant in grants
    ]
