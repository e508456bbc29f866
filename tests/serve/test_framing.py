"""Odd framing and request smuggling: what two readers could read in two ways is refused, and the connection ends."""

from __future__ import annotations

import pytest

from tests.serve.served import Served, read_all

HOST = b"Host: HOST\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
POST = b"POST /v1/jobs:read HTTP/1.1\r\n" + HOST + b"Authorization: Bearer TOKEN\r\nContent-Type: application/json\r\n"
BODY = b'{"job_ids":["a"]}'
SMUGGLED = b"GET /v1/version HTTP/1.1\r\n" + HOST + b"\r\n"

REFUSED: dict[str, bytes] = {
    # Two lengths, or a length and chunks.
    "length and chunks": POST + b"Content-Length: 17\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths that differ": POST + b"Content-Length: 17\r\nContent-Length: 3\r\n\r\n" + BODY + SMUGGLED,
    "two lengths alike": POST + b"Content-Length: 17\r\nContent-Length: 17\r\n\r\n" + BODY + SMUGGLED,
    "a list of lengths": POST + b"Content-Length: 17, 17\r\n\r\n" + BODY + SMUGGLED,
    "a length with a plus": POST + b"Content-Length: +17\r\n\r\n" + BODY + SMUGGLED,
    "a length with a minus": POST + b"Content-Length: -1\r\n\r\n" + BODY + SMUGGLED,
    "a length in hex": POST + b"Content-Length: 0x11\r\n\r\n" + BODY + SMUGGLED,
    "a length with a letter": POST + b"Content-Length: 17a\r\n\r\n" + BODY,
    "a length with a point": POST + b"Content-Length: 17.0\r\n\r\n" + BODY,
    "an empty length": POST + b"Content-Length: \r\n\r\n" + BODY,
    "a length with a space inside": POST + b"Content-Length: 1 7\r\n\r\n" + BODY,
    "a length beyond 64 bits": POST + b"Content-Length: 18446744073709551617\r\n\r\n" + BODY,
    "a length in other digits": POST + "Content-Length: \u0661\u0667\r\n\r\n".encode() + BODY,
    # Transfer codings.
    "an unknown coding": POST + b"Transfer-Encoding: gzip\r\n\r\n" + BODY,
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two fields of codings": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "chunked, then identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n" + BODY,
    "chunked with a parameter": POST + b"Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked in quotes": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n' + SMUGGLED,
    "chunks in HTTP/1.0": POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    # Chunks.
    "a chunk size that is no number": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n" + BODY,
    "a negative chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + BODY,
    "a chunk size with 0x": POST + b"Transfer-Encoding: chunked\r\n\r\n0x11\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": POST + b"Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n" + BODY,
    "a chunk longer than it says": POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk size with a space before it": POST
    + b"Transfer-Encoding: chunked\r\n\r\n 11\r\n"
    + BODY
    + b"\r\n0\r\n\r\n",
    "a chunk ended by LF alone": POST + b"Transfer-Encoding: chunked\r\n\r\n11\n" + BODY + b"\n0\n\n",
    # Line ends and spaces.
    "a space before the colon": GET + b"X-A : b\r\n\r\n",
    "a tab before the colon": GET + b"X-A\t: b\r\n\r\n",
    "a folded line": GET + b"X-A: b\r\n c\r\n\r\n",
    "a line that begins with a space": b"GET /healthz HTTP/1.1\r\n X-A: b\r\n" + HOST + b"\r\n",
    "a field without a colon": GET + b"X-A b\r\n\r\n",
    "a field without a name": GET + b": b\r\n\r\n",
    "a zero byte in a value": GET + b"X-A: a\0b\r\n\r\n",
    "a zero byte in a name": GET + b"X\0A: b\r\n\r\n",
    "CR alone in a value": GET + b"X-A: a\rX-B: b\r\n\r\n",
    "CR alone as line end": b"GET /healthz HTTP/1.1\r" + HOST + b"\r\n",
    "a control byte in a value": GET + b"X-A: a\x01b\r\n\r\n",
    "a name with a bracket": GET + b"X(A): b\r\n\r\n",
    # Request lines.
    "a tab after the method": b"GET\t/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "no version": b"GET /healthz\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /healthz HTTP/0.9\r\n" + HOST + b"\r\n",
    "HTTP/2.0": b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n",
    "HTTP/1.2": b"GET /healthz HTTP/1.2\r\n" + HOST + b"\r\n",
    "http in small letters": b"GET /healthz http/1.1\r\n" + HOST + b"\r\n",
    "an unknown method": b"FETCH /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method in small letters": b"get /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "no method": b" /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a byte before the method": b"\x00GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space inside the path": b"GET /heal thz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a zero byte in the path": b"GET /heal\0thz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a whole URL": b"GET http://HOST/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "an asterisk": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT HOST HTTP/1.1\r\n" + HOST + b"\r\n",
    "a preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "an SSH greeting": b"SSH-2.0-OpenSSH_9.6\r\n",
    # Hosts.
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": GET + HOST + b"\r\n",
}
OTHER: dict[str, tuple[bytes, bytes]] = {
    "a foreign host": (b"421", b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
    "another port": (b"421", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n"),
    "no port": (b"421", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
    "a host with a user": (b"421", b"GET /healthz HTTP/1.1\r\nHost: a@HOST\r\n\r\n"),
    "a host with a path": (b"421", b"GET /healthz HTTP/1.1\r\nHost: HOST/x\r\n\r\n"),
    "an empty host": (b"421", b"GET /healthz HTTP/1.1\r\nHost: \r\n\r\n"),
    "a head of 40 KiB": (b"431", GET + b"X-A: " + b"a" * 40_960 + b"\r\n\r\n"),
    "a head of 3 MB": (b"431", GET + b"".join(b"X-%d: " % n + b"a" * 1_000 + b"\r\n" for n in range(3_000)) + b"\r\n"),
    "101 fields": (b"431", GET + b"".join(b"X-%d: a\r\n" % n for n in range(101)) + b"\r\n"),
    "a field without an end": (b"431", GET + b"X-A: " + b"a" * 200_000),
    "a path of 40 KiB": (b"431", b"GET /" + b"a" * 40_960 + b" HTTP/1.1\r\n" + HOST + b"\r\n"),
    "line breaks for ever": (b"431", b"\r\n" * 40_000),
    "an encoded slash": (b"404", b"GET /v1%2Fversion HTTP/1.1\r\n" + HOST + b"\r\n"),
    "an encoded zero": (b"404", b"GET /healthz%00 HTTP/1.1\r\n" + HOST + b"\r\n"),
    "dots": (b"404", b"GET /v1/../healthz HTTP/1.1\r\n" + HOST + b"\r\n"),
    "two slashes": (b"404", b"GET //healthz HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a slash at the end": (b"404", b"GET /healthz/ HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a body with GET": (b"413", GET + b"Content-Length: 5\r\n\r\nhello"),
    "chunks with GET": (b"413", GET + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
}


def sent(served: Served, data: bytes) -> bytes:
    return data.replace(b"HOST", served.host.encode()).replace(b"TOKEN", served.token.encode())


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_be_read_in_two_ways_is_refused_and_the_connection_ends(served: Served, name: str) -> None:
    answer = served.raw(sent(served, REFUSED[name]))
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:300]
    assert answer.count(b"HTTP/1.1 ") == 1, "nothing that follows is read as a request"
    assert b'"code": "REQUEST_INVALID"' in answer
    assert b"connection: close" in answer


@pytest.mark.parametrize("name", OTHER)
def test_what_is_well_formed_and_not_for_this_server_gets_a_problem_of_its_own(served: Served, name: str) -> None:
    status, data = OTHER[name]
    answer = served.raw(sent(served, data.replace(b" HTTP/1.1\r\n", b" HTTP/1.1\r\nConnection: close\r\n", 1)))
    assert answer.startswith(b"HTTP/1.1 " + status), answer[:300]
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"application/problem+json" in answer


def test_requests_that_follow_each_other_on_a_connection_are_each_answered(served: Served) -> None:
    answer = served.raw(sent(served, (GET + b"\r\n") * 4 + GET + b"Connection: close\r\n\r\n"))
    assert answer.count(b"HTTP/1.1 200 ") == 5


def test_more_requests_without_waiting_than_are_kept_end_the_connection(served: Served) -> None:
    answer = served.raw(sent(served, (GET + b"\r\n") * 500))
    assert 0 < answer.count(b"HTTP/1.1 200 ") < 500


def test_a_large_head_that_arrives_in_pieces_is_read_like_one_that_arrives_at_once(served: Served) -> None:
    """Its bytes count once, and the bytes of the request before it do not."""
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 2_000) for number in range(14))
    filler = BODY + b" " * 20_000
    with served.connect() as connection:
        connection.sendall(sent(served, POST + b"Content-Length: %d\r\n\r\n" % len(filler) + filler))
        assert connection.recv(12) == b"HTTP/1.1 200"
        for piece in (GET, fields[:10_000], fields[10_000:20_000], fields[20_000:], b"Connection: close\r\n\r\n"):
            connection.sendall(sent(served, piece))
        assert b"HTTP/1.1 200" in read_all(connection)


def test_a_head_of_more_than_32_kib_in_pieces_is_refused(served: Served) -> None:
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 2_000) for number in range(17))
    with served.connect() as connection:
        for piece in (GET, fields[:17_000], fields[17_000:]):
            connection.sendall(sent(served, piece))
        assert read_all(connection).startswith(b"HTTP/1.1 431")


def test_an_answer_is_written_whole_with_its_length_and_its_moment(served: Served) -> None:
    said = served.raw(sent(served, GET + b"Connection: close\r\n\r\n"))
    head, _, body = said.partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
    assert (int(fields[b"content-length"]), fields[b"connection"]) == (len(body), b"close")
    assert fields[b"date"].endswith(b" gmt")
    assert b"transfer-encoding" not in fields


def test_a_caller_that_waits_for_leave_to_send_its_body_gets_it(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(sent(served, POST + b"Expect: 100-continue\r\nContent-Length: 17\r\n\r\n"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_an_upgrade_is_not_taken_and_nothing_behind_it_is_read(served: Served) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    answer = served.raw(sent(served, GET + upgrade + SMUGGLED))
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_the_server_still_answers_after_all_of_it(served: Served) -> None:
    assert served.get("/healthz", token=None).json == {"status": "ok"}
