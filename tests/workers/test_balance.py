"""How many hosts a pool has: what operators, settings and the queue want, and which hosts go first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import InvalidInput
from detent.jobs.pools import PROCESSES, Pool, read_pool
from detent.workers.provision.balance import (
    BUSY,
    IDLE,
    LEAVING,
    LOST,
    STARTING,
    Balance,
    Host,
    balance,
    rest_after,
    wanted_hosts,
)

POOL = Pool("gpu", provision=PROCESSES, least=1, most=4, cpus=2, idle_seconds=60)
FIXED = Pool("gpu", provision=PROCESSES, least=0, most=4, hosts=2)
PHASES = (STARTING, IDLE, BUSY, LEAVING, LOST)


def host(name: str, phase: str, idle: float = 0.0) -> Host:
    return Host(name, phase, idle, None if phase == STARTING else f"w-{name}")


@pytest.mark.parametrize(
    ("scaled", "hosts", "waiting", "wanted"),
    [
        (None, [], 0, 1),
        (None, [], 1, 1),
        (None, [], 3, 2),
        (None, [host("a", BUSY)], 2, 2),
        (None, [host("a", BUSY)], 1_000, 4),
        (None, [host("a", IDLE, 5), host("b", IDLE, 59)], 0, 2),
        (None, [host("a", IDLE, 60), host("b", IDLE, 5), host("c", BUSY)], 0, 2),
        (None, [host("a", LEAVING)], 0, 1),
        (3, [], 0, 3),
        (9, [], 0, 4),
        (0, [host("a", BUSY)], 50, 1),
    ],
)
def test_the_operator_counts_more_than_the_queue_and_the_range_more_than_both(
    scaled: int | None, hosts: list[Host], waiting: int, wanted: int
) -> None:
    assert wanted_hosts(POOL, scaled, hosts, waiting) == wanted


def test_hosts_that_lose_least_go_first_and_those_without_a_worker_are_ended() -> None:
    hosts = [host("busy", BUSY), host("new", STARTING), host("long", IDLE, 9), host("short", IDLE, 1)]
    assert balance(FIXED, 1, hosts, 0, may_start=True) == Balance(1, 0, ("long", "short"), ("new",))


def test_a_lost_host_is_ended_and_replaced_and_one_that_leaves_is_replaced() -> None:
    hosts = [host("lost", LOST), host("leaving", LEAVING), host("idle", IDLE)]
    assert balance(FIXED, None, hosts, 0, may_start=True) == Balance(2, 1, (), ("lost",))
    assert balance(FIXED, None, hosts, 0, may_start=False).start == 0


@given(
    st.lists(st.tuples(st.sampled_from(PHASES), st.floats(0, 100)), max_size=12),
    st.one_of(st.none(), st.integers(0, 9)),
    st.integers(0, 100),
)
def test_what_is_left_after_a_balance_is_what_is_wanted_and_within_range(
    present: list[tuple[str, float]], scaled: int | None, waiting: int
) -> None:
    hosts = [host(str(place), phase, idle) for place, (phase, idle) in enumerate(present)]
    done = balance(POOL, scaled, hosts, waiting, may_start=True)
    staying = {one.host_id for one in hosts if one.phase in {STARTING, IDLE, BUSY}}
    left = staying - {*done.drain, *done.end}
    assert POOL.least <= done.wanted <= POOL.most
    assert len(left) + done.start == done.wanted
    assert not (done.start and left != staying), "nothing is started and let go at once"
    assert {one.host_id for one in hosts if one.phase == LOST} <= set(done.end)


def test_failed_starts_are_followed_by_longer_and_longer_rests() -> None:
    assert [rest_after(failures) for failures in (0, 1, 2, 3, 7, 1_000)] == [0, 1, 2, 4, 60, 60]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"provision": "clouds"}, "clouds"),
        ({"provision": PROCESSES, "max": 0, "hosts": 1}, "do not go together"),
        ({"provision": PROCESSES, "min": 5, "max": 2}, "do not go together"),
        ({"provision": PROCESSES, "hosts": True}, "hosts"),
        ({"provision": PROCESSES, "cpus": 0}, "cpus"),
        ({"provision": PROCESSES, "resources": {"cpu": 4}}, "resources"),
        ({"provision": PROCESSES, "resources": {"gpu": 0}}, "gpu"),
        ({"provision": PROCESSES, "labels": ["a b"]}, "labels"),
        ({"provision": PROCESSES, "workspaces": []}, "workspaces"),
        ({"provision": PROCESSES, "hostes": 1}, "hostes"),
        ({"hosts": 1}, "list of labels"),
        ("gpu", "list of labels"),
    ],
)
def test_a_pool_that_makes_no_sense_is_refused_by_the_key_that_is_wrong(entry: object, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        read_pool("gpu", entry)


def test_a_pool_says_what_its_hosts_offer_before_there_are_any() -> None:
    pool = read_pool("gpu", {"provision": PROCESSES, "cpus": 2, "labels": ["a100"], "resources": {"gpu": 1}})
    assert pool.offer(None).labels == {"pool:gpu", "a100", "resource:cpu", "resource:gpu"}
    assert pool.offer(None).resources == {"cpu": 2, "gpu": 1}
    assert (pool.least, pool.most, pool.hosts) == (0, 1, None)
