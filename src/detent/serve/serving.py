"""What the handlers of one server share: the home, the way to its owner and its ledger, limits, counters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from detent.access.buckets import Bucket, Rate, full, take
from detent.inspect.monitoring import Exposition
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.serve.authenticate import Authenticator
from detent.serve.tenant_reader import TenantReader

if TYPE_CHECKING:
    from detent.serve.counters import Counters

T = TypeVar("T")

READERS: Final = 4
"""Threads that read the ledger."""
READS: Final = Rate(200, 800)
WRITES: Final = Rate(50, 200)
FAILURES: Final = Rate(5, 50)
"""How often an address may present a credential that is not valid."""
BUCKETS_MAX: Final = 10_000


class Readers:
    """Threads that read the ledger, each with a reader of its own."""

    def __init__(self, home: Home, parts: Parts) -> None:
        self._home, self._parts = home, parts
        self._local = threading.local()
        self._opened: list[TenantReader] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(READERS, "detent-read")

    async def read(self, question: Callable[[TenantReader], T]) -> T:
        """Answer a question on one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, question)

    def close(self) -> None:
        """Finish what is asked, and let go of the ledger."""
        self._pool.shutdown()
        for reader in self._opened:
            reader.close()

    def _ask(self, question: Callable[[TenantReader], T]) -> T:
        reader: TenantReader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = TenantReader(self._home, self._parts)
            with self._lock:
                self._opened.append(reader)
        return question(reader)


class Limits:
    """The buckets of everyone who asked lately. For the HTTP loop alone."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    def wait_ms(self, kind: str, name: str, rate: Rate) -> int:
        """Take one request out of a bucket; how long to wait where it is empty, else 0."""
        now_ms = self._now_ms()
        bucket = self._buckets.pop((kind, name), None) or full(rate, now_ms=now_ms)
        bucket, wait_ms = take(bucket, rate, now_ms=now_ms)
        self._buckets[kind, name] = bucket
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        return wait_ms


@dataclass(slots=True)
class Serving:
    """One server, as its handlers see it."""

    home: Home
    session: Session
    authenticator: Authenticator
    readers: Readers
    counters: Counters
    hosts: frozenset[str]
    openapi: bytes
    openapi_tag: str
    metrics: Exposition
    limits: Limits = field(default_factory=Limits)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server begins to stop."""
    broken: Callable[[BaseException], None] = lambda _: None
    """Stops the process: an invariant is broken."""
