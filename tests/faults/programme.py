"""The fault programme: every fault again and again, and a table of the results.

    python -m tests.faults.programme --cycles 1000 --seed 4711

A cycle is one fault in a run on a home of its own; the same line again until the run has completed; then the audit. The n-th cycle
of a fault with a seed does the same harm each time, at a moment that the machine has its share in. Exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.faults.commands import Commands
from tests.faults.disk import LIMITED, MOUNTED, can_mount
from tests.faults.faults import KILLS, NAMED, Cycle, Fault
from tests.faults.hostile import HOSTILE
from tests.faults.together import TOGETHER

SEED_STEP = 1_000_000
"""Seeds of cycles are the programme's seed and a number; two programmes with different seeds have none in common."""


@dataclass(slots=True)
class Row:
    """One line of the table."""

    cycles: int = 0
    injected: int = 0
    hit: int = 0
    lost: int = 0
    twice: int = 0
    orphans: int = 0
    leftovers: int = 0
    late: int = 0
    verify: int = 0
    wrong: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, cycle: Cycle) -> None:
        """Count a cycle."""
        self.cycles += 1
        self.injected += cycle.injected
        self.hit += cycle.hit
        self.lost += len(cycle.found.lost)
        self.twice += len(cycle.found.twice)
        self.orphans += len(cycle.found.orphans)
        self.leftovers += len(cycle.found.leftovers)
        self.late += len(cycle.found.late)
        self.verify += len(cycle.found.verify)
        self.wrong += len(cycle.wrong)
        self.problems += [f"{cycle.fault}, seed {cycle.seed}: {what}" for what in cycle.problems]


PATTERN = (0, 1, 0, 2)
COLUMNS = ("cycles", "injected", "hit", "lost", "twice", "orphans", "leftovers", "late", "verify", "wrong")
AT_POINTS = "kill -9 at named points"


def all_faults() -> dict[str, Fault]:
    """Every fault that can be injected here."""
    return {**KILLS, **NAMED, **TOGETHER, **(MOUNTED if can_mount() else {}), **LIMITED, **HOSTILE}


def shares(faults: dict[str, Fault], cycles: int) -> Iterator[tuple[str, int]]:
    """Which fault is next, and its how-manieth cycle it is.

    Of four cycles two are kills at random, one is a kill at a named point and one is something else, each kind in turn.
    """
    kinds = [[name for name in faults if name in some] for some in (KILLS, NAMED)]
    kinds.append([name for name in faults if name not in KILLS and name not in NAMED])
    drawn = [itertools.cycle(names) for names in kinds]
    order = itertools.cycle([drawn[place] for place in PATTERN if kinds[place]])
    counts: Counter[str] = Counter()
    for _ in range(cycles):
        name = next(next(order))
        counts[name] += 1
        yield name, counts[name]


class Programme:
    """Cycles on several threads, each with commands of its own."""

    def __init__(self, faults: dict[str, Fault], cycles: int, seed: int, threads: int, *, quiet: bool = False) -> None:
        self.faults = faults
        self.seed = seed
        self.rows: dict[str, Row] = {}
        self._work = shares(faults, cycles)
        self._threads = threads
        self._quiet = quiet
        self._lock = threading.Lock()

    def run(self) -> dict[str, Row]:
        """All cycles; the rows of the table by fault."""
        threads = [threading.Thread(target=self._turn) for _ in range(self._threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.rows

    def _turn(self) -> None:
        with Commands() as commands:
            while (cycle := self._next(commands)) is not None:
                with self._lock:
                    self.rows.setdefault(AT_POINTS if cycle.fault in NAMED else cycle.fault, Row()).add(cycle)
                    if not self._quiet:
                        for problem in cycle.problems:
                            sys.stderr.write(f"{cycle.fault}, seed {cycle.seed}: {problem}\n")

    def _next(self, commands: Commands) -> Cycle | None:
        with self._lock:
            name, number = next(self._work, ("", 0))
        if not name:
            return None
        seed = self.seed * SEED_STEP + number
        try:
            return self.faults[name](commands, name, seed)
        except Exception:  # noqa: BLE001 - a cycle that broke is a finding like any other
            return Cycle(name, seed, wrong=[traceback.format_exc()])


def table(rows: dict[str, Row], seed: int) -> str:
    """The rows as a table, with a sum."""
    total = Row()
    for row in rows.values():
        for name in COLUMNS:
            setattr(total, name, getattr(total, name) + getattr(row, name))
    lines = [f"| fault | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for fault, row in [*rows.items(), (f"all (seed {seed})", total)]:
        lines.append(f"| {fault} | {' | '.join(str(getattr(row, name)) for name in COLUMNS)} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run the programme as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.programme")
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", metavar="TEXT", default="", help="faults whose name holds this")
    options = parser.parse_args(words)
    seed = int.from_bytes(os.urandom(2), "big") if options.seed is None else options.seed
    faults = {name: fault for name, fault in all_faults().items() if options.only in name}
    begun = time.monotonic()
    rows = Programme(faults, options.cycles, seed, options.threads).run()
    problems = [problem for row in rows.values() for problem in row.problems]
    sys.stdout.write(table(rows, seed) + "\n")
    sys.stdout.write(f"\n{options.cycles} cycles in {time.monotonic() - begun:.0f} s, {len(problems)} problems; ")
    sys.stdout.write(f"again with --cycles {options.cycles} --seed {seed}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
