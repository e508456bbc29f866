"""Six states, six legal moves, and thirty illegal ones, whatever the request and the moment."""

from __future__ import annotations

from itertools import product

import pytest

from detent.kernel import LEGAL, TABLE_DIGEST, TABLE_MAJOR, TERMINAL, TRANSITIONS, State
from detent.kernel.table import diagram, table_digest, table_faults
from tests.kernel.builders import code_of, scene_in

STATES = ("QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "FAILED", "CANCELED")
LEGAL_MOVES = {
    ("QUEUED", "RUNNING"),
    ("RUNNING", "SUCCEEDED"),
    ("RUNNING", "FAILED"),
    ("RUNNING", "CANCELED"),
    ("RUNNING", "RETRYING"),
    ("RETRYING", "QUEUED"),
}
ILLEGAL_MOVES = sorted(set(product(STATES, STATES)) - LEGAL_MOVES)


def test_the_states_are_exactly_the_six_of_the_contract() -> None:
    """PIPE-050"""
    assert tuple(state.value for state in State) == STATES


def test_exactly_three_states_are_terminal() -> None:
    """PIPE-051"""
    assert {"SUCCEEDED", "FAILED", "CANCELED"} == TERMINAL


def test_exactly_six_of_the_36_pairs_are_legal() -> None:
    """PIPE-052..PIPE-055"""
    assert LEGAL_MOVES == LEGAL
    assert {(source, target) for source, targets in TRANSITIONS.items() for target in targets} == LEGAL_MOVES
    assert len(ILLEGAL_MOVES) == 30


@pytest.mark.parametrize("stored", STATES)
@pytest.mark.parametrize(("from_state", "to_state"), ILLEGAL_MOVES)
def test_an_illegal_move_is_refused_wherever_the_job_stands(stored: str, from_state: str, to_state: str) -> None:
    """PIPE-037, PIPE-051, PIPE-055"""
    scene = scene_in(stored)
    job = scene.kernel.find("tenant-a", "job-1")
    assert job is not None
    before, seq = job.encode(), job.transition_seq
    for expected in (seq, 0, seq + 1, 2**64 - 1):
        outcome = scene.transition("job-1", from_state, to_state, expected_transition_seq=expected)
        assert code_of(outcome) == "CONTRACT_VIOLATION"
        assert (outcome.records, outcome.record) == ([], None)
        assert [(event.status, event.from_state, event.to_state) for event in outcome.events] == [
            ("CONTRACT_VIOLATION", from_state, to_state)
        ]
    assert job.encode() == before


@pytest.mark.parametrize("to_state", ["SUCCEEDED", "FAILED", "CANCELED", "RETRYING"])
def test_every_legal_move_out_of_running_is_committed(to_state: str) -> None:
    """PIPE-053"""
    scene = scene_in("RUNNING")
    outcome = scene.transition("job-1", "RUNNING", to_state)
    assert outcome.ok
    assert scene.job().state == to_state


def test_the_moves_into_running_and_back_to_queued_are_committed() -> None:
    """PIPE-052, PIPE-054"""
    scene = scene_in("QUEUED")
    assert scene.transition("job-1", "QUEUED", "RUNNING").ok
    scene.transition("job-1", "RUNNING", "RETRYING")
    scene.at(10)
    assert scene.edges() == ["QUEUED->RUNNING", "RUNNING->RETRYING", "RETRYING->QUEUED"]


def test_the_foreign_spelling_of_a_state_is_refused() -> None:
    """X-002"""
    scene = scene_in("RUNNING")
    assert code_of(scene.transition("job-1", "RUNNING", "CANCELLED")) == "INVALID_PARAMS"


def test_the_shipped_table_passes_its_own_lint() -> None:
    """PIPE-115"""
    assert table_faults() == []


@pytest.mark.parametrize(
    ("state", "targets", "fault"),
    [
        (State.QUEUED, {State.RUNNING, State.CANCELED}, "extra edge QUEUED->CANCELED"),
        (State.SUCCEEDED, {State.RUNNING}, "extra edge SUCCEEDED->RUNNING"),
        (State.RUNNING, {State.SUCCEEDED, State.FAILED, State.CANCELED}, "missing edge RUNNING->RETRYING"),
        (State.RUNNING, {State.SUCCEEDED, State.FAILED, State.RETRYING}, "state CANCELED is unreachable"),
        (State.QUEUED, set(), "state RUNNING is unreachable"),
        (State.RETRYING, None, "state RETRYING has no row"),
    ],
)
def test_the_lint_names_what_is_wrong_with_a_table(state: State, targets: set[State] | None, fault: str) -> None:
    """PIPE-115"""
    table = {source: set(moves) for source, moves in TRANSITIONS.items()}
    if targets is None:
        del table[state]
    else:
        table[state] = targets
    assert fault in table_faults(table)


def test_the_table_and_its_major_version_change_together() -> None:
    """PIPE-004: an edit of the table has to change this test, and raise the major version."""
    assert (TABLE_MAJOR, TABLE_DIGEST) == (1, "e3582d0534fd57f4")
    assert table_digest() == TABLE_DIGEST


@pytest.mark.parametrize("state", State)
def test_another_table_has_another_digest(state: State) -> None:
    """PIPE-004"""
    table = {**TRANSITIONS, state: TRANSITIONS[state] ^ {State.CANCELED}}
    assert table_digest(table) != TABLE_DIGEST


def test_the_diagram_draws_every_edge_and_every_end() -> None:
    """PIPE-115"""
    lines = {line.strip() for line in diagram().splitlines()}
    expected = {f"{source} --> {target}" for source, target in LEGAL_MOVES}
    expected |= {f"{state} --> [*]" for state in ("SUCCEEDED", "FAILED", "CANCELED")}
    assert lines == expected | {"stateDiagram-v2", "[*] --> QUEUED"}
