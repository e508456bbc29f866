"""Kill a server and its children under load: nothing acknowledged is lost, nothing happens twice (X-172, X-174)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.served import KILLED, REQUESTS_A_CYCLE, programme

pytestmark = pytest.mark.door("detent serve, killed")


def test_a_server_that_is_killed_under_load_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    told = programme(tmp_path, cycles=20, seed=4)
    assert told.repeats == 20 * REQUESTS_A_CYCLE
    assert sum(told.kills.values()) == 20
    assert told.kills.keys() == KILLED.keys()
    assert told.interrupted, "kills that cut nothing short show little"


@pytest.mark.slow
def test_the_same_many_times(tmp_path: Path) -> None:
    assert programme(tmp_path, cycles=500, seed=1).repeats == 500 * REQUESTS_A_CYCLE
