"""Clients and a full queue, by the settings in `config.toml`: a client waits for room and loses nothing it was given."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from detent.sdk.client import Client
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_home
from tests.runs.rig import eventually
from tests.sdk import work_functions as functions

__all__ = ["detent_clock", "detent_home"]


def small_queue(home: TemporaryHome, policy: str) -> None:
    """Have the home's queue hold two jobs of a class, three in all."""
    path = home.path / "config.toml"
    text = path.read_text()
    for before, after in (
        ("capacity_per_class = 256", "capacity_per_class = 2"),
        ("capacity_total = 2560", "capacity_total = 3"),
        ('admission_policy = "reject"', f'admission_policy = "{policy}"'),
    ):
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)


@pytest.mark.parametrize("policy", ["reject", "drop-lru", "shed-low-priority"])
def test_map_evicts_none_of_its_own_jobs(detent_home: TemporaryHome, policy: str) -> None:
    """X-187, X-031: what a library caller offers step by step waits for room, whatever the queue does with others."""
    small_queue(detent_home, policy)
    with Client(detent_home.path, workers=2) as client:
        assert list(client.map(functions.square, range(40))) == [x * x for x in range(40)]
    assert detent_home.verify().ok


@pytest.mark.parametrize("policy", ["drop-lru", "shed-low-priority"])
def test_a_client_evicts_no_job_of_another_client(detent_home: TemporaryHome, policy: str, tmp_path: Path) -> None:
    """X-187: more urgent jobs wait for room behind less urgent ones."""
    small_queue(detent_home, policy)
    gate = tmp_path / "gate"
    with Client(detent_home.path, workers=1) as client:
        first = client.submit(functions.waits_for, str(gate))
        eventually(lambda: first.status.value == "RUNNING", "it did not begin")
        low = client.submit_many(functions.low, [(x,) for x in range(2)])
        high = client.submit_many(functions.high, [(0,)])
        with Client(detent_home.path, workers=1) as other:
            gate.touch()
            more = other.submit_many(functions.high, [(x,) for x in range(1, 10)])
            assert [handle.result(60) for handle in (*low, *high, *more)] == [0, 1, *range(10)]
    assert detent_home.verify().ok


def test_two_clients_of_one_process_never_mix_up_their_results(detent_home: TemporaryHome, tmp_path: Path) -> None:
    """Each has workers and a thread of its own. Threads change as often as they can, so that a shared buffer would show."""
    wrong: list[tuple[str, object]] = []

    def call_many(name: str, home: Path) -> None:
        expected = [f"{name}-{number}" for number in range(1_500)]
        with Client(home, workers=1) as client:
            handles = client.submit_many(functions.same, [(value,) for value in expected])
            results = [handle.exception(60) or handle.result(60) for handle in handles]
        wrong.extend(pair for pair in zip(expected, results, strict=True) if pair[0] != pair[1])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=call_many, args=(name, home))
            for name, home in (("first", detent_home.path), ("second", tmp_path / "another"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
