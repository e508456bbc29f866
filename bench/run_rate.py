"""Whole jobs and whole pipelines through Detent, from the submission to the durable, signed result.

`detent.Client` and `detent.run` with two worker processes on a new home, SQLite with ``synchronous=FULL``, every commit signed.
`bench/goals.py` puts these figures beside those of others. Alone, this programme prints two that are compared with nothing: the same
work in a process that does not own its home but asks the owner through its socket, and the memory of an idle client.

    python bench/run_rate.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, ".")

from bench.apart import ROOT, apart
from bench.interpreter import interpreter_text

WORKERS = 2
JOBS = 5_000
MAPPED = 20_000
SINGLES = 300
WARM = 200
CHAINS, LENGTH, FAN = 100, 10, 1_000
ROUNDS = 3


def one_by_one(where: Path) -> float:
    """Jobs a second: `Client.submit` for each, then all results."""
    return _rate(where, JOBS, lambda client, task, items: [client.submit(task, item) for item in items])


def submitted_many(where: Path) -> float:
    """Jobs a second: one `Client.submit_many`, then all results."""
    return _rate(where, JOBS, lambda client, task, items: client.submit_many(task, [(item,) for item in items]))


def mapped(where: Path) -> float:
    """Elements a second through `Client.map`, with their results."""
    return _rate(where, MAPPED, lambda client, task, items: client.map(task, items))


def single_ms(where: Path) -> float:
    """Milliseconds from the submission to the result, one at a time; the median."""
    from bench.run_work import nothing  # noqa: PLC0415

    with _client(where) as client:
        taken = []
        for number in range(SINGLES):
            begun = time.perf_counter()
            client.submit(nothing, number).result()
            taken.append(time.perf_counter() - begun)
    return 1000 * statistics.median(taken)


def chained(where: Path) -> float:
    """Steps a second of 100 chains of 10."""
    from bench.run_work import chains  # noqa: PLC0415

    return _flow_rate(where, chains.contract(CHAINS, LENGTH), CHAINS * LENGTH)


def fanned(where: Path) -> float:
    """Steps a second of 1,000 that need nothing, and one that needs them all."""
    from bench.run_work import fan  # noqa: PLC0415

    return _flow_rate(where, fan.contract(FAN), FAN + 1)


def beside_owner(where: Path) -> tuple[float, float]:
    """`submitted_many` and `single_ms` in a process that does not own the home: another one has it open."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from detent.owner.session import Session\n"
        "from detent.runs.runtime import home_at\n"
        "with Session(home_at(Path(sys.argv[1]))):\n"
        "    print('open', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    with _child(script, where / "home"):
        return submitted_many(where), single_ms(where)


def idle_mib(where: Path) -> float:
    """MiB resident in all processes of an idle client with two workers."""
    script = (
        "import sys, detent\n"
        "from bench.run_work import nothing\n"
        "with detent.Client(sys.argv[1], workers=2) as client:\n"
        "    client.submit(nothing, 1).result()\n"
        "    print('idle', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    with _child(script, where / "idle") as child:
        return sum(_proportional_kib(pid) for pid in (child.pid, *_descendants(child.pid))) / 1024


def _client(where: Path) -> Any:
    import detent  # noqa: PLC0415 - a process that only compares loads none of it

    return detent.Client(where / "home", workers=WORKERS)


def _rate(where: Path, count: int, submitted: Callable[[Any, Any, range], Any]) -> float:
    """Jobs a second until every result is there. ``submitted`` returns handles, or the results themselves."""
    from bench.run_work import nothing  # noqa: PLC0415

    with _client(where) as client:
        list(client.map(nothing, range(WARM)))
        begun = time.perf_counter()
        given = submitted(client, nothing, range(count))
        results = [one.result() if hasattr(one, "result") else one for one in given]
        seconds = time.perf_counter() - begun
    if results != list(range(count)):
        raise SystemExit("a result is wrong")
    return count / seconds


def _flow_rate(where: Path, contract: Any, steps: int) -> float:
    """Steps a second of a whole run, with its planning and its end, on a home that has had a run before."""
    import detent  # noqa: PLC0415
    from bench.run_work import fan  # noqa: PLC0415

    detent.run(fan.contract(1), home=where / "home", workers=WORKERS)
    begun = time.perf_counter()
    run = detent.run(contract, home=where / "home", workers=WORKERS)
    seconds = time.perf_counter() - begun
    if not run.ok:
        raise SystemExit(f"{run} did not succeed")
    return steps / seconds


@contextmanager
def _child(script: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process on a home, once it has said that it is there; it stays until it is told something."""
    child = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", script, str(home)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        child.stdout.readline()
        yield child
        child.communicate("\n", timeout=30)
    finally:
        child.kill()
        child.wait()


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


def main() -> None:
    print(f"   {interpreter_text()}")
    rates, singles = [], []
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as made:
        for number in range(ROUNDS):
            where = Path(made, str(number))
            where.mkdir()
            rate, single = apart("bench.run_rate:beside_owner", where, Path(made, "bytecode"))
            rates.append(rate)
            singles.append(single)
        idle = idle_mib(Path(made))
    print(f"   no-op jobs, another process is the owner   {statistics.median(rates):>8,.0f} jobs/s")
    print(f"   one at a time, the same                    {statistics.median(singles):>8,.2f} ms")
    print(f"   idle, all processes                        {idle:>8,.0f} MiB")


if __name__ == "__main__":
    main()
