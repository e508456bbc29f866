"""Homes of one ledger in PostgreSQL, each with a server of its own, and clients that ask all of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from detent.inspect.partitions import partitions
from detent.owner.home import Home
from detent.owner.ledgers import open_ledger
from tests.postgres_server import Server
from tests.serve.laboured import TASKS, eventually
from tests.serve.served import ANSWER_SECONDS, RATES, Reply, Served, begun, listening, read_reply
from tests.warm import Warm

ROOM = "capacity_per_class = 100000\ncapacity_total = 100000"


class Fleet:
    """Homes of one ledger, each with a server or without."""

    def __init__(self, directory: Path, postgres: Server, partitions: int = 2) -> None:
        self.directory, self.postgres = directory, postgres
        (directory / "tasks.py").write_text(TASKS)
        url, homes = postgres.store_url(), [str(directory / name) for name in "ab"]
        made = self.detent("a", "init", "--home", homes[0], "--store", url, "--partitions", str(partitions))
        joined = self.detent("b", "init", "--home", homes[1], "--store", url, "--join", made["root"])
        self.detent("a", "keys", "admit", joined["join"], "--home", homes[0])
        for name in "ab":
            settings = self.home(name).path / "config.toml"
            # No worker takes the jobs, so all of them wait.
            text = settings.read_text().replace("capacity_per_class = 256\ncapacity_total = 2560", ROOM)
            settings.write_text(f"{text}{RATES}")
        self._kept = {name: kept_port() for name in "ab"}
        self.ports = {name: kept.getsockname()[1] for name, kept in self._kept.items()}
        self.processes: dict[str, Any] = {}
        self.key = ""
        """A credential that is on the ledger, and therefore good at every server."""
        self.active: Served | None = None
        self.active_name = ""
        self.faults = False
        """Whether attempts may have been interrupted, and so made again."""

    def detent(self, name: str, *words: str) -> Any:
        """Run a command on a machine; gives its document."""
        process = Warm([*words, "-o", "json"], self.environment(name), self.directory)
        out, err = process.communicate(ANSWER_SECONDS)
        assert process.returncode == 0, err
        return json.loads(out)

    def home(self, name: str) -> Home:
        return Home(self.directory / name)

    def environment(self, name: str) -> dict[str, str]:
        """What a machine has for itself."""
        return {**os.environ, "XDG_STATE_HOME": str(self.directory / f"state-{name}")}

    def begin(self, name: str, *options: str) -> None:
        """Start a server, which may have to stand by."""
        for port in self.ports.values():
            options = ("--allow-host", f"127.0.0.1:{port}", *options)
        options = ("--project", str(self.directory), "--port", str(self.ports[name]), *options)
        self.processes[name] = begun(self.home(name).path, self.environment(name), *options)

    def stands_by(self, name: str) -> None:
        """Wait until a server says that it stands by."""
        line = self.processes[name].stderr.readline()
        while line and "standing by" not in line:
            line = self.processes[name].stderr.readline()
        assert "is owned by process" in line

    def passes_on(self, name: str) -> None:
        """Wait until a server that stands by says that it passes requests on to the owner."""
        line = self.processes[name].stderr.readline()
        assert line.strip() == f"requests are passed on to 127.0.0.1:{self.ports[other(name)]}"

    def ask(self, name: str, method: str, path: str, **options: Any) -> Reply:
        """Ask one of the servers, whether it owns the ledger or not."""
        headers = {"Authorization": f"Bearer {self.key}", **options.get("headers", {})}
        if options.get("body") is not None:
            headers["Content-Type"] = "application/json"
        connection = HTTPConnection("127.0.0.1", self.ports[name], timeout=options.get("seconds", ANSWER_SECONDS))
        try:
            connection.request(method, path, body=options.get("body"), headers=headers)
            return read_reply(connection)
        finally:
            connection.close()

    def takes_over(self, name: str) -> Served:
        """Wait until a server listens."""
        self.active, self.active_name = (
            listening(self.processes[name], self.home(name).path, self.environment(name)),
            name,
        )
        return self.active

    def owners(self) -> Counter[int | None]:
        """How many partitions each process owns, as a reader sees them."""
        home = self.home("a")
        reader = open_ledger(home.ledger)
        try:
            return Counter(None if one.owner is None else one.owner.pid for one in partitions(home, reader))
        finally:
            reader.close()

    def end(self, name: str) -> int:
        """End a server at once, if it runs, and give its exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.kill()
        code: int = process.wait(ANSWER_SECONDS)
        for pipe in (process.stdout, process.stderr):
            pipe.close()
        return code

    def close(self) -> None:
        for name in [*self.processes]:
            self.end(name)
        for kept in self._kept.values():
            kept.close()


def kept_port() -> socket.socket:
    """A port that no other program is given, and that a server may listen on all the same."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept


class Clients:
    """Threads that submit jobs one after the other, each until it is answered."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._ended = fleet, threading.Event()
        self.jobs: dict[str, str] = {}
        """By the key of the request."""
        self.passed_on = 0
        """Requests that a server answered which did not own the ledger just before."""
        self._threads = [threading.Thread(target=self._ask, args=(number,), daemon=True) for number in range(2)]
        for thread in self._threads:
            thread.start()

    def _ask(self, thread: int) -> None:
        number = 0
        while not self._ended.is_set():
            tries = thread + number
            while not self._answered(f"{thread}-{number}", "ab"[tries % 2]):
                tries += 1  # What may have been decided is asked for again, of the other server.
            number += 1

    def _answered(self, key: str, name: str) -> bool:
        owns = self._fleet.active_name == name
        task = {"target": "tasks:note", "arguments": [key, str(self._fleet.directory)]}
        body, headers = json.dumps({"task": task}).encode(), {"Idempotency-Key": key}
        try:
            reply = self._fleet.ask(name, "POST", "/v1/jobs", body=body, headers=headers, seconds=5.0)
        except (OSError, HTTPException, ValueError):
            self._ended.wait(0.02)
            return False
        if reply.status not in (200, 202):
            assert reply.status in (500, 503), reply.body
            self._ended.wait(0.02)
            return False
        self.jobs[key] = reply.json["job_id"]
        self.passed_on += not owns
        return True

    def more(self, count: int = 5) -> None:
        """Wait until more requests were answered."""
        wanted = len(self.jobs) + count
        eventually(lambda: len(self.jobs) >= wanted, "requests are answered")

    def more_passed_on(self, count: int = 3) -> None:
        """Wait until more requests were answered through the server that stands by."""
        wanted = self.passed_on + count
        eventually(lambda: self.passed_on >= wanted, "requests are passed on")

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS)
            assert not thread.is_alive()


def all_jobs(served: Served) -> Iterator[dict[str, Any]]:
    cursor = ""
    while cursor is not None:
        page = served.json(f"/v1/jobs?limit=200{'&cursor=' + cursor if cursor else ''}")
        yield from page["items"]
        cursor = page["next"]


def other(name: str) -> str:
    return "b" if name == "a" else "a"
