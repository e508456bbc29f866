"""What the handlers of one server share: the home, the way to its owner and its ledger, limits, counters."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from detent.access.buckets import Bucket, Rate, full, take
from detent.inspect.monitoring import Exposition
from detent.owner.home import Home
from detent.owner.session import Session
from detent.serve.authenticate import Authenticator
from detent.serve.counters import Counters
from detent.serve.downloads import Downloads
from detent.serve.events import Hub
from detent.serve.readers import Readers
from detent.serve.submitting import Submitting
from detent.serve.uploading import Uploading
from detent.serve.writing import Writer

READS: Final = Rate(200, 800)
WRITES: Final = Rate(50, 200)
FAILURES: Final = Rate(5, 50)
"""How often an address may present a credential that is not valid."""
BUCKETS_MAX: Final = 10_000


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
    hub: Hub
    uploads: Uploading
    writer: Writer
    submitting: Submitting
    downloads: Downloads
    counters: Counters
    hosts: frozenset[str]
    openapi: bytes
    openapi_tag: str
    metrics: Exposition
    limits: Limits = field(default_factory=Limits)
    broken: Callable[[BaseException], None] = lambda _: None
    """Stops the process: an invariant is broken."""
