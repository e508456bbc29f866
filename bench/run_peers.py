"""Peers of `bench/goals.py`: the same work through others, where they are installed (`make peers`).

* *Huey* on SQLite with fsync, two worker processes. Durable.
* *Dramatiq* on Redis, two worker processes with eight threads each, its default and the fastest here. Redis keeps everything in
  memory and writes nothing, so a power cut takes all of it; each job counts itself in Redis, which is how the last one is noticed.
* *doit*: 1,000 tasks, each with a file that it reads and one that it writes.

Loopback only.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.apart import completed, environment

HUEY_JOBS, DRAMATIQ_JOBS, DOIT_TASKS = 1_000, 5_000, 1_000

HUEY_TASKS = """
from huey import SqliteHuey
huey = SqliteHuey(filename={database!r}, fsync=True)
@huey.task()
def nothing(x):
    return x
"""
HUEY_SCRIPT = """
import time, sys
from huey_tasks import nothing
nothing(0).get(blocking=True)
n = int(sys.argv[1]); t = time.perf_counter()
handles = [nothing(i) for i in range(n)]
for h in handles: h.get(blocking=True, backoff=1, max_delay=0.01)
print(n / (time.perf_counter() - t))
"""
HUEY_ONE = """
from huey_tasks import nothing
print(nothing(1).get(blocking=True, backoff=1, max_delay=0.001))
"""
DRAMATIQ_TASKS = """
import dramatiq, redis
from dramatiq.brokers.redis import RedisBroker
dramatiq.set_broker(RedisBroker(url="redis://127.0.0.1:{port}/0"))
counter = redis.Redis(port={port}, db=1)
@dramatiq.actor(max_retries=0)
def nothing(x):
    counter.incr("done")
"""
DRAMATIQ_SCRIPT = """
import time, sys
from dramatiq_tasks import counter, nothing
def wait(n):
    while int(counter.get("done") or 0) < n: time.sleep(0.001)
n = int(sys.argv[1])
for i in range(100): nothing.send(i)
wait(100)
counter.set("done", 0); t = time.perf_counter()
for i in range(n): nothing.send(i)
wait(n)
print(n / (time.perf_counter() - t))
"""
DOIT_TASKS_FILE = """
def made(read, written):
    with open(read) as file: value = int(file.read())
    with open(written, "w") as file: file.write(str(2 * value))

def task_made():
    for number in range({count}):
        read, written = f"in/{{number}}", f"out/{{number}}"
        yield {{"name": number, "actions": [(made, [read, written])], "file_dep": [read], "targets": [written]}}
"""


def missing() -> dict[str, str]:
    """The peers that cannot be measured here, each with the reason."""
    needs = {"Huey": ("huey",), "Dramatiq": ("dramatiq", "redis"), "doit": ("doit",), "joblib": ("joblib",)}
    found = {}
    for peer, modules in needs.items():
        absent = [f"{name} is not installed" for name in modules if importlib.util.find_spec(name) is None]
        if peer == "Dramatiq" and shutil.which("redis-server") is None:
            absent.append("redis-server is not on the path")
        if absent:
            found[peer] = f"{', '.join(absent)} (make peers)"
    return found


def huey_rate(where: Path) -> float:
    """No-op jobs a second through Huey on SQLite."""
    where = _huey(where)
    with _running(_huey_consumer(workers=2), where):
        return float(completed([sys.executable, "-c", HUEY_SCRIPT, str(HUEY_JOBS)], where, _environment(where)))


def huey_cold(where: Path) -> float:
    """Seconds from the start of a consumer and of a client to the result of the client's only job."""
    where = _huey(where)
    begun = time.perf_counter()
    with _running(_huey_consumer(workers=1), where):
        completed([sys.executable, "-c", HUEY_ONE], where, _environment(where))
        return time.perf_counter() - begun


def dramatiq_rate(where: Path) -> float:
    """No-op jobs a second through Dramatiq on a Redis in memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = _placed(where, "dramatiq", DRAMATIQ_TASKS.format(port=port))
    redis = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    workers = [sys.executable, "-m", "dramatiq", "dramatiq_tasks", "-p", "2", "-t", "8"]
    with _running(redis, where):
        _await_port(port)
        with _running(workers, where):
            script = [sys.executable, "-c", DRAMATIQ_SCRIPT, str(DRAMATIQ_JOBS)]
            return float(completed(script, where, _environment(where)))


class Doit:
    """A pipeline of 1,000 tasks that has run once."""

    def __init__(self, where: Path) -> None:
        self._where = where / "doit"
        for name in ("in", "out"):
            (self._where / name).mkdir(parents=True)
        (self._where / "dodo.py").write_text(DOIT_TASKS_FILE.format(count=DOIT_TASKS))
        for number in range(DOIT_TASKS):
            (self._where / "in" / str(number)).write_text(str(number))
        self.again()

    def again(self) -> float:
        """Seconds of another run."""
        begun = time.perf_counter()
        completed([sys.executable, "-m", "doit"], self._where, _environment(self._where))
        return time.perf_counter() - begun

    def changed(self, value: int) -> float:
        """Seconds of a run after one input has changed."""
        (self._where / "in" / "0").write_text(str(1_000_000 + value))
        return self.again()


def _huey(where: Path) -> Path:
    return _placed(where, "huey", HUEY_TASKS.format(database=str(where / "huey.db")))


def _huey_consumer(workers: int) -> list[str]:
    options = ["-w", str(workers), "-k", "process", "-d", "0.001"]
    return [sys.executable, "-m", "huey.bin.huey_consumer", "huey_tasks.huey", *options]


def _placed(directory: Path, name: str, tasks: str) -> Path:
    where = directory / name
    where.mkdir(exist_ok=True)
    (where / f"{name}_tasks.py").write_text(tasks)
    return where


def _environment(where: Path) -> dict[str, str]:
    return environment(where.parent.parent / "bytecode", where)


def _await_port(port: int, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline:
            raise SystemExit("redis-server did not begin to listen")
        time.sleep(0.02)


@contextmanager
def _running(command: list[str], where: Path) -> Iterator[None]:
    process = subprocess.Popen(  # noqa: S603
        command, cwd=where, env=_environment(where), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)
