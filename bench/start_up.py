"""CPU time of `import detent` and of `detent --help`, beside the bare interpreter; goal: below 150 ms."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

RUNS = 9


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
    print(f"CPU time, median of {RUNS} (goal: below 150 ms)")
    for arguments in cases.values():
        cpu_ms(arguments)
    for name, arguments in cases.items():
        print(f"  {name:<18} {statistics.median(cpu_ms(arguments) for _ in range(RUNS)):>6.0f} ms")


if __name__ == "__main__":
    main()
