"""The attack programme: changed rows and bundles, guests that speak out of turn, cancels at random; and a table of what came of it.

    python -m tests.attacks.programme --minutes 60 --seed 4711
    python -m tests.attacks.programme --only rows --case 4711000017      one case again

Each part gets its share of the time. A case with a seed does the same harm each time; the ids, and with them the order of some
rows, are the machine's, and so is the moment of a cancel. Exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

from tests.attacks.case import Case
from tests.attacks.recorded import Recorded
from tests.faults.commands import Commands

SEED_STEP = 1_000_000
"""Seeds of cases are the programme's seed and a number; two programmes with different seeds have none in common."""
PARTS = {"rows": 2, "bundles": 1, "guests": 1, "cancels": 1}
"""The parts, and their shares of the time."""
RUN_SHARE = 20
"""Of so many guests one is a whole run of `detent run`; it takes as long as the others together."""

Attack = Callable[[int], Case]


@dataclass(slots=True)
class Line:
    """One line of the table."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: int = 0
    peak_bytes: int = 0
    slowest_ms: int = 0

    def add(self, case: Case) -> None:
        """Count a case."""
        self.cases += 1
        self.outcomes[case.outcome or "broken"] += 1
        self.problems += bool(case.problems)
        self.peak_bytes = max(self.peak_bytes, case.peak_bytes)
        self.slowest_ms = max(self.slowest_ms, case.slowest_ms)


class Programme:
    """The parts that were asked for, each made when its first case comes."""

    def __init__(self, seed: int, only: Iterable[str] = PARTS) -> None:
        self.seed = seed
        self.lines: dict[str, Line] = {}
        self.problems: list[str] = []
        self._only = tuple(only)
        self._open = ExitStack()
        self._attacks: dict[str, Attack] = {}
        self._home: Recorded | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run(self, seconds: float) -> None:
        """Cases of all parts in turn until the time is over; the part that has had the least of its share is next."""
        begun = time.monotonic()
        spent = dict.fromkeys(self._only, 0.0)
        counts: Counter[str] = Counter()
        while time.monotonic() - begun < seconds:
            part = min(spent, key=lambda name: spent[name])
            start = time.monotonic()
            self.case(part, self.seed * SEED_STEP + counts[part])
            counts[part] += 1
            spent[part] += (time.monotonic() - start) / PARTS[part]

    def case(self, part: str, seed: int) -> Case:
        """One case of one part."""
        try:
            if part not in self._attacks:
                self._attacks[part] = self._made(part)
            case = self._attacks[part](seed)
        except Exception:  # noqa: BLE001 - a case that broke is a finding like any other
            case = Case(part, seed, problems=[traceback.format_exc()])
        self.lines.setdefault(case.kind, Line()).add(case)
        for problem in case.problems:
            told = f"{case.kind}: {case.done}\n  {problem}\n  again: {command_of(part, seed)}\n"
            self.problems.append(told)
            sys.stderr.write(told)
        return case

    def _made(self, part: str) -> Attack:
        # Loaded when it is used: what the machine offers is looked up then, by the user who asks.
        if part == "guests":
            return self._guests()
        if part == "cancels":
            from tests.attacks import cancels

            commands = self._commands()
            return lambda seed: cancels.attack(commands, seed)
        from tests.attacks import bundles, rows

        recorded = self._recorded()
        if part == "rows":
            return lambda seed: rows.attack(recorded, seed)
        made = bundles.Bundles(recorded)
        return lambda seed: bundles.attack(made, seed)

    def _recorded(self) -> Recorded:
        if self._home is None:
            self._home = Recorded(self._commands())
            self._open.callback(self._home.close)
        return self._home

    def _guests(self) -> Attack:
        from tests.attacks import guests

        commands, made = self._commands(), guests.Guests()
        self._open.callback(made.close)

        def attack(seed: int) -> Case:
            return guests.attack_jail(made, seed) if seed % RUN_SHARE else guests.attack_run(commands, seed)

        return attack

    def _commands(self) -> Commands:
        return self._open.enter_context(Commands())


def command_of(part: str, seed: int) -> str:
    """The line that repeats a case."""
    return f"python -m tests.attacks.programme --only {part} --case {seed}"


def table(lines: dict[str, Line]) -> str:
    """The lines as a table."""
    said = ["| attack | cases | outcomes | problems | peak memory | slowest answer |", "|---|---|---|---|---|---|"]
    for name, line in sorted(lines.items()):
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in line.outcomes.most_common())
        peak = f"{line.peak_bytes >> 20} MB" if line.peak_bytes else "-"
        slowest = f"{line.slowest_ms / 1000:.1f} s" if line.slowest_ms else "-"
        said.append(f"| {name} | {line.cases} | {outcomes} | {line.problems} | {peak} | {slowest} |")
    return "\n".join(said)


def main(words: Sequence[str] | None = None) -> int:
    """Run the programme as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.programme")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", choices=PARTS, default=None)
    parser.add_argument("--case", type=int, default=None, help="one case of the part that --only names")
    parser.add_argument("--as", dest="user", choices=("user",), default=None, help="give up root first")
    options = parser.parse_args(words)
    if options.case is not None and options.only is None:
        parser.error("--case needs --only")
    if options.user is not None:
        _become_user()
    seed = int.from_bytes(os.urandom(2), "big") if options.seed is None else options.seed
    only = tuple(PARTS) if options.only is None else (options.only,)
    begun = time.monotonic()
    with Programme(seed, only) as programme:
        if options.case is not None:
            case = programme.case(options.only, options.case)
            sys.stdout.write(f"{case.done}\n{case.outcome}\n")
            return 1 if case.problems else 0
        programme.run(options.minutes * 60)
    cases = sum(line.cases for line in programme.lines.values())
    sys.stdout.write(table(programme.lines) + "\n")
    who = "root" if os.getuid() == 0 else "a user"
    sys.stdout.write(
        f"\n{cases} cases in {time.monotonic() - begun:.0f} s as {who}, {len(programme.problems)} problems; "
    )
    sys.stdout.write(f"again with --minutes {options.minutes:g} --seed {seed}\n")
    return 1 if programme.problems else 0


def _become_user() -> None:
    """Give up root for good, with directories of the user's own to work in."""
    from tests.hostile.as_user import USER, become_user

    become_user(USER)
    home = tempfile.mkdtemp(prefix="detent-attack-user-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    tempfile.tempdir = home
    os.environ.update(HOME=home, TMPDIR=home, XDG_STATE_HOME=f"{home}/state", XDG_CACHE_HOME=f"{home}/cache")


if __name__ == "__main__":
    sys.exit(main())
