"""A run is taken up again from what is committed, and configurations are recorded whole."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, encode, sha256
from detent.errors import InvalidInput
from detent.ordered import Complete, Dispatch, Envelope, OrderedConfig, resume_after
from tests.ordered.scenes import CANCEL, DONE, FAIL, SKIP, SUCCESS, begun, config
from tests.ordered.world import Item, World, expected_outcomes, expected_summary


@given(
    st.lists(st.sampled_from([SUCCESS, SKIP, FAIL]), min_size=1, max_size=30),
    st.data(),
    st.sampled_from(["stop", "continue"]),
)
def test_a_run_goes_on_at_the_first_uncommitted_seq(kinds: list[Any], data: st.DataObject, policy: str) -> None:
    """ORD-055, X-183: from the outcomes on the ledger alone, and comes to the same summary"""
    items = [Item(kind) for kind in kinds]
    cfg = OrderedConfig(len(items), window_size=4, chunk_size=data.draw(st.integers(1, 4)), failure_policy=policy)
    outcomes = expected_outcomes(cfg, items)
    cursor = data.draw(st.integers(0, len(items)))
    committed = [
        items[seq].envelope(seq) if outcome is not CANCEL else Envelope(CANCEL)
        for seq, outcome in enumerate(outcomes[:cursor])
    ]
    run = resume_after(cfg, committed)
    assert run.ledger.next_commit_seq == cursor
    world = World(cfg, items, Random(1))
    world.run = run
    world.live()
    assert isinstance(world.end, Complete)
    assert world.end.summary == expected_summary(items, outcomes)
    assert list(world.destination) == [seq for seq in range(cursor, len(items)) if outcomes[seq] is SUCCESS]


def test_a_chunk_that_was_committed_in_part_is_offered_whole_under_its_old_name() -> None:
    """ORD-055"""
    run = resume_after(config(10, chunk_size=4), [DONE] * 6)
    assert [(action.first, action.last) for action in run.begin() if isinstance(action, Dispatch)] == [(4, 7), (8, 9)]
    assert run.open_seqs(4, 7) == [6, 7]


def test_a_recorded_boundary_holds_after_a_resume() -> None:
    """ORD-038, X-069"""
    run = resume_after(config(10), [DONE] * 2, boundary=3)
    assert (run.boundary, run.ledger.counts[CANCEL]) == (3, 7)
    with pytest.raises(InvalidInput):
        resume_after(config(2), [DONE] * 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"window_size": 0},
        {"chunk_size": 11},
        {"chunk_size": 0},
        {"micro_batch_size": 0},
        {"failure_policy": "ignore"},
        {"max_retries": -1},
        {"max_interruptions": 65_536},
        {"write_delays_ms": [1]},
        {"write_delays_ms": (1,) * 65},
        {"write_delays_ms": (-1,)},
        {"payload_bytes_max": -1},
    ],
)
def test_a_configuration_that_could_not_be_kept_is_refused(changes: dict[str, Any]) -> None:
    """ORD-008"""
    with pytest.raises(InvalidInput):
        config(10, **changes)


def test_a_configuration_is_recorded_and_named_whole() -> None:
    """ORD-035, X-183: chunk and window size are part of it"""
    base = config(10)
    assert OrderedConfig.from_map(decode(encode(base.to_map()))) == base
    changed = [config(11), config(10, window_size=9), config(10, chunk_size=2), config(10, write_delays_ms=(1,))]
    assert len({each.digest() for each in [base, *changed]}) == 5
    assert base.digest() == config(10).digest() != sha256(b"")
    with pytest.raises(InvalidInput):
        OrderedConfig.from_map({"total": 1})
    assert begun(3).config.count_max == 20
