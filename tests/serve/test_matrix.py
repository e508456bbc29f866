"""Every credential against every route (3.8): who is answered, who is refused, and that foreign and absent cannot be told apart."""

from __future__ import annotations

import hashlib
import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from detent.access.cursor import write_cursor
from detent.canon import encode
from detent.serve.login import make_login
from tests.serve.matrix import (
    Case,
    browser_cases,
    credential_cases,
    missing_rows,
    naming_cases,
    scope_cases,
    twin_cases,
)
from tests.serve.served import ANSWER_SECONDS, Reply, Served
from tests.serve.shared import OTHER, OWN, Shared

pytestmark = pytest.mark.door("route: every one in the table")
CASES_MIN = 2_000
SKIPPED_HEADERS = {"date", "detent-request-id"}


class Line:
    """One connection that is kept alive."""

    def __init__(self, served: Served) -> None:
        self._connection = HTTPConnection("127.0.0.1", served.port, timeout=ANSWER_SECONDS)
        self._last = "nothing"

    def ask(self, case: Case) -> Reply:
        data = None if case.body is None else json.dumps(case.body).encode()
        headers = dict(case.headers) if data is None else {"Content-Type": "application/json", **case.headers}
        try:
            self._connection.request(case.method, case.path, body=data, headers=headers)
            answer = self._connection.getresponse()
        except HTTPException as exc:
            raise AssertionError(f"{case} was not answered, behind {self._last}") from exc
        self._last = f"{case.name} {answer.status}"
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def line(shared: Shared) -> Iterator[Line]:
    found = Line(shared.served)
    yield found
    found.close()


@pytest.fixture(scope="module")
def browser(shared: Shared) -> tuple[str, str]:
    """The cookie and the token of a session that a login link began."""
    link = make_login(shared.served.home, now_ms=time.time_ns() // 1_000_000)  # The server's own may be too old by now.
    reply = shared.served.ask("POST", "/v1/login", body=json.dumps({"token": link.text}).encode(), token=None)
    assert reply.status == 201, reply.body
    return reply.headers["set-cookie"].partition(";")[0], reply.json["csrf"]


@pytest.fixture(scope="module")
def fill(shared: Shared) -> dict[str, str]:
    """The names of things in `demo` that are only known now."""
    served = shared.served
    body = json.dumps({"role": "viewer"}).encode()
    assert served.ask("PUT", "/v1/members/p_member", body=body, headers={"Detent-Workspace": OWN}).status == 200
    data = b"only demo has this"
    upload = f"sha256:{hashlib.sha256(data).hexdigest()}"
    stored = served.ask(
        "PUT",
        f"/v1/uploads/{upload}",
        body=data,
        headers={"Detent-Workspace": OWN, "Content-Type": "application/octet-stream"},
    )
    assert stored.status in {200, 201}, stored.body
    action = served.get("/v1/audit?limit=1", headers={"Detent-Workspace": OWN}).json["items"][0]
    return {"KEY": shared.keys["viewer"].split("_")[1], "RECORD": action["record"], "UPLOAD": upload}


def faults(line: Line, cases: Iterable[Case]) -> list[str]:
    """What was not answered as it must be."""
    found = []
    for case in cases:
        reply = line.ask(case)
        if case.code is None:
            if reply.status in {401, 403, 500}:
                found.append(f"{case.name}: {reply.status} {reply.body[:200]!r}")
        elif reply.status < 400 or reply.code != case.code:
            found.append(f"{case.name}: {reply.status} {reply.body[:200]!r}, not {case.code}")
    return found


def test_every_route_has_its_row() -> None:
    assert missing_rows() == []


def test_the_matrix_is_large_enough(shared: Shared, browser: tuple[str, str]) -> None:
    keys = shared.keys
    cases = [
        *credential_cases(keys["admin"], keys["expired"], keys["revoked"]),
        *scope_cases(keys),
        *browser_cases(*browser, shared.served.told["url"]),
    ]
    assert len(cases) >= CASES_MIN
    assert len({case.name for case in cases}) == len(cases)


def test_no_credential_that_does_not_count_is_answered(shared: Shared, line: Line) -> None:
    keys = shared.keys
    assert faults(line, credential_cases(keys["admin"], keys["expired"], keys["revoked"])) == []


def test_a_role_is_answered_exactly_where_it_has_the_scope(shared: Shared, line: Line) -> None:
    assert faults(line, scope_cases(shared.keys)) == []


def test_a_cookie_counts_only_for_our_own_pages(shared: Shared, line: Line, browser: tuple[str, str]) -> None:
    assert faults(line, browser_cases(*browser, shared.served.told["url"])) == []


def masked(reply: Reply, *names: str) -> tuple[int, dict[str, str], bytes]:
    """An answer without what is particular to its request."""
    body = re.sub(rb"req_[0-9a-f]{24}", b"req", reply.body)
    for name in names:
        body = body.replace(name.encode(), b"ID")
    headers = {name: value for name, value in reply.headers.items() if name not in SKIPPED_HEADERS}
    headers["content-length"] = str(len(body))
    return reply.status, headers, body


def test_what_is_foreign_is_answered_like_what_is_absent_byte_for_byte(
    shared: Shared, line: Line, fill: dict[str, str]
) -> None:
    """T3"""
    found = []
    for foreign, absent in twin_cases(shared.keys["other"], fill):
        one, other = line.ask(foreign), line.ask(absent)
        names = [part for case in (foreign, absent) for part in case.path.split("?")[0].split("/")[3:4]]
        if masked(one, *names) != masked(other, *names) or (one.status < 400 and foreign.method != "PUT"):
            found.append((foreign.name, one.status, one.body, other.status, other.body))
    assert found == []


def test_foreign_names_in_queries_topics_and_bodies_are_absent_too(
    shared: Shared, line: Line, fill: dict[str, str]
) -> None:
    """T1, T3, T5"""
    assert fill
    found, count = [], 0
    for foreign, absent in naming_cases(shared.keys["other"]):
        count += 1
        one, other = line.ask(foreign), line.ask(absent)
        names = ("done", "run-1", "nowhere", "run-0")
        if masked(one, *names) != masked(other, *names) or one.status >= 500:
            found.append((foreign.name, one.status, one.body, other.status, other.body))
    assert found == []
    assert count >= 20


def test_another_workspace_in_the_header_is_refused_on_every_route_whether_it_exists_or_not(
    shared: Shared, line: Line
) -> None:
    """T1"""
    found = []
    for case in scope_cases(dict.fromkeys(shared.keys, shared.keys["other"])):
        replies = [
            line.ask(Case(case.name, case.method, case.path, {**case.headers, "Detent-Workspace": name}))
            for name in (OWN, "nowhere")
        ]
        if masked(replies[0]) != masked(replies[1]) or replies[0].code != "WORKSPACE_MISMATCH":
            found.append((case.name, replies[0].body, replies[1].body))
    assert found == []


def cursors() -> list[str]:
    """Texts that were never the cursor of a page of this listing: made up, of another listing, of other filters, damaged."""
    filters: dict[str, str | None] = {"state": None, "run": None}
    good = write_cursor("/v1/jobs", filters, (17,))
    made_up: list[Any] = [
        *(0, 1, -1, "a", b"a", [], [[]], {}, None, True),
        *([b"", [1]], [b"12345678", [1]], [b"12345678", 1], ["x", [1]], [1, 2, 3], [[1], b"12345678"]),
        *([b"12345678", [2**63]], [b"12345678", [-1]], [b"12345678", [None]], [b"12345678", []]),
        {"tenant": "demo"},
        [b"12345678", ["demo", 1]],
    ]
    texts = [urlsafe_b64encode(encode(one)).decode().rstrip("=") for one in made_up]
    texts += [write_cursor(route, filters, (17,)) for route in ("/v1/runs", "/v1/keys", "/v1/audit", "", "/v1/jobs/")]
    texts += [write_cursor("/v1/jobs", {**filters, "state": state}, (17,)) for state in ("FAILED", "", "x")]
    texts += [write_cursor("/v1/jobs", {**filters, "tenant": "demo"}, (17,))]
    texts += [good[:-1], good[1:], good + "A", good[::-1], good.swapcase(), "A" * 512, "_" * 8, "-", "0"]
    return list(dict.fromkeys(texts))


def test_no_made_up_cursor_leads_anywhere(shared: Shared, line: Line) -> None:
    """T5: a cursor carries no authority; one of `demo` gives the other workspace its own page, or nothing."""
    assert len(cursors()) >= 40
    headers = {"Authorization": f"Bearer {shared.keys['other']}"}
    for text in cursors():
        for path in ("/v1/jobs", "/v1/runs", "/v1/keys", "/v1/audit"):
            if text != write_cursor(path, {"state": None, "run": None}, (17,)):
                reply = line.ask(Case(text, "GET", f"{path}?cursor={text}", headers))
                assert (reply.status, reply.code) == (400, "VALIDATION_ERROR"), (path, text)
    page = shared.served.get("/v1/jobs?limit=1", token=shared.keys["viewer"]).json
    assert page["next"] is not None
    stolen = line.ask(Case("", "GET", f"/v1/jobs?limit=1&cursor={page['next']}", headers))
    assert (stolen.status, stolen.json["items"]) == (200, [])


def test_what_is_shared_names_no_other_workspace(shared: Shared, line: Line) -> None:
    """T6: counts, the queue and metrics tell numbers, and no id or name of another workspace."""
    for path in ("/v1/counts", "/v1/queue", "/metrics", "/v1/jobs", "/v1/runs", "/v1/keys", "/v1/members"):
        reply = line.ask(Case(path, "GET", path, {"Authorization": f"Bearer {shared.keys['other']}"}))
        assert reply.status == 200, reply.body
        for word in (b"demo", b"run-1", b"broken"):
            assert word not in reply.body, (path, word)
    actions = line.ask(Case("", "GET", "/v1/audit", {"Authorization": f"Bearer {shared.keys['other']}"})).json
    assert {action["workspace"] for action in actions["items"]} == {OTHER}
