"""Whole jobs and whole pipelines, from the submission to the durable, signed result, and what a bare queue or a peer takes.

Ours: `detent.Client` and `detent.run` with two worker processes on a new home, SQLite with ``synchronous=FULL``, every
commit signed. Beside it, in the same run:

* the same work in a process that does not own its home but asks the one that does, through the home's socket.
* a *bare queue*: one SQLite table, a worker process, a commit each for submit, claim and finish; it decides, signs and
  remembers nothing.
* *Huey* on SQLite and *Dramatiq* on Redis, where they are installed (`bench/run_peers.py`).

What is compared takes turns, several rounds of it, and the median counts. Rates of peers that need a server of their own are
not repeated here; docs/benchmarks.md quotes those that were measured on such a machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from bench.interpreter import interpreter_text
from bench.run_peers import dramatiq_rate, huey_rate
from bench.run_work import chains, fan, nothing

JOBS = 5_000
SINGLES = 300
CHAINS, LENGTH, FAN, CACHED = 100, 10, 1_000, 1_000
ROUNDS = 3
HERE = Path(__file__).resolve().parent

QUEUE_SCHEMA = "create table jobs (id integer primary key, state text not null, payload text, result text)"


def open_queue(path: Path) -> apsw.Connection:
    """A connection as durable as ours."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    return connection


def bare_worker(path: str) -> None:
    """Claim one, finish one, until there is a job that says stop; a commit for each."""
    connection = open_queue(Path(path))
    while True:
        with connection:
            row = connection.execute(
                "update jobs set state='running' where id=(select id from jobs where state='queued' limit 1)"
                " returning id, payload"
            ).fetchone()
        if row is None:
            time.sleep(0.0002)
            continue
        if row[1] == "stop":
            return
        with connection:
            connection.execute("update jobs set state='done', result=? where id=?", (row[1], row[0]))


def bare_single(directory: Path) -> float:
    """Milliseconds from the submission to the result through the bare queue, one at a time; the median."""
    path = directory / "queue.db"
    connection = open_queue(path)
    connection.execute(QUEUE_SCHEMA)
    connection.execute("create index queued on jobs (state) where state = 'queued'")
    worker = subprocess.Popen(  # noqa: S603
        [
            sys.executable,
            "-c",
            "import sys; from bench.run_rate import bare_worker; bare_worker(sys.argv[1])",
            str(path),
        ],
        cwd=HERE.parent,
    )
    taken = []
    for number in range(SINGLES):
        begun = time.perf_counter()
        with connection:
            connection.execute("insert into jobs (state, payload) values ('queued', ?)", (str(number),))
        identity = connection.last_insert_rowid()
        while connection.execute("select 1 from jobs where id=? and state='done'", (identity,)).fetchone() is None:
            time.sleep(0.0002)
        taken.append(time.perf_counter() - begun)
    with connection:
        connection.execute("insert into jobs (state, payload) values ('queued', 'stop')")
    worker.wait(timeout=30)
    connection.close()
    return 1000 * statistics.median(taken)


def our_jobs(directory: Path) -> tuple[float, float]:
    """Jobs a second through `Client.map`, and the median of a single one in milliseconds."""
    import detent  # noqa: PLC0415

    with detent.Client(directory / "home", workers=2) as client:
        list(client.map(nothing, range(200)))
        begun = time.perf_counter()
        results = list(client.map(nothing, range(JOBS)))
        rate = JOBS / (time.perf_counter() - begun)
        if results != list(range(JOBS)):
            raise SystemExit("a result is wrong")
        taken = []
        for number in range(SINGLES):
            begun = time.perf_counter()
            client.submit(nothing, number).result()
            taken.append(time.perf_counter() - begun)
    return rate, 1000 * statistics.median(taken)


def beside_owner(directory: Path) -> tuple[float, float]:
    """The same in a process that does not own the home: another one has it open, and is asked through its socket."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from detent.owner.session import Session\n"
        "from detent.runs.runtime import home_at\n"
        "with Session(home_at(Path(sys.argv[1]))):\n"
        "    print('open', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    owner = _child(script, directory / "home")
    try:
        return our_jobs(directory)
    finally:
        _end(owner)


def our_flow(directory: Path, name: str, contract: Any, steps: int) -> float:
    """Steps a second of a whole run, with its planning and its end, on a home that is open already."""
    import detent  # noqa: PLC0415

    detent.run(fan.contract(1), home=directory / name, workers=2)
    begun = time.perf_counter()
    run = detent.run(contract, home=directory / name, workers=2)
    if not run.ok:
        raise SystemExit(f"{name} did not succeed")
    return steps / (time.perf_counter() - begun)


def command(directory: Path, *arguments: str) -> float:
    """Seconds of a `detent` command, from its start to its end."""
    begun = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parent / 'src'}:{HERE.parent}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "detent", *arguments, "--home", str(directory / "cli-home")],
        cwd=HERE.parent,
        env=environment,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    return time.perf_counter() - begun


def cached(directory: Path) -> tuple[float, float]:
    """Seconds of `detent run` for a finished pipeline: nothing to do, and one input changed."""
    line = ("run", "bench/run_work.py:pipeline", "-q", "-w", "2", "-p", f"count={CACHED}")
    command(directory, *line, "-p", "changed=0")
    again = [command(directory, *line, "-p", "changed=0") for _ in range(ROUNDS)]
    changed = [command(directory, *line, "-p", f"changed={number}") for number in range(1, ROUNDS + 1)]
    return statistics.median(again), statistics.median(changed)


def cold(directory: Path) -> float:
    """Seconds of `detent run` for a contract with one step, in a home that has to be made."""
    contract = directory / "one.yaml"
    contract.write_text("name: one\nsteps:\n  - id: a\n    run: {python: 'operator:add', args: [1, 2]}\n")
    taken = []
    for number in range(ROUNDS + 1):
        (directory / f"cold{number}").mkdir()
        begun = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")
        subprocess.run(  # noqa: S603
            [sys.executable, "-m", "detent", "run", str(contract), "-q"],
            cwd=directory / f"cold{number}",
            env=environment,
            capture_output=True,
            check=True,
        )
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[1:])  # The first one compiled the bytecode.


def idle_memory(directory: Path) -> float:
    """MiB resident in all processes of an idle client with two workers."""
    script = (
        "import sys, detent\n"
        "from bench.run_work import nothing\n"
        "with detent.Client(sys.argv[1], workers=2) as client:\n"
        "    client.submit(nothing, 1).result()\n"
        "    print('idle', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    child = _child(script, directory / "idle")
    total = sum(_proportional_kib(pid) for pid in (child.pid, *_descendants(child.pid)))
    _end(child)
    return total / 1024


def _child(script: str, home: Path) -> subprocess.Popen[str]:
    """Another process on a home, once it has said that it is there; it stays until it is told something."""
    child = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", script, str(home)],
        cwd=HERE.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def _end(child: subprocess.Popen[str]) -> None:
    child.communicate("\n", timeout=30)


def _proportional_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_descendants(int(child))]
    return found


def show(name: str, ours: float, unit: str, theirs: float | None, whose: str) -> None:
    """One line: ours, theirs, the ratio."""
    beside = "" if theirs is None else f"   {whose} {theirs:,.2f} {unit}, ratio {ours / theirs:.2f}"
    print(f"   {name:<42} {ours:>10,.2f} {unit}{beside}")


def main() -> None:
    """Print every figure."""
    print(f"   {interpreter_text()}")
    if threading.active_count() > 1:
        print("   (other threads run in this process)")
    measured: dict[str, Callable[[Path], Any]] = {
        "jobs": our_jobs,
        "beside": beside_owner,
        "huey": huey_rate,
        "dramatiq": dramatiq_rate,
        "bare": bare_single,
        "chains": lambda where: our_flow(where, "chains", chains.contract(CHAINS, LENGTH), CHAINS * LENGTH),
        "fan": lambda where: our_flow(where, "fan", fan.contract(FAN), FAN + 1),
    }
    rounds: dict[str, list[Any]] = {name: [] for name in measured}
    for _ in range(ROUNDS):
        for name, measure in measured.items():
            with tempfile.TemporaryDirectory(prefix="detent-bench-") as where:
                rounds[name].append(measure(Path(where)))
    rates, singles = zip(*rounds.pop("jobs"), strict=True)
    beside_rates, beside_singles = zip(*rounds.pop("beside"), strict=True)
    found: dict[str, Any] = {
        name: None if None in values else statistics.median(values) for name, values in rounds.items()
    }
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as where:
        again, changed = cached(Path(where))
        found |= {"cold": cold(Path(where)), "idle": idle_memory(Path(where))}
    rate = statistics.median(rates)
    show("no-op jobs, 2 workers", rate, "jobs/s", found["huey"], "Huey on SQLite")
    show("", rate, "jobs/s", found["dramatiq"], "Dramatiq on Redis, in memory only")
    show(
        "submit to result, one at a time, median", statistics.median(singles), "ms", found["bare"], "bare SQLite queue"
    )
    show("no-op jobs, another process is the owner", statistics.median(beside_rates), "jobs/s", None, "")
    show("one at a time, the same", statistics.median(beside_singles), "ms", None, "")
    show(f"{CHAINS} chains of {LENGTH}", found["chains"], "steps/s", None, "")
    show(f"{FAN} steps and a join", found["fan"], "steps/s", None, "")
    show(f"run again, {CACHED} steps, nothing to do", again, "s", None, "")
    show(f"run again, {CACHED} steps, one input changed", changed, "s", None, "")
    show("cold start, one step, new home", found["cold"], "s", None, "")
    show("idle, all processes", found["idle"], "MiB", None, "")


if __name__ == "__main__":
    sys.path.insert(0, ".")
    main()
