"""A bare queue: one SQLite table, a commit each for submit, claim and finish.

It decides, signs and remembers nothing, and it is as durable as Detent: WAL mode with ``synchronous=FULL``. So it says how fast the
machine is at the moment, and what a queue costs at the least.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from bench.apart import ROOT

SINGLES = 300
JOBS = 2_000
POLL_SECONDS = 0.0002
SCHEMA = "create table jobs (id integer primary key, state text not null, payload text, result text)"
INDEX = "create index queued on jobs (state) where state = 'queued'"
SUBMIT = "insert into jobs (state, payload) values ('queued', ?)"
CLAIM = (
    "update jobs set state='running' where id=(select id from jobs where state='queued' limit 1) returning id, payload"
)
FINISH = "update jobs set state='done', result=? where id=?"


def rate(where: Path) -> float:
    """Jobs a second: one process submits, claims and finishes each job, three commits."""
    connection = _opened(where / "rate.db", new=True)
    begun = time.perf_counter()
    for number in range(JOBS):
        with connection:
            connection.execute(SUBMIT, (str(number),))
        with connection:
            ((job, payload),) = connection.execute(CLAIM).fetchall()
        with connection:
            connection.execute(FINISH, (payload, job))
    seconds = time.perf_counter() - begun
    connection.close()
    return JOBS / seconds


def single_ms(where: Path) -> float:
    """Milliseconds from the submission to the result through a worker process, one at a time; the median."""
    path = where / "queue.db"
    connection = _opened(path, new=True)
    taken = []
    with _worker(path):
        for number in range(SINGLES):
            begun = time.perf_counter()
            with connection:
                connection.execute(SUBMIT, (str(number),))
            job = connection.last_insert_rowid()
            while connection.execute("select 1 from jobs where id=? and state='done'", (job,)).fetchone() is None:
                time.sleep(POLL_SECONDS)
            taken.append(time.perf_counter() - begun)
        with connection:
            connection.execute(SUBMIT, ("stop",))
    connection.close()
    return 1000 * statistics.median(taken)


def work(path: str) -> None:
    """Claim one, finish one, until there is a job that says stop; a commit for each."""
    connection = _opened(Path(path))
    while True:
        with connection:
            row = connection.execute(CLAIM).fetchone()
        if row is None:
            time.sleep(POLL_SECONDS)
        elif row[1] == "stop":
            return
        else:
            with connection:
                connection.execute(FINISH, (row[1], row[0]))


def _opened(path: Path, *, new: bool = False) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    if new:
        connection.execute(SCHEMA)
        connection.execute(INDEX)
    return connection


@contextmanager
def _worker(path: Path) -> Iterator[None]:
    script = "import sys; from bench.bare_queue import work; work(sys.argv[1])"
    worker = subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=ROOT)  # noqa: S603
    try:
        yield
        worker.wait(timeout=30)
    finally:
        worker.kill()
        worker.wait()
