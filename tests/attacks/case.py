"""What one case of the attack programme came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.attacks.asked import Answer, faults


@dataclass(slots=True)
class Case:
    """One attack: what was done, what was said of it, and what should not have been."""

    kind: str
    seed: int
    done: str = ""
    outcome: str = ""
    """One word for the table: `found`, `no effect`, `listed`, `failed`, ..."""
    peak_bytes: int = 0
    slowest_ms: int = 0
    problems: list[str] = field(default_factory=list)

    def take(self, answers: Sequence[Answer]) -> None:
        """Count what reading cost, and what of it was no answer."""
        self.peak_bytes = max([self.peak_bytes, *(answer.peak_bytes for answer in answers)])
        self.slowest_ms = max([self.slowest_ms, *(answer.took_ms for answer in answers)])
        self.problems += faults(answers)
