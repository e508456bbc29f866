"""A server that is killed under load: the server itself, its driver host, its workers, or all of them, cycle after cycle.

Clients submit jobs, batches and runs under idempotency keys all the time, and repeat what they got no answer to. A cycle is one kill,
at a moment drawn from the seed; a killed server is started again at once. At the end nothing that was acknowledged is lost, nothing was
recorded twice, every key is answered with the bytes of its first answer, and the ledger verifies.

`python -m tests.faults.served --cycles 5000 --seed 1` is the long form, which `make soak` runs. The server and its children are forked
from a process that has loaded Detent (`tests.faults.forks`), so that several kills a second reach processes at work.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from detent.canon import decode
from detent.inspect.audit import verify_home
from detent.store.sqlite import SqliteStore
from tests.faults import forks
from tests.faults.commands import Command, Commands, kill
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import ANSWER_SECONDS, RATES, Reply, read_reply

KILLED: Final = {
    "driver host": ("driver_host",),
    "workers": ("worker",),
    "server": ("server",),
    "all": ("driver_host", "worker", "server"),
}
CLIENTS: Final = 3
REQUESTS_A_CYCLE: Final = 3
WAITING_MAX: Final = 12
"""Requests that wait for a client; the next kill waits for room, so that the load goes along with the kills."""
PAUSE_SECONDS_MAX: Final = 0.15
"""How long after something has started the next kill comes at most."""
TASKS = """\
import time


def note(word, place):
    time.sleep(0.03)  # Long enough for a kill to find it at work.
    return word
"""
CONTRACT = """\
name: noted
params: {place: {type: string}, word: {type: string}}
steps:
  - {id: one, cache: false, run: {python: "tasks:note", with: {word: {$param: word}, place: {$param: place}}}}
  - {id: two, cache: false, needs: [one], run: {python: "tasks:note", with: {word: {$param: word}, place: {$param: place}}}}
"""
SETTINGS = {
    # A child that keeps dying is started after a pause that doubles. Here it dies all the time, and through no fault of its own.
    "detent.serve.children.PAUSE_SECONDS": 0.02,
    "detent.serve.children.PAUSE_SECONDS_MAX": 0.02,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request under its idempotency key, and how many jobs it makes."""

    key: str
    path: str
    body: bytes
    jobs: int


@dataclass(slots=True)
class Told:
    """What the clients of a killed server were told, and what the ledger says of it."""

    answers: dict[str, tuple[Asked, bytes]] = field(default_factory=dict)
    """By idempotency key: the request, and the body of its first answer."""
    repeats: int = 0
    unanswered: int = 0
    """Requests that were sent and got no answer, because something was killed."""
    interrupted: int = 0
    """Attempts that a kill cut short."""
    kills: Counter[str] = field(default_factory=Counter)
    settled_seconds: float = 0.0
    """How long everything took to succeed after the last kill."""


SETTLE_SECONDS = 300.0
"""How long the work of a killed server may take in the end: leases run out, and interrupted jobs pause before they begin again."""


class Site:
    """A project with a server that is killed again and again."""

    def __init__(self, directory: Path, commands: Commands, seed: int) -> None:
        self.laboured: Laboured = project(directory)
        (directory / "tasks.py").write_text(TASKS)
        self._commands = commands
        self._random = random.Random(seed)
        self.told = Told()
        config = self.laboured.home.path / "config.toml"
        text = config.read_text().replace("[backoffs]\n", "[backoffs]\ninterruptions = [1]\n")
        config.write_text(text + RATES)
        self._starts = 0
        self.port, self.token = 0, ""
        self._up = threading.Event()
        self.server = self._start()
        self.waiting: queue.Queue[Asked | None] = queue.Queue(WAITING_MAX)
        self.faults: list[str] = []
        self._clients = [threading.Thread(target=self._client, daemon=True) for _ in range(CLIENTS)]
        for client in self._clients:
            client.start()

    def _start(self) -> Command:
        self._starts += 1
        out = self.laboured.directory / f"server-{self._starts}"
        out.touch()
        line = ["serve", "--home", str(self.laboured.home.path), "--port", "0", "-o", "json", "--workers", "2"]
        started = self._commands.start(
            [*line, "--project", str(self.laboured.directory)],
            self.laboured.directory,
            self.laboured.environment,
            out,
            forks=True,
            settings=SETTINGS,
        )
        eventually(lambda: started.has_ended or b"\n" in out.read_bytes(), "the server listens")
        told = json.loads(out.read_text() or "{}")
        assert "url" in told, (told, self._said())
        self.token = Path(told["token_file"]).read_text().strip()
        self.port = int(told["url"].rpartition(":")[2])
        self._up.set()
        return started

    # -- killing --------------------------------------------------------------------------------------------------------

    def cycle(self, number: int) -> None:
        """Ask for some work, and kill something meanwhile."""
        what = self._random.choice([*KILLED])
        needs_run = "driver_host" in KILLED[what]  # It starts with the first run that a server has to drive.
        for n in range(REQUESTS_A_CYCLE):
            self.waiting.put(self._draw(f"{number}-{n}", run=needs_run and n == 0), timeout=ANSWER_SECONDS)
        time.sleep(self._random.uniform(0, PAUSE_SECONDS_MAX))
        for name in KILLED[what]:
            if name == "server":
                self._up.clear()
                self.server.signal(signal.SIGKILL)
                self.server.wait()
                self.server = self._start()
            else:
                assert kill(self._running(name)), f"{name} was not there to be killed"
        self.told.kills[what] += 1
        assert not self.faults, self.faults

    def _running(self, name: str) -> list[int]:
        """The children of a name that the server has now, or will have in a moment."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not (pids := forks.offspring(self.server.pid, name)):
            assert time.monotonic() < deadline, f"the server has no {name}: {self._said()}"
            time.sleep(0.01)
        return pids

    def _said(self) -> str:
        """What the server and its children wrote at last."""
        return (self.laboured.directory / f"server-{self._starts}.err").read_text()[-2_000:]

    def _draw(self, name: str, *, run: bool) -> Asked:
        """A request of some kind, or a run in any case."""
        place = str(self.laboured.directory)

        def task(word: str) -> dict[str, Any]:
            return {"task": {"target": "tasks:note", "arguments": [word, place]}}

        kind = 0.0 if run else self._random.random()
        if kind < 0.25:
            document: dict[str, Any] = {"contract": CONTRACT, "params": {"place": place, "word": name}}
            return Asked(f"run-{name}", "/v1/runs", json.dumps(document).encode(), 2)
        if kind < 0.4:
            document = {"items": [task(f"{name}.{n}") for n in range(3)]}
            return Asked(f"batch-{name}", "/v1/jobs:batch", json.dumps(document).encode(), 3)
        return Asked(f"job-{name}", "/v1/jobs", json.dumps(task(name)).encode(), 1)

    # -- clients --------------------------------------------------------------------------------------------------------

    def _client(self) -> None:
        while (asked := self.waiting.get()) is not None:
            try:
                self.told.answers[asked.key] = (asked, self._acknowledged(asked))
            except Exception as exc:  # noqa: BLE001 - the cycle tells
                self.faults.append(f"{asked.key}: {exc!r}")

    def _acknowledged(self, asked: Asked) -> bytes:
        """The first answer, however often it takes to get one."""
        deadline = time.monotonic() + 2 * ANSWER_SECONDS
        while True:
            try:
                reply = self._post(asked)
                if reply.status in {200, 202}:
                    return reply.body
                assert reply.status in {429, 503}, (reply.status, reply.body)
            except (OSError, HTTPException):
                self.told.unanswered += 1
            assert time.monotonic() < deadline, "never acknowledged"
            time.sleep(0.02)
            self._up.wait(ANSWER_SECONDS)

    def _post(self, asked: Asked) -> Reply:
        return self.ask("POST", asked.path, asked.body, {"Idempotency-Key": asked.key})

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Reply:
        """Send one request to the server that runs now."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **(headers or {})}
        try:
            connection.request(method, path, body=body, headers=sent)
            return read_reply(connection)
        finally:
            connection.close()

    # -- the audit ------------------------------------------------------------------------------------------------------

    def audit(self) -> None:
        """Nothing lost, nothing twice, repeats equal, and a ledger that verifies."""
        for _ in self._clients:
            self.waiting.put(None)
        for client in self._clients:
            client.join()
        assert not self.faults, self.faults
        jobs = sum(asked.jobs for asked, _ in self.told.answers.values())
        runs = sum(asked.path == "/v1/runs" for asked, _ in self.told.answers.values())
        self._settle({"jobs": {"succeeded": jobs}, "runs": {"succeeded": runs}})
        seen: set[str] = set()
        for asked, first in self.told.answers.values():
            again = self._post(asked)
            assert again.body == first, f"{asked.key} was answered otherwise: {again.body!r}, first {first!r}"
            assert again.headers.get("detent-replayed") == "true"
            self.told.repeats += 1
            names = set(_names(json.loads(first)))
            assert len(names) == (1 if asked.path == "/v1/runs" else asked.jobs)
            assert not names & seen, f"{asked.key} got {names & seen}, which another key got before"
            seen |= names
        self.server.signal(signal.SIGTERM)
        assert self.server.wait() == 0
        assert not self._commands.strays()
        self._read_ledger(seen)
        report = verify_home(self.laboured.home, environment=self.laboured.environment)
        assert report.ok, report.findings

    def _settle(self, expected: dict[str, Any]) -> None:
        """Wait until everything has succeeded; what has not is told, with its last records."""
        began = time.monotonic()
        while (found := self._counts()) != expected:
            if time.monotonic() - began > SETTLE_SECONDS:
                left = [
                    (kind, one["status"], self.ask("GET", f"/v1/{kind}/{one[name]}/explain").body[-2_000:])
                    for kind, name in (("jobs", "job_id"), ("runs", "run_id"))
                    for one in self.ask("GET", f"/v1/{kind}?limit=200").json["items"]
                    if one["status"] != "succeeded"
                ]
                raise AssertionError(f"expected {expected}, found {found}; {left}; {self._said()}")
            time.sleep(0.05)
        self.told.settled_seconds = time.monotonic() - began

    def _counts(self) -> dict[str, Any]:
        found = self.ask("GET", "/v1/counts").json
        return {kind: {state: count for state, count in found[kind].items() if count} for kind in ("jobs", "runs")}

    def _read_ledger(self, acknowledged: set[str]) -> None:
        """Every name that was acknowledged is on the ledger, and every job ended once."""
        reader = SqliteStore.open_reader(self.laboured.home.ledger_file)
        try:
            jobs, runs = {row.job_id for row in reader.jobs()}, {row.run_id for row in reader.runs()}
            ends: Counter[str] = Counter()
            for row in reader.records_of_kind(0, "transition"):
                body = decode(row.body)
                ends[str(row.job_id)] += body["to_state"] == "SUCCEEDED"
                self.told.interrupted += body["reason_code"] == "WORKER_LOST"
        finally:
            reader.close()
        assert acknowledged <= jobs | runs, f"lost: {acknowledged - jobs - runs}"
        assert set(ends) == jobs
        assert set(ends.values()) == {1}, [job_id for job_id, count in ends.items() if count != 1]


def _names(document: dict[str, Any]) -> list[str]:
    """The jobs or the run that an answer names."""
    if "items" in document:
        return [item["job_id"] for item in document["items"]]
    return [document.get("job_id") or document["run_id"]]


def programme(directory: Path, cycles: int, seed: int) -> Told:
    """Kill a server so many times; raises on the first thing that does not hold."""
    with Commands(*forks.MODULES) as commands:
        site = Site(directory, commands, seed)
        for number in range(cycles):
            site.cycle(number)
        site.audit()
    return site.told


def main() -> None:
    """Run the programme as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        told = programme(Path(place), given.cycles, given.seed)
    kills = ", ".join(f"{what} {number}" for what, number in sorted(told.kills.items()))
    sys.stdout.write(
        f"{given.cycles} cycles in {time.monotonic() - began:.0f} s, killed: {kills}; {told.unanswered} requests unanswered,"
        f" {told.interrupted} attempts cut short; settled after {told.settled_seconds:.0f} s; {told.repeats} keys answered alike; 0 lost, 0 twice, the ledger verifies\n"
    )


if __name__ == "__main__":
    main()
