"""Floods of connections: thousands of slow clients, thousands of streams. How others are answered meanwhile, and what it costs.

    python -m tests.faults.floods loris --connections 2000
    python -m tests.faults.floods streams --connections 10000 --deaf 1000

Both start a server of their own and print a line of figures; exit code 1 if something that must hold does not. `make soak` runs both.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

from tests.homes import Played
from tests.serve.laboured import eventually
from tests.serve.served import ANSWER_SECONDS, Served, play, read_reply, serving
from tests.serve.shared import OWN, detent

PROBE_SECONDS = 0.05
TRICKLE_SECONDS = 1.0
OPENED_SECONDS = 5.0
"""How long it takes to open all of them: half the time that a head may take, so that all are open at once."""
EVENTS = 300
"""More than a stream may lag: one that does not read is cut. Each is told to every stream, which takes its time with 10,000."""
BIG_HEAD = b"".join(b"X-%d: " % number + b"a" * 1_000 + b"\r\n" for number in range(30))
MiB = 1 << 20


class Neighbour:
    """Another client, which asks for a page of jobs again and again on a connection of its own."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.seconds: list[float] = []
        self._stop = threading.Event()
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.fault is not None:
            raise self.fault

    def _ask(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._served.port, timeout=ANSWER_SECONDS)
        try:
            while not self._stop.wait(PROBE_SECONDS):
                began = time.monotonic()
                connection.request("GET", "/v1/jobs?limit=5", headers={"Authorization": f"Bearer {self._served.token}"})
                assert read_reply(connection).status == 200
                self.seconds.append(time.monotonic() - began)
        except BaseException as exc:  # noqa: BLE001 - told when it ends
            self.fault = exc
        finally:
            connection.close()

    def ms(self, share: float) -> float:
        """How long it took at most in this share of the requests."""
        ordered = sorted(self.seconds)
        return 1_000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def memory_bytes(pid: int) -> int:
    """What a process has in memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    return 1_024 * int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


def cpu_seconds(pid: int) -> float:
    """What a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def served_for(directory: Path, connections: int) -> Iterator[tuple[Played, Served]]:
    """A server that may have so many connections and streams."""
    needed = connections + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, needed + 1_000)), hard))
    played = play(directory)
    with (played.home.path / "config.toml").open("a") as settings:
        settings.write(
            f"requests_per_second_of_address = 100000\nconnections = {needed}\nstreams = {needed}\nstreams_of_server = {needed}\n"
        )
    with serving(played) as served:
        yield played, served


# -- slow clients ------------------------------------------------------------------------------------------------------


def slow_heads(served: Served) -> dict[str, bytes]:
    """What the slow clients send at first; those with `...` go on with a byte a second."""
    line = f"GET /healthz HTTP/1.1\r\nHost: {served.host}\r\n".encode()
    post = f"POST /v1/jobs:read HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n".encode()
    body = post + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    return {
        "a head ...": line + b"X-A: ",
        "nothing": b"",
        "a big head ...": line + BIG_HEAD + b"X-A: ",
        "a body that stalls": body + b'{"job_ids":',
        "a body ...": body + b'{"job_ids":["',
    }


def loris(served: Served, count: int) -> dict[str, Any]:
    """Have so many slow clients at once; each is cut with its answer, and another client is answered meanwhile."""
    pid = served.process.pid
    with Neighbour(served) as before:
        time.sleep(3)
    resting, cpu = memory_bytes(pid), cpu_seconds(pid)
    said = slow_heads(served)
    names = list(said)
    slow: dict[socket.socket, str] = {}
    answered: Counter[str] = Counter()
    peak, began = resting, time.monotonic()
    with Neighbour(served) as meanwhile:
        for number in range(count):
            connection = served.connect()
            name = names[number % len(names)]
            connection.sendall(said[name])
            connection.setblocking(False)
            slow[connection] = name
            time.sleep(OPENED_SECONDS / count)
        opened = time.monotonic() - began
        while slow:
            assert time.monotonic() - began < opened + 2 * ANSWER_SECONDS, f"{len(slow)} slow clients are never cut"
            peak = max(peak, memory_bytes(pid))
            poll = select.poll()
            by_number = {one.fileno(): one for one in slow}
            for descriptor in by_number:
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll(TRICKLE_SECONDS * 1_000):
                connection = by_number[descriptor]
                with suppress(OSError):
                    answered[_status(connection)] += 1
                del slow[connection]
                connection.close()
            for connection, name in slow.items():
                if name.endswith("..."):
                    with suppress(OSError):
                        connection.send(b"a")
    return {
        "connections": count,
        "opened_s": round(opened, 1),
        "all_cut_after_s": round(time.monotonic() - began, 1),
        "answers": dict(answered),
        "resting_mib": round(resting / MiB, 1),
        "peak_mib": round(peak / MiB, 1),
        "server_cpu_s": round(cpu_seconds(pid) - cpu, 1),
        "others": f"{len(meanwhile.seconds)} answered",
        "others_p50_ms": [round(before.ms(0.5), 1), round(meanwhile.ms(0.5), 1)],
        "others_p99_ms": [round(before.ms(0.99), 1), round(meanwhile.ms(0.99), 1)],
    }


def _status(connection: socket.socket) -> str:
    """The status that a slow client was cut with."""
    try:
        words = connection.recv(4_096).split(None, 2)
    except OSError:
        return "reset"
    return words[1].decode() if len(words) > 1 else "closed"


# -- streams -----------------------------------------------------------------------------------------------------------


def streams(played: Played, served: Served, count: int, deaf: int, events: int) -> dict[str, Any]:
    """Have so many idle streams and so many that never read; then things happen, and the idle ones hear each of them once."""
    pid = served.process.pid
    resting = memory_bytes(pid)
    began = time.monotonic()
    idle = [open_stream(served, "audit") for _ in range(count)]
    opened, with_idle = time.monotonic() - began, memory_bytes(pid)
    unread = [open_stream(served, "audit", reads=False) for _ in range(deaf)]
    with_deaf, cpu = memory_bytes(pid), cpu_seconds(pid)
    time.sleep(5)
    at_rest = cpu_seconds(pid) - cpu
    peak = with_deaf
    cpu, began = cpu_seconds(pid), time.monotonic()
    with Neighbour(served) as meanwhile:
        ids = [_happen(served) for _ in range(events)]
        told = Counter[int]()
        for connection in idle:
            heard = _read_until(connection, ids[-1])
            told[sum(heard.count(one) for one in ids)] += 1
            peak = max(peak, memory_bytes(pid))
    took = time.monotonic() - began
    assert told == Counter({events: count}), f"events that a stream heard: {told}"
    for connection in (*idle, *unread):
        connection.close()
    eventually(lambda: memory_bytes(pid) < peak + MiB, "memory stops growing")
    assert detent(played, "verify")["ok"]
    return {
        "idle": count,
        "deaf": deaf,
        "opened_s": round(opened, 1),
        "resting_mib": round(resting / MiB, 1),
        "idle_mib": round((with_idle - resting) / MiB, 1),
        "kib_a_stream": round((with_idle - resting) / 1_024 / max(1, count), 1),
        "deaf_mib": round((with_deaf - with_idle) / MiB, 1),
        "peak_mib": round(peak / MiB, 1),
        "idle_cpu_percent": round(100 * at_rest / 5, 1),
        "events": events,
        "told_in_s": round(took, 1),
        "server_cpu_s": round(cpu_seconds(pid) - cpu, 1),
        "others_p99_ms": round(meanwhile.ms(0.99), 1),
    }


def open_stream(served: Served, topics: str, *, reads: bool = True) -> socket.socket:
    """A stream that is open: its first frame has come, unless it never reads."""
    connection = socket.socket()
    if not reads:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(ANSWER_SECONDS)
    connection.connect(("127.0.0.1", served.port))
    head = f"GET /v1/events?topics={topics} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n\r\n"
    connection.sendall(head.encode())
    if reads:
        data = b""
        while b"event: hello" not in data:
            piece = connection.recv(4_096)
            assert piece, data[-500:]
            data += piece
        assert data.startswith(b"HTTP/1.1 200"), data[:200]
    return connection


def _happen(served: Served) -> bytes:
    """Something that every stream hears of; gives what its frame has in it."""
    name = f"n{time.monotonic_ns()}"
    body = json.dumps({"name": name, "role": "viewer"}).encode()
    made = served.ask("POST", "/v1/keys", body=body, headers={"Detent-Workspace": OWN})
    assert made.status == 201, made.body
    return b'"object_id": "' + str(made.json["key_id"]).encode()


def _read_until(connection: socket.socket, last: bytes) -> bytes:
    data = b""
    while last not in data:
        piece = connection.recv(65_536)
        assert piece, f"the stream ended: {data[-300:]!r}"
        data += piece
    return data


def main() -> None:
    """Run one of the floods and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.floods")
    parser.add_argument("what", choices=("loris", "streams"))
    parser.add_argument("--connections", type=int, default=None)
    parser.add_argument("--deaf", type=int, default=1_000)
    parser.add_argument("--events", type=int, default=EVENTS)
    given = parser.parse_args()
    count = given.connections or {"loris": 2_000, "streams": 10_000}[given.what]
    with tempfile.TemporaryDirectory() as place, served_for(Path(place), count + given.deaf) as (played, served):
        found = (
            loris(served, count) if given.what == "loris" else streams(played, served, count, given.deaf, given.events)
        )
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
