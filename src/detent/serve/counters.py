"""What the server counts about itself, for `/metrics`: requests by route and status, their seconds, open streams. No tenants."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Counters:
    """The server's own metrics, beside those of the home. A route is its template, so there are as many series as routes."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "detent_http_requests", "Requests answered.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "detent_http_request_seconds", "Time to the end of an answer.", ["route"], registry=self._registry
        )
        self.streams = Gauge("detent_http_streams", "Event streams that are open.", registry=self._registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def exposition(self) -> bytes:
        """The text for a scraper."""
        return generate_latest(self._registry)
