"""Workers on other machines beside workers of the server's own: the same no-op jobs through the same server, in one run.

Two sides take turns on one home each: a server with 8 local workers, and a server without any that two `detent worker --connect` of 4 slots work
for, over loopback. For each side two figures are taken, alternated, and their medians printed with the ratio:

* the rate of no-op tasks that are submitted in batches of 100 until all have ended,
* the time from the submission of a single task to its result, one at a time.

    python -m bench.remote_rate [JOBS] [SINGLES] [ROUNDS]
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.http_rate import CODE, roomy_home

BATCH = 100
WORKERS, SLOTS = 2, 4
GOAL_RATE, GOAL_MS = 0.6, 1.5


class Side:
    """A server with its workers, and a client of it."""

    def __init__(self, name: str, port: int, token: str) -> None:
        self.name = name
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)
        self._token = token
        self.rates: list[float] = []
        self.singles_ms: list[float] = []

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer to one request."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        said = json.loads(answer.read())
        if answer.status >= 300:
            raise SystemExit(f"{self.name}: {method} {path} answered {answer.status}: {said}")
        return said

    def rate(self, jobs: int) -> float:
        """Jobs a second, from the first submission to the end of the last."""
        began = time.perf_counter()
        ids: list[str] = []
        for _ in range(jobs // BATCH):
            taken = self.ask("POST", "/v1/jobs:batch", {"items": [_task()] * BATCH})
            ids += [one["job_id"] for one in taken["items"]]
        for job_id in reversed(ids):  # Nearly all have ended when the last has.
            while self.ask("GET", f"/v1/jobs/{job_id}?wait=60")["status"] != "succeeded":
                pass
        return len(ids) / (time.perf_counter() - began)

    def single_ms(self) -> float:
        """From the submission of one job to its result."""
        began = time.perf_counter()
        job_id = self.ask("POST", "/v1/jobs", _task())["job_id"]
        self.ask("GET", f"/v1/jobs/{job_id}?wait=60")
        return (time.perf_counter() - began) * 1_000


def main() -> None:
    """Measure both sides, and print the ratios."""
    jobs, singles, rounds = (int(one) for one in (*sys.argv[1:], *("2000", "100", "3")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as scratch, _local(Path(scratch)) as local, _remote(Path(scratch)) as remote:
        for side in (local, remote):
            side.rate(BATCH * 2)  # Workers have loaded the code.
        for _ in range(rounds):
            for side in (local, remote):
                side.rates.append(side.rate(jobs))
                side.singles_ms += [side.single_ms() for _ in range(singles)]
    _print(local, remote, jobs, singles * rounds)


def _print(local: Side, remote: Side, jobs: int, singles: int) -> None:
    rates = [statistics.median(side.rates) for side in (local, remote)]
    middle = [statistics.median(side.singles_ms) for side in (local, remote)]
    print(f"{jobs} no-op jobs in batches of {BATCH}; {WORKERS * SLOTS} local workers, {WORKERS} x {SLOTS} elsewhere")
    print(f"  local   {rates[0]:8.0f} jobs/s")
    print(f"  remote  {rates[1]:8.0f} jobs/s   {rates[1] / rates[0]:.2f} of local (goal: >= {GOAL_RATE})")
    print(f"{singles} jobs one at a time, submission to result")
    print(f"  local   {middle[0]:8.2f} ms p50")
    print(f"  remote  {middle[1]:8.2f} ms p50   {middle[1] - middle[0]:+.2f} ms (goal: <= +{GOAL_MS} ms)")


def _task() -> dict[str, Any]:
    return {"task": {"target": "tasks:double", "arguments": [4], "label": "bench"}}


@contextlib.contextmanager
def _local(scratch: Path) -> Iterator[Side]:
    with serving(scratch / "local", WORKERS * SLOTS) as (side, _):
        yield side


@contextlib.contextmanager
def _remote(scratch: Path) -> Iterator[Side]:
    with serving(scratch / "remote", 0) as (side, url), contextlib.ExitStack() as ending:
        for number in range(WORKERS):
            project = scratch / f"elsewhere-{number}"
            project.mkdir()
            (project / "tasks.py").write_text(CODE)
            token = side.ask("POST", "/v1/enrolments", {})["token"]
            words = ["worker", "--connect", url, "--slots", str(SLOTS), "--state", str(project / "state")]
            worker = subprocess.Popen(  # noqa: S603 - our own worker
                [sys.executable, "-m", "detent", *words],
                cwd=project,
                env={**os.environ, "DETENT_ENROL": token},
                stderr=subprocess.DEVNULL,
            )
            ending.callback(_end, worker)
        yield side


@contextlib.contextmanager
def serving(
    directory: Path, workers: int, homed: Callable[[Path], Path] = lambda directory: roomy_home(directory).path
) -> Iterator[tuple[Side, str]]:
    """A server on a new home, and its address."""
    directory.mkdir()
    (directory / "tasks.py").write_text(CODE)
    home = homed(directory)
    words = ["serve", "--home", str(home), "--port", "0", "-o", "json", "--workers", str(workers)]
    server = subprocess.Popen(  # noqa: S603 - our own server
        [sys.executable, "-m", "detent", *words], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert server.stdout is not None
    try:
        told = json.loads(server.stdout.readline())
        token = Path(told["token_file"]).read_text().strip()
        yield Side("remote" if not workers else "local", int(told["url"].rpartition(":")[2]), token), told["url"]
    finally:
        _end(server)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


if __name__ == "__main__":
    main()
