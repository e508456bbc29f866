"""Two servers on one ledger in PostgreSQL share its partitions; workers of both do the jobs, whatever happens to a server.

Clients ask both servers by turns, each request with a key of its own, until it is answered. In the end every job that was acknowledged was done,
once, and the history verifies and replays.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from detent.kernel import partition_of
from tests.postgres_server import Server
from tests.serve.elsewhere import RemoteWorker, enrolment
from tests.serve.fleets import Clients, Fleet, all_jobs, kept_port, other
from tests.serve.keyed import key
from tests.serve.laboured import eventually
from tests.serve.toxic import Fault, Toxic

P = 4


@contextmanager
def shared(directory: Path, postgres: Server, *options: str) -> Iterator[tuple[Fleet, Clients]]:
    """Two servers that share the partitions evenly, with a worker at each, under load; the second has further options."""
    fleet = Fleet(directory, postgres, P)
    workers: list[RemoteWorker] = []
    try:
        fleet.begin("a")
        served = fleet.takes_over("a")
        fleet.key = key(served, "operator")
        fleet.begin("b", *options)
        shares(fleet)
        for name in "ab":
            url = f"http://127.0.0.1:{fleet.ports[name]}"
            worker = RemoteWorker(directory / f"worker-{name}", directory, url, fleet.environment(name))
            workers.append(worker.start(enrolment(served)))
            worker.wait_for("takes jobs")
        clients = Clients(fleet)
        clients.more(20)
        yield fleet, clients
        clients.more()
        clients.end()
        last = fleet.active
        assert last is not None
        eventually(lambda: all(job["status"] == "succeeded" for job in all_jobs(last)), "all jobs are done")
        jobs = {job["job_id"] for job in all_jobs(last)}
        assert jobs == set(clients.jobs.values())
        assert len(jobs) == len(clients.jobs)
        assert {partition_of(job_id, P) for job_id in jobs} == set(range(P))
        done = Counter(line.split()[0] for line in (directory / "done.txt").read_text().splitlines())
        assert done.keys() == clients.jobs.keys()
        for worker in workers:
            assert worker.end() == 0
        for name in [*fleet.processes]:
            fleet.processes[name].send_signal(signal.SIGTERM)
        home = fleet.home("a")
        for name in [*fleet.processes]:
            assert fleet.processes[name].wait() == 0
        assert verify_home(home, environment=fleet.environment("a")).findings == ()
        assert replay_home(home).ok
        if not fleet.faults:
            assert set(done.values()) == {1}
    finally:
        for worker in workers:
            if worker.process is not None and worker.process.poll() is None:
                worker.process.kill()
                worker.ended()
        fleet.close()


def shares(fleet: Fleet) -> None:
    """Wait until both servers own as many partitions."""
    wanted = {process.pid: P // 2 for process in fleet.processes.values()}
    eventually(lambda: fleet.owners() == wanted, "both servers own half of the partitions")


def alone(fleet: Fleet, name: str) -> None:
    """Wait until one server owns all partitions."""
    eventually(lambda: fleet.owners() == {fleet.processes[name].pid: P}, "one server owns all partitions")


@pytest.mark.door("detent serve", "detent partitions", "GET /v1/queue", "GET /v1/sessions")
def test_servers_share_the_partitions_and_any_of_them_answers_for_all(tmp_path: Path, postgres: Server) -> None:
    with shared(tmp_path, postgres) as (fleet, clients):
        told = fleet.detent("a", "partitions", "--home", str(fleet.home("a").path))
        assert {one["owner"]["pid"] for one in told} == {process.pid for process in fleet.processes.values()}
        tokens: dict[str, int] = {}
        while {partition_of(f"local/{name}", P) for name in tokens} != set(range(P)):
            body = json.dumps({"tokens": 100 + len(tokens)}).encode()
            opened = fleet.ask("ab"[len(tokens) % 2], "POST", "/v1/sessions", body=body)
            assert opened.status == 201
            tokens[opened.json["session_id"]] = 100 + len(tokens)
        for name, amount in tokens.items():
            assert fleet.ask("b", "GET", f"/v1/sessions/{name}").json["remaining"]["tokens"] == amount
        listed = fleet.ask("b", "GET", "/v1/sessions").json["items"]
        assert set(listed) == tokens.keys()
        assert fleet.ask("b", "GET", "/v1/queue").status == 200
        assert fleet.active is not None
        assert fleet.active.ask("GET", "/metrics").body.startswith(b"# HELP")
        clients.more(20)


def test_a_server_that_is_killed_or_stopped_leaves_its_partitions_to_the_other(
    tmp_path: Path, postgres: Server
) -> None:
    """X-172: first the server that leads not, then the one that leads."""
    with shared(tmp_path, postgres) as (fleet, clients):
        fleet.faults = True
        for number in (signal.SIGKILL, signal.SIGSTOP):
            leads = fleet.active_name
            follower = fleet.processes[other(leads)]
            follower.send_signal(number)
            alone(fleet, leads)
            clients.more()
            if number == signal.SIGSTOP:
                follower.send_signal(signal.SIGCONT)
            else:
                fleet.end(other(leads))
                fleet.begin(other(leads))
            shares(fleet)
            clients.more()
        for number in (signal.SIGKILL, signal.SIGSTOP):
            name = fleet.active_name
            before = fleet.processes[name]
            before.send_signal(number)
            fleet.takes_over(other(name))
            alone(fleet, other(name))
            clients.more()
            if number == signal.SIGSTOP:
                before.send_signal(signal.SIGCONT)
                assert before.wait() == 4
            fleet.end(name)
            fleet.begin(name)
            shares(fleet)
            clients.more()


@pytest.mark.door("detent serve --link-advertise")
def test_a_cut_connection_between_servers_leaves_everything_to_the_one_that_leads(
    tmp_path: Path, postgres: Server
) -> None:
    """The database is there for both. What the network swallows without a word is noticed as well as what it ends."""
    with Toxic() as proxy, kept_port() as kept:
        proxy.target = port = kept.getsockname()[1]
        options = ("--link-port", str(port), "--link-advertise", f"127.0.0.1:{proxy.port}")
        with shared(tmp_path, postgres, *options) as (fleet, clients):
            fleet.faults = True
            for fault in (Fault.STALL, Fault.RESET):
                proxy.fail(fault, None)
                if fault is Fault.RESET:
                    proxy.refuses = True
                alone(fleet, "a")
                clients.more()
                assert proxy.failed
                proxy.fail(None)
                proxy.refuses = False
                shares(fleet)
                clients.more()
            proxy.cut_all()
            clients.more()


@pytest.mark.slow
def test_fifty_rebalances_under_load_lose_nothing_and_do_nothing_twice(tmp_path: Path, postgres: Server) -> None:
    """The server that leads not leaves in order and comes back, so no attempt is interrupted; each time two partitions change hands."""
    with shared(tmp_path, postgres) as (fleet, clients):
        for _ in range(25):
            leads = fleet.active_name
            leaving = fleet.processes[other(leads)]
            leaving.send_signal(signal.SIGTERM)
            alone(fleet, leads)
            clients.more()
            assert leaving.wait() == 0
            fleet.end(other(leads))
            fleet.begin(other(leads))
            shares(fleet)
            clients.more()
