"""No-op jobs on PostgreSQL beside others that keep their queue there, all on one server of it and in one run.

Each side has two workers and takes turns; the median of the rounds counts. All of them sync each commit.

* *Detent*: one `detent serve` with two workers, tasks posted in batches of 100, until the last has ended. Every decision is signed and chained.
* *Procrastinate*: two worker processes, tasks deferred in batches of 100, until none is left to do.
* *DBOS*: two processes that dequeue workflows without steps, enqueued by a client, until none is left to do.

The peers are in `bench/peers.txt` (`make peers`); one that is not installed is named. PostgreSQL is the one of the tests, or the one named:

    python -m bench.postgres_rate [JOBS] [ROUNDS]
    DETENT_TEST_PG=postgresql://... python -m bench.postgres_rate
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.http_rate import TASK, widen
from bench.remote_rate import Side, serving
from tests.postgres_server import Server, shared_server, stop_shared

WORKERS, BATCH = 2, 100
GOAL = 3.0
PROCRASTINATE = """
import sys, time
import procrastinate
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo={url!r}))
@app.task(name="nothing")
def nothing(x):
    return x
"""
PROCRASTINATE_SUBMIT = """
import sys, time
from procrastinate_tasks import nothing
import procrastinate, psycopg
sync = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=sys.argv[2]))
n = int(sys.argv[1])
with sync.open(), psycopg.connect(sys.argv[2], autocommit=True) as looking:
    deferrer = sync.configure_task("nothing")
    began = time.perf_counter()
    for first in range(0, n, 100):
        deferrer.batch_defer(*[{"x": number} for number in range(first, first + 100)])
    while looking.execute("SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1").fetchone():
        time.sleep(0.01)
    print(n / (time.perf_counter() - began))
"""
DBOS = """
import sys, time
from dbos import DBOS
DBOS(config={{"name": "bench", "system_database_url": {url!r}, "log_level": "ERROR", "run_admin_server": False}})
@DBOS.workflow(name="nothing")
def nothing(x):
    return x
if __name__ == "__main__":
    DBOS.launch()
    DBOS.register_queue("nothing", polling_interval_sec=0.05)
    print("ready", flush=True)
    while True:
        time.sleep(1)
"""
DBOS_SUBMIT = """
import sys, time
from dbos import DBOSClient
import psycopg
n, url = int(sys.argv[1]), sys.argv[2]
client = DBOSClient(system_database_url=url)
with psycopg.connect(url, autocommit=True) as looking:
    began = time.perf_counter()
    for number in range(n):
        client.enqueue({"workflow_name": "nothing", "queue_name": "nothing"}, number)
    open_ones = "SELECT 1 FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING') LIMIT 1"
    while looking.execute(open_ones).fetchone():
        time.sleep(0.01)
    print(n / (time.perf_counter() - began))
"""


def main() -> None:
    """Measure all sides, and print the ratio to the fastest peer."""
    jobs, rounds = (int(one) for one in (*sys.argv[1:], *("2000", "3")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as ending:
        server = shared_server(Path(scratch))
        ending.callback(stop_shared, Path(scratch))
        sides = {"Detent": Ours(ending.enter_context(_detent(Path(scratch), server))).rate}
        for name, module, run in (("Procrastinate", "procrastinate", _procrastinate), ("DBOS", "dbos", _dbos)):
            if importlib.util.find_spec(module) is None:
                print(f"{name} is not installed: make peers")
            else:
                sides[name] = ending.enter_context(run(Path(scratch), server)).rate
        for rate in sides.values():
            rate(BATCH * 2)  # Workers have loaded the code.
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, rate in sides.items():
                rates[name].append(rate(jobs))
    _print({name: statistics.median(each) for name, each in rates.items()}, jobs, rounds)


def _print(rates: dict[str, float], jobs: int, rounds: int) -> None:
    print(f"{jobs} no-op jobs on PostgreSQL, {WORKERS} workers, median of {rounds}")
    for name, rate in rates.items():
        print(f"  {name:<14} {rate:8.0f} jobs/s")
    peers = [rate for name, rate in rates.items() if name != "Detent"]
    if peers:
        print(f"  {rates['Detent'] / max(peers):.2f} of the fastest peer (goal: >= {GOAL:g})")


@contextlib.contextmanager
def _detent(scratch: Path, server: Server) -> Iterator[Side]:
    def homed(directory: Path) -> Path:
        home = directory / ".detent"
        words = ["init", "--home", str(home), "--store", server.store_url()]
        subprocess.run([sys.executable, "-m", "detent", *words], check=True, capture_output=True)  # noqa: S603 - our own
        widen(home / "config.toml")
        return home

    with serving(scratch / "detent", WORKERS, homed) as (side, _):
        yield side


class Ours:
    """Submits to a server and looks at its counts, as the peers' programs look at theirs."""

    def __init__(self, side: Side) -> None:
        self._side, self._ended = side, 0

    def rate(self, jobs: int) -> float:
        """Jobs a second, from the first submission to the end of the last."""
        self._ended += jobs
        began = time.perf_counter()
        for _ in range(jobs // BATCH):
            self._side.ask("POST", "/v1/jobs:batch", {"items": [TASK] * BATCH})
        while self._side.ask("GET", "/v1/counts")["jobs"].get("succeeded", 0) < self._ended:
            time.sleep(0.01)
        return jobs / (time.perf_counter() - began)


class Peer:
    """A peer whose workers run: a program submits, waits and prints the rate."""

    def __init__(self, submit: str, directory: Path, url: str) -> None:
        self._submit, self._directory, self._url = submit, directory, url

    def rate(self, jobs: int) -> float:
        """Jobs a second, from the first submission to the end of the last."""
        line = [sys.executable, "-c", self._submit, str(jobs), self._url]
        return float(subprocess.run(line, cwd=self._directory, check=True, capture_output=True, text=True).stdout)  # noqa: S603


@contextlib.contextmanager
def _procrastinate(scratch: Path, server: Server) -> Iterator[Peer]:
    url = _database(server, "procrastinate")
    directory = scratch / "procrastinate"
    directory.mkdir()
    (directory / "procrastinate_tasks.py").write_text(PROCRASTINATE.format(url=url))
    line = [sys.executable, "-m", "procrastinate", "--app", "procrastinate_tasks.app"]
    subprocess.run(  # noqa: S603 - the peer above
        [*line, "schema", "--apply"], cwd=directory, env=_environment(directory), check=True, capture_output=True
    )
    with _processes([*line, "worker", "--concurrency", "8"], directory):
        yield Peer(PROCRASTINATE_SUBMIT, directory, url)


@contextlib.contextmanager
def _dbos(scratch: Path, server: Server) -> Iterator[Peer]:
    url = _database(server, "dbos")
    directory = scratch / "dbos"
    directory.mkdir()
    (directory / "dbos_tasks.py").write_text(DBOS.format(url=url))
    with _processes([sys.executable, "dbos_tasks.py"], directory, says_ready=True):
        yield Peer(DBOS_SUBMIT, directory, url)


def _database(server: Server, name: str) -> str:
    server.execute(f"CREATE DATABASE {name}")
    head, _, tail = server.url.rpartition("/")
    return f"{head}/{name}{tail[len(tail.partition('?')[0]) :]}"


def _environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH")]))}


@contextlib.contextmanager
def _processes(line: list[str], directory: Path, *, says_ready: bool = False) -> Iterator[None]:
    """Two workers of a peer, for as long as the block lasts."""
    with contextlib.ExitStack() as ending:
        for _ in range(WORKERS):
            worker = subprocess.Popen(  # noqa: S603 - the peers above
                line,
                cwd=directory,
                env=_environment(directory),
                stdout=subprocess.PIPE if says_ready else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            ending.callback(_end, worker)
            if worker.stdout is not None and not worker.stdout.readline():
                raise SystemExit(f"{line[-1]} did not start")
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
