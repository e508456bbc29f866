"""A part of the fault programme: every fault at least once, the kills at random more often.

`python -m tests.faults.programme --cycles 1000` is all of it, `make soak` runs that; docs/reliability.md has the figures.
"""

from __future__ import annotations

import pytest

from tests.faults.audit import Audit
from tests.faults.commands import Commands
from tests.faults.disk import LIMITED, MOUNTED, can_mount
from tests.faults.faults import KILLS, NAMED_IN_A_QUARTER, Cycle, Fault
from tests.faults.hostile import HOSTILE
from tests.faults.programme import COLUMNS, Programme, Row, all_faults, shares, table
from tests.faults.together import TOGETHER

TRIES = 8
"""A fault at random may come when the run has just ended; then the next seed is tried."""
SEED = 20


def inject(fault: Fault, commands: Commands, name: str, seed: int) -> Cycle:
    """A cycle in which the fault really happened; nothing is wrong after any of them."""
    for number in range(TRIES):
        cycle = fault(commands, name, seed + 1000 * number)
        assert cycle.problems == [], f"{name}, seed {cycle.seed}"
        if cycle.injected:
            return cycle
    raise AssertionError(f"{name} did not happen in {TRIES} cycles")


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
@pytest.mark.parametrize("name", KILLS)
def test_a_run_survives_kill_9_of_anything_at_random(commands: Commands, name: str, seed: int) -> None:
    """X-163, X-174: the same line takes the run up at once, and a hundred jobs give a hundred results, each recorded once."""
    inject(KILLS[name], commands, name, seed)


@pytest.mark.parametrize("name", NAMED_IN_A_QUARTER)
def test_a_run_survives_kill_9_of_its_command_at_a_named_point(commands: Commands, name: str) -> None:
    """X-163, X-173, X-174"""
    inject(NAMED_IN_A_QUARTER[name], commands, name, SEED)


@pytest.mark.door("detent run")
@pytest.mark.parametrize("name", TOGETHER)
def test_commands_on_one_home_survive_each_other(commands: Commands, name: str) -> None:
    """X-172: the second goes on when the first is killed. X-179, X-180: leases outlast a stop of a living owner."""
    inject(TOGETHER[name], commands, name, SEED)


def test_what_a_stopped_command_held_is_done_by_others_and_its_own_results_are_refused(commands: Commands) -> None:
    """X-172: when it wakes up, others have done its jobs; it goes on as a client, and nothing is recorded twice.

    It may also notice by itself, before it hands anything in; then the next seed is tried.
    """
    name = "SIGSTOP of a command past its leases"
    for number in range(TRIES):
        found = inject(TOGETHER[name], commands, name, SEED + 1 + number).found
        assert found.expired > 0
        assert all(life.ends == 1 for life in found.jobs.values())
        if found.refused["LEASE_INVALID"]:
            return
    raise AssertionError(f"in {TRIES} cycles it never handed in what it had")


@pytest.mark.skipif(
    not can_mount(), reason="mounting a small disk needs root; the limit on file sizes is tried instead"
)
@pytest.mark.parametrize("name", MOUNTED)
def test_a_run_survives_a_full_disk(commands: Commands, name: str) -> None:
    """X-173"""
    inject(MOUNTED[name], commands, name, SEED)


@pytest.mark.parametrize("name", LIMITED)
def test_a_run_survives_a_file_that_may_not_grow(commands: Commands, name: str) -> None:
    """X-173"""
    inject(LIMITED[name], commands, name, SEED)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_harmful_task_harms_no_other(commands: Commands, name: str) -> None:
    """X-179: nor does C code that holds the interpreter cost a lease."""
    inject(HOSTILE[name], commands, name, SEED)


def test_every_fault_gets_its_share_of_the_cycles() -> None:
    faults = all_faults()
    drawn = list(shares(faults, 1000))
    assert len(drawn) == 1000
    assert {name for name, _ in drawn} == faults.keys()
    assert len(set(drawn)) == 1000
    assert sum(name in KILLS for name, _ in drawn) == 500


def test_the_table_counts_what_was_found_and_names_the_seed() -> None:
    found = Audit(lost=["one"], twice=["two", "three"], orphans=["four"])
    row = Row()
    row.add(Cycle("a fault", 7, injected=1, found=found, wrong=["five"]))
    assert [getattr(row, name) for name in COLUMNS] == [1, 1, 0, 1, 2, 1, 0, 0, 0, 1]
    assert row.problems[0] == "a fault, seed 7: lost: one"
    assert "| a fault | 1 | 1 | 0 | 1 | 2 | 1 | 0 | 0 | 0 | 1 |" in table({"a fault": row}, 42)
    assert "all (seed 42)" in table({"a fault": row}, 42)


def test_a_cycle_that_breaks_is_a_finding() -> None:
    def broken(_commands: Commands, name: str, seed: int) -> Cycle:
        raise RuntimeError("broken")

    (row,) = Programme({"broken": broken}, 3, 1, 1, quiet=True).run().values()
    assert (row.cycles, row.wrong) == (3, 3)
