"""Placement on fleets of 100, 1,000 and 10,000 replicas: a first one, the next ones, and what their records cost.

A *first* placement is one whose demand is new, so the whole fleet is walked. A *next* one comes after one
replica has changed: a lease was granted or given back, or the replica reported other figures; the change itself is measured
with it. Beside it stands the plain way, which filters every replica and sorts what is left. All times are the processor's,
the median of many, so that a busy machine does not blur them.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from detent.scheduling import (
    Fleet,
    ModelRequirements,
    PlacementInput,
    ReplicaStatus,
    Sessions,
    TaskRequest,
    admit,
    place,
)
from detent.scheduling.placement import stages

SIZES = (100, 1_000, 10_000)
ROUNDS, FIRST_ROUNDS = 2_000, 200
GOAL_FIRST_US = 1_000
GOAL_NEXT_US = 60
MODELS, POOLS, DEVICES, SLOTS = 3, 4, 8, 4


def replica(number: int, draw: random.Random) -> ReplicaStatus:
    model = f"model-{number % MODELS}"
    placement = PlacementInput(
        f"replica-{number:05d}",
        f"pool-{number % POOLS}",
        "llama",
        "1.0",
        draw.randrange(1_000, 80_000),
        0,
        8_192,
        ("mmproj", "speculative_decode"),
    )
    return ReplicaStatus(
        placement, draw.random() < 0.95, f"gpu{number % DEVICES}", f"set-{model}", SLOTS, model, None, "s1"
    )


def request(number: int = 0) -> TaskRequest:
    """Requests of different numbers demand different things, so that each is a first one."""
    needs = ModelRequirements("model-0", None, 4_096 - number, None, True, ("mmproj",))
    return TaskRequest("job", requirements=needs)


def plain(asked: TaskRequest, fleet: Fleet) -> str | None:
    """Filter all, sort the rest: what placement would be without an index."""
    passed = [one for one in stages(asked, fleet) if one.removed_by is None]
    best = sorted(passed, key=lambda one: (-one.free_vram_mb, one.active_slots, one.replica_id))
    return best[0].replica_id if best else None


class Bench:
    """One fleet, and the processor's nanoseconds of everything done with it."""

    def __init__(self, size: int) -> None:
        draw = random.Random(size)
        self.size = size
        self.fleet = Fleet(replica(number, draw) for number in range(size))
        self.reports = [replace(replica(draw.randrange(size), draw), ready=True) for _ in range(ROUNDS)]
        self.sessions = Sessions()
        self.asked = request()
        self.decision = place(self.asked, self.fleet, self.sessions)
        self.taken: dict[str, list[int]] = {}
        if self.decision.replica_id != plain(self.asked, self.fleet):
            raise SystemExit("the index and the plain way disagree")

    def clock(self, name: str, work: Callable[[], object]) -> None:
        begun = time.process_time_ns()
        work()
        self.taken.setdefault(name, []).append(time.process_time_ns() - begun)

    def us(self, name: str) -> float:
        return statistics.median(self.taken[name]) / 1_000

    def place_first(self, number: int) -> None:
        asked = request(number + 1)
        self.clock("first", lambda: place(asked, self.fleet, self.sessions))
        if number % 20 == 0:
            self.clock("plain", lambda: plain(asked, self.fleet))

    def place_next(self, number: int) -> None:
        self.clock("lease", lambda: self.lease_and_place("job"))
        self.fleet.release("job")
        place(self.asked, self.fleet, self.sessions)
        self.clock("report", lambda: self.report_and_place(self.reports[number]))
        self.clock("record", self.decision.encode)
        self.clock("admission", lambda: admit(self.asked, self.fleet, self.sessions))

    def lease_and_place(self, job_id: str) -> None:
        self.fleet.lease(self.decision.replica_id or "", job_id)
        place(self.asked, self.fleet, self.sessions)

    def report_and_place(self, status: ReplicaStatus) -> None:
        self.fleet.update(status)
        place(self.asked, self.fleet, self.sessions)

    def print(self) -> None:
        lease, plainly = self.us("lease"), self.us("plain")
        print(
            f"  {self.size:>6,} replicas: first {self.us('first'):6.0f} us, next after a lease {lease:3.0f} us, after a "
            f"report {self.us('report'):3.0f} us; plain {plainly:6.0f} us ({plainly / lease:,.0f} times the next)"
        )
        print(
            f"  {'':>6}           record of {len(self.decision.encode())} bytes in {self.us('record'):.0f} us; "
            f"admission {self.us('admission'):.0f} us"
        )


def main() -> None:
    print(f"placement (goals at 1,000: first below {GOAL_FIRST_US} us, next below {GOAL_NEXT_US} us)")
    benches = [Bench(size) for size in SIZES]
    # Taking turns: what else the machine does then slows all sizes alike.
    for number in range(ROUNDS):
        for bench in benches:
            if number < FIRST_ROUNDS:
                bench.place_first(number)
            bench.place_next(number)
    for bench in benches:
        bench.print()
    small, large = benches[-2:]
    growth = [large.us(name) / small.us(name) for name in ("first", "lease", "report")]
    print(f"  ten times the replicas: first {growth[0]:.1f} times, next {growth[1]:.1f} and {growth[2]:.1f} times")


if __name__ == "__main__":
    sys.path.insert(0, ".")
    main()
