"""Two servers on one ledger in PostgreSQL, each with a home and keys of its own: one owns it, the other stands by, passes requests on, and
takes over.

Clients ask both of them by turns throughout, each request with a key of its own, until it is answered. Whatever happens to an owner, no
answer is lost, no request is decided twice, and the history verifies and replays.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from detent.inspect.audit import verify_home
from detent.inspect.partitions import partitions
from detent.inspect.replay import replay_home
from detent.owner.home import Home
from detent.owner.ledgers import open_ledger
from tests.postgres_server import Server, own_server
from tests.serve.keyed import key
from tests.serve.laboured import TASKS, eventually
from tests.serve.served import ANSWER_SECONDS, RATES, Reply, Served, begun, listening, read_all, read_reply
from tests.warm import Warm

P = 2
ROOM = "capacity_per_class = 100000\ncapacity_total = 100000"


class Fleet:
    """Homes of one ledger, each with a server or without."""

    def __init__(self, directory: Path, postgres: Server) -> None:
        self.directory, self.postgres = directory, postgres
        (directory / "tasks.py").write_text(TASKS)
        url, homes = postgres.store_url(), [str(directory / name) for name in "ab"]
        made = self.detent("a", "init", "--home", homes[0], "--store", url, "--partitions", str(P))
        joined = self.detent("b", "init", "--home", homes[1], "--store", url, "--join", made["root"])
        self.detent("a", "keys", "admit", joined["join"], "--home", homes[0])
        for name in "ab":
            settings = self.home(name).path / "config.toml"
            # No worker takes the jobs, so all of them wait.
            text = settings.read_text().replace("capacity_per_class = 256\ncapacity_total = 2560", ROOM)
            settings.write_text(f"{text}{RATES}")
        self._kept = {name: _kept_port() for name in "ab"}
        self.ports = {name: kept.getsockname()[1] for name, kept in self._kept.items()}
        self.processes: dict[str, Any] = {}
        self.key = ""
        """A credential that is on the ledger, and therefore good at every server."""
        self.active: Served | None = None
        self.active_name = ""

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

    def owners(self) -> set[int | None]:
        """The processes that own the partitions, as a reader sees them."""
        home = self.home("a")
        reader = open_ledger(home.ledger)
        try:
            return {None if one.owner is None else one.owner.pid for one in partitions(home, reader)}
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


def _kept_port() -> socket.socket:
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


@contextmanager
def fleet_on(directory: Path, postgres: Server) -> Iterator[tuple[Fleet, Clients]]:
    """A fleet under load whose first server owns the ledger and whose second stands by; in the end all that was asked is done, once."""
    fleet = Fleet(directory, postgres)
    try:
        fleet.begin("a")
        fleet.key = key(fleet.takes_over("a"), "operator")
        fleet.begin("b")
        fleet.stands_by("b")
        fleet.passes_on("b")
        clients = Clients(fleet)
        clients.more_passed_on()
        yield fleet, clients
        clients.more()
        clients.end()
        served = fleet.active
        assert served is not None
        listed = {job["job_id"] for job in _all_jobs(served)}
        assert listed == set(clients.jobs.values())
        assert len(listed) == len(clients.jobs)
        assert served.stop() == 0
        home = fleet.home("a")
        assert verify_home(home, environment=fleet.environment("a")).findings == ()
        assert replay_home(home).ok
    finally:
        fleet.close()


def _all_jobs(served: Served) -> Iterator[dict[str, Any]]:
    cursor = ""
    while cursor is not None:
        page = served.json(f"/v1/jobs?limit=200{'&cursor=' + cursor if cursor else ''}")
        yield from page["items"]
        cursor = page["next"]


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def test_servers_that_are_killed_or_stopped_are_followed_by_the_one_that_stands_by(
    tmp_path: Path, postgres: Server
) -> None:
    """X-172: kill -9, SIGSTOP and SIGCONT, by turns"""
    with fleet_on(tmp_path, postgres) as (fleet, clients):
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP):
            before, name = fleet.processes[fleet.active_name], fleet.active_name
            before.send_signal(number)
            fleet.takes_over(other(name))
            assert fleet.owners() == {fleet.processes[other(name)].pid}
            clients.more()
            if number == signal.SIGSTOP:
                before.send_signal(signal.SIGCONT)
                assert before.wait(ANSWER_SECONDS) == 4
            clients.more()
            fleet.end(name)
            fleet.begin(name)
            fleet.stands_by(name)
            clients.more_passed_on()


def test_a_restarted_database_and_ended_connections_lose_nothing(tmp_path: Path) -> None:
    """The owner ends with an error, and the server that stands by takes over."""
    with own_server() as postgres, fleet_on(tmp_path, postgres) as (fleet, clients):
        for how in ("connections", "restart"):
            before, name = fleet.processes[fleet.active_name], fleet.active_name
            if how == "restart":
                postgres.restart()
            else:
                postgres.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
                )
            assert before.wait(ANSWER_SECONDS) == 4
            fleet.takes_over(other(name))
            clients.more()
            fleet.end(name)
            fleet.begin(name)
            fleet.stands_by(name)


def test_a_server_that_stands_by_ends_when_it_is_told_to(tmp_path: Path, postgres: Server) -> None:
    with fleet_on(tmp_path, postgres) as (fleet, _):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
            process = fleet.processes["b"]
            process.send_signal(number)
            assert process.wait(ANSWER_SECONDS) == code
            assert process.stderr.read().endswith("stopped\n")
            fleet.end("b")
            fleet.begin("b")
            fleet.stands_by("b")


def test_a_server_that_stands_by_passes_every_connection_on_as_it_is(tmp_path: Path, postgres: Server) -> None:
    """A request with a body, a stream of events, several requests on one connection, and bytes that are not HTTP."""
    with fleet_on(tmp_path, postgres) as (fleet, clients):
        clients.more_passed_on()
        assert fleet.ask("b", "GET", "/readyz").json["owner"] == "here"
        headers = {"Authorization": f"Bearer {fleet.key}"}
        with closing(HTTPConnection("127.0.0.1", fleet.ports["b"], timeout=ANSWER_SECONDS)) as connection:
            for _ in range(3):
                connection.request("GET", "/v1/counts", headers=headers)
                assert read_reply(connection).status == 200
            connection.request("GET", "/v1/events?topics=jobs", headers=headers)
            stream = connection.getresponse()
            assert stream.status == 200
            while not stream.readline().startswith(b"data:"):
                pass  # The clients submit jobs all the time.
        with socket.create_connection(("127.0.0.1", fleet.ports["b"]), ANSWER_SECONDS) as raw:
            raw.sendall(b"what is this\r\n\r\n")
            assert read_all(raw).startswith(b"HTTP/1.1 400")
        assert fleet.processes["b"].poll() is None


def test_requests_go_to_no_address_that_the_owner_has_not_signed(tmp_path: Path, postgres: Server) -> None:
    """A row of the database that anyone else has written could send the credentials of clients anywhere."""
    fleet = Fleet(tmp_path, postgres)
    home = fleet.home("a")
    schema = home.ledger.schema  # type: ignore[union-attr]
    with _kept_port() as trap:
        trap.listen()
        try:
            fleet.begin("a")
            fleet.takes_over("a")
            address = f"127.0.0.1:{trap.getsockname()[1]}"
            ((before,),) = postgres.execute(f"SELECT address FROM {schema}.owners WHERE partition = 0")
            postgres.execute(f"UPDATE {schema}.owners SET address = %s", address)
            fleet.begin("b")
            fleet.stands_by("b")
            waiting = socket.create_connection(("127.0.0.1", fleet.ports["b"]), ANSWER_SECONDS)
            waiting.sendall(
                b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % fleet.ports["a"]
            )
            postgres.execute(f"UPDATE {schema}.owners SET address = %s", before)
            with waiting:  # It waited for an owner whose address is signed.
                assert read_all(waiting).startswith(b"HTTP/1.1 200")
            trap.setblocking(False)
            with pytest.raises(BlockingIOError):
                trap.accept()
        finally:
            fleet.close()
