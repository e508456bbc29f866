"""The one lifecycle: six states and six legal moves, as one literal table.

Everything that asks "may this job go there?" asks this table: the reducer, the verifier, the store's checks and the
diagram in the docs. Changing it is a new major version of the kernel, and `TABLE_DIGEST` beside `TABLE_MAJOR` makes sure
that it is not done by accident (PIPE-004).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from detent.canon import encode, sha256


class State(StrEnum):
    """Where a job stands. Spelled as the contract spells them (one L in CANCELED)."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.RUNNING}),
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED, State.RETRYING}),
    State.RETRYING: frozenset({State.QUEUED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELED: frozenset(),
}

TERMINAL: frozenset[State] = frozenset(state for state, targets in TRANSITIONS.items() if not targets)

OPEN: tuple[str, ...] = tuple(state.value for state in State if state not in TERMINAL)
"""The states of a job that has not ended, as plain text, for asking a store."""

LEGAL: frozenset[tuple[str, str]] = frozenset(
    (source.value, target.value) for source, targets in TRANSITIONS.items() for target in targets
)
"""The legal pairs as plain text, for hot paths and for code that reads records."""

INITIAL = State.QUEUED

TABLE_MAJOR = 1
TABLE_DIGEST = "e3582d0534fd57f4"


def table_digest(transitions: Mapping[State, Iterable[State]] = TRANSITIONS) -> str:
    """Digest of a table of states and moves, short enough to stand beside the major version."""
    rows = [[state.value, sorted(target.value for target in targets)] for state, targets in sorted(transitions.items())]
    return sha256(encode(rows)).hex()[:16]


def table_faults(transitions: Mapping[State, Iterable[State]] = TRANSITIONS) -> list[str]:
    """Say what is wrong with a table; an empty list means that it is the closed table of the contract (PIPE-115)."""
    faults = [f"state {state.value} has no row" for state in State if state not in transitions]
    for state, targets in transitions.items():
        expected = TRANSITIONS[state]
        faults += [f"extra edge {state.value}->{target.value}" for target in sorted(set(targets) - expected)]
        faults += [f"missing edge {state.value}->{target.value}" for target in sorted(expected - set(targets))]
    reached = {INITIAL}
    frontier = [INITIAL]
    while frontier:
        for target in transitions.get(frontier.pop(), ()):
            if target not in reached:
                reached.add(target)
                frontier.append(target)
    faults += [f"state {state.value} is unreachable" for state in State if state not in reached]
    return faults


def diagram() -> str:
    """Draw the table as a Mermaid state diagram; the docs hold its output and a test compares them."""
    lines = ["stateDiagram-v2", f"    [*] --> {INITIAL.value}"]
    for source, targets in TRANSITIONS.items():
        lines += [f"    {source.value} --> {target.value}" for target in State if target in targets]
    lines += [f"    {state.value} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(lines) + "\n"
