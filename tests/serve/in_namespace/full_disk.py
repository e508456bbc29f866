"""The disk of a server is full: run by `test_full_disk.py` inside a mount namespace of its own.

The home lies on a small file system in memory, which is made smaller while the server runs: as if another program had filled it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from detent.inspect.audit import verify_home
from detent.owner.wiring import Parts
from tests.faults.disk import room_left, small_disk
from tests.serve.elsewhere import ended, remote_worker, task
from tests.serve.laboured import TASKS, Laboured, eventually, project
from tests.serve.served import ANSWER_SECONDS, Reply, Served, begun, read_all, start
from tests.serve.test_driven_runs import TWO
from tests.serve.test_uploads import BYTES, begin, digest_of, left, patch, put, stored

DISK_BYTES = 400 << 20
LITTLE_BYTES = 1 << 20
MS_REMOUNT = 32


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_disk(tmp_path_factory.mktemp("mounted") / "disk", DISK_BYTES) as path:
        yield path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where jobs write: elsewhere."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def laboured(disk: Path) -> Laboured:
    return project(disk)


@pytest.fixture(scope="module")
def environment(laboured: Laboured, place: Path) -> dict[str, str]:
    return {**laboured.environment, "XDG_STATE_HOME": str(place / "state")}


@pytest.fixture(scope="module")
def served(laboured: Laboured, environment: dict[str, str]) -> Iterator[Served]:
    server = start(laboured.home.path, environment, "--project", str(laboured.directory), "--workers", "1")
    yield server
    if server.process.poll() is None:
        assert server.stop() == 0


@contextmanager
def full(disk: Path, room: int = 0) -> Iterator[None]:
    """The disk has so little room for as long as the block lasts."""

    def filled() -> bool:
        facts = os.statvfs(disk)
        # No disk gets smaller than what is on it, and more may have been written just now.
        return resized(disk, (facts.f_blocks - facts.f_bfree) * facts.f_frsize + room)

    eventually(filled, "the disk is as small as what is on it")
    try:
        assert room_left(disk) <= room
        yield
    finally:
        assert resized(disk, DISK_BYTES)


def resized(disk: Path, size_bytes: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    said = f"size={size_bytes}".encode()
    if libc.mount(b"disk", os.fsencode(disk), b"tmpfs", MS_REMOUNT, said) == 0:
        return True
    assert ctypes.get_errno() == errno.EINVAL, os.strerror(ctypes.get_errno())
    return False


def post(served: Served, path: str, document: object, **headers: str) -> Reply:
    return served.ask("POST", path, body=json.dumps(document).encode(), headers=headers)


def refused(reply: Reply, code: str = "STORE_UNAVAILABLE") -> None:
    """An answer that says that the disk is full, what to do, and when to come back."""
    assert (reply.status, reply.code) == (503, code), reply.body
    assert "disk" in reply.json["detail"]
    assert reply.json["retryable"]
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert "space" in reply.json["hint"] or "detent gc" in reply.json["hint"]


def note(place: Path, word: str, **more: object) -> dict[str, Any]:
    return {"task": {"target": "tasks:note", "arguments": [word, str(place)], **more}}


def lines(place: Path, name: str) -> list[str]:
    path = place / name
    return sorted(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else []


def test_a_full_disk_refuses_what_writes_and_loses_nothing(
    served: Served, laboured: Laboured, disk: Path, place: Path, tmp_path: Path
) -> None:
    """X-173: reads go on, finished work waits where it was done, and the server goes on by itself when there is room."""
    (tmp_path / "tasks.py").write_text(TASKS)
    run_id = post(served, "/v1/runs", {"contract": TWO, "params": {"place": str(place)}}).json["run_id"]
    eventually(lambda: lines(place, "begun.txt") == ["first"], "the server's own worker is busy")
    with remote_worker(served, tmp_path, "--slots", "1") as worker:
        far = task(served, "tasks:wait", "far", str(place))
        eventually(lambda: lines(place, "begun.txt") == ["far", "first"], "both jobs run")
        accepted = {one["job_id"] for one in served.json("/v1/jobs")["items"]}
        with full(disk):
            refused(served.get("/readyz"), "NOT_READY")
            refused(post(served, "/v1/jobs", note(place, "new"), **{"Idempotency-Key": "once"}))
            large = note(place, "x" * 300_000)
            refused(post(served, "/v1/jobs", large))
            refused(post(served, "/v1/jobs:batch", {"items": [note(place, "a"), note(place, "b")]}))
            refused(post(served, f"/v1/jobs/{far}/cancel", {}))
            refused(post(served, "/v1/runs", {"contract": TWO, "params": {"place": str(place)}}))
            refused(put(served, b"bytes"))
            refused(post(served, "/v1/uploads", {"digest": digest_of(b"bytes"), "size_bytes": 5}))
            (place / "go").touch()
            eventually(lambda: lines(place, "done.txt") == ["far", "first"], "both jobs have ended in their processes")
            for path in ("/healthz", "/v1/jobs", f"/v1/jobs/{far}", f"/v1/jobs/{far}/logs", f"/v1/runs/{run_id}"):
                assert served.get(path).status == 200, path
            assert served.json(f"/v1/jobs/{far}")["status"] == "running", "it is not on the ledger"
            assert {one["job_id"] for one in served.json("/v1/jobs")["items"]} == accepted
        eventually(lambda: served.get("/readyz").status == 200, "the server is ready again")
        done = ended(served, far)
        assert (done["status"], done["attempts"], done["interruptions"]) == ("succeeded", 1, 0)
        assert served.json(f"/v1/runs/{run_id}?wait=60")["status"] == "succeeded"
        assert lines(place, "done.txt") == ["far", "first", "second"], "each was done once"
        answers = [post(served, "/v1/jobs", note(place, "new"), **{"Idempotency-Key": "once"}) for _ in range(2)]
        assert answers[0].status == 202
        assert answers[0].body == answers[1].body
        assert ended(served, answers[0].json["job_id"])["status"] == "succeeded"
        assert worker.end() == 0
    assert served.process.poll() is None, "it is the same server"


def test_an_upload_that_meets_a_full_disk_leaves_nothing(served: Served, disk: Path) -> None:
    whole, parts = os.urandom(4 << 20), os.urandom(2 << 20)
    before = left(served)
    parted = begin(served, parts)
    assert patch(served, parted, 0, parts[:1000]).status == 200
    head = f"PUT /v1/uploads/{digest_of(whole)} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
    head += f"Content-Type: {BYTES['Content-Type']}\r\nContent-Length: {len(whole)}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), ANSWER_SECONDS) as connection:
        connection.sendall(head.encode() + whole[: 2 << 20])
        eventually(lambda: len(left(served)) > len(before) + 1, "the body is being written")
        with full(disk):
            with suppress(OSError):  # It may answer and close before everything was sent.
                connection.sendall(whole[2 << 20 :])
            assert read_all(connection).startswith(b"HTTP/1.1 503")
            refused(patch(served, parted, 1000, parts[1000:]))
            assert served.ask("HEAD", parted).headers["upload-offset"] == "1000"
            assert stored(served, whole) is None
    assert len(left(served)) == len(before) + 1
    assert put(served, whole).status == 201
    assert patch(served, parted, 1000, parts[1000:]).json["complete"]
    assert (stored(served, whole), stored(served, parts)) == (whole, parts)
    assert left(served) == before


def test_a_server_does_not_start_on_a_full_disk_and_writes_nothing(
    served: Served, laboured: Laboured, environment: dict[str, str], disk: Path
) -> None:
    assert served.stop() == 0

    def size() -> int:
        with Parts().open_reader(laboured.home.ledger) as reader:
            return reader.head(0).size

    before = size()
    for room in (0, LITTLE_BYTES):
        with full(disk, room):
            process = begun(laboured.home.path, environment)
            assert process.wait(ANSWER_SECONDS) == 4
            assert "the disk of the home is full" in process.communicate()[1]
    assert size() == before
    again = start(laboured.home.path, environment)
    assert again.get("/readyz").status == 200
    assert again.stop() == 0
    assert verify_home(laboured.home, environment=environment).ok
