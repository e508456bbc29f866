"""How often a caller may ask: the rates that a server was started with, and the buckets of everyone who asked lately."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from detent.access.buckets import Bucket, Rate, full, take

BUCKETS_MAX: Final = 10_000
BURST: Final = 4
"""How many seconds' worth of requests may come at once after a pause."""


READS: Final = Rate(200, 800)
WRITES: Final = Rate(50, 200)
ADDRESSES: Final = Rate(1_000, 4_000)
FAILURES: Final = Rate(5, 50)
LOGINS: Final = Rate(5, 5, seconds=60)
STREAMS: Final = 20
STREAMS_OF_SERVER: Final = 1_000
CONNECTIONS: Final = 4_096


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of a server, as its settings say (`[access]`)."""

    reads: Rate = READS
    writes: Rate = WRITES
    addresses: Rate = ADDRESSES
    """All requests of one address, before anything else is known about them."""
    failures: Rate = FAILURES
    """How often an address may present a credential that is not valid."""
    logins: Rate = LOGINS
    """How often an address may try to log in."""
    streams: int = STREAMS
    """How many streams a credential may have open."""
    streams_of_server: int = STREAMS_OF_SERVER
    """How many streams all credentials together may have open."""
    connections: int = CONNECTIONS
    """How many connections may be open; each takes a descriptor."""

    @classmethod
    def from_settings(cls, said: Mapping[str, int]) -> Rates:
        """The rates that settings name, each with four seconds' worth at once."""

        def rate(name: str, otherwise: Rate) -> Rate:
            return Rate(said[name], BURST * said[name]) if name in said else otherwise

        failures, logins = said.get("failures_per_second"), said.get("logins_per_minute")
        return cls(
            rate("reads_per_second", READS),
            rate("writes_per_second", WRITES),
            rate("requests_per_second_of_address", ADDRESSES),
            FAILURES if failures is None else Rate(failures, 10 * failures),
            LOGINS if logins is None else Rate(logins, logins, seconds=60),
            said.get("streams", STREAMS),
            said.get("streams_of_server", STREAMS_OF_SERVER),
            said.get("connections", CONNECTIONS),
        )

    def of(self, writes: bool, quotas: Mapping[str, int] | None) -> tuple[str, Rate]:
        """The rate of a credential's reads or writes; a workspace may have numbers of its own."""
        kind = "writes" if writes else "reads"
        own = (quotas or {}).get(f"{kind}_per_second")
        return kind, (self.writes if writes else self.reads) if own is None else Rate(own, BURST * own)


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
