"""The plain queue: by class, then first come first served, against a sorted list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import InvariantBroken, Refused
from detent.kernel import Enqueued, PriorityFifo
from tests.kernel.builders import Scene, config, queue_of

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 10)),
        st.tuples(st.just("take"), st.integers(0, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 40)),
        st.tuples(st.just("restore"), st.just(0)),
    ),
    max_size=80,
)


class Reference:
    """A list of (class, arrival, id), sorted on demand."""

    def __init__(self, per_class: int, total: int) -> None:
        self.per_class, self.total = per_class, total
        self.waiting: list[tuple[int, int, str]] = []
        self.arrivals = 0

    def room(self, priority: int) -> bool:
        in_class = sum(1 for entry in self.waiting if entry[0] == -priority)
        return in_class < self.per_class and len(self.waiting) < self.total

    def put(self, job_id: str, priority: int) -> int:
        self.waiting.append((-priority, self.arrivals, job_id))
        self.arrivals += 1
        return self.arrivals - 1

    def take(self, placeable: Callable[[str], bool] | None) -> str | None:
        """The first of the highest class whose first can be placed."""
        heads: dict[int, tuple[int, int, str]] = {}
        for entry in sorted(self.waiting):
            heads.setdefault(entry[0], entry)
        for entry in sorted(heads.values()):
            if placeable is None or placeable(entry[2]):
                self.waiting.remove(entry)
                return entry[2]
        return None

    def cancel(self, job_id: str) -> bool:
        found = [entry for entry in self.waiting if entry[2] == job_id]
        self.waiting = [entry for entry in self.waiting if entry[2] != job_id]
        return bool(found)

    def order(self) -> list[str]:
        return [entry[2] for entry in sorted(self.waiting)]


def order_of(queue: PriorityFifo) -> list[str]:
    snapshot: Any = queue.snapshot()
    return [job_id for _, line in snapshot[1] for _, job_id in line]


@given(st.integers(1, 4), st.integers(1, 12), OPERATIONS)
def test_the_queue_serves_as_a_sorted_list_does(per_class: int, total: int, operations: list[tuple[str, int]]) -> None:
    """PIPE-028, PIPE-119, X-010, X-043"""
    queue, reference = PriorityFifo(queue_of(per_class, total)), Reference(per_class, total)
    for number, (operation, value) in enumerate(operations):
        if operation == "put":
            room = reference.room(value)
            assert queue.has_room(value) == room
            placed = queue.enqueue(f"job-{number}", value)
            assert isinstance(placed, Enqueued) == room
            if isinstance(placed, Enqueued):
                assert placed == Enqueued(reference.put(f"job-{number}", value))
            else:
                assert placed.code == "QUEUE_FULL"
        elif operation == "take":
            placeable = None if value < 3 else (lambda job_id: int(job_id[4:]) % 3 == 0)
            assert queue.dequeue(placeable) == reference.take(placeable)
        elif operation == "cancel":
            assert queue.cancel(f"job-{value}") == reference.cancel(f"job-{value}")
        else:
            snapshot = queue.snapshot()
            queue = PriorityFifo(queue_of(per_class, total))
            queue.restore(snapshot)
            assert queue.snapshot() == snapshot
        assert (len(queue), order_of(queue)) == (len(reference.waiting), reference.order())


def test_the_highest_class_goes_first_and_inside_a_class_the_first_come() -> None:
    """PIPE-028, X-010"""
    scene = Scene()
    for number, priority in enumerate((1, 10, 5, 10, 1, 5)):
        scene.submit(f"job-{number}", priority=priority)
    assert [grant.job_id for grant in scene.claim(6)] == ["job-1", "job-3", "job-2", "job-5", "job-0", "job-4"]


def test_places_of_canceled_jobs_are_swept_before_they_outnumber_the_waiting() -> None:
    """X-168"""
    queue = PriorityFifo(queue_of(10))
    queue.enqueue("stays", 5)
    for number in range(1000):
        queue.enqueue(f"job-{number}", 5)
        queue.cancel(f"job-{number}")
    assert len(queue._lines[5]) <= 4
    assert queue.dequeue() == "stays"
    assert queue.dequeue() is None


def test_a_job_is_not_queued_twice() -> None:
    queue = PriorityFifo()
    queue.enqueue("job-1", 5)
    with pytest.raises(InvariantBroken, match="twice"):
        queue.enqueue("job-1", 6)


def test_the_total_bound_holds_over_all_classes() -> None:
    """X-042"""
    queue = PriorityFifo(queue_of(5, 2))
    assert isinstance(queue.enqueue("a", 1), Enqueued)
    assert isinstance(queue.enqueue("b", 2), Enqueued)
    assert isinstance(queue.enqueue("c", 3), Refused)
    assert (queue.has_room(3), len(queue)) == (False, 2)


def test_a_queue_restored_under_tighter_bounds_keeps_all_and_takes_no_more() -> None:
    """X-042: never dropped"""
    queue = PriorityFifo(queue_of(5))
    for number in range(4):
        queue.enqueue(f"job-{number}", 5)
    smaller = PriorityFifo(queue_of(2))
    smaller.restore(queue.snapshot())
    assert (len(smaller), smaller.has_room(5)) == (4, False)
    assert [smaller.dequeue() for _ in range(4)] == [f"job-{number}" for number in range(4)]


def test_the_kernels_check_compares_the_queue_with_the_jobs() -> None:
    """PIPE-033"""
    scene = Scene(config())
    scene.submit()
    scene.kernel.queue.cancel("job-1")
    with pytest.raises(InvariantBroken, match="1 jobs are QUEUED, the queue holds 0"):
        scene.kernel.check()
