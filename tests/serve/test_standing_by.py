"""Two servers on one ledger in PostgreSQL, each with a home and keys of its own: one owns it, the other stands by, passes requests on, and
takes over.

Clients ask both of them by turns throughout, each request with a key of its own, until it is answered. Whatever happens to an owner, no
answer is lost, no request is decided twice, and the history verifies and replays.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from tests.postgres_server import Server, own_server
from tests.serve.fleets import Clients, Fleet, all_jobs, kept_port, other
from tests.serve.keyed import key
from tests.serve.served import ANSWER_SECONDS, read_all, read_reply


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
        listed = {job["job_id"] for job in all_jobs(served)}
        assert listed == set(clients.jobs.values())
        assert len(listed) == len(clients.jobs)
        assert served.stop() == 0
        home = fleet.home("a")
        assert verify_home(home, environment=fleet.environment("a")).findings == ()
        assert replay_home(home).ok
    finally:
        fleet.close()


def test_servers_that_are_killed_or_stopped_are_followed_by_the_one_that_stands_by(
    tmp_path: Path, postgres: Server
) -> None:
    """X-172: kill -9, SIGSTOP and SIGCONT, by turns"""
    with fleet_on(tmp_path, postgres) as (fleet, clients):
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP):
            before, name = fleet.processes[fleet.active_name], fleet.active_name
            before.send_signal(number)
            fleet.takes_over(other(name))
            assert fleet.owners() == {fleet.processes[other(name)].pid: 2}
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
    with kept_port() as trap:
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
