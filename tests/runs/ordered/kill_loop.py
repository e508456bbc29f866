"""A program that runs one ordered map again and again, and is killed on the way each time but the last.

It forks for every try, so that the modules are loaded once; the child is the process that dies. Where it dies follows from
the seed: at a point of the owner's turn, before or after a write of the destination, or at whatever moment the parent's timer
finds it. Says one line of JSON: how often it was killed, and how the run ended.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detent.executor.plain import current
from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.runs.ordered.handle import OrderedHandle
from detent.runs.ordered.loop_target import HandOver
from detent.runs.ordered.spec import OrderedSpec, spool
from detent.runs.runtime import Runtime
from detent.targets import CommitTarget, Mark, parse_target
from detent.testing import InlineLane
from detent.testing.faults import POINTS, CrashAt

TRIES_MAX = 500


class Deadly:
    """A destination that kills the process before or after its n-th write."""

    def __init__(self, target: CommitTarget, when: str, times: int) -> None:
        self._target = target
        self._when = when
        self._left = times
        self.spec = target.spec
        self.is_recorded = target.is_recorded

    def open(self, run_id: str, recorded: Mark | None) -> int:
        return self._target.open(run_id, recorded)

    def begin(self) -> Mark:
        return self._target.begin()

    def write(self, first_seq: int, values: Sequence[Any]) -> Mark:
        self._left -= 1
        if self._left == 0 and self._when == "before_write":
            os.kill(os.getpid(), signal.SIGKILL)
        mark = self._target.write(first_seq, values)
        if self._left == 0 and self._when == "after_write":
            os.kill(os.getpid(), signal.SIGKILL)
        return mark

    def close(self) -> None:
        self._target.close()


def attempt(task: dict[str, Any], plan: tuple[str, int] | None) -> dict[str, Any]:
    """One try, in this process."""
    home = Home(Path(task["home"]))
    where, times = plan or ("", 0)
    parts = Parts(crash_point=CrashAt(where, times, kill=True)) if where in POINTS else Parts()
    content = home.path / "content"
    lane = InlineLane(content=content, slots=8)
    current.work_for(str(content))
    executors = None if task.get("pool") else lane.executors
    spec = OrderedSpec(
        compute=f"steps.py:{task['compute']}", base=task["base"], commit=task["commit"], window=16, chunk=4
    )
    with Runtime(home, parts=parts, workers=2, executors=executors) as work:
        items = spool(work.backend.files, (json.dumps(number).encode() for number in range(task["total"])))
        if task["commit"] is None:
            return streamed(work, spec, items)
        target: CommitTarget = parse_target(task["commit"], base=Path(task["base"]), content=work.backend.files)
        if where.endswith("_write"):
            target = Deadly(target, where, times)
        result = OrderedHandle(work, spec, items, target).run()
    return {"status": result.status, "digest": result.summary.digest().hex(), "resumed_at": result.resumed_at}


def streamed(work: Runtime, spec: OrderedSpec, items: Any) -> dict[str, Any]:
    """The loop's side of a run: what it gets, added up."""
    target = HandOver()
    handle = OrderedHandle(work, spec, items, target)
    ended: list[Any] = []

    def drive() -> None:
        ended.append(handle.run())
        target.end()

    thread = threading.Thread(target=drive)
    thread.start()
    total = sum(target.values())
    thread.join()
    result = ended[0]
    said = {"status": result.status, "digest": result.summary.digest().hex(), "resumed_at": result.resumed_at}
    return {**said, "sum": total}


def forked(task: dict[str, Any], plan: tuple[str, int] | None) -> dict[str, Any] | None:
    """One try in a child; None if it was killed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            said = attempt(task, plan)
            os.write(writer, json.dumps(said).encode())
            os._exit(0)
        except BaseException as exc:  # noqa: BLE001 - the parent tells it
            os.write(writer, json.dumps({"error": f"{type(exc).__name__}: {exc}"}).encode())
            os._exit(1)
    os.close(writer)
    if plan is not None and plan[0] == "timer":
        signal.setitimer(signal.ITIMER_REAL, plan[1] / 1000)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(pid, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    answer: dict[str, Any] = json.loads(data)
    if "error" in answer:
        raise SystemExit(answer["error"])
    return answer


def ended(home: Home, earlier: int) -> dict[str, Any] | None:
    """How the run ended, if the kill came after its end was durable; typed again, the line would be a new run.

    ``earlier`` is how many runs, all of them ended, the home had before.
    """
    with Parts().open_reader(home.ledger) as reader:
        statuses = [run.status for run in reader.runs()]
    if len(statuses) <= earlier or "running" in statuses:
        return None
    (status,) = set(statuses)
    return {"status": status}


def main(task: dict[str, Any]) -> None:
    rng = random.Random(task["seed"])
    os.chdir(task["base"])
    kills = 0
    for _ in range(TRIES_MAX):
        kinds = (*POINTS, "timer") if task["commit"] is None else (*POINTS, "before_write", "after_write", "timer")
        where = rng.choice(kinds)
        times = rng.randint(5, 150) if where == "timer" else rng.randint(1, 6 if where.endswith("_write") else 12)
        answer = forked(task, (where, times) if kills < task["cycles"] else None)
        kills += answer is None
        if answer is None and task["commit"] is not None:
            answer = ended(Home(Path(task["home"])), task.get("earlier", 0))
        if answer is not None:
            sys.stdout.write(json.dumps({"kills": kills, **answer}) + "\n")
            return
    raise SystemExit("it never ended")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
