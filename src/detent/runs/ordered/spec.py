"""What an ordered run is: the function, the items, the destination and how it goes; kept so that it can be found again.

Its document is the run's inputs on the ledger. Two runs are the same line typed twice when everything that was asked for is
equal and the items have the same digest; what was worked out from it (the size of a chunk) is taken from the document of the
run that is resumed, because windows and chunks never change within a run (X-183).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from detent.canon import digest, digest_text, json_encode_trusted, parse_digest
from detent.canon.late import dataclass
from detent.errors import InvalidInput, StoreCorrupt
from detent.jobs.order import Retries
from detent.ordered import FAILURE_POLICIES, OrderedConfig
from detent.ordered.windows import ACTIVE_MAX

VERSION: Final = 1
WINDOW: Final = 2048
CHUNK_MAX: Final = 256
CHUNKS_PER_WORKER: Final = 16
CHUNKS_OPEN: Final = 4
"""A chunk of default size is at most such a part of one worker's share, so that a slow one does not hold all others,
and the two open windows have `CHUNKS_OPEN` of them for each worker."""
MICRO_BATCH: Final = 1024
PAYLOAD_BYTES_MAX: Final = 8 * 1024
BUFFERED_BYTES_MAX: Final = 64 * 1024 * 1024
WRITE_DELAYS_MS: Final = (100, 1000, 5000)
COMMIT_MS: Final = 3_600_000
"""How long a destination may take over one commit, by default. It is not part of a run's inputs: a run
that ran into it is resumed with another one."""

_SPEC_LABEL: Final = b"detent/ordered/spec/v1\0"
_ITEMS_LABEL: Final = b"detent/ordered/run_items/v1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedSpec:
    """One ordered run as it was asked for."""

    compute: str
    """``module:function`` or ``file.py:function``."""
    base: str | None = None
    """The directory that modules, scripts and files start from."""
    filter: str | None = None
    commit: str | None = None
    """The destination as it was written; None when the results are iterated over."""
    files: bool = False
    """Whether the items are files that were found, and not values."""
    name: str = "map"
    key: str | None = None
    on_error: str = "stop"
    window: int = WINDOW
    chunk: int | None = None
    retries: Retries = field(default_factory=lambda: Retries(0, ()))
    """How often an item that failed is tried again, and after which failures; those of the system always are."""
    item_ms: int | None = None
    """Time that one item may take."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The run that this one retries, and the seqs that its items had there (X-183)."""

    def __post_init__(self) -> None:
        if self.on_error not in FAILURE_POLICIES:
            raise InvalidInput(f"on_error is one of {', '.join(FAILURE_POLICIES)}, not {self.on_error!r}")
        if type(self.window) is not int or self.window < 1:
            raise InvalidInput(f"window is at least 1, not {self.window!r}")
        if self.chunk is not None and (type(self.chunk) is not int or not 1 <= self.chunk <= CHUNK_MAX):
            raise InvalidInput(f"chunk is from 1 to {CHUNK_MAX}, not {self.chunk!r}")

    def document(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "compute": self.compute,
            "base": self.base,
            "filter": self.filter,
            "commit": self.commit,
            "files": self.files,
            "name": self.name,
            "key": self.key,
            "on_error": self.on_error,
            "window": self.window,
            "chunk": self.chunk,
            "retries": [self.retries.max, list(self.retries.on)],
            "item_ms": self.item_ms,
            "origin": dict(self.origin),
        }

    @classmethod
    def read(cls, said: Any) -> OrderedSpec:
        """Read `document` back."""
        try:
            most, on = said["retries"]
            return cls(**{**said, "retries": Retries(most, tuple(on))})
        except (TypeError, KeyError, ValueError) as exc:
            raise StoreCorrupt(f"not what an ordered run was started with: {exc}") from exc

    def digest(self) -> bytes:
        """Names what was asked for, the items apart."""
        return digest(_SPEC_LABEL, json_encode_trusted(self.document()))

    def config(self, total: int, workers: int) -> OrderedConfig:
        """How a run of so many items is cut and bounded."""
        chunk = self.chunk
        if chunk is None:
            share = -(-total // (workers * CHUNKS_PER_WORKER))
            chunk = max(1, min(CHUNK_MAX, share, ACTIVE_MAX * self.window // (workers * CHUNKS_OPEN)))
        chunk = min(chunk, self.window)
        return OrderedConfig(
            total=total,
            window_size=self.window,
            chunk_size=chunk,
            micro_batch_size=MICRO_BATCH,
            buffered_bytes_max=BUFFERED_BYTES_MAX,
            payload_bytes_max=PAYLOAD_BYTES_MAX,
            failure_policy=self.on_error,
            max_retries=max(2, self.retries.max),
            write_delays_ms=WRITE_DELAYS_MS,
        )


@dataclass(frozen=True, slots=True)
class OrderedInputs:
    """What a run was started with: the spec, the items by digest, and what was worked out from both."""

    spec: OrderedSpec
    items: bytes
    config: OrderedConfig
    ingredients: Mapping[str, Any]
    """What the function is made of, so that a change of it is noticed when the run is resumed."""
    files: Sequence[str] = ()
    """Digests of the content that the items name: it must be kept."""
    step_of: str | None = None
    """The run whose step began it; None for one that a user began by hand. Others that resumed it have left a note."""

    def document(self) -> dict[str, Any]:
        """As plain JSON. It has no ``version``: that tells it from the inputs of a workflow."""
        return {
            "ordered": VERSION,
            "spec": self.spec.document(),
            "items": digest_text(self.items),
            "config": self.config.to_map(),
            "ingredients": dict(self.ingredients),
            "files": list(self.files),
            "step_of": self.step_of,
        }

    def digests(self) -> tuple[bytes, bytes]:
        """What the run's record calls contract and bindings: what was asked for, and the items."""
        return self.spec.digest(), digest(_ITEMS_LABEL, self.items)


def read_ordered(document: Any) -> OrderedInputs | None:
    """The inputs of an ordered run; None for those of another kind of run."""
    if not isinstance(document, dict) or document.get("ordered") != VERSION:
        return None
    try:
        return OrderedInputs(
            OrderedSpec.read(document["spec"]),
            parse_digest(document["items"]),
            OrderedConfig.from_map(document["config"]),
            document["ingredients"],
            tuple(document["files"]),
            document.get("step_of"),
        )
    except (KeyError, TypeError, InvalidInput) as exc:
        raise StoreCorrupt(f"not what an ordered run was started with: {exc}") from exc
