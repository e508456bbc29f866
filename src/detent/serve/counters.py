"""What the server counts about itself, for `/metrics`: requests by route and status, their seconds, open streams, workers elsewhere. No tenants."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

AUDIT_OUTCOMES = ("same", "different", "void")
MINUTE = 60
WORKER_STATES = ("idle", "busy", "draining", "silent", "never")


class LastMinute:
    """How often something happened in the last minute, to the second. For the HTTP loop alone."""

    def __init__(self) -> None:
        self._seconds: dict[int, int] = {}

    def count(self, now: float) -> None:
        """It happened once more."""
        second = int(now)
        self._seconds[second] = self._seconds.get(second, 0) + 1
        if len(self._seconds) > MINUTE:
            self._forget(now)

    def in_last_minute(self, now: float) -> int:
        """How often."""
        self._forget(now)
        return sum(self._seconds.values())

    def _forget(self, now: float) -> None:
        self._seconds = {second: times for second, times in self._seconds.items() if second > now - MINUTE}


class Counters:
    """The server's own metrics, beside those of the home. A route is its template, so there are as many series as routes."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.rejected = LastMinute()
        """Jobs for which the queue had no room."""
        self._requests = Counter(
            "detent_http_requests", "Requests answered.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "detent_http_request_seconds", "Time to the end of an answer.", ["route"], registry=self._registry
        )
        self._answered: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        """The series of what was answered before: finding one takes longer than counting."""
        self.streams = Gauge("detent_http_streams", "Event streams that are open.", registry=self._registry)
        self.turns = Counter(
            "detent_worker_turns", "Turns of workers on other machines that were answered.", registry=self._registry
        )
        self._workers = Gauge("detent_workers", "Workers on other machines.", ["state"], registry=self._registry)
        self._silence = Gauge(
            "detent_worker_silence_seconds",
            "Time since the last turn of the worker that was silent for longest; retired workers do not count.",
            registry=self._registry,
        )
        self._audits = Counter(
            "detent_worker_audits",
            "Jobs of workers on other machines that were run again, by what came of the comparison.",
            ["outcome"],
            registry=self._registry,
        )
        for outcome in AUDIT_OUTCOMES:
            self._audits.labels(outcome)
        self.workers(())

    def audited(self, outcome: str) -> None:
        """Count a job that was run again."""
        self._audits.labels(outcome).inc()

    def workers(self, fleet: Iterable[tuple[str, float | None]]) -> None:
        """Take note of the workers as they are now: the state of each, and for how many seconds it has been silent."""
        found = [(state, silent) for state, silent in fleet if state != "retired"]
        counts = Tally(state for state, _ in found)
        for state in WORKER_STATES:
            self._workers.labels(state).set(counts[state])
        self._silence.set(max((silent for _, silent in found if silent is not None), default=0.0))

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        known = self._answered.get((route, status))
        if known is None:
            known = (self._requests.labels(route, str(status)), self._seconds.labels(route))
            self._answered[route, status] = known
        known[0].inc()
        known[1].observe(seconds)

    def exposition(self) -> bytes:
        """The text for a scraper."""
        return generate_latest(self._registry)
