"""The pool of plain processes: no-op tasks per second, one round trip, and the socket beneath as the floor."""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

from detent.executor.assignment import Assignment, Progress
from detent.executor.plain.pool import Pool
from detent.jobs.order import Call, Order

WORKERS = 2
TASKS = 60_000
ROUND_TRIPS = 3000
SOURCE = "def no_op():\n    return None\n\n\ndef speak():\n    print('a line')\n"


def task(number: int, target: str, base: str) -> Assignment:
    """One call without arguments."""
    return Assignment(number, "job", 0, Order(Call(kind="python", target=target, base=base), "bench"), {})


def rate(pool: Pool, base: str, target: str, count: int) -> float:
    """Tasks per second from the first submit to the last answer."""
    begun = time.perf_counter()
    given = answered = 0
    while answered < count:
        for _ in range(min(pool.wanted(), count - given)):
            pool.submit(task(given, target, base))
            given += 1
        for done in pool.wait():
            if isinstance(done, Progress) or not done[1].ok:
                raise SystemExit(f"a task failed: {done}")
            answered += 1
    return count / (time.perf_counter() - begun)


def round_trips_us(pool: Pool, base: str) -> list[float]:
    taken = []
    for number in range(ROUND_TRIPS):
        begun = time.perf_counter()
        pool.submit(task(number, "work:no_op", base))
        while not pool.wait():
            pass
        taken.append((time.perf_counter() - begun) * 1e6)
    return sorted(taken)


def socket_us() -> float:
    """A message to a bare process and back: the machine's own share of a round trip."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        while data := theirs.recv(4096):
            theirs.send(data)
        os._exit(0)
    theirs.close()
    taken = []
    for _ in range(ROUND_TRIPS):
        begun = time.perf_counter()
        ours.send(b"x" * 150)
        ours.recv(4096)
        taken.append((time.perf_counter() - begun) * 1e6)
    ours.close()
    os.waitpid(pid, 0)
    return statistics.median(taken)


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home)
        (directory / "work.py").write_text(SOURCE)
        floor = socket_us()
        begun = time.perf_counter()
        with Pool(WORKERS, live=directory / "live", content=directory / "content") as pool:
            pool.submit(task(0, "work:no_op", home))
            while not pool.wait():
                pass
            print(f"  first answer of a new pool    {(time.perf_counter() - begun) * 1000:6.1f} ms")
            rate(pool, home, "work:no_op", 2000)
            silent, spoken = rate(pool, home, "work:no_op", TASKS), rate(pool, home, "work:speak", TASKS // 10)
            print(f"  no-op tasks, {WORKERS} workers        {silent:6.0f} /s (goal: more than 15000)")
            print(f"  tasks that print a line       {spoken:6.0f} /s")
            taken = round_trips_us(pool, home)
            p50, p95 = statistics.median(taken), taken[int(len(taken) * 0.95)]
            print(f"  one at a time                 p50 {p50:.0f} us, p95 {p95:.0f} us (goal: p50 below 150 us)")
            print(f"  bare socket round trip        p50 {floor:.0f} us; ours takes {p50 / floor:.1f} times that")


if __name__ == "__main__":
    sys.path.insert(0, ".")
    main()
