"""Ordered runs of small projects: work done in this process unless a test asks otherwise, and destinations that can fail."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from detent.canon import json_encode
from detent.executor.plain import current
from detent.runs.ordered.handle import OrderedHandle, OrderedResult
from detent.runs.ordered.spec import Items, OrderedSpec, spool
from detent.runs.runtime import Runtime
from detent.targets import CommitFailed, CommitTarget, Mark, Nothing, parse_target
from detent.testing import TemporaryHome
from tests.runs.rig import Rig

FUNCTIONS = '''
import pathlib
import detent

def same(x): return x
def square(x): return x * x
def line(x): return f"{x * x}\\n"
def keep(value, token):
    with open("kept", "a") as file: file.write(f"{token.seq} {value}\\n")
def odd_only(x): return x if x % 2 else detent.SKIP
def is_even(x): return x % 2 == 0
def thirteenth(x):
    if x == 13: raise ValueError("thirteen")
    return x
def fails_at_five(x):
    if x == 5: raise ValueError("five")
    return x
def length(path): return [ascii(str(path)), len(path.read_bytes())]
def once(x):
    """Fails the first time that it sees an item, then gives it back."""
    file = pathlib.Path(f"seen-{x}")
    if not file.exists():
        file.write_text("")
        raise ValueError(f"not yet {x}")
    return x
def leaves(x):
    raise SystemExit(3)
async def later(x): return x + 1
def not_json(x): return b"12"
def copied(file): return detent.File.from_bytes(file.read_bytes() * 2, name="twice.bin")
'''


class ListTarget:
    """A destination that remembers what it was given across runs of one test, and fails when it is told to."""

    spec = "list"
    is_recorded = True

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.seqs: list[int] = []
        self.next_seq = 0
        self.writes: list[int] = []
        """The number of seqs of each write."""
        self.failing = 0
        """Writes that fail from now on."""
        self.fails_for_good = False
        self.opened: list[Mark | None] = []

    def open(self, run_id: str, recorded: Mark | None) -> int:
        self.opened.append(recorded)
        return self.next_seq

    def begin(self) -> Mark:
        return Mark(self.next_seq)

    def write(self, first_seq: int, values: Sequence[Any | Nothing]) -> Mark:
        if self.failing or self.fails_for_good:
            self.failing = max(0, self.failing - 1)
            raise CommitFailed("no room", spec=self.spec, seq=first_seq, retryable=not self.fails_for_good)
        assert first_seq <= self.next_seq, "a gap"
        for seq, value in enumerate(values, first_seq):
            if seq >= self.next_seq and not isinstance(value, Nothing):
                self.values.append(value)
                self.seqs.append(seq)
        self.writes.append(len(values))
        self.next_seq = max(self.next_seq, first_seq + len(values))
        return Mark(self.next_seq)

    def close(self) -> None:
        pass


class OrderedRig(Rig):
    """One project on one home, for ordered runs."""

    def __init__(self, home: TemporaryHome) -> None:
        super().__init__(home)
        self.write(FUNCTIONS)
        current.work_for(str(home.path / "content"))

    def spec(self, compute: str = "same", **said: Any) -> OrderedSpec:
        """What is asked for."""
        return OrderedSpec(compute=f"steps.py:{compute}", base=str(self.project), **{"commit": "list", **said})

    def items(self, work: Runtime, values: Iterable[Any]) -> Items:
        """Values, written down."""
        return spool(work.backend.files, (json_encode(value) for value in values))

    def target(self, text: str, work: Runtime) -> CommitTarget:
        """A destination in the project's directory."""
        return parse_target(text, base=self.project, content=work.backend.files)

    def ordered(
        self, work: Runtime, values: Iterable[Any], compute: str, target: CommitTarget, **said: Any
    ) -> OrderedHandle:
        """A run that has not begun."""
        new = said.pop("new", False)
        spec = self.spec(compute, **{"commit": target.spec, **said})
        return OrderedHandle(work, spec, self.items(work, values), target, new=new)

    def map(
        self, values: Iterable[Any], compute: str = "same", target: CommitTarget | None = None, **said: Any
    ) -> OrderedResult:
        """Run to the end, with work of its own."""
        with self.work() as work:
            return self.ordered(work, values, compute, target or ListTarget(), **said).run()


def lines(path: Path) -> list[Any]:
    """A JSON Lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
