"""The goals: what Detent reaches beside others, as one table.

Every row has both sides from one run. The sides take turns, each measurement in a new process and a new directory, and the median of
the rounds counts (of the ordered map the best, which is closest to a quiet machine). What is missing is named. On a slow machine
there are fewer rounds: none begins later than a minute after the first of its rows.

Two peers need a service or a gigabyte to run, so their steps a second come from another machine of this kind (`THERE`), scaled by the
bare SQLite queue, which was measured there and is measured here in the same run.

    make peers                                  # what Detent is compared with, into .venv
    .venv/bin/python bench/goals.py             # three to six minutes
    .venv/bin/python bench/goals.py rerun cold  # only these rows
    .venv/bin/python bench/goals.py --rounds 1
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, ".")

from bench import bare_queue, ordered_map_rate, rerun_rate, run_peers, start_up
from bench.apart import MeasurementFailed, apart, rounds_within
from bench.interpreter import interpreter_text

ROUNDS: Final = 3
THERE: Final = {"Restate": (956, 659), "Ray": (1_121, 1_224)}
"""Steps a second of 100 chains of 10, and of 1,000 steps and a join, on the other machine."""
BARE_THERE: Final = 1_463
"""Jobs a second of the bare queue there, which was measured at 1,463 to 2,069: the lower one makes the peers look faster here."""
DISK_BYTES_MAX: Final = 3_000


@dataclass(frozen=True)
class Row:
    """One comparison. A rate is to be at least ``goal`` times the other one, a time at most."""

    work: str
    ours: float
    unit: str
    beside: str
    theirs: float | None
    goal: float | None
    is_rate: bool = True

    def text(self) -> str:
        ours = f"{_figure(self.ours)} {self.unit}"
        if self.theirs is None:
            return f"   {self.work:<36} {ours:>16}   {self.beside}"
        ratio = self.ours / self.theirs
        beside = f"{self.beside} {_figure(self.theirs)}"
        said = "" if self.goal is None else self._reached(ratio)
        return f"   {self.work:<36} {ours:>16}   {beside:<34} {ratio:>5.2f}   {said}"

    def _reached(self, ratio: float) -> str:
        assert self.goal is not None
        reached = ratio >= self.goal if self.is_rate else ratio <= self.goal
        return f"{'>=' if self.is_rate else '<='} {self.goal:<5} {'reached' if reached else 'NOT REACHED'}"


class Bench:
    """Where it measures, how often, and which peers are here."""

    def __init__(self, where: Path, rounds: int) -> None:
        self._where = where
        self._numbers = count()
        self.rounds = rounds
        self.missing = run_peers.missing()

    def ours(self, measured: str) -> Callable[[], Any]:
        """A measurement of ``module:function`` in a process of its own."""
        return lambda: apart(measured, self.directory(), self._where / "bytecode")

    def peer(self, name: str, measure: Callable[[Path], float]) -> Callable[[], float | None]:
        """A measurement of a peer, which gives None for one that is not here, or has failed."""

        def measured() -> float | None:
            if name in self.missing:
                return None
            try:
                return measure(self.directory())
            except MeasurementFailed as exc:
                self.missing[name] = str(exc.args[0])
                return None

        return measured

    def beside(self, peer: str, how: str, measured: float | None) -> tuple[str, float | None]:
        """The name of a peer and its figure, or why it has none."""
        if peer in self.missing:
            return f"{peer} not measured: {self.missing[peer]}", None
        return f"{peer} {how}".strip(), measured

    def directory(self) -> Path:
        """A new one."""
        found = self._where / str(next(self._numbers))
        found.mkdir()
        return found

    def medians(self, sides: dict[str, Callable[[], float | None]], warm: bool = False) -> dict[str, float | None]:
        """The median of each side, which take turns; ``warm``: a first round only compiles bytecode."""
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in rounds_within(self.rounds + warm):
            for name, side in sides.items():
                if (seen := side()) is not None:
                    taken[name].append(seen)
        return {name: statistics.median(some[warm:] or some) if some else None for name, some in taken.items()}


def jobs(bench: Bench) -> Iterable[Row]:
    """No-op jobs, by each way to submit them."""
    found = bench.medians(
        {
            "one by one": bench.ours("bench.run_rate:one_by_one"),
            "Dramatiq": bench.peer("Dramatiq", run_peers.dramatiq_rate),
            "many": bench.ours("bench.run_rate:submitted_many"),
            "Huey": bench.peer("Huey", run_peers.huey_rate),
            "map": bench.ours("bench.run_rate:mapped"),
        }
    )
    one, many, mapped = (_known(found[name]) for name in ("one by one", "many", "map"))
    dramatiq, huey = found["Dramatiq"], found["Huey"]
    yield Row("no-op jobs, submitted one by one", one, "jobs/s", *bench.beside("Dramatiq", "in memory", dramatiq), 1.5)
    yield Row("", one, "jobs/s", *bench.beside("Huey", "on SQLite", huey), 4)
    yield Row("the same by submit_many", many, "jobs/s", *bench.beside("Dramatiq", "in memory", dramatiq), None)
    yield Row("", many, "jobs/s", *bench.beside("Huey", "on SQLite", huey), None)
    yield Row(
        "Client.map of 20,000, with results", mapped, "jobs/s", *bench.beside("Dramatiq", "in memory", dramatiq), 8
    )


def flows(bench: Bench) -> Iterable[Row]:
    """Chains and a fan-out."""
    found = bench.medians(
        {
            "chains": bench.ours("bench.run_rate:chained"),
            "bare": lambda: bare_queue.rate(bench.directory()),
            "fan": bench.ours("bench.run_rate:fanned"),
        }
    )
    scale = _known(found["bare"]) / BARE_THERE
    print(
        f"   bare SQLite queue: {_figure(_known(found['bare']))} jobs/s here, {BARE_THERE:,} there; so figures x {scale:.2f}"
    )
    for place, (name, work) in enumerate((("chains", "100 chains of 10"), ("fan", "1,000 steps and a join"))):
        for peer, goal in (("Restate", 2), ("Ray", None)):
            there = THERE[peer][place]
            said = f"{peer} {there:,} x {scale:.2f} ="
            yield Row(work if goal else "", _known(found[name]), "steps/s", said, there * scale, goal)


def single(bench: Bench) -> Iterable[Row]:
    """Submit to result, one at a time."""
    found = bench.medians(
        {"ours": bench.ours("bench.run_rate:single_ms"), "bare": lambda: bare_queue.single_ms(bench.directory())}
    )
    ours = _known(found["ours"])
    yield Row("submit to result, one at a time", ours, "ms", "bare SQLite queue", found["bare"], 1.1, is_rate=False)


def rerun(bench: Bench) -> Iterable[Row]:
    """A finished pipeline again."""
    found = rerun_rate.measured(bench.directory(), bench.rounds)
    theirs = found.get("doit", (None, None))
    for place, (work, goal) in enumerate((("run again, 1,000 steps", 1.8), ("the same, one input changed", 2.2))):
        ours = found["Detent"][place]
        yield Row(work, ours, "s", *bench.beside("doit", "", theirs[place]), goal, is_rate=False)


def cold(bench: Bench) -> Iterable[Row]:
    """The first job of a new home."""
    found = bench.medians(
        {"ours": lambda: start_up.cold(bench.directory()), "Huey": bench.peer("Huey", run_peers.huey_cold)}, warm=True
    )
    yield Row("cold start", _known(found["ours"]), "s", *bench.beside("Huey", "", found["Huey"]), 2.2, is_rate=False)


def ordered(bench: Bench) -> Iterable[Row]:
    """An ordered map beside maps that keep nothing."""
    found = ordered_map_rate.best(bench.rounds)
    rates = {side: ordered_map_rate.ITEMS / seconds for side, (seconds, _) in found.items()}
    fastest = max((side for side in ordered_map_rate.OTHERS if side in rates), key=rates.__getitem__)
    limit = rates["one process"] * ordered_map_rate.cores()
    for side, name in (
        ("ordered_map, loop", "ordered map of 20,000, loop"),
        ("ordered_map, jsonl", "the same to a file"),
    ):
        yield Row(name, rates[side], "items/s", fastest, rates[fastest], 0.95)
        yield Row("", rates[side], "items/s", "limit", limit, 0.82)
    if "joblib" in bench.missing:
        yield Row("", rates["ordered_map, loop"], "items/s", *bench.beside("joblib", "", None), None)


def disk(bench: Bench) -> Iterable[Row]:
    """What a job leaves."""
    for name, work in (("one_by_one", "one by one"), ("submitted_many", "submit_many"), ("mapped", "Client.map")):
        left = bench.ours(f"bench.disk_bytes:{name}")()
        yield Row(f"disk for a no-op job, {work}", left, "bytes", "goal", float(DISK_BYTES_MAX), 1, is_rate=False)


ROWS: Final[dict[str, Callable[[Bench], Iterable[Row]]]] = {
    one.__name__: one for one in (jobs, flows, single, rerun, cold, ordered, disk)
}


def _known(figure: float | None) -> float:
    assert figure is not None
    return figure


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def main(arguments: Iterable[str] = ()) -> None:
    """Print the table; ``arguments`` as on the command line."""
    given, rounds = list(arguments), ROUNDS
    if "--rounds" in given:
        place = given.index("--rounds")
        rounds = int(given[place + 1])
        del given[place : place + 2]
    unknown = [name for name in given if name not in ROWS]
    if unknown:
        raise SystemExit(f"no such rows: {' '.join(unknown)}; there are: {' '.join(ROWS)}")
    begun = time.perf_counter()
    print(f"   {interpreter_text()}; {ordered_map_rate.cores()} cores; rounds: {rounds}")
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as where:
        bench = Bench(Path(where), rounds)
        for name in given or ROWS:
            for row in ROWS[name](bench):
                print(row.text(), flush=True)
    print(f"   ({time.perf_counter() - begun:.0f} s)")


if __name__ == "__main__":
    main(sys.argv[1:])
