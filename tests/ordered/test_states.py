"""Eight codes, the legal moves between them, and the view of a kernel job that they are."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from detent.errors import InvariantBroken
from detent.ordered import MOVES, RULES, TERMINAL, SeqLedger, SeqState
from detent.ordered.states import LEGAL, diagram
from tests.ordered.scenes import CANCEL, FAIL, SKIP, SUCCESS

NAMES = "UNSEEN DISPATCHED IN_FLIGHT TERMINAL_SUCCESS TERMINAL_SKIP TERMINAL_FAIL TERMINAL_CANCEL COMMITTED".split()
U, D, F, C = SeqState.UNSEEN, SeqState.DISPATCHED, SeqState.IN_FLIGHT, SeqState.COMMITTED
LEGAL_MOVES = {
    *((U, D), (D, F), (F, D)),
    *((U, SKIP), (U, CANCEL), (D, CANCEL)),
    *((F, SUCCESS), (F, SKIP), (F, FAIL), (F, CANCEL)),
    *((SUCCESS, C), (SKIP, C), (FAIL, C), (CANCEL, C)),
}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "ordered.md"


def test_the_states_are_exactly_the_eight_of_the_contract() -> None:
    """ORD-012"""
    assert [state.name for state in SeqState] == NAMES
    assert [state.value for state in SeqState] == list(range(8))
    assert set(TERMINAL) == {SUCCESS, SKIP, FAIL, CANCEL}


def test_exactly_these_moves_are_legal() -> None:
    """ORD-022, ORD-024, ORD-042, X-075"""
    assert {(source, target) for source, targets in MOVES.items() for target in targets} == LEGAL_MOVES
    assert {(s, t) for s, t in product(SeqState, SeqState) if LEGAL[s][t]} == LEGAL_MOVES


def ledger_in(state: SeqState) -> SeqLedger:
    ledger = SeqLedger(1)
    if state in {D, F, SUCCESS, FAIL, C}:
        ledger.dispatch(0, 0, "owner", 0)
    if state in {F, SUCCESS, FAIL, C}:
        ledger.start(0, 0, "worker", 0)
    if state in TERMINAL:
        ledger.end(0, state)
    if state is C:
        ledger.end(0, SUCCESS)
        ledger.commit(0)
    return ledger


def move(ledger: SeqLedger, target: SeqState) -> None:
    match target:
        case SeqState.DISPATCHED if ledger.state(0) is F:
            ledger.retry(0, 0, "", 0)
        case SeqState.DISPATCHED:
            ledger.dispatch(0, 0, "owner", 0)
        case SeqState.IN_FLIGHT:
            ledger.start(0, 0, "worker", 0)
        case SeqState.COMMITTED:
            ledger.commit(0)
        case _:
            ledger.end(0, target)


@pytest.mark.parametrize(("source", "target"), sorted(product(SeqState, SeqState)))
def test_the_ledger_makes_the_legal_moves_and_no_other(source: SeqState, target: SeqState) -> None:
    """ORD-012, ORD-022, ORD-041, ORD-042, X-075"""
    ledger = ledger_in(source)
    assert ledger.state(0) is source
    before = (bytes(ledger.seq_state), bytes(ledger.terminal_outcome), list(ledger.counts), ledger.next_commit_seq)
    if (source, target) in LEGAL_MOVES:
        move(ledger, target)
        assert ledger.state(0) is target
        ledger.check()
        return
    with pytest.raises(InvariantBroken) as caught:
        move(ledger, target)
    assert caught.value.details["rule"] in RULES
    assert (
        bytes(ledger.seq_state),
        bytes(ledger.terminal_outcome),
        list(ledger.counts),
        ledger.next_commit_seq,
    ) == before


def test_the_docs_draw_this_table_and_list_these_rules() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert diagram() in text
    for rule, meaning in RULES.items():
        assert f"| `{rule}` | {meaning} |" in text


def test_the_example_in_the_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    program = DOCS.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    exec(compile(program, str(DOCS), "exec"), {})
    assert capsys.readouterr().out.startswith("[0, 1, 2] ")
