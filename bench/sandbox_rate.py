"""The sandbox's own speed: a job's way through a waiting jail, and jails per second beside bare interpreters."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from detent.errors import Refused
from detent.executor.sandbox import Execution, Job, Sandbox, bare_interpreter

NO_OP = Job(source="def main(): return None", entry="main")
LATENCY_RUNS = 100
RATE_SECONDS = 4.0
WARM = 8
THREADS = 2


def checked(execution: Execution | Refused) -> None:
    if isinstance(execution, Refused) or not execution.ok:
        raise SystemExit(f"a no-op job failed: {execution}")


def latency_ms(supervisor: Sandbox) -> list[float]:
    """From handing a job over to its result, with a jail that waits."""
    taken = []
    for _ in range(LATENCY_RUNS):
        supervisor.await_warm()
        begun = time.perf_counter()
        checked(supervisor.run(NO_OP))
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


def rate(work: Callable[[], None], threads: int) -> float:
    """How often per second a piece of work is done by so many threads, one after the other in each."""
    deadline = time.perf_counter() + RATE_SECONDS
    done = [0] * threads

    def repeat(place: int) -> None:
        while time.perf_counter() < deadline:
            work()
            done[place] += 1

    begun = time.perf_counter()
    workers = [threading.Thread(target=repeat, args=(place,)) for place in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - begun)


def bare() -> None:
    subprocess.run([bare_interpreter(), "-I", "-S", "-c", "pass"], check=True)  # noqa: S603


def main() -> None:
    with Sandbox(warm=WARM) as supervisor:
        print(f"profile {supervisor.profile.value}")
        taken = sorted(latency_ms(supervisor))
        p50, p95 = statistics.median(taken), taken[int(len(taken) * 0.95)]
        print(f"  no-op job in a waiting jail   p50 {p50:.2f} ms, p95 {p95:.2f} ms (goal: p50 at most 1.5 ms)")
        before = rate(bare, 1)
        jails = rate(lambda: checked(supervisor.run(NO_OP)), THREADS)
        after = rate(bare, 1)
        plain = (before + after) / 2
        print(f"  bare interpreters, one by one {plain:6.1f} /s ({before:.0f} before, {after:.0f} after)")
        print(f"  single-use jails              {jails:6.1f} /s, {jails / plain:.0%} of that (goal: at least 50 %)")


if __name__ == "__main__":
    sys.path.insert(0, ".")
    main()
