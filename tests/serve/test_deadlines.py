"""Slow clients: each phase of a request has a deadline, and others are served meanwhile.

The deadlines are those of the running server and pass in real time, all of them at once.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress

import pytest

from tests.serve.served import Served, read_all

CLIENTS = 60
pytestmark = pytest.mark.door("route: every one, over a raw connection")


def heads(served: Served) -> dict[str, bytes]:
    """What a slow client sends before it stalls."""
    line = f"GET /healthz HTTP/1.1\r\nHost: {served.host}\r\n".encode()
    post = f"POST /v1/jobs:read HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n".encode()
    body = post + b"Content-Type: application/json\r\n"
    return {
        "nothing": b"",
        "a byte": b"G",
        "a line break": b"\r\n",
        "half a head": line + b"X-A: b",
        "a head without its end": line,
        "a body that never comes": body + b"Content-Length: 100\r\n\r\n",
        "half a body": body + b'Content-Length: 100\r\n\r\n{"job_ids":',
        "a chunk that never ends": body + b"Transfer-Encoding: chunked\r\n\r\n50\r\n{",
        "a second request that stalls": line + b"\r\n" + line,
    }


def test_slow_heads_and_bodies_are_cut_and_others_are_served_meanwhile(served: Served) -> None:
    said = heads(served)
    names = [*said] * (CLIENTS // len(said))
    slow: dict[socket.socket, str] = {}
    try:
        for name in names:
            connection = served.connect()
            connection.sendall(said[name])
            slow[connection] = name
        slow[trickling := served.connect()] = "a byte now and then"
        trickling.sendall(f"GET /healthz HTTP/1.1\r\nHost: {served.host}\r\nX-A: ".encode())
        while not select.select([trickling], [], [], 0.25)[0]:
            with suppress(OSError):
                trickling.sendall(b"a")  # A byte now and then does not keep a connection.
            assert served.get("/healthz", token=None).status == 200
        for connection, name in slow.items():
            answer = read_all(connection)
            assert b'"code": "REQUEST_TIMEOUT"' in answer, (name, answer[:200])
    finally:
        for connection in slow:
            connection.close()
