"""Which limit holds for an attempt of a job, of those that were given, and where it was set (A.6, X-019)."""

from __future__ import annotations

from detent.canon.late import dataclass
from detent.engine.content import Content, order_of
from detent.engine.inspect import JobView
from detent.engine.reporting import OF_TASK
from detent.words.quantities import duration_text

OPERATOR: str = "watchdog_wall_ms in the settings of this home"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit and where it was set."""

    amount: int
    by: str


@dataclass(frozen=True, slots=True)
class Limited:
    """The limits of one attempt, the smallest of its time first."""

    wall: tuple[Limit, ...]
    memory: Limit | None = None
    """In units of 2^20 bytes."""

    @property
    def lines(self) -> tuple[str, ...]:
        """In sentences."""
        lines = []
        if self.wall:
            first, *others = self.wall
            beside = "".join(f"; {other.by} allows {duration_text(other.amount)}" for other in others)
            lines.append(f"An attempt may take {duration_text(first.amount)}: {first.by}{beside}.")
        if self.memory is not None:
            lines.append(f"An attempt may use {self.memory.amount:,} MB of memory: {self.memory.by}.")
        return tuple(lines)

    def to_map(self) -> dict[str, object]:
        """As data."""
        memory = None if self.memory is None else {"mb": self.memory.amount, "by": self.memory.by}
        return {"wall": [{"ms": limit.amount, "by": limit.by} for limit in self.wall], "memory": memory}


def limited_by(content: Content, view: JobView, operator_ms: int | None) -> Limited | None:
    """The limits of a job; ``operator_ms`` is the home's own. None for a job whose order is gone, or that is no step or task."""
    order = order_of(content, view.row) if view.job.job_kind in {"action", "task"} else None
    if order is None:
        return None
    wall = []
    if order.wall_ms is not None:
        wall.append(Limit(order.wall_ms, order.wall_by or OF_TASK))
    if operator_ms is not None:
        wall.append(Limit(operator_ms, OPERATOR))
    memory = None if order.memory_mb is None else Limit(order.memory_mb, order.memory_by or "the task")
    return Limited(tuple(sorted(wall, key=lambda limit: limit.amount)), memory)
