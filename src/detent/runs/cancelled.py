"""The answer to a cancellation, of a run, an ordered run or a job."""

from __future__ import annotations

from typing import Final

from detent.canon.late import dataclass
from detent.words.states import CANCELLED, word_of

POLL_SECONDS: Final = 0.05
"""Between two looks at whether a run has ended."""


@dataclass(frozen=True, slots=True)
class CancelledItems:
    """Where an ordered run was cut."""

    total: int
    committed: int
    """Items that the destination has, by the record; cancelled ones are not among them."""
    requested: int
    """The first item that was to be cancelled; 0: as early as possible."""
    boundary: int | None
    """The first item that is cancelled (X-069); None while the driver has not answered."""

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class CancelledStep:
    """Where the ordered run of a workflow's map step was cut; items have the numbers that they have in the step."""

    step: str
    run_id: str
    items: CancelledItems

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {"step": self.step, "run_id": self.run_id, "items": self.items.to_map()}


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The result of a cancellation."""

    kind: str
    """``run`` or ``job``."""
    identifier: str
    status: str
    """Where it stands afterwards: the run's status, or the job's state."""
    jobs: tuple[str, ...] = ()
    """Jobs that were cancelled by this."""
    before: bool = False
    """Whether it had ended before."""
    ordered: CancelledItems | None = None
    """Of an ordered run, where it was cut."""
    map_steps: tuple[CancelledStep, ...] = ()
    """Of a workflow's run, its map steps that were under way."""

    @property
    def is_cancelled(self) -> bool:
        """Whether it is cancelled now, by this or before."""
        return word_of(self.status) == CANCELLED

    def to_map(self) -> dict[str, object]:
        """As data."""
        name = "run_id" if self.kind == "run" else "job_id"
        return {
            "kind": self.kind,
            name: self.identifier,
            "status": word_of(self.status),
            "cancelled": self.is_cancelled,
            "had_ended": self.before,
            "jobs_cancelled": list(self.jobs),
            **({} if self.ordered is None else {"items": self.ordered.to_map()}),
            **({"map_steps": [one.to_map() for one in self.map_steps]} if self.map_steps else {}),
        }
