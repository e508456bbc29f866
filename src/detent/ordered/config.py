"""The configuration of an ordered run: everything but the outcomes that can change what is committed, in one value.

It is fixed when the run starts and recorded with it; nothing in it changes within a run, the window size least of all
(X-183). Two runs with equal configuration and equal outcomes have equal windows, commits and summaries (ORD-035).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from detent.canon import UINT64_MAX, digest, encode
from detent.canon.late import dataclass
from detent.errors import InvalidInput
from detent.kernel.manifest import MAX_INTERRUPTIONS_DEFAULT, MAX_RETRIES_DEFAULT
from detent.ordered.seq_ledger import ATTEMPTS_MAX, TOTAL_MAX
from detent.ordered.windows import ACTIVE_MAX, WINDOW_SIZE_MAX, check_size

STOP: Final = "stop"
CONTINUE: Final = "continue"
FAILURE_POLICIES: Final = (STOP, CONTINUE)
WRITE_DELAYS_MAX: Final = 64

_LABEL: Final = b"detent/ordered/config/v1\x00"


@dataclass(frozen=True, slots=True)
class OrderedConfig:
    """How a run of ``total`` seqs is cut, bounded and ended. Refuses what could not be kept, by the name of its field."""

    total: int
    window_size: int = 64
    chunk_size: int = 16
    """Seqs of one kernel job; a chunk never crosses a window."""
    micro_batch_size: int = 16
    """Successes that one downstream write takes at most."""
    buffered_count_max: int | None = None
    """Seqs that are offered, dispatched, in flight or waiting for their commit; None for two windows."""
    buffered_bytes_max: int = 64 * 1024 * 1024
    payload_bytes_max: int = 64 * 1024
    """What one envelope may hold in memory. A larger payload is stored elsewhere and held by reference."""
    failure_policy: str = STOP
    max_retries: int = MAX_RETRIES_DEFAULT
    max_interruptions: int = MAX_INTERRUPTIONS_DEFAULT
    write_delays_ms: tuple[int, ...] = (1000, 2000, 4000)
    """Delays before a failed downstream write is repeated; when they are used up the run stops (X-076)."""

    def __post_init__(self) -> None:
        check_size("total", self.total, 0, TOTAL_MAX)
        check_size("window_size", self.window_size, 1, WINDOW_SIZE_MAX)
        check_size("chunk_size", self.chunk_size, 1, self.window_size)
        check_size("micro_batch_size", self.micro_batch_size, 1, WINDOW_SIZE_MAX)
        check_size("payload_bytes_max", self.payload_bytes_max, 0, UINT64_MAX)
        # Room for one whole chunk, always: the chunk that the cursor waits for must never be held back.
        if self.buffered_count_max is not None:
            check_size("buffered_count_max", self.buffered_count_max, self.chunk_size, ACTIVE_MAX * WINDOW_SIZE_MAX)
        least = self.chunk_size * self.payload_bytes_max
        check_size("buffered_bytes_max", self.buffered_bytes_max, least, UINT64_MAX)
        if self.failure_policy not in FAILURE_POLICIES:
            raise InvalidInput(f"failure_policy must be {STOP!r} or {CONTINUE!r}, not {self.failure_policy!r}")
        check_size("max_retries", self.max_retries, 0, ATTEMPTS_MAX)
        check_size("max_interruptions", self.max_interruptions, 0, ATTEMPTS_MAX - self.max_retries)
        if type(self.write_delays_ms) is not tuple or len(self.write_delays_ms) > WRITE_DELAYS_MAX:
            raise InvalidInput(f"write_delays_ms must be a tuple of at most {WRITE_DELAYS_MAX} delays")
        for index, delay in enumerate(self.write_delays_ms):
            check_size(f"write_delays_ms[{index}]", delay, 0, UINT64_MAX)

    @property
    def count_max(self) -> int:
        """The bound on seqs held, where None means two windows."""
        return ACTIVE_MAX * self.window_size if self.buffered_count_max is None else self.buffered_count_max

    def to_map(self) -> dict[str, object]:
        """The configuration as the map that is recorded and hashed."""
        values: dict[str, object] = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        values["write_delays_ms"] = list(self.write_delays_ms)
        return values

    @classmethod
    def from_map(cls, values: object) -> OrderedConfig:
        """Read the recorded map; refuse a missing, unknown or unfit field."""
        names = {entry.name for entry in fields(cls)}
        if not isinstance(values, dict) or values.keys() != names or not isinstance(values["write_delays_ms"], list):
            raise InvalidInput(f"the configuration of an ordered run has exactly the fields {', '.join(sorted(names))}")
        return cls(**{**values, "write_delays_ms": tuple(values["write_delays_ms"])})

    def digest(self) -> bytes:
        """Name this configuration."""
        return digest(_LABEL, encode(self.to_map()))
