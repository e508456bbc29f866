"""Checkpoints: the same bytes for the same state, small for what is committed, and nothing else is taken for one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, encode, sha256
from detent.errors import InvalidInput, StoreCorrupt
from detent.ordered import Complete, Dispatch, Envelope, OrderedConfig, OrderedRun, checkpoint, restore, resume_after
from tests.ordered.scenes import CANCEL, DONE, FAIL, SKIP, SUCCESS, begun, commit_all, config, finish, flying
from tests.ordered.world import Item, World, expected_outcomes, expected_summary


def half_way() -> OrderedRun:
    """A run with something of everything: committed, waiting, retried, in flight, dispatched, offered, cancelled."""
    run = flying(40, count=14, chunk_size=1)
    finish(run, [0, 1, 2, 5])
    run.committed(0)
    run.failed(6, 0, "INTERNAL_ERROR")
    run.lapsed(7, 7, 0, "WORKER_LOST", interrupted=True)
    run.started(7, 7, 1, "worker-2")
    run.tick(123)
    run.heartbeat(7, 7, "worker-2")
    run.finished(8, 0, Envelope(FAIL, size=4, payload_ref="content/ab", code="BAD_INPUT"))
    run.cancel(30)
    return run


def test_a_restored_run_is_the_same_run() -> None:
    """ORD-055"""
    run = half_way()
    data = checkpoint(run)
    other = restore(data)
    assert checkpoint(other) == data
    assert other.snapshot() == run.snapshot()
    assert (other.ledger.lease_owner(7), other.ledger.lease_heartbeat_ms[7]) == ("worker-2", 123)
    assert list(other.ledger.attempts) == list(run.ledger.attempts)
    assert other.compute.retried == run.compute.retried
    assert [other.envelope(seq) for seq in range(40)] == [run.envelope(seq) for seq in range(40)]
    assert other.config == run.config


def test_what_is_committed_costs_next_to_nothing() -> None:
    """ORD-055"""
    run = flying(50_000, window_size=1000, chunk_size=500)
    while run.ledger.next_commit_seq < 49_000:
        for chunk in list(run.compute.offers):
            run.dispatched(*chunk)
            run.started(*chunk, 0, "worker")
        for first, last in run.ledger.spans(run.ledger.state(run.ledger.next_commit_seq), run.windows.start, 49_999):
            if run.ledger.seq_state[first] == 2:
                run.finished_many(first, 0, [DONE] * (last + 1 - first))
        commit_all(run)
    assert len(checkpoint(run)) < 8_000


def tampered(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Checkpoints that contradict themselves, each in one place."""
    config_map = state["config"]
    return [
        {**state, "version": 2},
        {name: value for name, value in state.items() if name != "peaks"},
        {**state, "config": {**config_map, "window_size": 0}},
        {**state, "config": {**config_map, "extra": 1}},
        {**state, "next_commit_seq": 30},
        {**state, "next_commit_seq": 41},
        {**state, "next_commit_seq": state["next_commit_seq"] + 1},
        {**state, "outcomes": ["plain", b"\x00" * 39]},
        {**state, "outcomes": ["plain", b"\x07" * 40]},
        {**state, "outcomes": ["runs", b"\x03\xff\xff\xff\xff"]},
        {**state, "live": [*state["live"], state["live"][0]]},
        {**state, "live": [[3, 3, 7, "", 0]]},
        {**state, "live": [[3, 99, 1, "", 0]]},
        {**state, "attempts": [[40, 1]]},
        {**state, "attempts": [[7, 70_000]]},
        {**state, "envelopes": [[0, None, 1, None, None]]},
        {**state, "envelopes": [[9, None, 1, None, None]]},
        {**state, "envelopes": [[8, b"short", 1, None, None]]},
        {**state, "envelopes": [[8, None, 2**40, None, None]]},
        {**state, "max_seen_seq": 25},
        {**state, "boundary": 29},
        {**state, "boundary": 31, "outcomes": [state["outcomes"][0], b""]},
        {**state, "commit_last": 9},
        {**state, "offers": [[14, 15]]},
        {**state, "offers": [[15, 15], [14, 14]]},
        {**state, "offers": [[20, 20]]},
        {**state, "peaks": [b"x" * 32]},
        {**state, "items": []},
        {**state, "items": [1] * len(state["items"])},
        {**state, "now_ms": -1},
    ]


def test_a_checkpoint_that_contradicts_itself_is_refused() -> None:
    """ORD-055"""
    state = decode(checkpoint(half_way()))
    assert restore(encode(state)) is not None
    assert [number for number, fields in enumerate(tampered(state)) if not refused(encode(fields))] == []
    assert all(refused(data) for data in (b"", b"\x00", encode([]), checkpoint(half_way())[:-1]))


def refused(data: bytes) -> bool:
    try:
        restore(data)
    except StoreCorrupt:
        return True
    return False


@given(st.data())
def test_damaged_bytes_give_a_typed_error_or_a_run_whose_books_agree(data: st.DataObject) -> None:
    """ORD-055"""
    good = bytearray(checkpoint(half_way()))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    if not refused(bytes(good)):
        restore(bytes(good)).check()


@given(
    st.lists(st.sampled_from([SUCCESS, SKIP, FAIL]), min_size=1, max_size=30),
    st.data(),
    st.sampled_from(["stop", "continue"]),
)
def test_a_run_goes_on_at_the_first_uncommitted_seq_without_a_checkpoint(
    kinds: list[Any], data: st.DataObject, policy: str
) -> None:
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


def test_outcomes_that_alternate_cost_a_byte_each() -> None:
    """ORD-055"""
    run = resume_after(config(3000), [DONE, Envelope(SKIP)] * 1500)
    assert 3000 < len(checkpoint(run)) < 6000
    assert bytes(restore(checkpoint(run)).ledger.terminal_outcome) == bytes((SUCCESS, SKIP)) * 1500
