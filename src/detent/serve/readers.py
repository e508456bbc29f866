"""The threads that read the ledger: four of them, each with a reader of its own, so that no look at it holds up the HTTP loop.

Answers that are ready together are handed to the loop together: waking it costs more than most looks at the ledger do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.serve.known_jobs import KnownJobs
from detent.serve.known_runs import KnownRuns
from detent.serve.tenant_reader import JobFacts, TenantReader

T = TypeVar("T")

READERS: Final = 4


class _Asked(NamedTuple):
    question: Callable[[TenantReader], Any]
    answered: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Readers:
    """Threads that read the ledger, each with a reader of its own. They start when they are first needed."""

    def __init__(self, home: Home, parts: Parts) -> None:
        self._home, self._parts = home, parts
        self._known: KnownJobs[JobFacts] = KnownJobs()
        self._runs = KnownRuns()
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._told: list[tuple[_Asked, Any, BaseException | None]] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        """Questions that have no answer yet; for the loop alone."""

    async def read(self, question: Callable[[TenantReader], T]) -> T:
        """Answer a question on one of the threads."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()
        self._waiting += 1
        if len(self._threads) < min(self._waiting, READERS):
            self._threads.append(threading.Thread(target=self._read, name="detent-read", daemon=True))
            self._threads[-1].start()
        self._asked.put(_Asked(question, answered, loop))
        return await answered

    def close(self) -> None:
        """Finish what is asked, and let go of the ledger."""
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            thread.join()

    def _read(self) -> None:
        reader: TenantReader | None = None
        while (asked := self._asked.get()) is not None:
            found, fault = None, None
            try:
                reader = reader or TenantReader(self._home, self._parts, self._known, self._runs)
                found = asked.question(reader)
            except BaseException as exc:  # noqa: BLE001 - the handler that asked gets it
                fault = exc
            with self._lock:
                first = not self._told
                self._told.append((asked, found, fault))
            if first and not asked.loop.is_closed():
                asked.loop.call_soon_threadsafe(self._tell)
        if reader is not None:
            reader.close()

    def _tell(self) -> None:
        """Hand answers out, in the loop. A handler whose caller has gone waits no more."""
        with self._lock:
            told, self._told = self._told, []
        self._waiting -= len(told)
        for asked, found, fault in told:
            if asked.answered.done():
                continue
            if fault is not None:
                asked.answered.set_exception(fault)
            else:
                asked.answered.set_result(found)
