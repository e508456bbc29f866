"""A server for tests: a process of its own, `detent serve` on a free port of the loopback, asked by http.client and by raw sockets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.homes import Played, fresh
from tests.warm import Warm

RATES = """
[access]
reads_per_second = 100000
writes_per_second = 100000
failures_per_second = 100000
logins_per_minute = 100000
"""
ANSWER_SECONDS = 60.0
"""Far above what a busy machine needs; a test that waits this long hangs."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    """By their names in small letters."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem, whose document and status agree."""
        document = self.json
        assert self.headers["content-type"] == "application/problem+json"
        assert document["status"] == self.status
        assert document["instance"] == self.headers["detent-request-id"]
        return str(document["code"])


@dataclass(slots=True)
class Served:
    """A running server."""

    process: Warm | subprocess.Popen[str]
    home: Path
    told: Mapping[str, str]
    environment: Mapping[str, str]
    token: str = field(repr=False)

    @property
    def port(self) -> int:
        return int(self.told["url"].rpartition(":")[2])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = "own",
        seconds: float = ANSWER_SECONDS,
    ) -> Reply:
        """Send one request on a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        sent = {} if token is None else {"Authorization": f"Bearer {self.token if token == 'own' else token}"}
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body=body, headers={**sent, **(headers or {})})
            return read_reply(connection)
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Reply:
        return self.ask("GET", path, **options)

    def json(self, path: str) -> Any:
        """The document at a path, which must be there."""
        reply = self.get(path)
        assert reply.status == 200, (reply.status, reply.body)
        return reply.json

    def raw(self, data: bytes) -> bytes:
        """Send bytes as they are, and give back all that comes until the server closes."""
        with self.connect() as connection:
            with suppress(OSError):  # It may answer and close before everything was sent.
                connection.sendall(data)
            return read_all(connection)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS)

    def kill(self) -> None:
        """End it at once. Its children may hold its pipes for as long as they wait for the next server, so those are not read."""
        self.process.kill()
        self.process.wait(ANSWER_SECONDS)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; gives the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(ANSWER_SECONDS)
        self.process.communicate()
        return code


def read_reply(connection: HTTPConnection) -> Reply:
    """The answer to what was asked on a connection."""
    answer = connection.getresponse()
    fields = {name.lower(): value for name, value in answer.getheaders()}
    return Reply(answer.status, fields, answer.read())


def read_all(connection: socket.socket) -> bytes:
    """Everything that a server sends until it closes."""
    data = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def begun(home: Path, environment: Mapping[str, str], *options: str) -> Warm:
    """A server that starts on a home. It has no workers unless the options say so."""
    if "--workers" not in options:
        options = (*options, "--workers", "0")
    return Warm(["serve", "--home", str(home), "--port", "0", "-o", "json", *options], environment)


def listening(process: Warm, home: Path, environment: Mapping[str, str]) -> Served:
    """A server once it listens."""
    first = process.stdout.readline()
    if not first:
        raise AssertionError(process.communicate()[1])
    told = json.loads(first)
    token = Path(told["token_file"]).read_text().strip()
    return Served(process, home, told, environment, token)


def start(home: Path, environment: Mapping[str, str], *options: str) -> Served:
    """Start a server on a home and wait until it listens."""
    return listening(begun(home, environment, *options), home, environment)


@contextmanager
def serving(played: Played, *options: str) -> Iterator[Served]:
    """A server on a played home, ended at the end."""
    served = start(played.home.path, {**os.environ, **played.environment}, *options)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.stop()
        else:
            served.kill()


def play(directory: Path) -> Played:
    """A home with history, served without limits that a test would run into."""
    played = fresh(directory)
    with (played.home.path / "config.toml").open("a") as settings:
        settings.write(RATES)
    return played
