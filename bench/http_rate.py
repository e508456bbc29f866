"""The server beside a bare Starlette echo: durable submissions, batches, one job, a page of jobs, and 304, in one run.

Both servers are processes of their own with one client program in front: connections of asyncio that keep alive and send the next
request when the answer is there. The echo reads a JSON body and sends it back; it checks, decides and stores nothing. For each kind of
request the rate and the CPU time of the server's process are printed, and their ratios: on a busy machine the CPU time is the
figure to trust, because a rate shares the processors with whatever else runs.

Batches are set beside the owner alone: the same jobs, prepared and signed before, submitted in the same process without HTTP.

    python -m bench.http_rate [SECONDS]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from detent.jobs.order import Call
from detent.owner.backend import commands_of
from detent.owner.home import Home, make_home
from detent.owner.wiring import begin_ledger
from detent.runs.runtime import Runtime
from detent.runs.submit.calls import Calls, JobRequest

TASK = {"task": {"target": "tasks:double", "arguments": [4], "label": "bench"}}
CODE = "def double(n):\n    return 2 * n\n"
PLENTY = 1_000_000
ECHO = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def echo(request):
    body = await request.body() if request.method == "POST" else b'{"a": 1}'
    return Response(body, media_type="application/json")

application = Starlette(routes=[Route("/echo", echo, methods=["GET", "POST"])])
uvicorn.run(application, port=int(sys.argv[1]), http="httptools", loop="asyncio", log_level="error", access_log=False)
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A process that is asked."""

    pid: int
    port: int
    token: str = ""

    def cpu(self) -> float:
        """The seconds of processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Rate:
    """What came of one kind of request."""

    per_second: float
    cpu_us: float
    requests: int


def main() -> None:
    """Measure everything, and print it."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "tasks.py").write_text(CODE)
        home = roomy_home(directory)
        alone = _owner_alone(directory, seconds)
        with _serving(home, directory) as server, _echo() as echo:
            _measure(server, echo, alone, seconds)


def _measure(server: Server, echo: Server, alone: float, seconds: float) -> None:
    body = json.dumps(TASK).encode()
    print(f"{'request':<28}{'per second':>12}{'CPU us':>9}{'echo/s':>10}{'CPU us':>9}{'of echo':>9}{'CPU':>7}")
    for connections in (16, 64):
        own = _rate(server, _post("/v1/jobs", body), connections, seconds, 202)
        bare = _rate(echo, _post("/echo", body), connections, seconds, 200)
        _line(f"POST job, {connections} connections", own, bare)
    items = json.dumps({"items": [TASK] * 100}).encode()
    batch = _rate(server, _post("/v1/jobs:batch", items), 8, seconds, 200)
    print(
        f"{'batches of 100, 8 conn.':<28}{100 * batch.per_second:>12,.0f}{batch.cpu_us / 100:>9,.0f}"
        f"   owner alone {alone:,.0f} jobs/s: {100 * batch.per_second / alone:.2f} of it"
    )
    job, tag = _one(server)
    for name, make, status in (
        ("GET job", _get(job), 200),
        ("GET page of 50", _get("/v1/jobs?limit=50"), 200),
        ("304", _get(job, f"If-None-Match: {tag}\r\n"), 304),
    ):
        own = _rate(server, make, 16, seconds, status)
        bare = _rate(echo, _get("/echo"), 16, seconds, 200)
        _line(f"{name}, 16 connections", own, bare)


def _line(name: str, own: Rate, bare: Rate) -> None:
    print(
        f"{name:<28}{own.per_second:>12,.0f}{own.cpu_us:>9,.0f}{bare.per_second:>10,.0f}{bare.cpu_us:>9,.0f}"
        f"{own.per_second / bare.per_second:>9.2f}{bare.cpu_us / own.cpu_us:>7.2f}"
    )


def _rate(server: Server, make: Callable[[Server], bytes], connections: int, seconds: float, status: int) -> Rate:
    request = make(server)
    asyncio.run(_load(server, request, connections, 0.5, status))
    before, begun = server.cpu(), time.perf_counter()
    count = asyncio.run(_load(server, request, connections, seconds, status))
    spent, used = time.perf_counter() - begun, server.cpu() - before
    return Rate(count / spent, used / count * 1e6, count)


async def _load(server: Server, request: bytes, connections: int, seconds: float, status: int) -> int:
    deadline = time.perf_counter() + seconds
    counts = await asyncio.gather(*(_client(server, request, deadline, status) for _ in range(connections)))
    return sum(counts)


async def _client(server: Server, request: bytes, deadline: float, status: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    count, wanted = 0, f"HTTP/1.1 {status}".encode()
    while time.perf_counter() < deadline:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        if not head.startswith(wanted):
            raise SystemExit(f"unexpected answer: {head[:80]!r} {body[:300]!r}")
        count += 1
    writer.close()
    return count


def _post(path: str, body: bytes) -> Callable[[Server], bytes]:
    def make(server: Server) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        return f"{head}Authorization: Bearer {server.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    return make


def _get(path: str, more: str = "") -> Callable[[Server], bytes]:
    def make(server: Server) -> bytes:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        return f"{head}Authorization: Bearer {server.token}\r\n{more}\r\n".encode()

    return make


def _one(server: Server) -> tuple[str, str]:
    """The address of an ended job, and its entity tag."""

    async def ask(request: bytes) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        writer.close()
        return head, body

    _, body = asyncio.run(ask(_post("/v1/jobs", json.dumps(TASK).encode())(server)))
    path = json.loads(body)["links"]["self"]
    asyncio.run(ask(_post(f"{path}/cancel", b"{}")(server)))  # What is over keeps its tag.
    head, _ = asyncio.run(ask(_get(path)(server)))
    tag = re.search(rb"etag: (\S+)", head, re.IGNORECASE)
    return path, "" if tag is None else tag[1].decode()


def roomy_home(directory: Path) -> Home:
    """A home whose queue and rates are no limit here."""
    home = make_home(directory / ".detent", begin_ledger)
    widen(home.path / "config.toml")
    return home


def widen(config: Path) -> None:
    """Settings of a home whose queue and rates are no limit."""
    said = config.read_text().replace("capacity_per_class = 256", f"capacity_per_class = {PLENTY}")
    said = said.replace("capacity_total = 2560", f"capacity_total = {10 * PLENTY}")
    rates = "".join(
        f"{name} = {PLENTY}\n" for name in ("reads_per_second", "writes_per_second", "requests_per_second_of_address")
    )
    if "[access]" in said:
        said = said.replace("[access]", f"[access]\n{rates}", 1)
    else:
        said += f"\n[access]\n{rates}"
    config.write_text(said)


def _owner_alone(directory: Path, seconds: float) -> float:
    """Jobs a second that an owner takes in batches of 100, prepared before the clock starts."""
    alone = directory / "alone"
    alone.mkdir()
    home = roomy_home(alone)
    request = JobRequest(
        Call(kind="python", target="tasks:double", arguments=(4,), base=str(directory)), "bench", requested_by="p_local"
    )
    with Runtime(home, workers=0, idle=True) as work:
        calls = Calls(work.backend, work.work_keys)
        (key,) = calls.work_keys_of([request])
        miss = calls.find(request, key)
        done, spent = 0, 0.0
        while spent < seconds:
            made = [calls.submission(request, key, work.backend.new_uuid(), miss) for _ in range(100)]  # type: ignore[arg-type]
            commands = commands_of(made)
            begun = time.perf_counter()
            answers = work.session.ask(
                commands,
                content=[piece for one in made for piece in one.inline],
                work=[one.work for one in made if one.work is not None],
            )
            spent += time.perf_counter() - begun
            done += sum(answer.ok for answer in answers)
    return done / spent


@contextlib.contextmanager
def _serving(home: Home, directory: Path) -> Iterator[Server]:
    line = [sys.executable, "-m", "detent", "serve", "--home", str(home.path), "--port", "0", "-o", "json"]
    line += ["--workers", "0", "--project", str(directory)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own server
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        token = Path(told["token_file"]).read_text().strip()
        try:
            yield Server(process.pid, int(told["url"].rpartition(":")[2]), token)
        finally:
            process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def _echo() -> Iterator[Server]:
    port = 20_000 + os.getpid() % 20_000
    with subprocess.Popen([sys.executable, "-c", ECHO, str(port)]) as process:  # noqa: S603 - the echo above
        try:
            asyncio.run(_until_listens(port))
            yield Server(process.pid, port)
        finally:
            process.send_signal(signal.SIGTERM)


async def _until_listens(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise SystemExit("the echo did not start")


if __name__ == "__main__":
    main()
