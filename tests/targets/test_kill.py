"""Killed at every point, resumed, killed again: in the end each entry is there once and in order, byte for byte.

The child is killed before and after every call that changes a file, in the middle of every write, and on both sides of every
record. Every point is a life of its own: a fresh directory, a kill, a resume that is let through.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.targets.destinations import KINDS, Destination

CHILD = Path(__file__).with_name("kill_child.py")
POINTS_MAX = 200
KILLED = -9
VALUES = [f"entry {number} " + "x" * (number * 37 % 300) for number in range(7)]


class Runs:
    """A process that makes runs and reports how each of them ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ending(self, destination: Destination, kill_at: int | None) -> int:
        """How a run on this destination ends if it is killed at its n-th point."""
        task = {"kind": destination.kind, "directory": str(destination.directory), "kill_at": kill_at, "values": VALUES}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        code: int = answer["ended"]
        return code


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, str(CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        yield Runs(process)
        process.kill()


def check(destination: Destination) -> None:
    assert destination.held() == destination.expected(VALUES)
    assert destination.left_over() == [], "what was cut off came again, so no copy of it stays"


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_at_any_point_is_completed_by_the_next_one(kind: str, tmp_path: Path, runs: Runs) -> None:
    """ORD-034, ORD-055"""
    for point in itertools.count():
        destination = Destination(kind, tmp_path / str(point))
        ended = runs.ending(destination, point)
        if ended == 0:
            check(destination)
            break
        assert ended == KILLED
        assert point < POINTS_MAX
        assert destination.expected(VALUES).startswith(destination.held())
        assert runs.ending(destination, None) == 0, f"killed at point {point}"
        check(destination)
    assert point > 20, "the points are where the run changes something"


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_again_and_again_still_ends(kind: str, tmp_path: Path, runs: Runs) -> None:
    """ORD-034, ORD-055"""
    for step in (1, 2, 3, 5, 8):
        destination = Destination(kind, tmp_path / str(step))
        endings = [runs.ending(destination, point) for point in range(2, 40, step)]
        assert KILLED in endings
        assert runs.ending(destination, None) == 0
        check(destination)
