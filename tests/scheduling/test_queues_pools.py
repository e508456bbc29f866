"""Queues of several pools: bounds apart, arrivals in one count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, encode
from detent.errors import InvalidInput, Refused
from detent.kernel import Enqueued, QueuePolicy
from detent.scheduling import ADMISSION_POLICIES, PoolQueues, pool_queues
from tests.scheduling.queue_model import Entry, NaiveQueue, said

POOL = st.sampled_from(["", "gpu", "cpu"])
JOB = st.integers(0, 11).map(lambda number: f"job-{number}")
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), JOB, st.sampled_from([1, 5, 10]), st.booleans(), POOL),
        st.tuples(st.just("put"), JOB, st.sampled_from([1, 5, 10]), st.just(True), POOL),
        st.tuples(st.just("cancel"), JOB),
        st.tuples(st.just("take"), st.one_of(st.none(), st.integers(0, 2**12 - 1)), st.one_of(st.none(), POOL)),
        st.tuples(st.just("restore")),
    ),
    min_size=10,
    max_size=60,
)


class NaivePools:
    """A naive queue for each pool, and one count of arrivals carried from one to the next."""

    def __init__(self, per_class: int, total: int, policy: str) -> None:
        bounds = dict.fromkeys(range(1, 11), per_class)
        self.pools = {pool_id: NaiveQueue(bounds, total, policy) for pool_id in ("", "cpu", "gpu")}
        self.arrivals = 0

    def enqueue(self, job_id: str, priority: int, evictable: bool, pool_id: str) -> Enqueued | str:
        if any(entry.job_id == job_id for entry in self.everyone()):
            return "INVALID_PARAMS"
        pool = self.pools[pool_id]
        pool.arrivals = self.arrivals
        answer = pool.enqueue(job_id, priority, evictable=evictable)
        self.arrivals = pool.arrivals
        return answer

    def everyone(self) -> list[Entry]:
        return [entry for pool in self.pools.values() for entry in pool.entries]

    def dequeue(self, placeable: Callable[[str], bool], pool_id: str | None) -> str | None:
        pools = self.pools.values() if pool_id is None else [self.pools[pool_id]]
        heads = [head for pool in pools for head in pool.heads()]
        for head in sorted(heads, key=lambda head: (-head.priority, head.arrival)):
            if placeable(head.job_id):
                self.cancel(head.job_id)
                return head.job_id
        return None

    def cancel(self, job_id: str) -> bool:
        return any(pool.cancel(job_id) for pool in self.pools.values())


@given(st.integers(1, 3), st.integers(1, 6), st.sampled_from(ADMISSION_POLICIES), OPERATIONS)
def test_pools_answer_as_searched_lists_do(
    per_class: int, total: int, policy: str, operations: list[tuple[object, ...]]
) -> None:
    """OC-CORE-1001a, CORE-X009, X-045"""
    settings = QueuePolicy(per_class, total, policy)
    queues, naive = PoolQueues(settings), NaivePools(per_class, total, policy)
    for operation in operations:
        match operation:
            case "put", str() as job_id, int() as priority, bool() as evictable, str() as pool_id:
                assert queues.has_room(priority, pool_id=pool_id) == naive.pools[pool_id].has_room(priority)
                expected = naive.enqueue(job_id, priority, evictable, pool_id)
                assert said(queues.enqueue(job_id, priority, evictable=evictable, pool_id=pool_id)) == expected
            case "cancel", str() as job_id:
                assert queues.cancel(job_id) == naive.cancel(job_id)
            case "take", (int() | None) as mask, (str() | None) as from_pool:
                taken = (4095 if mask is None else mask, from_pool)
                placeable = lambda job_id, mask=taken[0]: bool(mask >> int(job_id[4:]) & 1)  # noqa: E731
                given_placeable = None if mask is None else placeable
                assert queues.dequeue(given_placeable, pool_id=from_pool) == naive.dequeue(placeable, from_pool)
            case _:
                snapshot, queues = queues.snapshot(), PoolQueues(settings)
                queues.restore(decode(encode(snapshot)))
                assert queues.snapshot() == snapshot
        assert len(queues) == len(naive.everyone())
        assert {entry.job_id: queues.pool_of(entry.job_id) for entry in naive.everyone()} == {
            entry.job_id: pool_id for pool_id, pool in naive.pools.items() for entry in pool.entries
        }


def test_a_flooded_pool_takes_no_room_from_another() -> None:
    """OC-CORE-1001a, X-045"""
    queues = PoolQueues(QueuePolicy(1, 1))
    assert isinstance(queues.enqueue("a", 5, pool_id="gpu"), Enqueued)
    assert isinstance(queues.enqueue("b", 5, pool_id="gpu"), Refused)
    assert queues.enqueue("b", 5, pool_id="cpu") == Enqueued(1)
    assert {pool_id: pool.depths()[5] for pool_id, pool in queues.pools().items()} == {"cpu": 1, "gpu": 1}


def test_between_pools_the_class_decides_and_then_who_came_first() -> None:
    """X-045, X-084"""
    queues = PoolQueues(QueuePolicy(9, 90))
    for job_id, priority, pool_id in (("a", 5, "b-pool"), ("b", 5, "a-pool"), ("c", 9, "a-pool"), ("d", 5, "a-pool")):
        queues.enqueue(job_id, priority, pool_id=pool_id)
    assert [head.job_id for head in queues.heads()] == ["c", "a", "b"]
    assert [head.job_id for head in queues.heads(pool_id="a-pool")] == ["c", "b"]
    assert queues.heads(pool_id="nowhere") == ()
    assert queues.dequeue(lambda job_id: job_id not in {"c", "a"}) == "b"
    assert queues.dequeue(pool_id="b-pool") == "a"
    assert queues.dequeue(pool_id="b-pool") is None
    position = queues.position("d")
    assert position is not None
    assert (position.place, position.before) == (1, 1)
    assert queues.position("a") is None
    assert [queues.dequeue(), queues.dequeue(), queues.dequeue()] == ["c", "d", None]


def test_a_job_waits_for_one_pool_only() -> None:
    queues = PoolQueues()
    queues.enqueue("a", 5, pool_id="gpu")
    for pool_id in ("gpu", "cpu", ""):
        answer = queues.enqueue("a", 5, pool_id=pool_id)
        assert isinstance(answer, Refused)
        assert answer.code == "INVALID_PARAMS"
    assert len(queues) == 1


@pytest.mark.parametrize("pool_id", [None, 7, "a\nb", "x" * 201, ["gpu"]])
def test_a_pool_id_that_is_none_is_refused(pool_id: Any) -> None:
    queues = PoolQueues()
    answer = queues.enqueue("a", 5, pool_id=pool_id)
    assert isinstance(answer, Refused)
    assert answer.code == "INVALID_PARAMS"
    assert queues.snapshot() == [0, []]


def test_an_unknown_policy_is_refused_when_the_queues_are_made() -> None:
    """OC-CORE-1002a"""
    with pytest.raises(InvalidInput, match="must be one of"):
        PoolQueues(QueuePolicy(admission_policy="oldest"))


def test_an_unknown_pool_has_room_for_every_class_there_is() -> None:
    queues = PoolQueues()
    assert [queues.has_room(priority, pool_id="new") for priority in (0, 1, 10, 11, True)] == [
        *(False, True, True),
        *(False, False),
    ]


def test_a_pool_without_waiting_jobs_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of pools is bounded, and counts only those with waiting jobs."""
    monkeypatch.setattr(pool_queues, "POOLS_MAX", 2)
    queues = PoolQueues()
    for pool_id in ("one", "two"):
        queues.enqueue(pool_id, 5, pool_id=pool_id)
    answer = queues.enqueue("three", 5, pool_id="three")
    assert isinstance(answer, Refused)
    assert answer.code == "QUEUE_FULL"
    queues.cancel("one")
    assert queues.enqueue("three", 5, pool_id="three") == Enqueued(2)
    assert queues.snapshot() == [3, [], [["three", [[5, [[2, "three", True]]]]], ["two", [[5, [[1, "two", True]]]]]]]


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        [1],
        [1, [], [], []],
        [1, [], [["", []]]],
        [1, [], [["gpu", []], ["gpu", []]]],
        [1, [], ["gpu"]],
        [2, [[5, [[0, "a", True]]]], [["gpu", [[5, [[1, "a", True]]]]]]],
        [2, [[5, [[0, "a", True]]]], [["gpu", [[5, [[0, "b", True]]]]]]],
    ],
)
def test_a_snapshot_that_no_pools_wrote_is_refused_and_changes_nothing(snapshot: object) -> None:
    queues = PoolQueues()
    queues.enqueue("old", 5, pool_id="gpu")
    before = queues.snapshot()
    with pytest.raises(InvalidInput):
        queues.restore(snapshot)
    assert queues.snapshot() == before
