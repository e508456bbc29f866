"""A server that is killed under load: the server itself, its driver host, its workers, or all of them, cycle after cycle.

In every cycle a client submits jobs and a run under idempotency keys, a process is killed at a moment drawn from the seed, and the client
repeats what it got no answer to. At the end nothing that was acknowledged is lost, nothing was recorded twice, every key is
answered with the bytes of its first answer, and the ledger verifies.

`python -m tests.faults.served --cycles 5000 --seed 1` is the long form; `make soak` runs a part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from detent.inspect.audit import verify_home
from tests.serve.laboured import Laboured, eventually, offspring_of, project
from tests.serve.served import Reply, Served, start

KILLED = ("driver_host", "worker --home", "server", "all")
CONTRACT = """\
name: noted
params: {place: {type: string}, word: {type: string}}
steps:
  - {id: one, cache: false, run: {python: "tasks:note", with: {word: {$param: word}, place: {$param: place}}}}
  - {id: two, cache: false, needs: [one], run: {python: "tasks:note", with: {word: {$param: word}, place: {$param: place}}}}
"""


@dataclass(slots=True)
class Told:
    """What the client of a killed server was told."""

    answers: dict[str, tuple[str, bytes, bytes]] = field(default_factory=dict)
    """By idempotency key: the path, the body of the request, and that of its first answer."""
    repeats: int = 0
    kills: dict[str, int] = field(default_factory=dict)


class Site:
    """A project with a server that is killed again and again."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.laboured: Laboured = project(directory)
        self._random = random.Random(seed)
        self.told = Told()
        self._left: list[Served] = []
        self.served = self._start()

    def _start(self) -> Served:
        options = ("--project", str(self.laboured.directory), "--workers", "2")
        return start(self.laboured.home.path, self.laboured.environment, *options)

    def cycle(self, number: int) -> None:
        """Ask for some work, kill something meanwhile, and see that all of it is acknowledged."""
        place = str(self.laboured.directory)
        asked: list[tuple[str, str, dict[str, Any]]] = []
        for n in range(3):
            task = {"target": "tasks:note", "arguments": [f"j{number}.{n}", place]}
            asked.append((f"job-{number}-{n}", "/v1/jobs", {"task": task}))
        params = {"place": place, "word": f"r{number}"}
        asked.append((f"run-{number}", "/v1/runs", {"contract": CONTRACT, "params": params}))
        moment = self._random.randrange(len(asked))
        for turn, (key, path, document) in enumerate(asked):
            if turn == moment:
                self._kill(self._random.choice(KILLED))
            self._acknowledged(key, path, json.dumps(document).encode())

    def _kill(self, what: str) -> None:
        self.told.kills[what] = self.told.kills.get(what, 0) + 1
        for name in KILLED[:2] if what == "all" else [what]:
            with suppress(AssertionError, OSError):  # It may be dead since the last kill.
                os.kill(offspring_of(self.served, name), signal.SIGKILL)
        if what in {"server", "all"}:
            self.served.process.kill()
            self.served.process.wait()
            self._left.append(self.served)
            self.served = self._start()

    def _acknowledged(self, key: str, path: str, body: bytes) -> None:
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError, HTTPException):
                reply = self._post(key, path, body)
                if reply.status in {200, 202}:
                    self.told.answers[key] = (path, body, reply.body)
                    return
                assert reply.status in {429, 503}, (reply.status, reply.body)
            assert time.monotonic() < deadline, f"{key} was never acknowledged"
            time.sleep(0.05)

    def _post(self, key: str, path: str, body: bytes) -> Reply:
        return self.served.ask("POST", path, body=body, headers={"Idempotency-Key": key})

    def audit(self) -> None:
        """Nothing lost, nothing twice, repeats equal, and a ledger that verifies."""
        seen: set[str] = set()
        for key, (path, body, first) in self.told.answers.items():
            again = self._post(key, path, body)
            assert again.body == first, f"{key} was answered otherwise: {again.body!r}, first {first!r}"
            assert again.headers.get("detent-replayed") == "true"
            self.told.repeats += 1
            document = json.loads(first)
            name, kind = (document["job_id"], "jobs") if path == "/v1/jobs" else (document["run_id"], "runs")
            assert name not in seen, f"{key} got {name}, which another key got before"
            seen.add(name)
            eventually(
                lambda where=f"/v1/{kind}/{name}": self.served.json(where)["status"] == "succeeded",  # type: ignore[misc]
                f"{key} succeeded",
            )
        runs = sum(path == "/v1/runs" for path, _, _ in self.told.answers.values())
        jobs = self.served.json("/v1/counts")["jobs"]
        assert jobs == {"succeeded": len(self.told.answers) - runs + 2 * runs}, jobs
        assert self.served.stop() == 0
        for served in self._left:
            served.process.communicate()
        assert verify_home(self.laboured.home, environment=self.laboured.environment).ok


def programme(directory: Path, cycles: int, seed: int) -> Told:
    """Kill a server so many times; raises on the first thing that does not hold."""
    site = Site(directory, seed)
    for number in range(cycles):
        site.cycle(number)
    site.audit()
    return site.told


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        told = programme(Path(place), given.cycles, given.seed)
    kills = ", ".join(f"{what} {number}" for what, number in sorted(told.kills.items()))
    sys.stdout.write(
        f"{given.cycles} cycles in {time.monotonic() - began:.0f} s, killed: {kills}; {told.repeats} keys answered alike;"
        " 0 lost, 0 twice, the ledger verifies\n"
    )
