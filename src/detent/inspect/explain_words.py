"""One thing that happened to a job, and the words that everything told about jobs shares."""

from __future__ import annotations

from typing import Final

from detent.canon.late import dataclass
from detent.errors import DetentError
from detent.owner.views import Times, plain
from detent.scheduling import Candidate, Decision, explain_lines
from detent.words.quantities import time_text

CANDIDATES_TOLD_MAX: Final = 5
"""Candidates of a decision that are listed; the decision record has more of them."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """One thing that happened to a job: when, what, why, and the decision record behind it, if there is one."""

    tick: int
    at: str
    what: str
    why: tuple[str, ...]
    attempt: int | None = None
    """Which attempt it is about, counted from 1; None where there is none yet."""
    records: tuple[int, ...] = ()
    """Positions of its records on the ledger; a refusal has none."""
    times: int = 1
    """How often in a row it happened, the last time at ``tick``."""
    decision: Decision | None = None
    decision_digest: bytes | None = None
    decision_content: str | None = None
    """Where the named decision record is: here, erased, absent or damaged; remade if it was made again."""
    replicas: tuple[Candidate, ...] | None = None
    """Every replica that was looked at, in placement order; None unless the decision was made again."""
    rank: int = 1
    """Orders what happened at one tick: refused submissions, then records, then what else was refused."""

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {
            "tick": self.tick,
            "at": self.at,
            "what": self.what,
            "why": list(self.why),
            "attempt": self.attempt,
            "records": list(self.records),
            "times": self.times,
            "decision_digest": plain(self.decision_digest),
            "decision_content": self.decision_content,
            "decision": plain_decision(self.decision),
            "replicas": None if self.replicas is None else [one._asdict() for one in self.replicas],
        }


def decision_lines(decision: Decision) -> list[str]:
    """A decision about the job that is explained here."""
    return explain_lines(decision, subject="It", candidates_max=CANDIDATES_TOLD_MAX)


def read_decision(data: object) -> Decision | None:
    """A decision record; None where the bytes are none."""
    try:
        return Decision.decode(data) if isinstance(data, bytes) else None
    except DetentError:
        return None


def moment(times: Times, tick: int) -> str:
    """The time of a tick, for use in a sentence."""
    return f"{time_text(times.iso(tick))} UTC"


def plain_decision(decision: Decision | None) -> object:
    """A decision's map as JSON has it."""
    return None if decision is None else _plain(decision.to_map())


def capital(text: str) -> str:
    """A sentence's beginning; names keep their spelling."""
    return text[:1].upper() + text[1:] if text.startswith(("its ", "the ", "a ", "job ", "no ")) else text


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return plain(value)
