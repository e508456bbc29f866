"""What a place in the queue costs, at a depth of a thousand and of a million, beside a bare `collections.deque`.

One step is an enqueue and a dequeue with that many jobs waiting (for the deque: append and popleft), so the depth stays the
same. Cancelling is measured as an enqueue and a cancel of a job in the middle of the line, gaps and their clearing
included. All sides take turns in one process and the least of several rounds counts, in CPU time: the ratios mean something
on a busy machine, the nanoseconds do not.

    python bench/queue_rate.py
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from detent.scheduling import ClassQueues

DEPTHS = (1_000, 1_000_000)
STEPS = 2_000
ROUNDS = 200
PRIORITY = 5

Step = Callable[[Sequence[str]], None]


def deque_step(depth: int) -> Step:
    line = deque(waiting_ids(depth))

    def step(job_ids: Sequence[str]) -> None:
        append, popleft = line.append, line.popleft
        for job_id in job_ids:
            append(job_id)
            popleft()

    return step


def filled(depth: int, capacity: int) -> ClassQueues:
    queue = ClassQueues(capacity, policy="drop-lru")
    for job_id in waiting_ids(depth):
        queue.enqueue(job_id, PRIORITY)
    return queue


def queue_step(depth: int) -> Step:
    queue = filled(depth, depth + 1)

    def step(job_ids: Sequence[str]) -> None:
        enqueue, dequeue = queue.enqueue, queue.dequeue
        for job_id in job_ids:
            enqueue(job_id, PRIORITY)
            dequeue()

    return step


def evict_step(depth: int) -> Step:
    """Each newcomer evicts the oldest."""
    queue = filled(depth, depth)

    def step(job_ids: Sequence[str]) -> None:
        enqueue = queue.enqueue
        for job_id in job_ids:
            enqueue(job_id, PRIORITY)

    return step


def cancel_step(depth: int) -> Step:
    """Each newcomer takes the place of one that is cancelled somewhere in the line, far from either end."""
    queue = filled(depth, depth + 1)
    present = waiting_ids(depth)

    def step(job_ids: Sequence[str]) -> None:
        place = depth // 2
        for job_id in job_ids:
            place = (place + 7_919) % depth
            queue.cancel(present[place])
            present[place] = job_id
            queue.enqueue(job_id, PRIORITY)

    return step


def waiting_ids(depth: int) -> list[str]:
    return [f"waiting-{number:08d}" for number in range(depth)]


def measure(sides: dict[str, Step]) -> dict[str, float]:
    """Nanoseconds of each side's step: the least of all rounds, the sides taking turns."""
    least = dict.fromkeys(sides, float("inf"))
    for number in range(ROUNDS):
        for name, step in sides.items():
            job_ids = [f"{name}-{number}-{index:08d}" for index in range(STEPS)]
            begun = time.process_time_ns()
            step(job_ids)
            least[name] = min(least[name], (time.process_time_ns() - begun) / STEPS)
    return least


def main() -> None:
    shallow, deep = DEPTHS
    results: dict[int, dict[str, float]] = {}
    for depth in DEPTHS:
        results[depth] = measure(
            {
                "deque": deque_step(depth),
                "enqueue + dequeue": queue_step(depth),
                "enqueue + eviction": evict_step(depth),
                "enqueue + cancel": cancel_step(depth),
            }
        )
    print(f"CPU nanoseconds of one step with so many waiting, least of {ROUNDS} rounds of {STEPS:,}")
    print(f"  {'':<20}{shallow:>12,}{deep:>12,}   deep/shallow   shallow/deque   deep/deque")
    bare = {depth: result["deque"] for depth, result in results.items()}
    for name in results[deep]:
        few, many = results[shallow][name], results[deep][name]
        ratios = f"{many / few:>15.2f}{few / bare[shallow]:>16.1f}{many / bare[deep]:>13.1f}"
        print(f"  {name:<20}{few:>12.0f}{many:>12.0f}{ratios}")
    print("  goals for enqueue + dequeue: deep at most 2.5 times shallow, and at most 30 times the deque")


if __name__ == "__main__":
    main()
