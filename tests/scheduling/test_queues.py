"""Class queues by example: each policy's table, the bounds, the order, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from detent.canon import decode, encode
from detent.errors import InvalidInput, Refused
from detent.kernel import Enqueued, PriorityFifo, QueuePolicy
from detent.scheduling import ADMISSION_POLICIES, ClassQueues, Head, Position
from tests.lines_run import lines_run


def filled(queue: ClassQueues, *jobs: tuple[str, int], evictable: bool = True) -> ClassQueues:
    for job_id, priority in jobs:
        assert isinstance(queue.enqueue(job_id, priority, evictable=evictable), Enqueued)
    return queue


def drained(queue: ClassQueues) -> list[str]:
    return list(iter(queue.dequeue, None))


@pytest.mark.parametrize(
    ("policy", "per_class", "total", "waiting", "newcomer", "evicted", "left"),
    [
        # The class bound: only drop-lru makes room, inside the class, oldest first.
        ("reject", 2, 9, "a5 b5", "n5", None, "a b"),
        ("drop-lru", 2, 9, "a5 b5 c1", "n5", "a", "b n c"),
        ("shed-low-priority", 2, 9, "a5 b5 c1", "n5", None, "a b c"),
        # The total bound: drop-lru takes the oldest of the lowest class not above, shed the newest of the lowest below.
        ("reject", 9, 3, "a1 b5 c9", "n9", None, "c b a"),
        ("drop-lru", 9, 3, "a2 b1 c1", "n5", "b", "n a c"),
        ("drop-lru", 9, 3, "a5 b5 c9", "n5", "a", "c b n"),
        ("drop-lru", 9, 3, "a6 b7 c9", "n5", None, "c b a"),
        ("shed-low-priority", 9, 3, "a2 b1 c1", "n5", "c", "n a b"),
        ("shed-low-priority", 9, 3, "a5 b5 c9", "n5", None, "c a b"),
        ("shed-low-priority", 9, 3, "a6 b4 c4", "n5", "c", "a n b"),
        # Both bounds: the class bound decides first, and its victim makes room under both.
        ("drop-lru", 2, 3, "a1 b5 c5", "n5", "b", "c n a"),
        ("shed-low-priority", 2, 3, "a1 b5 c5", "n5", None, "b c a"),
    ],
)
def test_each_policy_decides_who_is_refused(
    policy: str, per_class: int, total: int, waiting: str, newcomer: str, evicted: str | None, left: str
) -> None:
    """OC-CORE-1002a, OC-CORE-1002b, X-082"""
    queue = filled(ClassQueues(per_class, total, policy), *((word[0], int(word[1:])) for word in waiting.split()))
    answer = queue.enqueue(newcomer[0], int(newcomer[1:]))
    if evicted is None:
        assert isinstance(answer, Refused)
        assert answer.code == "QUEUE_FULL"
    else:
        reason = {"drop-lru": "DROPPED_LRU", "shed-low-priority": "SHED_LOW_PRIORITY"}[policy]
        assert answer == Enqueued(3 if len(waiting.split()) == 3 else 2, (evicted,), reason)
    assert drained(queue) == left.split()


@pytest.mark.parametrize("policy", ["drop-lru", "shed-low-priority"])
def test_a_job_that_may_not_be_evicted_never_is(policy: str) -> None:
    """X-031: the victim is the next one that may be; without one the newcomer is refused."""
    queue = ClassQueues(9, 4, policy)
    queue.enqueue("kept-old", 1, evictable=False)
    queue.enqueue("loose-old", 1)
    queue.enqueue("loose-new", 1)
    queue.enqueue("kept-new", 1, evictable=False)
    oldest_first = ["loose-old", "loose-new"]
    for number, victim in enumerate(oldest_first if policy == "drop-lru" else reversed(oldest_first)):
        answer = queue.enqueue(f"n{number}", 9)
        assert isinstance(answer, Enqueued)
        assert answer.evicted == (victim,)
    refused = queue.enqueue("late", 9 if policy == "shed-low-priority" else 8)
    assert isinstance(refused, Refused)
    assert drained(queue) == ["n0", "n1", "kept-old", "kept-new"]


@pytest.mark.parametrize("policy", ADMISSION_POLICIES)
def test_a_job_that_may_not_be_evicted_waits_outside_a_full_queue(policy: str) -> None:
    """X-031: back-pressure for workflow and ordered work: it loses nothing, and no other job loses its place."""
    queue = filled(ClassQueues(2, 3, policy), ("a", 1), ("b", 5), ("c", 5))
    for priority in (5, 9):
        answer = queue.enqueue("step", priority, evictable=False)
        assert isinstance(answer, Refused)
        assert answer.code == "QUEUE_FULL"
    assert drained(queue) == ["b", "c", "a"]


def test_a_refusal_says_which_bound_was_met() -> None:
    queue = filled(ClassQueues({5: 1}, 2), ("a", 5), ("b", 9))
    answers = [queue.enqueue("n", priority) for priority in (5, 9)]
    assert [answer.details["bound"] for answer in answers if isinstance(answer, Refused)] == ["class", "total"]
    assert isinstance(answers[0], Refused)
    assert answers[0].message == "the queue has no room for a job of class 5: class 5 holds 1"
    assert answers[0].details["capacity_per_class"] == 1


def test_a_blocked_class_holds_back_its_followers_but_no_lower_class() -> None:
    """CORE-X016, X-084"""
    queue = filled(ClassQueues(9), ("big", 9), ("small-behind", 9), ("low", 2))
    asked: list[str] = []

    def placeable(job_id: str) -> bool:
        asked.append(job_id)
        return job_id != "big"

    assert queue.dequeue(placeable) == "low"
    assert queue.dequeue(placeable) is None
    assert asked == ["big", "low", "big"]
    assert queue.dequeue() == "big"
    assert queue.dequeue(placeable) == "small-behind"


def test_a_placement_that_fails_leaves_the_queue_as_it_was() -> None:
    queue = filled(ClassQueues(9), ("a", 5))
    before = queue.snapshot()
    with pytest.raises(ZeroDivisionError):
        queue.dequeue(lambda job_id: bool(1 // 0))
    assert queue.snapshot() == before


def test_kept_and_evictable_jobs_share_one_line() -> None:
    """OC-CORE-1004b, X-084: whether a job may be evicted does not change its turn."""
    queue = ClassQueues(9)
    for number in range(8):
        queue.enqueue(f"job-{number}", 5, evictable=number % 3 == 0)
    queue.cancel("job-3")
    assert drained(queue) == [f"job-{number}" for number in (0, 1, 2, 4, 5, 6, 7)]


def test_a_cancelled_job_is_never_served_and_takes_no_room() -> None:
    """OC-CORE-1005, X-083"""
    queue = filled(ClassQueues(2), ("a", 5), ("b", 5))
    assert queue.cancel("a")
    assert not queue.cancel("a")
    assert queue.has_room(5)
    filled(queue, ("a", 5))
    assert not queue.has_room(5)
    assert drained(queue) == ["b", "a"]


def test_an_id_may_leave_several_gaps_in_one_line() -> None:
    """OC-CORE-1005, X-083: each time it comes back it stands at the end."""
    queue = ClassQueues(9)
    for job_id in ("head", "back", "b", "back", "c", "back"):
        queue.cancel(job_id)
        queue.enqueue(job_id, 5)
    assert list(queue._lines[11]) == ["head", "back", "b", "back", "c", "back"]
    assert drained(queue) == ["head", "b", "c", "back"]


def test_a_gap_among_jobs_that_are_kept_is_passed_over_too() -> None:
    """X-083."""
    queue = ClassQueues(10)
    for job_id in "abc":
        queue.enqueue(job_id, 5, evictable=False)
    assert queue.cancel("b")
    assert [queue.dequeue() for _ in range(3)] == ["a", "c", None]


def test_a_gap_is_a_gap_although_its_id_waits_in_another_class() -> None:
    """X-082, X-083: the newest job of class 1 is the one that is still there."""
    queue = filled(ClassQueues(9, 4, "shed-low-priority"), ("a", 1), ("b", 1), ("moved", 1))
    queue.cancel("moved")
    filled(queue, ("moved", 5), ("c", 5))
    assert queue.enqueue("n", 9) == Enqueued(5, ("b",), "SHED_LOW_PRIORITY")
    assert drained(queue) == ["n", "moved", "c", "a"]


def test_a_class_full_of_kept_jobs_is_not_helped_by_victims_below_it() -> None:
    """X-031, X-082"""
    queue = filled(ClassQueues(1, 9, "drop-lru"), ("low", 1))
    filled(queue, ("kept", 5), evictable=False)
    answer = queue.enqueue("n", 5)
    assert isinstance(answer, Refused)
    assert drained(queue) == ["kept", "low"]


def test_a_line_is_rewritten_before_its_gaps_outnumber_its_jobs() -> None:
    """X-083"""
    queue = ClassQueues(2_000, 2_000)
    for number in range(1_000):
        queue.enqueue(f"job-{number}", 5)
    longest = 0
    for number in range(999, 0, -1):
        queue.cancel(f"job-{number}")
        line = queue._lines[11]
        longest = max(longest, len(line) - 2 * len(queue))
    assert longest <= 0
    assert (len(queue), drained(queue)) == (1, ["job-0"])


def test_every_entry_takes_a_new_arrival_number() -> None:
    """X-043"""
    queue = ClassQueues(9)
    assert [queue.enqueue(job_id, 5) for job_id in "ab"] == [Enqueued(0), Enqueued(1)]
    assert queue.dequeue() == "a"
    assert queue.enqueue("a", 5, evictable=False) == Enqueued(2)
    assert queue.snapshot() == [3, [[5, [[1, "b", True], [2, "a", False]]]]]


def test_where_a_job_stands_is_told() -> None:
    queue = filled(ClassQueues(9), ("a", 5), ("b", 9), ("c", 5), ("d", 1))
    assert queue.position("c") == Position(priority=5, arrival=2, place=2, before=2)
    assert queue.position("nobody") is None
    assert queue.heads() == (Head(9, "b", 1), Head(5, "a", 0), Head(1, "d", 3))
    assert queue.depths() == {10: 0, 9: 1, 8: 0, 7: 0, 6: 0, 5: 2, 4: 0, 3: 0, 2: 0, 1: 1}
    assert "a" in queue
    assert "nobody" not in queue


def test_room_is_what_is_free_not_what_could_be_taken() -> None:
    """X-042"""
    queue = filled(ClassQueues(1, 2, "drop-lru"), ("a", 5))
    assert [queue.has_room(priority) for priority in (4, 5)] == [True, False]
    filled(queue, ("b", 4))
    assert not queue.has_room(9)
    assert not any(queue.has_room(priority) for priority in (0, 11, True, "5", None))  # type: ignore[arg-type]


@pytest.mark.parametrize("priority", [0, 11, -1, True, "5", 5.0, None])
def test_a_class_that_does_not_exist_is_refused(priority: Any) -> None:
    """CORE-X014"""
    queue = ClassQueues(9)
    answer = queue.enqueue("a", priority)
    assert isinstance(answer, Refused)
    assert answer.code == "INVALID_PARAMS"
    assert "priority must be an integer from 1 to 10" in answer.message
    assert queue.snapshot() == [0, []]


@pytest.mark.parametrize(
    ("job_id", "evictable", "message"),
    [
        ("", True, "job_id must be a non-empty text"),
        (7, True, "job_id must be a non-empty text"),
        (["a"], True, "job_id must be a non-empty text"),
        ("b", 1, "evictable must be true or false"),
        ("a", True, "job 'a' waits in the queue already"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(job_id: Any, evictable: Any, message: str) -> None:
    queue = filled(ClassQueues(1, 1, "drop-lru"), ("a", 5))
    before = queue.snapshot()
    answer = queue.enqueue(job_id, 5, evictable=evictable)
    assert isinstance(answer, Refused)
    assert answer.code == "INVALID_PARAMS"
    assert message in answer.message
    assert queue.snapshot() == before


def test_cancelling_what_is_no_job_id_cancels_nothing() -> None:
    queue = filled(ClassQueues(9), ("a", 5))
    assert not queue.cancel(["a"])  # type: ignore[arg-type]
    assert len(queue) == 1


@pytest.mark.parametrize(
    ("capacity", "total", "policy", "message"),
    [
        (0, None, "reject", "capacity must be at least 1"),
        (-1, None, "reject", "capacity must be an integer"),
        (True, None, "reject", "capacity must be an integer"),
        (2.0, None, "reject", "capacity must be an integer"),
        (None, None, "reject", "capacity must be an integer"),
        ({5: 0}, None, "reject", r"capacity\[5\] must be at least 1"),
        ({11: 1}, None, "reject", "a class that does not exist: 11"),
        ({True: 1}, None, "reject", "a class that does not exist: True"),
        (1, 0, "reject", "total must be at least 1"),
        (1, False, "reject", "total must be an integer"),
        (1, 1, "newest", "must be one of reject, drop-lru, shed-low-priority, not 'newest'"),
        (1, 1, "REJECT", "must be one of"),
        (1, 1, None, "must be one of"),
        (1, 1, ["reject"], "must be one of"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(capacity: Any, total: Any, policy: Any, message: str) -> None:
    """OC-CORE-1002a"""
    with pytest.raises(InvalidInput, match=message):
        ClassQueues(capacity, total, policy)


def test_an_unknown_policy_is_refused_when_the_configuration_is_read() -> None:
    """OC-CORE-1002a"""
    with pytest.raises(InvalidInput, match="must be one of"):
        ClassQueues.of(QueuePolicy(admission_policy="drop-newest"))


def test_the_total_bound_is_the_sum_unless_it_is_given() -> None:
    """X-082"""
    assert ClassQueues(3).total == 30
    assert ClassQueues({10: 1}).total == 1 + 9 * 256
    assert ClassQueues.of(QueuePolicy(3, 7, "drop-lru")).total == 7


@pytest.mark.parametrize("policy", ADMISSION_POLICIES)
def test_a_snapshot_survives_its_canonical_bytes(policy: str) -> None:
    queue = filled(ClassQueues(9, policy=policy), ("a", 5), ("b", 9), ("c", 5))
    queue.enqueue("d", 5, evictable=False)
    queue.cancel("a")
    other = ClassQueues(9, policy=policy)
    other.restore(decode(encode(queue.snapshot())))
    assert other.snapshot() == queue.snapshot()
    assert drained(other) == ["b", "c", "d"]


def test_a_snapshot_of_the_plain_queue_is_understood_and_no_job_in_it_may_be_evicted() -> None:
    plain = PriorityFifo()
    for job_id in "ab":
        plain.enqueue(job_id, 5)
    queue = ClassQueues(2, 2, "drop-lru")
    queue.restore(plain.snapshot())
    assert isinstance(queue.enqueue("c", 5), Refused)
    assert drained(queue) == ["a", "b"]


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        [],
        [1],
        [-1, []],
        [True, []],
        [1, None],
        [1, [[5]]],
        [1, [[0, []]]],
        [1, [[11, []]]],
        [1, [["5", []]]],
        [2, [[5, [[0, "a", True]]], [9, [[1, "b", True]]]]],
        [2, [[5, []], [5, []]]],
        [1, [[5, [[0, "a", 1]]]]],
        [1, [[5, [[0]]]]],
        [1, [[5, [["a", 0]]]]],
        [1, [[5, [[1, "a", True]]]]],
        [2, [[5, [[1, "a", True], [0, "b", True]]]]],
        [2, [[5, [[0, "a", True], [1, "a", True]]]]],
        [2, [[9, [[0, "a", True]]], [5, [[1, "a", True]]]]],
    ],
)
def test_a_snapshot_that_no_queue_wrote_is_refused_and_changes_nothing(snapshot: object) -> None:
    queue = filled(ClassQueues(9), ("old", 5))
    with pytest.raises(InvalidInput):
        queue.restore(snapshot)
    assert drained(queue) == ["old"]


def test_a_step_costs_the_same_however_many_wait() -> None:
    """OC-CORE-1003a"""
    costs = []
    for depth in (100, 10_000):
        queue = ClassQueues(10**6)
        for number in range(depth):
            queue.enqueue(f"job-{number}", 5)
        steps = (partial(queue.enqueue, "new", 5), partial(queue.cancel, "new"), queue.dequeue)
        costs.append([lines_run(step) for step in steps])
    assert costs[0] == costs[1]
    assert max(costs[0]) < 60
