"""Runs tasks in a real pool and waits for what comes of them: on events, never on the clock."""

from __future__ import annotations

import itertools
import json
import os
import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from detent.executor.assignment import Assignment, Progress
from detent.executor.plain.pool import Pool
from detent.executor.plain.slot import Slot
from detent.executor.plain.sweep import home_id
from detent.executor.plain.wire import MARKER
from detent.jobs.order import Call, JobLimits, Order, Origin
from detent.jobs.work import Result

BASE = str(Path(__file__).parent)
SECONDS_MAX = 30.0
"""Longer than anything here takes: what is not there by then never comes."""
OUTPUT_BYTES_MAX = 20_000
VALUE_BYTES_MAX = 1_000_000


def assignment(  # noqa: PLR0913 - the parts of an order that a pool reads, by name
    number: int,
    target: str,
    *positional: Any,
    kind: str = "python",
    named: dict[str, Any] | None = None,
    values: Mapping[str, bytes | Path] | None = None,
    wall_ms: int | None = None,
    job_id: str = "",
    attempt_id: int = 0,
    origin: Origin | None = None,
    **call: Any,
) -> Assignment:
    """One attempt, as a pool is given it."""
    order = Order(
        Call(kind=kind, target=target, arguments=positional, keywords=named or {}, **call),
        "label",
        JobLimits(wall_ms=wall_ms),
        origin or Origin(),
    )
    return Assignment(number, job_id, attempt_id, order, values or {})


class Rig:
    """A pool with a home of its own."""

    def __init__(self, home: Path, workers: int = 2, **settings: Any) -> None:
        self.live, self.content = home / "live", home / "content"
        given = {"output_bytes_max": OUTPUT_BYTES_MAX, "value_bytes_max": VALUE_BYTES_MAX, "grace_ms": 50} | settings
        self._new: Callable[[], Pool] = lambda: Pool(workers, live=self.live, content=self.content, **given)
        self.pool = self._new()
        self.numbers = itertools.count(1)
        self.done: dict[int, Result] = {}
        self.said: list[Progress] = []

    def restart(self) -> None:
        """Begin anew, so that one failure is not taken for another."""
        self.pool.close()
        self.pool = self._new()

    def task(self, target: str, *positional: Any, **fields: Any) -> Assignment:
        fields.setdefault("base", BASE)
        target = target if fields.get("kind") == "shell" or ":" in target else f"work:{target}"
        return assignment(next(self.numbers), target, *positional, **fields)

    def submit(self, target: str, *positional: Any, **fields: Any) -> int:
        task = self.task(target, *positional, **fields)
        self.pool.submit(task)
        return task.number

    def run(self, target: str, *positional: Any, **fields: Any) -> Result:
        return self.result(self.submit(target, *positional, **fields))

    def result(self, number: int) -> Result:
        self.until(lambda: number in self.done)
        return self.done[number]

    def begun(self, text: str = "begun") -> Progress:
        """Wait until a running task has said so."""
        self.until(lambda: any(said.message == text for said in self.said))
        return next(said for said in self.said if said.message == text)

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, "it never came"
            self.look(1.0)

    def look(self, timeout: float) -> None:
        for one in self.pool.wait(timeout):
            if isinstance(one, Progress):
                self.said.append(one)
            else:
                number, result = one
                assert number not in self.done, "told twice"
                self.done[number] = result

    def holder(self, number: int) -> Slot:
        """The worker that has a task. A worker may speak before the host has told of its birth, and with it of its pid."""
        slot = next(slot for slot in self.pool._slots.values() if number in slot.entries)
        self.until(lambda: slot.pid != 0)
        return slot


def value(done: Result) -> Any:
    assert done.ok, done
    assert done.value is not None
    return json.loads(done.value)


def failure(done: Result) -> tuple[str, str]:
    assert not done.ok
    assert done.failure is not None
    return done.failure.category, done.failure.code


def is_gone(pid: int) -> bool:
    """Whether a process ends by itself soon; a zombie has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], SECONDS_MAX)[0])
    finally:
        os.close(handle)


def marked(live: Path) -> list[int]:
    """Every process that bears the mark of a home's workers."""
    mark = f"{MARKER}={home_id(live)}:".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
