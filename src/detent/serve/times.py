"""Moments as answers write them."""

from __future__ import annotations

from detent.canon import tick_to_iso


def written_ms(moment_ms: int | None) -> str | None:
    """A moment in milliseconds since 1970, in UTC; null for none."""
    return None if moment_ms is None else tick_to_iso(moment_ms, 1, 0)
