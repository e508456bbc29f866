"""Random completion orders, faults, retries, cancels, slow and failing writes, restarts: always the same, or a clear end."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import InvariantBroken
from detent.ordered import (
    Complete,
    Fatal,
    OrderedConfig,
    OrderedRun,
    plan_windows,
)
from tests.ordered.world import (
    FAIL,
    SKIP,
    SUCCESS,
    Item,
    World,
    expected_digest,
    expected_outcomes,
    expected_summary,
)

PAYLOAD_MAX = 8
FAULT = st.sampled_from(["retry", "lapse", "lost"])
ITEM = st.builds(
    Item,
    st.sampled_from([SUCCESS, SUCCESS, SUCCESS, SUCCESS, SKIP, FAIL]),
    st.integers(0, PAYLOAD_MAX),
    st.one_of(st.just(()), st.just(()), st.lists(FAULT, max_size=2).map(tuple)),
    st.sampled_from([False, False, False, True]),
)
ITEMS = st.lists(ITEM, max_size=40)
SEED = st.integers(0, 2**32 - 1)


@st.composite
def configs(draw: st.DrawFn, total: int, policy: str | None = None) -> OrderedConfig:
    window = draw(st.integers(1, 9))
    chunk = draw(st.integers(1, window))
    return OrderedConfig(
        total,
        window_size=window,
        chunk_size=chunk,
        micro_batch_size=draw(st.integers(1, 4)),
        buffered_count_max=draw(st.one_of(st.none(), st.integers(chunk, 2 * window))),
        buffered_bytes_max=draw(st.integers(chunk, 20)) * PAYLOAD_MAX,
        payload_bytes_max=PAYLOAD_MAX,
        failure_policy=policy or draw(st.sampled_from(["stop", "continue"])),
        max_retries=99,
        write_delays_ms=(5, 7, 9, 11),
    )


@given(st.data(), ITEMS, SEED)
def test_a_run_ends_with_every_outcome_committed_once_and_in_order(
    data: st.DataObject, items: list[Item], seed: int
) -> None:
    """ORD-001, ORD-009, ORD-010, ORD-011, ORD-017, ORD-018, ORD-019, ORD-027, ORD-033, ORD-034, ORD-035, ORD-036,
    ORD-037, ORD-050, X-077, X-163
    """
    config = data.draw(configs(len(items)))
    world = World(config, items, Random(seed), write_faults=4, lives=3).live()
    outcomes = expected_outcomes(config, items)
    summary = expected_summary(items, outcomes)
    assert isinstance(world.end, Complete)
    assert world.end.summary == summary
    assert world.end.summary.digest() == expected_digest(summary)
    assert list(world.destination) == [seq for seq, outcome in enumerate(outcomes) if outcome is SUCCESS]
    assert world.cursor_log == sorted(set(world.cursor_log))
    assert world.run.ledger.total == len(items)
    assert [*map(int, outcomes)] == [*world.run.ledger.terminal_outcome]


@given(st.data(), ITEMS, SEED, SEED)
def test_equal_inputs_give_equal_windows_commits_and_summaries_in_any_timing(
    data: st.DataObject, items: list[Item], seed: int, other: int
) -> None:
    """ORD-007, ORD-009, ORD-035"""
    config = data.draw(configs(len(items)))
    worlds = [World(config, items, Random(each), write_faults=3).live() for each in (seed, other)]
    assert worlds[0].end == worlds[1].end
    assert list(worlds[0].destination.items()) == list(worlds[1].destination.items())
    assert worlds[0].run.boundary == worlds[1].run.boundary


@given(st.data(), st.lists(ITEM, min_size=1, max_size=40), SEED, st.integers(0, 45))
def test_a_cancellation_depends_on_its_boundary_alone(
    data: st.DataObject, items: list[Item], seed: int, requested: int
) -> None:
    """ORD-003, ORD-038, ORD-052, X-069"""
    config = data.draw(configs(len(items)))
    world = World(config, items, Random(seed), write_faults=3, lives=2).live(cancel_at=requested)
    outcomes = expected_outcomes(config, items, world.run.boundary)
    assert isinstance(world.end, Complete)
    assert world.end.summary == expected_summary(items, outcomes)
    assert list(world.destination) == [seq for seq, outcome in enumerate(outcomes) if outcome is SUCCESS]
    assert [boundary.resolved for boundary in world.boundaries][-1:] in ([], [world.run.boundary])


@given(st.data(), st.lists(ITEM, min_size=1, max_size=40), SEED, SEED, st.integers(0, 45))
def test_a_boundary_that_is_set_in_advance_gives_one_summary_and_nothing_above_it_is_dispatched(
    data: st.DataObject, items: list[Item], seed: int, other: int, boundary: int
) -> None:
    """ORD-038, X-069"""
    config = data.draw(configs(len(items)))
    ends = []
    for each in (seed, other):
        world = World(config, items, Random(each))
        world.take(world.run.cancel(boundary))
        world.live()
        assert world.run.ledger.max_seen_seq < max(boundary, 1)
        assert world.withdrawn == [] or config.failure_policy == "stop" or boundary < len(items)
        ends.append(world.end)
    assert ends[0] == ends[1]


@given(st.data(), st.lists(ITEM, min_size=1, max_size=25), SEED, st.integers(0, 400), st.integers(0, 400))
def test_a_run_resumed_at_any_moments_ends_as_one_that_never_stopped(
    data: st.DataObject, items: list[Item], seed: int, first: int, second: int
) -> None:
    """ORD-016, ORD-055: from the outcomes that are committed alone"""
    config = data.draw(configs(len(items)))
    world = World(config, items, Random(seed), write_faults=2)
    for steps in (first, second):
        world.live(steps=steps)
        cursor = world.run.ledger.next_commit_seq
        if world.end is None:
            world.restart()
            assert world.run.ledger.next_commit_seq == cursor
    world.live()
    other = World(config, items, Random(seed)).live()
    assert world.end == other.end
    assert list(world.destination.items()) == list(other.destination.items())
    assert world.cursor_log == sorted(set(world.cursor_log))


@given(st.data(), st.lists(ITEM, min_size=1, max_size=30), SEED, st.integers(1, 9))
def test_window_chunk_and_batch_sizes_do_not_show_in_the_summary(
    data: st.DataObject, items: list[Item], seed: int, window: int
) -> None:
    """ORD-035: only where a run is stopped by a failure do windows say where"""
    config = data.draw(configs(len(items), "continue"))
    plain = OrderedConfig(len(items), window_size=window, chunk_size=1, failure_policy="continue", max_retries=99)
    ends = [World(each, items, Random(seed)).live().end for each in (config, plain)]
    assert ends[0] == ends[1]


@given(st.data(), st.lists(ITEM, min_size=1, max_size=20), SEED, st.integers(0, 300))
def test_a_runtime_that_loses_a_job_learns_of_it_instead_of_waiting(
    data: st.DataObject, items: list[Item], seed: int, cut: int
) -> None:
    """ORD-050, X-079: when nothing is left to wait for, a run is complete or says what it waits for"""
    config = data.draw(configs(len(items)))
    world = World(config, items, Random(seed)).live(steps=cut)
    if world.end is not None:
        return
    run = world.run
    with pytest.raises(InvariantBroken) as caught:
        run.idle()
    snapshot = caught.value.details["snapshot"]
    assert isinstance(snapshot, dict)
    assert caught.value.details["rule"] == "STALL"
    assert snapshot["oldest_blocked"]["seq"] == snapshot["next_commit_seq"] == run.ledger.next_commit_seq


@given(st.data(), st.lists(ITEM, min_size=1, max_size=20), SEED)
def test_a_destination_that_stays_broken_ends_the_run_with_the_cursor_where_it_was(
    data: st.DataObject, items: list[Item], seed: int
) -> None:
    """ORD-034, X-076: and the run can be taken up again when the destination is back"""
    config = data.draw(configs(len(items)))
    world = World(config, items, Random(seed), write_faults=10**6)
    world.live()
    if isinstance(world.end, Complete):
        return
    assert isinstance(world.end, Fatal)
    assert world.end.code == "DOWNSTREAM_WRITE_FAILED"
    assert world.end.snapshot.next_commit_seq == world.run.ledger.next_commit_seq
    assert world.run.tick(10**9) == [world.end]
    world.write_faults, world.end = 0, None
    world.restart()
    world.live()
    assert isinstance(world.end, Complete)
    assert world.end.summary == expected_summary(items, expected_outcomes(config, items))


def test_the_planner_and_the_run_speak_of_the_same_windows() -> None:
    """ORD-006, ORD-007"""
    config = OrderedConfig(10, window_size=4, chunk_size=2)
    run = OrderedRun(config)
    assert list(run.windows.active()) == plan_windows(10, 4)[:2]


def test_a_longer_run_has_the_summary_of_its_formula() -> None:
    """ORD-035, X-077: several blocks of the tree, and a short one"""
    items = [Item(FAIL if seq % 31 == 7 else SUCCESS, seq % 9) for seq in range(150)]
    config = OrderedConfig(150, window_size=20, chunk_size=6, payload_bytes_max=PAYLOAD_MAX, failure_policy="continue")
    world = World(config, items, Random(3), write_faults=2, lives=2).live()
    assert isinstance(world.end, Complete)
    assert world.end.summary == expected_summary(items, expected_outcomes(config, items))
