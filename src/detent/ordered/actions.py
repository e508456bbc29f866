"""What goes in and what comes out of an ordered run: envelopes, and the actions that the runtime is to take.

Actions are a function of the events in their order. They are values: nothing has happened until the runtime does it and
says so with the next event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from detent.canon.late import dataclass
from detent.ordered.snapshot import Snapshot
from detent.ordered.states import SeqState
from detent.ordered.summary import Summary


class Envelope(NamedTuple):
    """How a seq ended: its outcome, the digest of its payload, and what of it is held in memory until the commit."""

    outcome: SeqState
    payload_digest: bytes | None = None
    size: int = 0
    """Bytes held for it; 0 for a payload that is only referred to."""
    payload_ref: str | None = None
    code: str | None = None
    """Why it failed."""


class Batch(NamedTuple):
    """One downstream write: the successes among ``first`` to ``last``, in order; the others are committed in silence."""

    first: int
    last: int
    writes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Submit one kernel job for this chunk, then say `dispatched`. A full queue means to hold it and offer it again."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Apply these writes in order and say `committed` after each batch, or `write_failed`."""

    first: int
    last: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class WriteAgain:
    """The destination failed: `tick` at ``at_ms`` or later brings the commit again."""

    at_ms: int
    failures: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """These seqs were cancelled while the kernel had them: cancel their job, or drop them from it."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """A cancellation, resolved to a number: record it. Nothing at or above it is computed any more (X-069)."""

    requested: int
    resolved: int
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """An envelope that came too late and changes nothing: keep it for the audit (ORD-027)."""

    seq: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    """Every seq is committed."""

    summary: Summary


@dataclass(frozen=True, slots=True)
class Fatal:
    """The world failed for good: stop both lanes. The cursor stands where the destination does."""

    code: str
    message: str
    snapshot: Snapshot


Action: TypeAlias = Dispatch | Commit | WriteAgain | Withdraw | Boundary | Discard | Complete | Fatal
