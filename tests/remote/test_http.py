"""Requests of clients: what is kept, repeated, bounded and refused, with a real server and a proxy that fails."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from detent.access.tokens import API_KEY, ID_BYTES, SECRET_BYTES, make_token
from detent.errors import EXIT_REFUSED, EXIT_UNAVAILABLE, DetentError, InvalidInput, RequestRefused, registered
from detent.remote.address import address_of, parse_address
from detent.remote.problems import AnswerInvalid, ServerUnreachable, error_from
from tests.remote.conftest import HERE, Connected, client
from tests.serve.served import play, serving
from tests.serve.toxic import Fault

PIN = "sha256:08c20de1763113e6e4904d4aebd36f541f0f6755a081de2d786bded778a104a2"
"""Of tests/remote/server.pem: openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | sha256sum."""
KEY = "dtk_" + "a" * 12 + "_" + "0" * 49


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """Something that is not our server: gives each connection the next answer as it is, then closes it."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):  # It is closed while it waits for a request that is not made.
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


def test_one_connection_serves_many_requests(connected: Connected) -> None:
    http, before = connected.http(), connected.proxy.accepted
    for _ in range(5):
        assert http.get("/v1/version")["api"] == "v1"
    assert connected.proxy.accepted == before + 1


def test_a_connection_that_the_server_closed_is_replaced_once(connected: Connected) -> None:
    http = connected.http()
    http.get("/v1/version")
    connected.proxy.cut_all()
    time.sleep(0.1)
    assert http.get("/v1/version")["name"] == "detent"


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.RESET, Fault.CUT])
def test_a_lost_answer_is_asked_for_again_within_patience(connected: Connected, fault: Fault) -> None:
    failed = connected.proxy.failed
    connected.proxy.fail(fault, 3)
    assert connected.http(patience=30).get("/v1/counts") == connected.served.json("/v1/counts")
    assert connected.proxy.failed == failed + 3


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.RESET, Fault.CUT])
def test_without_patience_a_lost_answer_is_an_error_that_says_so(connected: Connected, fault: Fault) -> None:
    connected.proxy.fail(fault, None)
    with pytest.raises(ServerUnreachable, match="no answer from http://127") as caught:
        connected.http().get("/v1/counts")
    assert (caught.value.retryable, registered(caught.value.code).exit_code) == (True, EXIT_UNAVAILABLE)


def test_an_answer_that_never_comes_ends_at_the_deadline(connected: Connected) -> None:
    connected.proxy.fail(Fault.STALL)
    with pytest.raises(ServerUnreachable, match="timed out"):
        connected.http().get("/v1/counts", seconds=0.5)


def test_an_answer_that_comes_twice_is_not_that_of_the_next_request(connected: Connected) -> None:
    http = connected.http()
    version = http.get("/v1/version")
    for _ in range(3):
        connected.proxy.fail(Fault.DUPLICATE)
        assert http.get("/v1/version") == version
        time.sleep(
            5 * connected.proxy.again_seconds
        )  # The second one lies on the connection when the next request takes it up.
        assert http.get("/v1/counts") == connected.served.json("/v1/counts")


def test_an_answer_that_comes_again_behind_the_next_request_is_not_that_ones(connected: Connected) -> None:
    http = connected.http()
    version = http.get("/v1/version")
    connected.proxy.again_seconds = 0.5  # The next request is sent long before the second one comes.
    for _ in range(3):
        connected.proxy.fail(Fault.DUPLICATE)
        assert http.get("/v1/version") == version
        assert http.get("/v1/counts") == connected.served.json("/v1/counts")


@pytest.mark.parametrize("fault", [Fault.DELAY, Fault.BUFFER])
def test_late_answers_are_answers(connected: Connected, fault: Fault) -> None:
    connected.proxy.fail(fault)
    assert connected.http().get("/v1/counts") == connected.served.json("/v1/counts")


def test_patience_outlasts_a_server_that_starts_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

    def later() -> None:
        time.sleep(0.5)
        with socket.create_server(("127.0.0.1", port)) as listening:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(body)

    thread = threading.Thread(target=later)
    thread.start()
    assert client(f"http://127.0.0.1:{port}", patience=60).get("/") == {}
    thread.join()


def test_a_post_carries_the_same_key_each_time() -> None:
    seen: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for place in range(2):
            connection, _ = listening.accept()
            with connection:
                seen.append(connection.recv(65536))
                if place:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    client(f"http://127.0.0.1:{listening.getsockname()[1]}", patience=30).post("/v1/jobs", {"a": 1})
    thread.join()
    listening.close()
    keys = [line for one in seen for line in one.split(b"\r\n") if line.lower().startswith(b"idempotency-key:")]
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    problem = json.dumps({"code": "QUEUE_FULL", "detail": "no room", "status": 429, "retryable": True}).encode()
    busy = b"HTTP/1.1 429 x\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%s" % (len(problem), problem)
    with answering(busy, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as url:
        assert client(url, patience=30).get("/") == {}
    with answering(busy) as url, pytest.raises(RequestRefused, match="no room") as caught:
        client(url).get("/")
    assert (caught.value.code, registered("QUEUE_FULL").exit_code) == ("QUEUE_FULL", EXIT_REFUSED)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", AnswerInvalid, "not JSON"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", AnswerInvalid, "elsewhere"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope", AnswerInvalid, "status 404"),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 4\r\n\r\nnope", ServerUnreachable, "502"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ServerUnreachable, "no answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{}", ServerUnreachable, "2 of 900"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", ServerUnreachable, "no answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", ServerUnreachable, "headers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b" " * 5000, AnswerInvalid, "larger than 4,096"),
    ],
)
def test_what_is_not_an_answer_is_told(answer: bytes, kind: type[DetentError], said: str) -> None:
    with answering(answer, answer) as url, pytest.raises(kind, match=said):
        client(url).get("/v1/version", bytes_max=4_096)


def test_a_problem_becomes_the_error_of_a_local_call(connected: Connected) -> None:
    with pytest.raises(InvalidInput, match="no such job") as caught:
        connected.http().get("/v1/jobs/none")
    assert caught.value.code == "UNKNOWN_JOB"
    assert str(caught.value.details["request_id"]).startswith("req_")
    with pytest.raises(RequestRefused) as refused:
        client(connected.proxy.url).get("/v1/jobs")
    assert (refused.value.code, "DETENT_KEY" in str(refused.value.hint)) == ("UNAUTHENTICATED", True)


def test_a_code_of_a_newer_server_is_told_by_its_status() -> None:
    error = error_from(429, {"code": "TOO_MANY_MOONS", "detail": "wait for fewer", "retryable": True}, "http://x")
    assert (error.code, str(error), error.retryable) == ("RATE_LIMITED", "wait for fewer (TOO_MANY_MOONS)", True)
    assert error_from(500, {"code": "ODD", "detail": "x"}, "http://x").code == "ANSWER_INVALID"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("ftp://127.0.0.1", "INVALID_PARAMS"),
        ("127.0.0.1:7733", "INVALID_PARAMS"),
        ("http://", "INVALID_PARAMS"),
        ("http://127.0.0.1:99999", "INVALID_PARAMS"),
        ("http://127.0.0.1/?a=b", "INVALID_PARAMS"),
        ("http://user:secret@127.0.0.1", "INVALID_PARAMS"),
        ("http://127.0.0.1/a b", "INVALID_PARAMS"),
        ("http://" + "a" * 3000, "INVALID_PARAMS"),
        ("http://jobs.example.org", "ADDRESS_EXPOSED"),
        ("http://10.0.0.7:7733", "ADDRESS_EXPOSED"),
        ("http://127.0.0.1.example.org", "ADDRESS_EXPOSED"),
        ("http://[2001:db8::1]:7733", "ADDRESS_EXPOSED"),
    ],
)
def test_addresses_that_cannot_or_must_not_be_used_are_refused(url: str, code: str) -> None:
    with pytest.raises(DetentError) as caught:
        parse_address(url)
    assert caught.value.code == code
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_what_is_this_machine_needs_no_tls() -> None:
    for host in ("127.0.0.1", "localhost", "[::1]", "127.8.8.8"):
        assert parse_address(f"http://{host}:7733/team/").url == f"http://{host}:7733/team"


def test_the_address_comes_from_the_option_before_the_environment(connected: Connected) -> None:
    key = connected.served.token
    kept = {"DETENT_URL": "https://a.example.org", "DETENT_KEY": key}
    found, chosen = address_of(kept), address_of(kept, "https://b.example.org:8443")
    assert (found and found.url, chosen and chosen.url, address_of({})) == (
        "https://a.example.org",
        "https://b.example.org:8443",
        None,
    )
    assert key not in repr(found)
    with pytest.raises(InvalidInput, match="checksum") as caught:
        address_of({**kept, "DETENT_KEY": KEY})
    assert KEY not in str(caught.value)


def test_a_pin_decides_who_the_server_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    played = play(tmp_path_factory.mktemp("pinned"))
    files = ("--tls-cert", str(HERE / "server.pem"), "--tls-key", str(HERE / "server.key"))
    with serving(played, *files) as served:
        url = served.told["url"]
        assert client(url, pin=PIN).get("/v1/version")["api"] == "v1"
        with pytest.raises(RequestRefused, match="another public key") as caught:
            client(url, pin="sha256:" + "0" * 64).get("/v1/version")
        assert caught.value.code == "SERVER_UNTRUSTED"
        with pytest.raises(RequestRefused, match="certificate") as unknown:
            client(url).get("/v1/version")
        assert (unknown.value.code, "--pin" in str(unknown.value.hint)) == ("SERVER_UNTRUSTED", True)
    for pin in ("sha256:00", "00" * 32, "sha256:" + "Z" * 64):
        with pytest.raises(InvalidInput, match="not a pin"):
            parse_address(url, pin=pin)


def test_a_stream_is_read_line_by_line_and_ends_with_its_connection(connected: Connected) -> None:
    http = connected.http()
    with http.opened("/v1/events", query={"topics": "jobs"}) as answer:
        assert next(line for line in answer.lines() if line.startswith(b"event: ")) == b"event: hello"
    with pytest.raises(InvalidInput, match="topics"), http.opened("/v1/events", query={"topics": "nonsense"}):
        pass


def test_a_wrong_address_or_key_is_told_with_what_to_do(connected: Connected) -> None:
    url, key = connected.served.told["url"], connected.served.token
    told = {}
    for name, address, shown in (
        ("tls", url.replace("http:", "https:"), key),
        ("path", f"{url}/nope", key),
        ("no key", url, None),
        ("other key", url, make_token(API_KEY, bytes(ID_BYTES + SECRET_BYTES)).text),
    ):
        with pytest.raises(DetentError) as caught:
            client(address, key=shown).get("/v1/me")
        told[name] = (caught.value.code, str(caught.value), str(caught.value.hint))
    assert told["tls"][:2] == ("ANSWER_INVALID", f"{url.replace('http:', 'https:')} does not speak TLS")
    assert told["path"][:2] == ("ANSWER_INVALID", f"there is no Detent server at {url}/nope")
    assert told["no key"][2].startswith("set DETENT_KEY to a key of this server")
    assert told["other key"][2].startswith("the key in DETENT_KEY has expired, was revoked or is of another server")
