"""What fixes how a run is cut: its configuration, windows and chunks.

The configuration of an ordered run: everything but the outcomes that can change what is committed, in one value.

It is fixed when the run starts and recorded with it; nothing in it changes within a run, the window size least of all
(X-183). Two runs with equal configuration and equal outcomes have equal windows, commits and summaries (ORD-035).

Windows and chunks: how the numbers from 0 to total are cut, by arithmetic alone.

Windows are what may be worked on; at most two are open, the first commits and the second is computed ahead. Chunks are
what one kernel job does (X-183). Both tile ``[0, total)`` without gap or overlap, a chunk never crosses a window, and
neither depends on anything but total and configuration, so no timing can move a border (ORD-006, ORD-007).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from detent.canon import UINT64_MAX, digest, encode
from detent.canon.late import NamedTuple, dataclass
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel.identity import id_in_run
from detent.kernel.manifest import MAX_INTERRUPTIONS_DEFAULT, MAX_RETRIES_DEFAULT
from detent.ordered.seq_ledger import ATTEMPTS_MAX, TOTAL_MAX, SeqLedger
from detent.ordered.states import SeqState, broken

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


WINDOW_SIZE_MAX: Final = 1 << 20
ACTIVE_MAX: Final = 2


class Window(NamedTuple):
    """A contiguous range of seqs; ``end_seq`` belongs to it."""

    start_seq: int
    end_seq: int


class Chunk(NamedTuple):
    """The contiguous seqs of one kernel job; ``last`` belongs to it."""

    first: int
    last: int


def plan_windows(total: int, window_size: int) -> list[Window]:
    """All windows of a run, in order: each has ``window_size`` seqs, only the last may be shorter (ORD-008)."""
    check_size("total", total, 0, TOTAL_MAX)
    check_size("window_size", window_size, 1, WINDOW_SIZE_MAX)
    return [Window(start, min(start + window_size, total) - 1) for start in range(0, total, window_size)]


def chunk_of(seq: int, total: int, window_size: int, chunk_size: int) -> Chunk:
    """The chunk that a seq belongs to."""
    window = seq // window_size * window_size
    first = window + (seq - window) // chunk_size * chunk_size
    return Chunk(first, min(first + chunk_size, window + window_size, total) - 1)


def chunk_job_id(run_id: str, first: int, last: int, partitions: int) -> str:
    """The id of the kernel job that computes these seqs: the same for every attempt and after every restart."""
    return id_in_run(run_id, f"seq-{first}" if first == last else f"seq-{first}-{last}", partitions)


class ActiveWindows:
    """The windows that are open: W0, which commits, and W1, which is only computed ahead (ORD-019).

    All of it follows from the number of windows that have closed.
    """

    __slots__ = ("closed", "commit_limit", "limit", "total", "window_size")

    def __init__(self, total: int, window_size: int, closed: int = 0) -> None:
        self.total = total
        self.window_size = window_size
        self.closed = closed
        self._set_limits()

    @property
    def start(self) -> int:
        """The first seq of W0."""
        return min(self.closed * self.window_size, self.total)

    def active(self) -> tuple[Window, ...]:
        """W0 and W1, or fewer where the run has no more."""
        starts = range(self.start, self.limit, self.window_size)
        return tuple(Window(start, min(start + self.window_size, self.total) - 1) for start in starts)

    def close_first(self, ledger: SeqLedger) -> None:
        """Close W0: W1 becomes W0. All its seqs must have ended and the cursor must be behind it (ORD-043)."""
        start, end = self.start, self.commit_limit
        committed = ledger.seq_state.count(SeqState.COMMITTED, start, end)
        if start >= end or committed != end - start or ledger.next_commit_seq < end:
            where = f"{committed} of its seqs are committed, the cursor is at {ledger.next_commit_seq}"
            raise broken("WINDOW_CLOSE", f"window {start}..{end - 1} cannot close: {where}", start)
        ledger.recount(start, end - 1)
        self.closed += 1
        self._set_limits()

    def _set_limits(self) -> None:
        self.commit_limit = min((self.closed + 1) * self.window_size, self.total)
        """The first seq behind W0: no coalesced run reaches it (X-071)."""
        self.limit = min((self.closed + ACTIVE_MAX) * self.window_size, self.total)
        """The first seq behind W1: nothing from here on is touched yet (ORD-021)."""


def check_size(name: str, value: object, low: int, high: int) -> int:
    """Take an integer within its bounds; refuse anything else by the name of its field."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidInput(f"{name} must be an integer from {low} to {high}, not {show(value)}")
    return value
