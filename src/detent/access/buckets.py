"""How often a principal may ask: a token bucket, as a value and a decision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests in so many seconds, and so many at once after a pause."""

    count: int
    burst: int
    seconds: int = 1

    @property
    def words(self) -> str:
        """As messages say it."""
        return f"{self.count} in {self.seconds} s" if self.seconds > 1 else f"{self.count} a second"

    @property
    def window_seconds(self) -> int:
        """How long an empty bucket takes to fill."""
        return -(-self.burst * self.seconds // self.count)


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is left of a rate at a moment, in thousandths of a request, times the rate's seconds."""

    left_milli: int
    at_ms: int


def full(rate: Rate, *, now_ms: int) -> Bucket:
    """The bucket of a principal that has not asked yet."""
    return Bucket(rate.burst * 1_000 * rate.seconds, now_ms)


def take(bucket: Bucket, rate: Rate, *, now_ms: int) -> tuple[Bucket, int]:
    """Take one request out. The second value is how long to wait first, in milliseconds; 0: it was taken.

    A clock that was set back gives nothing and takes nothing away.
    """
    passed_ms = max(0, now_ms - bucket.at_ms)
    one = 1_000 * rate.seconds
    left = min(rate.burst * one, bucket.left_milli + passed_ms * rate.count)
    if left >= one:
        return Bucket(left - one, max(now_ms, bucket.at_ms)), 0
    return Bucket(left, max(now_ms, bucket.at_ms)), -(-(one - left) // rate.count)
