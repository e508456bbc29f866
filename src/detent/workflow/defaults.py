"""Default factories of the models: the one place in this room that draws ids and reads the clock.

A model is created at load time, by the loader (X-122). The executor creates its actions with every field given, so
that none of these is called while planning.
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

__all__ = ["new_id", "utc_now"]

new_id = uuid4


def utc_now() -> datetime:
    """The present, aware of its zone."""
    return datetime.now(UTC)
