"""Lifecycle counters: what a dashboard shows of the kernel, rebuilt by replay to the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field

from detent.canon import EPS_DENOM
from detent.canon.late import dataclass
from detent.kernel.table import LEGAL, State


@dataclass(slots=True)
class Metrics:
    """Counts per state, per transition, and of requests that were refused or in conflict."""

    states: Counter[str] = field(default_factory=Counter)
    transitions: Counter[tuple[str, str]] = field(default_factory=Counter)
    ambiguous: int = 0
    """Refused or conflicting transition requests: the quantity a run minimises (PIPE-007)."""

    def copy(self) -> Metrics:
        """The same counts, which do not change any more."""
        return Metrics(Counter(self.states), Counter(self.transitions), self.ambiguous)

    def job_success_rate(self) -> float:
        """Succeeded jobs among those that ended; 0.0 before any has (X-061)."""
        succeeded = self.states["SUCCEEDED"]
        ended = succeeded + self.states["FAILED"] + self.states["CANCELED"]
        return succeeded / ended if ended > EPS_DENOM else 0.0

    def snapshot(self, queue_depth: int) -> dict[str, object]:
        """All metrics by name."""
        return {
            "queue_depth": queue_depth,
            "job_success_rate": self.job_success_rate(),
            "ambiguous_transitions": self.ambiguous,
            "jobs": {state.value: self.states[state.value] for state in State},
            "transitions": {
                f"{source}->{target}": self.transitions[source, target] for source, target in sorted(LEGAL)
            },
        }

    def to_list(self) -> list[object]:
        """The counters as a canonical value, for a checkpoint."""
        return [
            [[state, count] for state, count in sorted(self.states.items())],
            [[source, target, count] for (source, target), count in sorted(self.transitions.items())],
            self.ambiguous,
        ]

    @classmethod
    def from_list(cls, value: Iterable[object]) -> Metrics:
        """Rebuild the counters from `to_list`."""
        states, transitions, ambiguous = value
        return cls(
            Counter({state: count for state, count in states}),  # type: ignore[attr-defined]  # noqa: C416
            Counter({(source, target): count for source, target, count in transitions}),  # type: ignore[attr-defined]
            ambiguous,  # type: ignore[arg-type]
        )
