"""What order, durability and resume cost: `detent.ordered_map` beside maps that have none of the three.

20,000 items of about 0.2 ms, one in a hundred twenty times as long, on all cores. The others keep the order and nothing else:
`concurrent.futures`, `multiprocessing` and, where it is installed (`make peers`), `joblib` as a generator, all in chunks. The limit
is the time of one process over the number of cores. Sides take turns, each in a process of its own, started cold; the best of several
rounds counts. Memory is the peak of the process that drives, without its workers.

    python bench/ordered_map_rate.py [--full]
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ITEMS = 20_000
ROUNDS = 3
LONG_EVERY = 100
LONG = 20
LOOPS = 3_000
CHUNK = 64
COMPILED = tempfile.TemporaryDirectory()


def work(item: int) -> int:
    """About 0.2 ms, or twenty times that."""
    total = 0
    for number in range(LOOPS * (LONG if item % LONG_EVERY == 0 else 1)):
        total += number ^ item
    return total


def by_one_process(items: int) -> int:
    return sum(map(work, range(items)))


def by_futures(items: int) -> int:
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - a part of what is measured

    with ProcessPoolExecutor(cores()) as pool:
        return sum(pool.map(work, range(items), chunksize=CHUNK))


def by_pool(items: int) -> int:
    from multiprocessing import Pool  # noqa: PLC0415 - a part of what is measured

    with Pool(cores()) as pool:
        return sum(pool.imap(work, range(items), chunksize=CHUNK))


def by_joblib(items: int) -> int:
    joblib = importlib.import_module("joblib")  # Also what is measured.
    parallel = joblib.Parallel(n_jobs=cores(), batch_size=CHUNK, return_as="generator")
    return sum(parallel(joblib.delayed(work)(item) for item in range(items)))


def by_detent_loop(items: int) -> int:
    import detent  # noqa: PLC0415 - a part of what is measured

    return sum(detent.ordered_map(range(items), work))


def by_detent(items: int) -> int:
    import detent  # noqa: PLC0415 - a part of what is measured

    detent.ordered_map(range(items), work, "jsonl:out.jsonl")
    with Path("out.jsonl").open("rb") as lines:
        return sum(map(int, lines))


SIDES = {
    "one process": by_one_process,
    "concurrent.futures": by_futures,
    "multiprocessing": by_pool,
    "joblib": by_joblib,
    "ordered_map, loop": by_detent_loop,
    "ordered_map, jsonl": by_detent,
}


OTHERS = ("concurrent.futures", "multiprocessing", "joblib")


def sides() -> list[str]:
    """Those that can be measured here."""
    return [side for side in SIDES if side != "joblib" or importlib.util.find_spec("joblib") is not None]


def cores() -> int:
    return len(os.sched_getaffinity(0))


def measured(side: str, items: int) -> tuple[float, int, int]:
    """Seconds, peak of memory and the sum, from a process of its own in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path)}  # noqa: PTH100
        # As for a user: modules are compiled once, and not for every measurement.
        environment |= {"PYTHONPYCACHEPREFIX": COMPILED.name}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(  # noqa: S603
            [sys.executable, os.path.abspath(__file__), "--side", side, str(items)],  # noqa: PTH100
            cwd=directory,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
    said = json.loads(done.stdout)
    return said["seconds"], said["memory"], said["sum"]


def best(rounds: int = ROUNDS) -> dict[str, tuple[float, int]]:
    """Seconds and memory of the best round of each side; the sides take turns."""
    from bench.apart import rounds_within  # noqa: PLC0415 - not in the processes that are measured

    for side in sides():
        measured(side, 100)
    found: dict[str, tuple[float, int]] = {}
    sums = set()
    for _ in rounds_within(rounds):
        for side in sides():
            seconds, memory, total = measured(side, ITEMS)
            sums.add(total)
            if side not in found or seconds < found[side][0]:
                found[side] = (seconds, memory)
    if len(sums) != 1:
        raise SystemExit(f"the sides do not agree: {sums}")
    return found


def main() -> None:
    from bench.interpreter import interpreter_text  # noqa: PLC0415 - not in the processes that are measured

    print(f"   {interpreter_text()}")
    found = best()
    limit = found["one process"][0] / cores()
    others = min(found[side][0] for side in OTHERS if side in found)
    print(f"   {ITEMS:,} items, limit {ITEMS / limit:,.0f} items/s")
    for side, (seconds, memory) in found.items():
        ratios = f"{others / seconds:5.2f} of the fastest other, {limit / seconds:.2f} of the limit"
        print(f"   {side:20} {ITEMS / seconds:8,.0f} items/s  {memory >> 20:4} MiB  {ratios}")
    for side in SIDES.keys() - found.keys():
        print(f"   {side:20} not installed (make peers)")
    if "--full" in sys.argv:
        small, large = (measured_memory(items) for items in (20_000, 2_000_000))
        print(f"   memory: {small >> 20} MiB with 20,000 items, {large >> 20} MiB with 2,000,000: {large / small:.2f}")


def measured_memory(items: int) -> int:
    return measured("trivial", items)[1]


def trivial(items: int) -> int:
    import detent  # noqa: PLC0415 - a part of what is measured

    return sum(detent.ordered_map(range(items), same))


def same(item: int) -> int:
    return item


def one_side(side: str, items: int) -> None:
    begun = time.perf_counter()
    total = {**SIDES, "trivial": trivial}[side](items)
    seconds = time.perf_counter() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "memory": memory, "sum": total}))


if __name__ == "__main__":
    if "--side" in sys.argv:
        one_side(sys.argv[-2], int(sys.argv[-1]))
    else:
        sys.path.insert(0, ".")
        main()
