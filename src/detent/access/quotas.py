"""How much a workspace may upload: decided before the first byte is read."""

from __future__ import annotations

from typing import Final

from detent.canon.late import dataclass
from detent.errors import Refused

DAY_MS: Final = 86_400_000
GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class UploadQuota:
    """What each workspace may upload."""

    stored_bytes_max: int = 100 * GIB
    """What it may hold at once: uploads of the last day, and those that its jobs name."""
    day_bytes_max: int = 100 * GIB
    day_count_max: int = 100_000


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What a workspace has uploaded so far."""

    stored_bytes: int
    day_bytes: int
    day_count: int
    day_began_ms: int | None
    """When the oldest upload of the last day came."""


def upload_refusal(quota: UploadQuota, so_far: Uploaded, size_bytes: int, *, now_ms: int) -> Refused | None:
    """Why a workspace may not upload so many bytes more, or None.

    A refusal says when to come back: a day after its oldest upload of the day. What is stored does not go by itself, so there it says nothing.
    """
    if so_far.stored_bytes + size_bytes > quota.stored_bytes_max:
        return Refused(
            "UPLOAD_QUOTA",
            f"the workspace holds {so_far.stored_bytes:,} bytes of uploads and may hold {quota.stored_bytes_max:,}",
        )
    over = so_far.day_count + 1 > quota.day_count_max or so_far.day_bytes + size_bytes > quota.day_bytes_max
    if not over:
        return None
    wait_ms = max(1_000, (so_far.day_began_ms or now_ms) + DAY_MS - now_ms)
    return Refused(
        "UPLOAD_QUOTA",
        f"the workspace has made {so_far.day_count:,} uploads of {so_far.day_bytes:,} bytes within a day"
        f" and may make {quota.day_count_max:,} of {quota.day_bytes_max:,}",
        {"retry_after_ms": wait_ms},
    )
