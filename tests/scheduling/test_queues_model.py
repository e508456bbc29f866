"""Class queues against the naive list, under random arrivals, retries, cancels, placements and restores (CORE-X009)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from detent.errors import Refused
from detent.kernel import Enqueued, QueuePolicy
from detent.scheduling import ADMISSION_POLICIES, ClassQueues, PoolQueues
from tests.scheduling.queue_model import Entry, NaiveQueue, said

# Few classes and few ids: bounds are hit, and cancelled ids come back while their gaps are still in the line.
CLASS = st.sampled_from([1, 2, 2, 5, 10])
JOB = st.integers(0, 11).map(lambda number: f"job-{number}")
POLICY = st.sampled_from(ADMISSION_POLICIES)
CAPACITY = st.dictionaries(st.sampled_from([1, 2, 5, 10]), st.integers(1, 4))
PLACEABLE = st.one_of(st.none(), st.integers(0, 2**12 - 1))
OPERATION = st.one_of(
    st.tuples(st.just("put"), JOB, CLASS, st.booleans()),
    st.tuples(st.just("put"), JOB, CLASS, st.just(True)),
    st.tuples(st.just("cancel"), JOB),
    st.tuples(st.just("take"), PLACEABLE),
    st.tuples(st.just("restore")),
)
OPERATIONS = st.lists(OPERATION, min_size=10, max_size=80)


def may_place(mask: int | None) -> Callable[[str], bool] | None:
    """The jobs whose bit is set can be placed; None places all."""
    if mask is None:
        return None
    return lambda job_id: bool(mask >> int(job_id.removeprefix("job-")) & 1)


def bounds(capacity: dict[int, int]) -> dict[int, int]:
    return {priority: capacity.get(priority, 256) for priority in range(1, 11)}


@given(CAPACITY, st.integers(1, 9), POLICY, OPERATIONS)
def test_class_queues_answer_as_a_searched_list_does(
    capacity: dict[int, int], total: int, policy: str, operations: list[tuple[object, ...]]
) -> None:
    """OC-CORE-1001a, OC-CORE-1001b, OC-CORE-1003b, OC-CORE-1004a, OC-CORE-1004b, OC-CORE-1005, CORE-X009, CORE-X016,
    X-031, X-043, X-082, X-083, X-084
    """
    queue, naive = ClassQueues(capacity, total, policy), NaiveQueue(bounds(capacity), total, policy)
    for operation in operations:
        match operation:
            case "put", str() as job_id, int() as priority, bool() as evictable:
                assert queue.has_room(priority) == naive.has_room(priority)
                expected = naive.enqueue(job_id, priority, evictable=evictable)
                assert said(queue.enqueue(job_id, priority, evictable=evictable)) == expected
            case "cancel", str() as job_id:
                assert queue.cancel(job_id) == naive.cancel(job_id)
            case "take", (int() | None) as mask:
                assert queue.dequeue(may_place(mask)) == naive.dequeue(may_place(mask))
            case _:
                snapshot, queue = queue.snapshot(), ClassQueues(capacity, total, policy)
                queue.restore(snapshot)
        assert queue.snapshot() == naive.snapshot()
        assert len(queue) == len(naive.entries) <= total
        assert [tuple(head) for head in queue.heads()] == [
            (head.priority, head.job_id, head.arrival) for head in naive.heads()
        ]
        for before, entry in enumerate(naive.order()):
            position = queue.position(entry.job_id)
            assert position is not None
            place = naive.of_class(entry.priority).index(entry) + 1
            assert (position.priority, position.place, position.before) == (entry.priority, place, before)
        for number, gaps in enumerate(queue._gap_counts):
            line = queue._lines[number]
            assert gaps == sum(queue._gaps[number].values()) <= len(line) - gaps


@given(CAPACITY, st.integers(1, 9), POLICY, OPERATIONS)
def test_everyone_who_was_offered_is_accounted_for(
    capacity: dict[int, int], total: int, policy: str, operations: list[tuple[object, ...]]
) -> None:
    """OC-CORE-1002a, OC-CORE-1002b, X-082"""
    queue = ClassQueues(capacity, total, policy)
    numbers = count()
    fate: Counter[str] = Counter()
    names: dict[str, str] = {}
    for operation in operations:
        match operation:
            case "put", str() as name, int() as priority, bool() as evictable:
                names[name] = job_id = f"{name}/{next(numbers)}"
                was_full = not queue.has_room(priority)
                answer = queue.enqueue(job_id, priority, evictable=evictable)
                refused = isinstance(answer, Refused)
                evicted = 0 if isinstance(answer, Refused) else len(answer.evicted)
                fate["offered"] += 1
                fate["refused"] += refused
                fate["evicted"] += evicted
                assert refused + evicted == was_full, "a job is refused whenever the queue is full, and never otherwise"
            case "cancel", str() as name:
                fate["cancelled"] += queue.cancel(names.get(name, name))
            case "take", _:
                fate["served"] += queue.dequeue() is not None
        ended = fate["refused"] + fate["evicted"] + fate["cancelled"] + fate["served"]
        assert fate["offered"] == ended + len(queue)
        assert len(queue) <= total
        assert all(depth <= capacity.get(priority, 256) for priority, depth in queue.depths().items())


@given(CAPACITY, st.integers(1, 6), POLICY, OPERATIONS)
def test_retries_that_wait_for_room_get_in_first_and_displace_no_job(
    capacity: dict[int, int], total: int, policy: str, operations: list[tuple[object, ...]]
) -> None:
    """X-042: as the kernel does it, settling after every step. Never dropped, never refused, never evicting."""
    queue = ClassQueues(capacity, total, policy)
    numbers = count()
    waiting: list[tuple[int, int, str]] = []
    retried: set[str] = set()
    for operation in operations:
        match operation:
            case "put", _, int() as priority, True:
                answer = queue.enqueue(f"new-{next(numbers)}", priority)
                if not isinstance(answer, Refused):
                    assert not retried & set(answer.evicted)
            case "put", _, int() as priority, False:
                number = next(numbers)
                waiting.append((number, -priority, f"retry-{number}"))
            case "take", _:
                retried.discard(queue.dequeue() or "")
        while free := sorted(retry for retry in waiting if queue.has_room(-retry[1])):
            waiting.remove(free[0])
            before = len(queue)
            answer = queue.enqueue(free[0][2], -free[0][1], evictable=False)
            assert isinstance(answer, Enqueued)
            assert (answer.evicted, len(queue)) == ((), before + 1)
            retried.add(free[0][2])
        assert not any(queue.has_room(-priority) for _, priority, _ in waiting)
    assert retried <= {job_id for job_id in retried if job_id in queue}


@given(POLICY, OPERATIONS, OPERATIONS)
def test_equal_snapshots_go_on_equally(
    policy: str, operations: list[tuple[object, ...]], more: list[tuple[object, ...]]
) -> None:
    """X-043: gaps and counters that a snapshot leaves out never decide anything."""
    lived = ClassQueues(2, 5, policy)
    play(lived, operations)
    restored = ClassQueues(2, 5, policy)
    restored.restore(lived.snapshot())
    assert play(lived, more) == play(restored, more)
    assert lived.snapshot() == restored.snapshot()


def play(queue: ClassQueues, operations: list[tuple[object, ...]]) -> list[object]:
    answers: list[object] = []
    for operation in operations:
        match operation:
            case "put", str() as job_id, int() as priority, bool() as evictable:
                answers.append(said(queue.enqueue(job_id, priority, evictable=evictable)))
            case "cancel", str() as job_id:
                answers.append(queue.cancel(job_id))
            case "take", (int() | None) as mask:
                answers.append(queue.dequeue(may_place(mask)))
    return answers


@given(st.integers(1, 3), st.integers(1, 5), POLICY, st.integers(4, 6), OPERATIONS, OPERATIONS)
def test_a_queue_that_was_filled_under_wider_bounds_obeys_the_tighter_ones_again(
    per_class: int,
    total: int,
    policy: str,
    wider: int,
    operations: list[tuple[object, ...]],
    more: list[tuple[object, ...]],
) -> None:
    """X-082: the change itself loses no job; a newcomer is only let in together with the bounds."""
    wide = ClassQueues(wider, None, policy)
    play(wide, operations)
    queue, naive = (
        ClassQueues(per_class, total, policy),
        NaiveQueue(bounds(dict.fromkeys(range(1, 11), per_class)), total, policy),
    )
    queue.restore(wide.snapshot())
    assert queue.snapshot() == wide.snapshot()
    naive.arrivals = queue.arrivals
    naive.entries = restored_entries(queue)
    for operation in more:
        match operation:
            case "put", str() as job_id, int() as priority, bool() as evictable:
                before = naive.entries[:]
                expected = naive.enqueue(job_id, priority, evictable=evictable)
                if isinstance(expected, str):
                    naive.entries = before  # the naive one evicts as it goes; a refusal evicts no job
                answer = said(queue.enqueue(job_id, priority, evictable=evictable))
                assert answer == expected
                if isinstance(answer, Enqueued):
                    assert queue.depths()[priority] <= per_class
                    assert len(queue) <= total
            case "take", (int() | None) as mask:
                assert queue.dequeue(may_place(mask)) == naive.dequeue(may_place(mask))
        assert queue.snapshot() == naive.snapshot()


def restored_entries(queue: ClassQueues) -> list[Entry]:
    snapshot = queue.snapshot()
    assert isinstance(snapshot, list)
    return [Entry(priority, *job) for priority, jobs in snapshot[1] for job in jobs]


@given(st.integers(1, 3), st.integers(1, 9), POLICY, OPERATIONS)
def test_one_nameless_pool_is_a_plain_queue(
    per_class: int, total: int, policy: str, operations: list[tuple[object, ...]]
) -> None:
    """X-045"""
    plain, pools = ClassQueues(per_class, total, policy), PoolQueues(QueuePolicy(per_class, total, policy))
    for operation in operations:
        match operation:
            case "put", str() as job_id, int() as priority, bool() as evictable:
                assert pools.has_room(priority) == plain.has_room(priority)
                answer = plain.enqueue(job_id, priority, evictable=evictable)
                assert pools.enqueue(job_id, priority, evictable=evictable) == answer
            case "cancel", str() as job_id:
                assert pools.cancel(job_id) == plain.cancel(job_id)
            case "take", (int() | None) as mask:
                assert pools.dequeue(may_place(mask)) == plain.dequeue(may_place(mask))
            case _:
                pools.restore(plain.snapshot())
        assert (pools.snapshot(), len(pools), pools.heads()) == (plain.snapshot(), len(plain), plain.heads())
