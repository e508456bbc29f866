"""Peers of `bench/run_rate.py`: the same no-op jobs through other queues, where these are installed.

* *Huey* on SQLite with fsync: ``pip install huey``. Durable.
* *Dramatiq* on Redis: ``pip install dramatiq redis``, and ``redis-server`` on the path. Redis keeps everything in memory and
  writes nothing, so a power cut takes all of it; each job counts itself in Redis, which is how the last one is noticed.

Both with two worker processes, the second with eight threads in each, its default and the fastest here. Loopback only.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

JOBS = {"huey": 1_000, "dramatiq": 5_000}

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


def huey_rate(directory: Path) -> float | None:
    """No-op jobs a second through Huey on SQLite; None where it is not installed."""
    if importlib.util.find_spec("huey") is None:
        return None
    where = _place(directory, "huey", HUEY_TASKS.format(database=str(directory / "huey.db")))
    consumer = ["huey.bin.huey_consumer", "huey_tasks.huey", "-w", "2", "-k", "process", "-d", "0.001"]
    with _running([sys.executable, "-m", *consumer], where):
        return _rate(HUEY_SCRIPT, JOBS["huey"], where)


def dramatiq_rate(directory: Path) -> float | None:
    """No-op jobs a second through Dramatiq on a Redis in memory; None where either is not installed."""
    if shutil.which("redis-server") is None or any(map(_is_missing, ("dramatiq", "redis"))):
        return None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = _place(directory, "dramatiq", DRAMATIQ_TASKS.format(port=port))
    redis = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    workers = [sys.executable, "-m", "dramatiq", "dramatiq_tasks", "-p", "2", "-t", "8"]
    with _running(redis, where):
        _await_port(port)
        with _running(workers, where):
            return _rate(DRAMATIQ_SCRIPT, JOBS["dramatiq"], where)


def _is_missing(module: str) -> bool:
    return importlib.util.find_spec(module) is None


def _place(directory: Path, name: str, tasks: str) -> Path:
    where = directory / name
    where.mkdir(exist_ok=True)
    (where / f"{name}_tasks.py").write_text(tasks)
    return where


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
    environment = {**os.environ, "PYTHONPATH": str(where)}
    process = subprocess.Popen(  # noqa: S603
        command, cwd=where, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def _rate(script: str, jobs: int, where: Path) -> float:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script, str(jobs)],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(where)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return float(done.stdout)
