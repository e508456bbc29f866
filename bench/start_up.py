"""How long it takes to begin: CPU time of `import detent` and `detent --help`, and a cold start beside Huey's.

Cold start is the time from the command to the end of its first job: `detent run` of one step in a directory without a home, and a
Huey consumer with a client that waits for its only job. Beside them, the time in which a program that calls `detent.ordered_map` in
such a directory has its first result. The least is given as well as the median: other work on the machine only adds.

    python bench/start_up.py
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, ".")

from bench.apart import completed, environment
from bench.interpreter import interpreter_text
from bench.run_peers import huey_cold, missing

RUNS = 9
FIRST_RESULT = (
    "import math, detent\nfor value in detent.ordered_map(range(100), math.sqrt):\n    print(value)\n    break\n"
)
ONE_STEP = "name: one\nsteps:\n  - id: a\n    run: {python: 'operator:add', args: [1, 2]}\n"


def cold(where: Path) -> float:
    """Seconds of `detent run` for a contract with one step, in a directory that has no home yet."""
    (where / "one.yaml").write_text(ONE_STEP)
    begun = time.perf_counter()
    completed([sys.executable, "-m", "detent", "run", "one.yaml", "-q"], where, environment(where.parent / "bytecode"))
    return time.perf_counter() - begun


def first_result(where: Path) -> float:
    """Seconds until a new program has the first result of an ordered map, in a directory that has no home yet."""
    begun = time.perf_counter()
    program = [sys.executable, "-u", "-c", FIRST_RESULT]
    with subprocess.Popen(  # noqa: S603
        program, cwd=where, env=environment(where.parent / "bytecode"), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return time.perf_counter() - begun


def cpu_ms(arguments: list[str]) -> float:
    """CPU milliseconds of one child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1"})  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1_000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main() -> None:
    cases = {
        "bare interpreter": [sys.executable, "-c", "pass"],
        "import detent": [sys.executable, "-c", "import detent"],
        "detent --help": [sys.executable, "-m", "detent", "--help"],
    }
    print(f"   {interpreter_text()}")
    print(f"   CPU time, median of {RUNS} (goal: below 150 ms)")
    for arguments in cases.values():
        cpu_ms(arguments)
    for name, arguments in cases.items():
        print(f"   {name:<18} {statistics.median(cpu_ms(arguments) for _ in range(RUNS)):>6.0f} ms")
    sides = {"detent run": cold, "ordered_map": first_result} | ({} if "Huey" in missing() else {"Huey": huey_cold})
    taken: dict[str, list[float]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as made:
        for number in range(RUNS + 1):
            for name, side in sides.items():
                where = Path(made, f"{name.partition(' ')[0]}-{number}")
                where.mkdir()
                taken[name].append(side(where))
    found = {
        name: (statistics.median(some[1:]), min(some[1:])) for name, some in taken.items()
    }  # The first one compiled.
    for name, (median, least) in found.items():
        ratio = (
            f"   {median / found['Huey'][0]:.2f} times Huey (goal: 2.2)"
            if name == "detent run" and "Huey" in found
            else ""
        )
        print(f"   cold start, {name:<12} {median:>6.2f} s, least {least:.2f} s{ratio}")


if __name__ == "__main__":
    main()
