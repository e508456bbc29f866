"""Bodies that are not what a route takes: refused in bounded time and memory, each with a problem that says what to mend."""

from __future__ import annotations

import json
import socket
import time
from itertools import product

import pytest

from tests.serve.served import Served, read_all

ROUTE = "/v1/jobs:read"
GOOD = b'{"job_ids":["a"]}'

NOT_JSON: dict[str, bytes] = {
    "nothing": b"",
    "a space": b" ",
    "a BOM": b"\xef\xbb\xbf" + GOOD,
    "UTF-16": GOOD.decode().encode("utf-16"),
    "UTF-32": GOOD.decode().encode("utf-32"),
    "a lone continuation byte": b'{"job_ids":["\x80"]}',
    "an overlong slash": b'{"job_ids":["\xc0\xaf"]}',
    "an encoded surrogate": b'{"job_ids":["\xed\xa0\x80"]}',
    "a lone surrogate": b'{"job_ids":["\\ud800"]}',
    "two documents": GOOD + GOOD,
    "something behind it": GOOD + b"x",
    "a zero byte behind it": GOOD + b"\0",
    "a comma at the end of a list": b'{"job_ids":["a",]}',
    "a comma at the end of an object": b'{"job_ids":["a"],}',
    "single quotes": b"{'job_ids':['a']}",
    "a name without quotes": b'{job_ids:["a"]}',
    "a comment": b'{"job_ids":["a"]/* c */}',
    "a line comment": b'// c\n{"job_ids":["a"]}',
    "no end": b'{"job_ids":["a"',
    "no end of a text": b'{"job_ids":["a',
    "a control byte in a text": b'{"job_ids":["a\x01"]}',
    "a line break in a text": b'{"job_ids":["a\n"]}',
    "an unknown escape": b'{"job_ids":["\\x41"]}',
    "a cut escape": b'{"job_ids":["\\u00"]}',
    "NaN": b'{"job_ids":[NaN]}',
    "Infinity": b'{"job_ids":[Infinity]}',
    "minus Infinity": b'{"job_ids":[-Infinity]}',
    "a number beyond every float": b'{"job_ids":[1e999]}',
    "a number with a zero before it": b'{"job_ids":[01]}',
    "a number with a plus": b'{"job_ids":[+1]}',
    "a number without a whole part": b'{"job_ids":[.5]}',
    "a number in hex": b'{"job_ids":[0x10]}',
    "an integer of 5,000 digits": b'{"job_ids":[' + b"9" * 5_000 + b"]}",
    "True": b'{"job_ids":True}',
    "None": b'{"job_ids":None}',
    "undefined": b'{"job_ids":undefined}',
    "a name twice": b'{"job_ids":["a"],"job_ids":["b"]}',
    "a name twice, once escaped": b'{"job_ids":["a"],"job\\u005fids":["b"]}',
    "a name twice inside": b'{"job_ids":["a"],"x":{"y":1,"y":2}}',
    "XML": b"<job_ids><a/></job_ids>",
    "YAML": b"job_ids: [a]",
    "a form": b"job_ids=a",
    "CBOR": b"\xa1gjob_ids\x81aa",
    "pickle": b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00}\x94.",
    **{f"{depth} lists": b"[" * depth + b"]" * depth for depth in (33, 64, 65, 100, 1_000, 30_000, 100_000)},
    **{f"{depth} objects": b'{"a":' * depth + b"1" + b"}" * depth for depth in (33, 64, 65, 1_000, 20_000)},
    **{f"{depth} open lists": b"[" * depth for depth in (33, 1_000, 200_000)},
}
VALUES: dict[str, object] = {
    "null": None,
    "true": True,
    "a number": 5,
    "a float": 1.5,
    "a text": "a",
    "an empty list": [],
    "a list of numbers": [1, 2],
    "a list of lists": [["a"]],
    "a list of null": [None],
    "a list of objects": [{}],
    "an object": {"a": "b"},
    "an empty id": [""],
    "an id with a space": ["a b"],
    "an id with a line break": ["a\n"],
    "an id with a zero": ["a\0"],
    "an id with a percent": ["a%2e"],
    "an id of 201 characters": ["a" * 201],
    "an id in other letters": ["\u0430"],
    "an id of markup": ["<script>"],
    "an id of a path on Windows": ["..\\..\\passwd"],
    "an id of SQL": ["' OR 1=1 --"],
    "501 ids": ["a"] * 501,
    "5,000 ids": ["a"] * 5_000,
}
NAMES = (
    "ids",
    "id",
    "tenant_id",
    "workspace_id",
    "workspace",
    "__proto__",
    "job_id",
    "limit",
    "JOB_IDS",
    "job_ids ",
    "",
)
MORE: dict[str, object] = {
    **{f"job_ids: {name}": {"job_ids": value} for name, value in VALUES.items()},
    **{
        f"beside it {name!r}: {value!r}": {"job_ids": ["a"], name: value}
        for name, value in product(NAMES, ("b", None, 5))
    },
    **{f"at the top: {name}": value for name, value in VALUES.items()},
}
TYPES = (
    *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/cbor"),
    *("application/json; charset=utf-16", "application/json; charset=latin-1", "application/json; x=y", "json"),
    *("application/jsonp", "application/problem+json", "application/json, text/plain", "*/*", "/", "", "text/html"),
)


def test_the_corpus_is_large_enough() -> None:
    assert len(NOT_JSON) + len(MORE) + len(TYPES) >= 150


@pytest.mark.parametrize("name", NOT_JSON)
def test_a_body_that_is_not_strict_json_is_refused(served: Served, name: str) -> None:
    reply = served.ask("POST", ROUTE, body=NOT_JSON[name])
    assert (reply.status, reply.code) == (400, "NOT_STRICT_JSON")


@pytest.mark.parametrize("name", MORE)
def test_a_body_that_does_not_fit_is_refused_with_the_place(served: Served, name: str) -> None:
    reply = served.ask("POST", ROUTE, body=json.dumps(MORE[name]).encode())
    assert (reply.status, reply.code) == (400, "VALIDATION_ERROR")
    errors = reply.json["errors"]
    assert 1 <= len(errors) <= 50
    assert all(error["path"].startswith("body") for error in errors)
    assert len(reply.body) < 20_000, "the answer does not repeat what was sent"


@pytest.mark.parametrize("media_type", TYPES)
def test_a_body_of_another_media_type_is_refused(served: Served, media_type: str) -> None:
    reply = served.ask("POST", ROUTE, body=GOOD, headers={"Content-Type": media_type})
    assert (reply.status, reply.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "media_type", ["application/json", "application/json; charset=utf-8", 'APPLICATION/JSON;charset="UTF-8"']
)
def test_a_body_of_json_in_utf_8_is_taken(served: Served, media_type: str) -> None:
    reply = served.ask("POST", ROUTE, body=GOOD, headers={"Content-Type": media_type})
    assert (reply.status, reply.json) == (200, {"items": []})


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(served: Served) -> None:
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
    rest = "Content-Type: application/json\r\nContent-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n"
    with served.connect() as connection:
        connection.sendall((head + rest).encode())
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer


def test_chunks_without_end_are_refused_at_the_limit(served: Served) -> None:
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
    with served.connect() as connection:
        connection.sendall((head + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n").encode())
        chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
        sent = 0
        try:
            while sent < 1_000:
                connection.sendall(chunk)
                sent += 1
        except OSError:
            pass
        answer = read_all(connection)
    assert sent < 1_000 or answer.startswith(b"HTTP/1.1 413 ")
    assert answer.startswith((b"HTTP/1.1 413 ", b"")), answer[:200]


def test_a_body_without_a_credential_is_not_read(served: Served) -> None:
    reply = served.ask("POST", ROUTE, body=b"{" * 100, token=None)
    assert (reply.status, reply.code) == (401, "UNAUTHENTICATED")


def test_a_caller_that_goes_away_in_the_middle_of_its_body_harms_nothing(served: Served) -> None:
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
    with served.connect() as connection:
        connection.sendall((head + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{").encode())
        connection.shutdown(socket.SHUT_RDWR)
    assert served.get("/healthz", token=None).status == 200


def test_a_request_that_is_refused_before_its_body_came_leaves_the_connection_usable(served: Served) -> None:
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: {served.host}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
    )
    with served.connect() as connection:
        connection.sendall(head.encode())
        time.sleep(0.1)  # The refusal is decided by now; what is sent next is the rest of that request.
        connection.sendall(b"{}")
        with connection.makefile("rb") as answers:
            assert answers.readline().split()[1] == b"401"
            fields = dict(line.strip().lower().split(b":", 1) for line in iter(answers.readline, b"\r\n"))
            answers.read(int(fields[b"content-length"]))
            connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: {served.host}\r\n\r\n".encode())
            assert answers.readline().split()[1] == b"200"
