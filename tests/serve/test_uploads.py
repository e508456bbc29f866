"""Uploads: whole and in parts, checked while they are written, each workspace for itself."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detent.owner.home import Home
from detent.runs.erase import collect, erase
from detent.store.content import ContentFiles
from tests.serve.served import ANSWER_SECONDS, Reply, Served, play, read_all, serving, start

BYTES = {"Content-Type": "application/octet-stream"}
pytestmark = pytest.mark.door("route: /v1/uploads")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of these tests alone: they look at what uploads leave, and fuzzing begins many that it never ends."""
    with serving(play(tmp_path_factory.mktemp("uploads"))) as server:
        yield server


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def put(served: Served, data: bytes, digest: str | None = None, **headers: str) -> Reply:
    return served.ask("PUT", f"/v1/uploads/{digest or digest_of(data)}", body=data, headers={**BYTES, **headers})


def begin(served: Served, data: bytes, size: int | None = None) -> str:
    body = json.dumps({"digest": digest_of(data), "size_bytes": len(data) if size is None else size}).encode()
    reply = served.ask("POST", "/v1/uploads", body=body)
    assert reply.status == 201, reply.body
    assert reply.headers["location"] == f"/v1/uploads/{reply.json['upload_id']}"
    return str(reply.headers["location"])


def patch(served: Served, place: str, offset: int, data: bytes) -> Reply:
    headers = {"Content-Type": "application/partial-upload", "Upload-Offset": str(offset)}
    return served.ask("PATCH", place, body=data, headers=headers)


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stored(served: Served, data: bytes) -> bytes | None:
    """What the content store of the home holds under the digest of these bytes."""
    return ContentFiles(served.home / "content").get(hashlib.sha256(data).digest())


def left(served: Served) -> list[str]:
    """Files of uploads that are not finished."""
    return [path.name for path in (served.home / "uploads").iterdir() if not path.name.startswith("uploads.db")]


def test_bytes_are_stored_under_their_digest(served: Served) -> None:
    data = os.urandom(300_000)
    first = put(served, data)
    assert (first.status, first.json) == (201, {"digest": digest_of(data), "size_bytes": len(data)})
    assert stored(served, data) == data
    assert put(served, data).status == 200, "the workspace has it already"
    assert put(served, b"").json["size_bytes"] == 0
    assert left(served) == []


def test_bytes_with_another_digest_are_refused_and_leave_nothing(served: Served) -> None:
    data, other = os.urandom(100_000), b"announced"
    reply = put(served, data, digest_of(other))
    assert (reply.status, reply.code) == (422, "DIGEST_MISMATCH")
    assert stored(served, data) is None
    assert stored(served, other) is None
    assert left(served) == []


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("sha-256=:{right}:", None),
        ("SHA-256=:{right}:", "VALIDATION_ERROR"),
        ("sha-512=:AAAA:, sha-256=:{right}:", None),
        ("sha-512=:AAAA:", None),
        ("sha-256=:{wrong}:", "DIGEST_MISMATCH"),
        ("sha-256={right}", "VALIDATION_ERROR"),
        ("sha-256=:A:", "VALIDATION_ERROR"),
        ("sha-256=:AAAAA:", "VALIDATION_ERROR"),
        ("x", "VALIDATION_ERROR"),
        ("", "VALIDATION_ERROR"),
    ],
)
def test_a_content_digest_is_checked_where_it_is_sent(served: Served, header: str, code: str | None) -> None:
    data = f"of {header}".encode()
    right = base64.b64encode(hashlib.sha256(data).digest()).decode()
    wrong = base64.b64encode(bytes(32)).decode()
    reply = put(served, data, **{"Content-Digest": header.format(right=right, wrong=wrong)})
    assert (reply.status, None) == (201, code) if code is None else reply.code == code


@pytest.mark.parametrize(
    "name", ["sha256:", "sha256:" + "0" * 63, "sha256:" + "A" * 64, "sha512:" + "0" * 64, "up_" + "0" * 32, "..", "x"]
)
def test_a_name_that_is_not_a_digest_is_refused(served: Served, name: str) -> None:
    assert put(served, b"x", name).code == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    "headers",
    [{"Content-Type": "text/plain"}, {"Content-Type": "application/json"}, {**BYTES, "Content-Encoding": "gzip"}],
)
def test_bytes_that_would_have_to_be_unpacked_are_refused(served: Served, headers: dict[str, str]) -> None:
    reply = served.ask("PUT", f"/v1/uploads/{digest_of(b'x')}", body=b"x", headers=headers)
    assert reply.code == "UNSUPPORTED_MEDIA_TYPE"


def test_a_body_beyond_64_mib_is_refused_before_it_is_sent(served: Served) -> None:
    head = (
        f"PUT /v1/uploads/{digest_of(b'x')} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
    )
    with served.connect() as connection:
        connection.sendall((head + f"Content-Length: {64 * 1024 * 1024 + 1}\r\nExpect: 100-continue\r\n\r\n").encode())
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_caller_that_goes_away_in_the_middle_leaves_nothing(served: Served) -> None:
    data = os.urandom(1_000_000)
    head = (
        f"PUT /v1/uploads/{digest_of(data)} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
    )
    with served.connect() as connection:
        connection.sendall((head + f"Content-Length: {len(data)}\r\n\r\n").encode() + data[:700_000])
        connection.shutdown(socket.SHUT_RDWR)
    until(lambda: left(served) == [])
    assert stored(served, data) is None


def test_an_upload_in_parts_is_complete_when_it_has_its_size(served: Served) -> None:
    data = os.urandom(700_000)
    place = begin(served, data)
    assert patch(served, place, 0, data[:300_000]).json["offset"] == 300_000
    told = served.ask("HEAD", place)
    assert (told.status, told.headers["upload-offset"], told.headers["upload-length"]) == (200, "300000", "700000")
    for offset in (0, 299_999, 300_001, 700_000):
        assert patch(served, place, offset, b"x").code == "UPLOAD_OFFSET"
    assert patch(served, place, 300_000, data[300_000:] + b"x").code == "UPLOAD_OFFSET", "more than was announced"
    assert stored(served, data) is None
    last = patch(served, place, 300_000, data[300_000:])
    assert (last.status, last.json["complete"], last.json["offset"]) == (200, True, 700_000)
    assert stored(served, data) == data
    assert served.get(place).code == "NOT_FOUND"
    assert left(served) == []


def test_an_upload_in_parts_with_another_digest_is_given_up(served: Served) -> None:
    place = begin(served, b"announced", size=4)
    assert patch(served, place, 0, b"four").code == "DIGEST_MISMATCH"
    assert served.get(place).code == "NOT_FOUND"
    assert left(served) == []


def test_an_upload_is_given_up_on_request(served: Served) -> None:
    place = begin(served, b"never sent")
    assert served.ask("DELETE", place).status == 204
    assert served.ask("DELETE", place).code == "NOT_FOUND"
    assert left(served) == []


@pytest.mark.parametrize("offset", ["", "-1", "1.5", "0x10", "1e3", " ", "9" * 16, "a"])
def test_an_offset_that_is_not_a_number_is_refused(served: Served, offset: str) -> None:
    headers = {"Content-Type": "application/partial-upload", "Upload-Offset": offset}
    assert served.ask("PATCH", f"/v1/uploads/up_{'0' * 32}", body=b"", headers=headers).code == "VALIDATION_ERROR"


def test_a_killed_server_goes_on_where_the_upload_was(tmp_path: Path) -> None:
    played = play(tmp_path)
    data = os.urandom(2_000_000)
    environment = {**os.environ, **played.environment}
    served = start(played.home.path, environment)
    place = begin(served, data)
    head = (
        f"PATCH {place} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\nUpload-Offset: 0\r\n"
    )
    with served.connect() as connection:
        connection.sendall((head + f"Content-Length: {len(data)}\r\n\r\n").encode() + data[:1_200_000])
        until(lambda: int(served.ask("HEAD", place).headers["upload-offset"]) >= 1_000_000)
        served.kill()
    with serving(played) as again:
        offset = int(again.ask("HEAD", place).headers["upload-offset"])
        assert 1_000_000 <= offset <= 1_200_000
        assert patch(again, place, offset, data[offset:]).json["complete"] is True
        assert stored(again, data) == data


def test_a_key_has_eight_uploads_at_once(served: Served) -> None:
    data = os.urandom(100)
    head = (
        f"PUT /v1/uploads/{digest_of(data)} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
    )
    connections = [served.connect() for _ in range(8)]
    try:
        for connection in connections:
            connection.sendall((head + "Content-Length: 100\r\n\r\n").encode() + data[:50])
        until(lambda: len(left(served)) == 8)
        assert put(served, b"the ninth").code == "UPLOADS_FULL"
    finally:
        for connection in connections:
            connection.close()
    until(lambda: left(served) == [])
    assert put(served, b"the ninth").status == 201


def test_quotas_of_a_workspace_are_kept(tmp_path: Path) -> None:
    played = play(tmp_path)
    settings = played.home.path / "config.toml"
    written = settings.read_text().replace("[uploads]", "[uploads]\nstored_bytes_max = 1000\nday_count_max = 3")
    settings.write_text(written)
    with serving(played) as served:
        assert put(served, b"a" * 600).status == 201
        over = put(served, b"b" * 600)
        assert (over.status, over.code) == (429, "UPLOAD_QUOTA")
        assert (
            served.ask(
                "POST", "/v1/uploads", body=json.dumps({"digest": digest_of(b"x"), "size_bytes": 401}).encode()
            ).code
            == "UPLOAD_QUOTA"
        )
        assert [put(served, bytes([n])).status for n in range(3)] == [201, 201, 429]


def test_a_full_disk_leaves_no_half_upload(tmp_path: Path) -> None:
    """A limit on the size of files fails a write as a full disk does: in the middle."""
    played = play(tmp_path)
    environment = {**os.environ, **played.environment}
    served = start(played.home.path, environment)
    try:
        # What is on its way when the write fails is less than the server takes after its answer (`LINGER_BYTES_MAX`).
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (4_500_000, resource.RLIM_INFINITY))
        data = os.urandom(5_000_000)
        reply = put(served, data)
        assert (reply.status, reply.code) == (503, "STORE_UNAVAILABLE")
        assert left(served) == []
        place = begin(served, data)
        assert patch(served, place, 0, data[:1_000_000]).status == 200
        assert patch(served, place, 1_000_000, data[1_000_000:]).code == "STORE_UNAVAILABLE"
        assert served.json(place)["offset"] == 1_000_000, "the part that failed was taken back"
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert patch(served, place, 1_000_000, data[1_000_000:]).json["complete"] is True
        assert stored(served, data) == data
    finally:
        served.stop()


def test_garbage_collection_keeps_an_upload_for_a_day(tmp_path: Path) -> None:
    played = play(tmp_path)
    data = b"uploaded and not named yet" * 100
    with serving(played) as served:
        assert put(served, data).status == 201
    home = Home(played.home.path)
    assert collect(home, grace_ms=0).garbage == ()
    tomorrow = int(home.path.stat().st_mtime * 1_000) + 2 * 86_400_000
    assert [place for _, place in collect(home, grace_ms=0, now_ms=lambda: tomorrow).garbage] == ["file"]


def test_an_erasure_takes_an_upload_away_and_an_upload_after_it_stays(tmp_path: Path) -> None:
    played = play(tmp_path)
    data = b"erased and uploaded again" * 1_000
    digest = hashlib.sha256(data).digest()
    home = Home(played.home.path)
    with serving(played) as served:
        assert put(served, data).status == 201
    assert erase(home, [digest], environment=played.environment).erased == (digest,)
    with serving(played) as served:
        assert put(served, data).status == 201, "it had gone for the workspace, too"
    with serving(played) as served:
        assert stored(served, data) == data, "an owner that starts finishes old erasures and leaves newer uploads"
