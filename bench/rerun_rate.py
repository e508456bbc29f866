"""A finished pipeline of 1,000 steps run again, by `detent run` and by *doit*: nothing to do, and one input changed.

Each is a command, from its start to its end. doit looks at the times of files; Detent compares the code, the inputs and the results by
digest, and records what it reused.

    python bench/rerun_rate.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, ".")

from bench.apart import ROOT, completed, environment, rounds_within
from bench.interpreter import interpreter_text
from bench.run_peers import DOIT_TASKS, Doit, missing

ROUNDS = 5


class Rerun:
    """A pipeline of 1,000 steps that has run once."""

    def __init__(self, where: Path) -> None:
        self._where = where
        self._command(0)

    def again(self) -> float:
        """Seconds of another run."""
        return self._command(0)

    def changed(self, value: int) -> float:
        """Seconds of a run after one input has changed."""
        return self._command(value)

    def _command(self, changed: int) -> float:
        line = [
            "run",
            "bench/run_work.py:pipeline",
            "-q",
            "-w",
            "2",
            "-p",
            f"count={DOIT_TASKS}",
            "-p",
            f"changed={changed}",
        ]
        begun = time.perf_counter()
        command = [sys.executable, "-m", "detent", *line, "--home", str(self._where / "home")]
        completed(command, ROOT, environment(self._where / "bytecode"))
        return time.perf_counter() - begun


def measured(where: Path, rounds: int = ROUNDS) -> dict[str, tuple[float, float]]:
    """Seconds with nothing to do and with one input changed, for each side that is here; the medians of alternating rounds."""
    sides: dict[str, Rerun | Doit] = {"Detent": Rerun(where)}
    if "doit" not in missing():
        sides["doit"] = Doit(where / "peer")
    taken: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in sides}
    for number in rounds_within(rounds):
        for name, side in sides.items():
            taken[name][0].append(side.again())
        for name, side in sides.items():
            taken[name][1].append(side.changed(number + 1))
            side.changed(0) if isinstance(side, Doit) else side.again()
    return {name: (statistics.median(again), statistics.median(changed)) for name, (again, changed) in taken.items()}


def main() -> None:
    print(f"   {interpreter_text()}")
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as where:
        found = measured(Path(where))
    for name, (again, changed) in found.items():
        print(f"   {name:8} {DOIT_TASKS:,} steps again {again:.2f} s, one input changed {changed:.2f} s")
    if "doit" in found:
        ratios = [ours / theirs for ours, theirs in zip(found["Detent"], found["doit"], strict=True)]
        print(f"   ratio    {ratios[0]:.2f} and {ratios[1]:.2f}")
    else:
        print(f"   doit     {missing()['doit']}")


if __name__ == "__main__":
    main()
