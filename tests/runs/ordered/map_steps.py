"""Workflows with a map step, and what tests ask about their ordered runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

from detent.executor.own_targets import COMPUTE_CHUNK as CHUNK
from detent.kernel import Run
from detent.owner.content import Content
from detent.runs.ordered.recorded import recorded_ordered
from tests.runs.ordered.rig import OrderedRig, lines

SQUARES = """
    name: flow
    params: {n: 20}
    steps:
      - {id: numbers, run: {python: 'steps.py:numbers', with: {n: {$param: n}}}}
      - id: squares
        run:
          map: {items: {$from: numbers}, compute: 'steps.py:square', commit: 'jsonl:squares.jsonl', window: 8, chunk: 2}
      - {id: count, run: {python: 'steps.py:told', with: {summary: {$from: squares}}}}
    result: {$from: count}
    """
MORE = """
def numbers(n): return list(range(n))
def fails_at_two(x):
    if x == 2: raise ValueError("two")
    return x
def told(summary): return [summary["succeeded"], summary["skipped"], summary["digest"][:7]]
"""


def add(rig: OrderedRig, source: str) -> None:
    path = rig.project / "steps.py"
    path.write_text(path.read_text() + source)


def one(settings: str, before: str = "") -> str:
    """A contract with one map step."""
    return (
        f"name: flow\nsteps:\n  - id: squares\n{before}    run: {{map: {{{settings}}}}}\nresult: {{$from: squares}}\n"
    )


def listed(values: list[Any], commit: str = "jsonl:squares.jsonl", compute: str = "square", more: str = "") -> str:
    """A contract with one map step over a list."""
    return one(f"items: {json.dumps(values)}, compute: 'steps.py:{compute}', commit: '{commit}'{more}")


def ordered_runs(rig: OrderedRig) -> list[tuple[str, str]]:
    """Name and status of the ordered runs, oldest first."""
    return [(row.name, row.status) for row in rig.runs() if "/" in row.name]


def order(rig: OrderedRig, job_id: str) -> Any:
    with rig.work() as work:
        return work.backend.order(rig.job(job_id).payload_digest)


def message(rig: OrderedRig, text: str, **params: Any) -> str:
    """Why the one step of a contract failed."""
    result = rig.run(text, params)
    assert result.status == "failed"
    return result.failed[0].message


PARAMS = """
    name: flow
    params: {out: 'jsonl:a.jsonl', ahead: 8, pieces: 2, after: stop, tries: 0}
    steps:
      - id: squares
        run:
          map:
            items: [1, 2, 3]
            compute: steps.py:square
            commit: {$param: out}
            window: {$param: ahead}
            chunk: {$param: pieces}
            on_error: {$param: after}
            retries: {$param: tries}
    result: {$from: squares}
    """


def destinations(rig: OrderedRig) -> dict[str, str]:
    """The status of the ordered runs, by where they go."""
    files = rig.home.home.content_files()
    with rig.reader() as reader:
        rows = [(row.status, Run.decode(row.body)) for row in reader.runs() if row.name == "flow/squares"]
        found = [(recorded_ordered(reader, Content(reader, files), run), status) for status, run in rows]
    return {str(recorded.inputs.spec.commit): status for recorded, status in found if recorded is not None}


def cube(project: OrderedRig) -> None:
    """Change the function. Work in this process would still have the old one: only new workers read the file again."""
    path = project.project / "steps.py"
    path.write_text(path.read_text().replace("def square(x): return x * x", "def square(x): return x ** 3"))


def rows(project: OrderedRig) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(project.project / "out.db")) as database:
        return database.execute("SELECT seq, value FROM squares ORDER BY seq").fetchall()


LONG = listed(list(range(40)), more=", window: 8, chunk: 1")


def until(rig: OrderedRig, committed: int, then: Callable[[], None], file: str = "squares.jsonl") -> None:
    """Let as many chunks be computed, one at a time, and do something once so many items are in the file."""
    rig.lane.held = {CHUNK}
    path, left_to_run = rig.project / file, [None] * committed

    def idle() -> None:
        if path.exists() and len(lines(path)) >= committed:
            then()
        elif left_to_run and rig.lane.waiting(CHUNK):
            left_to_run.pop()
            rig.lane.run_one(CHUNK)

    rig.lane.on_idle = idle


def left(rig: OrderedRig, text: str, committed: int, file: str = "squares.jsonl", **params: Any) -> str:
    """Begin a run and leave it when so many items are committed; its id."""
    work = rig.work()
    handle = rig.handle(work, text, params)
    until(rig, committed, handle.stop, file)
    result = handle.run()
    assert result.status == "stopped"
    work.close()
    return result.run_id
