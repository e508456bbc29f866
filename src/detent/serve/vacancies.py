"""Workers elsewhere that wait for jobs, longest first: the owner claims for them in the very commit that submits a job.

Otherwise a job costs a commit to submit it and another to lease it, and two changes of threads between them. The owner asks at the end
of a turn that brought jobs into the queue. A worker for which it has claimed waits no more until it is told what came of that, so nothing
is claimed twice for the same slots.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from detent.kernel import Claim, Grant, Outcome
from detent.kernel.commands import stamped
from detent.owner.turn import Request, request_of
from detent.serve.fleet import Worker


class Taken(NamedTuple):
    """What was leased to a worker that waited."""

    worker: Worker
    holder: str
    """The start of the worker that it was leased to."""
    grants: Sequence[Grant]
    taken_at: float
    """A moment before the commit, by the monotonic clock."""


class Vacancies:
    """The workers that wait. Safe for several threads; ``tell`` is called in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[Taken], None]) -> None:
        self._loop, self._tell = loop, tell
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Worker, Claim] = OrderedDict()
        self._claimed_for: set[Worker] = set()

    def put(self, worker: Worker, claim: Claim) -> None:
        """A worker begins to wait, or goes on to."""
        with self._lock:
            if worker not in self._claimed_for:
                self._waiting[worker] = claim

    def drop(self, worker: Worker) -> None:
        """A worker waits no more."""
        with self._lock:
            self._waiting.pop(worker, None)

    def is_claimed_for(self, worker: Worker) -> bool:
        """Whether the owner is claiming for a worker just now."""
        return worker in self._claimed_for

    def take(self, jobs: int) -> list[Request]:
        """Claims for so many new jobs; called by the owner, within its turn."""
        taken: list[Request] = []
        with self._lock:
            while jobs > 0 and self._waiting:
                worker, claim = self._waiting.popitem(last=False)
                self._claimed_for.add(worker)
                jobs -= claim.limit
                future: Future[list[Outcome]] = Future()
                future.add_done_callback(partial(self._answered, worker, claim, time.monotonic()))
                taken.append(request_of([partial(stamped, claim)], future, ()))
        return taken

    def _answered(self, worker: Worker, claim: Claim, taken_at: float, future: Future[list[Outcome]]) -> None:
        grants: Sequence[Grant] = ()
        if not future.cancelled() and future.exception() is None:
            grants = [grant for outcome in future.result() for grant in outcome.grants]
        try:
            self._loop.call_soon_threadsafe(self._told, Taken(worker, claim.replica_id, grants, taken_at))
        except RuntimeError:
            self._claimed_for.discard(worker)  # The loop has ended; the next server finds the leases.

    def _told(self, taken: Taken) -> None:
        self._claimed_for.discard(taken.worker)
        self._tell(taken)
