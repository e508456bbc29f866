"""The simulation: whole histories from one seed each, with everything going wrong that can.

A failure names its seed; ``make sim SEED=4711`` plays that history again, step for step. Seeds that found something once
are kept below.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest

from detent.inspect.audit import store_items
from detent.inspect.unsigned_rows import Beside, Checkpoints
from detent.ledger.verify import verify_items
from detent.scheduling.scheduler import Scheduler
from detent.store.content import ContentFiles
from tests.owner.homes import scratch_directory
from tests.owner.rig import ORIGIN, first_trust
from tests.sim.arrays import ArrayWorld
from tests.sim.operators import OperatorWorld
from tests.sim.remote import RemoteWorld
from tests.sim.world import World

STEPS = 150
SEEDS = [int(os.environ["DETENT_SIM_SEED"])] if os.environ.get("DETENT_SIM_SEED") else list(range(1, 25))
KEPT = [29, 1245]
"""Seeds that found something once."""
W = TypeVar("W", bound=World)


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(prefix="detent-sim-", dir=scratch_directory()) as name:
        yield Path(name)


def played_by(make: type[W], seed: int, directory: Path | None, steps: int = STEPS) -> W:
    """Play a history to its end; whatever fails on the way says from which seed."""
    world = make(seed, directory)
    try:
        world.run(steps)
    except BaseException as exc:
        exc.add_note(f"seed {seed}: `make sim SEED={seed}` plays this history again")
        raise
    return world


def played(seed: int, directory: Path | None) -> World:
    """The same for a history of ordinary jobs."""
    return played_by(World, seed, directory)


def verify(world: World, directory: Path) -> None:
    """The ledger of a history holds against the root it was begun with, and against every tree head kept on the way."""
    report = verify_items(
        store_items(world.store, ContentFiles(directory / "content"), ORIGIN, Beside(), Checkpoints(Scheduler)),
        root=first_trust().digest(),
        kept_heads=[head.note for head in world.rig.kept],
        rows_expected=True,
    )
    assert report.findings == ()
    assert report.ok


@pytest.mark.parametrize("seed", [*SEEDS, *KEPT])
def test_nothing_acknowledged_is_lost_and_every_job_ends_once(seed: int, directory: Path) -> None:
    """X-067, X-165, X-173, X-180, PIPE-066, PIPE-070, PIPE-123"""
    world = played(seed, None)
    verify(world, directory)
    assert world.restarts > 1, "a history without trouble shows little"


@pytest.mark.parametrize("seed", SEEDS[:12] if len(SEEDS) > 1 else SEEDS)
def test_every_element_of_an_array_has_one_outcome_and_none_runs_again(seed: int, directory: Path) -> None:
    """X-163, X-173, X-185: elements are carried over attempts, with lost workers, late reports and crashes of the owner."""
    world = played_by(ArrayWorld, seed, None, steps=2 * STEPS)
    verify(world, directory)
    assert world.carried_over, "a history without attempts that take elements over shows little"
    assert world.lost_in_the_middle


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_a_history_of_arrays_on_sqlite_is_the_history_in_memory(seed: int, directory: Path) -> None:
    memory, sqlite = played_by(ArrayWorld, seed, None), played_by(ArrayWorld, seed, directory)
    assert list(memory.bytes()) == list(sqlite.bytes())
    verify(sqlite, directory)
    sqlite.store.close()


@pytest.mark.parametrize("seed", SEEDS[:6] if len(SEEDS) > 1 else SEEDS)
def test_every_action_that_was_answered_is_recorded_and_workers_come_and_go_once(seed: int, directory: Path) -> None:
    """X-165, X-173: operators and workers of other machines, with lost answers, repeats and crashes of the owner."""
    memory, sqlite = (played_by(OperatorWorld, seed, place) for place in (None, directory))
    assert list(memory.bytes()) == list(sqlite.bytes())
    verify(sqlite, directory)
    assert memory.operated
    sqlite.store.close()


@pytest.mark.parametrize("seed", SEEDS[:8] if len(SEEDS) > 1 else SEEDS)
def test_no_two_workers_elsewhere_run_a_job_at_once_whatever_is_lost(seed: int, directory: Path) -> None:
    """X-067, X-163, X-173: turns and answers lost, repeated and late, workers killed, servers started again."""
    world = played_by(RemoteWorld, seed, None, steps=3 * STEPS)
    verify(world, directory)
    assert world.accepted or world.fenced, "a history without jobs elsewhere shows little"
    assert world.repeated


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_a_history_on_sqlite_is_the_history_in_memory(seed: int, directory: Path) -> None:
    """PIPE-119: the same seed, the same bytes, whatever the store."""
    memory, sqlite = played(seed, None), played(seed, directory)
    assert list(memory.bytes()) == list(sqlite.bytes())
    verify(sqlite, directory)
    sqlite.store.close()


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_a_seed_plays_the_same_history_twice(seed: int) -> None:
    """Otherwise `make sim SEED=` would not show what failed."""
    assert list(played(seed, None).bytes()) == list(played(seed, None).bytes())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_500))
@pytest.mark.parametrize("make", [World, ArrayWorld, OperatorWorld])
def test_long_histories(seed: int, make: type[World], directory: Path) -> None:
    verify(played_by(make, seed, None, steps=600), directory)
