"""How often a principal may ask: a token bucket, as a value and a decision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests a second, and so many at once after a pause."""

    per_second: int
    burst: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is left of a rate at a moment, in thousandths of a request."""

    left_milli: int
    at_ms: int


def full(rate: Rate, *, now_ms: int) -> Bucket:
    """The bucket of a principal that has not asked yet."""
    return Bucket(rate.burst * 1_000, now_ms)


def take(bucket: Bucket, rate: Rate, *, now_ms: int) -> tuple[Bucket, int]:
    """Take one request out. The second value is how long to wait first, in milliseconds; 0: it was taken.

    A clock that was set back gives nothing and takes nothing away.
    """
    passed_ms = max(0, now_ms - bucket.at_ms)
    left = min(rate.burst * 1_000, bucket.left_milli + passed_ms * rate.per_second)
    if left >= 1_000:
        return Bucket(left - 1_000, max(now_ms, bucket.at_ms)), 0
    return Bucket(left, max(now_ms, bucket.at_ms)), -(-(1_000 - left) // rate.per_second)
