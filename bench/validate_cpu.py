"""CPU time of `detent validate` on a file of 1,000 steps, as a process with its start-up; goal: below 0.4 s.

Beside it stand the bare interpreter and what the process pays before it looks at the file: together they say how much of
the figure is the checking itself.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from bench.start_up import cpu_ms

STEPS = 1_000
GOAL_MS = 400
RUNS = 7


def contract(steps: int) -> str:
    """A file as people write them: layers of ten steps, each with a binding, limits and two dependencies."""
    lines = ["name: layers", "params: {rows: 10}", "steps:"]
    for number in range(steps):
        layer, place = divmod(number, 10)
        before = [f"s{10 * (layer - 1) + (place + shift) % 10}" for shift in (0, 1)] if layer else []
        lines += [
            f"  - id: s{number}",
            f"    needs: [{', '.join(before)}]",
            "    run:",
            "      python: work.stages:transform",
            f"      with: {{number: {number}, rows: {{$param: rows}}, name: step number {number}}}",
            "    timeout: 5m",
            "    retry: 2",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        large, small = Path(directory) / "large.yaml", Path(directory) / "small.yaml"
        large.write_text(contract(STEPS), encoding="utf-8")
        small.write_text(contract(1), encoding="utf-8")
        cases = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "validate, 1 step": [sys.executable, "-m", "detent", "validate", str(small)],
            f"validate, {STEPS:,} steps": [sys.executable, "-m", "detent", "validate", str(large)],
        }
        for arguments in cases.values():
            cpu_ms(arguments)
        medians = {name: statistics.median(cpu_ms(arguments) for _ in range(RUNS)) for name, arguments in cases.items()}
        size_kib = large.stat().st_size / 1024
    bare, _, whole = medians.values()
    print(f"CPU time, median of {RUNS}; the file has {size_kib:.0f} KiB")
    for name, median in medians.items():
        print(f"  {name:<22} {median:>6.0f} ms  {median / bare:>5.1f} times the bare interpreter")
    print(f"  goal: below {GOAL_MS} ms; {'reached' if whole < GOAL_MS else 'MISSED'} ({whole / GOAL_MS:.2f} of it)")


if __name__ == "__main__":
    main()
