"""What an executor is given: one attempt at an order. What comes back is a `detent.jobs.work.Result`; progress, meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detent.canon import json_decode, json_encode
from detent.canon.late import dataclass
from detent.jobs.elements import Elements
from detent.jobs.order import Order
from detent.kernel import QuotaPolicy

KINDS: Final = ("python", "shell")
MB: Final = 1024 * 1024
OUTPUT_BYTES_MAX: Final = MB
"""Of stdout and of stderr, each, that are kept of one task: both ends, with a mark where the middle is left out."""
VALUE_BYTES_MAX: Final = 16 * MB
"""Of one result as strict JSON; larger data travels as a `detent.File`."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One attempt at an order, for an executor. In a pool of plain processes it is called a task."""

    number: int
    """Names the assignment among those that are under way in one process."""
    job_id: str
    attempt_id: int
    order: Order
    values: Mapping[str, bytes | Path]
    """The stored values of the results that the order names, by digest: their strict JSON, or the file that holds it."""
    left: QuotaPolicy | None = None
    """What the attempt may use of its job's budgets; None when nothing limits it. An executor ends what goes over as soon as it
    can tell, and the kernel decides by what was used."""
    earlier: Elements | None = None
    """Of an array: what earlier attempts came to."""
    retried: frozenset[str] = frozenset()
    """Of an array: the categories of failures that are tried again."""

    @property
    def memory_bytes(self) -> int | None:
        """Limit of the memory that it uses with everything it starts; None: none."""
        memory_mb = self.order.limits.memory_mb
        return None if memory_mb is None else memory_mb * MB

    def load(self, named: str) -> Any:
        """The value of a result that the order names."""
        held = self.values[named]
        return json_decode(held if isinstance(held, bytes) else held.read_bytes())


def variables(plain: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables as text: a text as it is, anything else as JSON."""
    return {
        name: value if isinstance(value, str) else json_encode(value, name=name).decode()
        for name, value in plain.items()
    }


PROGRESS: Final = "progress"
"""The file beside a worker's output that says how far its task is: the job, the share that is done, and a message, as JSON."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running task says about how far it is."""

    number: int
    fraction: float
    message: str
