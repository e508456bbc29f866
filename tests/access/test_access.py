"""The decisions about requests: credentials, cursors, rates, headers. The server asks them at every door."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.access.buckets import Rate, full, take
from detent.access.cursor import read_cursor, write_cursor
from detent.access.headers import host_is_allowed, is_media_type, matches, path_fault, path_part, quality, weak_tag
from detent.access.scopes import ROLES, SCOPES, Principal
from detent.access.tokens import bearer, make_token, read_token
from detent.errors import InvalidInput

RANDOM = bytes(range(40))
TOKEN = make_token("dtk", RANDOM)


def test_a_token_has_the_form_that_scanners_look_for() -> None:
    assert re.fullmatch(r"dt[kel]_[a-z2-7]{12}_[0-9A-Za-z]{49}", TOKEN.text)
    assert TOKEN.text not in repr(TOKEN)


@given(st.binary(min_size=40, max_size=40), st.sampled_from(["dtk", "dte", "dtl"]))
def test_a_token_reads_back(random: bytes, kind: str) -> None:
    token = make_token(kind, random)
    assert read_token(token.text) == token
    assert bearer(f"Bearer {token.text}") == token
    assert token.fits(token.digest)
    assert not token.fits(TOKEN.digest) or random == RANDOM


@pytest.mark.parametrize("place", range(len(TOKEN.text)))
def test_a_token_with_another_character_is_not_one(place: int) -> None:
    other = "x" if TOKEN.text[place] != "x" else "y"
    assert read_token(TOKEN.text[:place] + other + TOKEN.text[place + 1 :]) is None


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        TOKEN.text,
        f"Basic {TOKEN.text}",
        f"Bearer  {TOKEN.text}",
        f"Bearer {TOKEN.text} ",
    ],
)
def test_only_a_bearer_header_carries_a_token(header: str | None) -> None:
    assert bearer(header) is None


def test_a_role_is_a_set_of_scopes_and_only_server_admins_have_all() -> None:
    assert all(scopes <= SCOPES for scopes in ROLES.values())
    assert [role for role, scopes in ROLES.items() if scopes == SCOPES] == ["server_admin"]
    assert not ROLES["viewer"] & {"jobs:write", "tasks:write", "ledger:export"}
    viewer = Principal("p", "k", "w", ROLES["viewer"])
    assert viewer.may("jobs:read")
    assert not viewer.may("jobs:write")


FILTERS = {"state": "FAILED", "run": None}
CURSOR = write_cursor("/v1/jobs", FILTERS, (17,))


def test_a_cursor_reads_back() -> None:
    assert read_cursor(CURSOR, "/v1/jobs", FILTERS, (int,)) == (17,)
    assert read_cursor(CURSOR, "/v1/jobs", {"run": None, "state": "FAILED"}, (int,)) == (17,)


@pytest.mark.parametrize(
    ("text", "route", "filters", "kinds"),
    [
        (CURSOR, "/v1/jobs", {"state": "QUEUED", "run": None}, (int,)),
        (CURSOR, "/v1/jobs", {"state": None, "run": None}, (int,)),
        (CURSOR, "/v1/runs", FILTERS, (int,)),
        (CURSOR, "/v1/jobs", FILTERS, (int, str)),
        (CURSOR, "/v1/jobs", FILTERS, (str,)),
        (CURSOR[:-1], "/v1/jobs", FILTERS, (int,)),
        (CURSOR + "=", "/v1/jobs", FILTERS, (int,)),
        (CURSOR + "A", "/v1/jobs", FILTERS, (int,)),
        ("", "/v1/jobs", FILTERS, (int,)),
        ("A" * 600, "/v1/jobs", FILTERS, (int,)),
        ("\u00e9", "/v1/jobs", FILTERS, (int,)),
        ("!!!!", "/v1/jobs", FILTERS, (int,)),
    ],
)
def test_a_cursor_of_another_listing_or_none_is_refused(
    text: str, route: str, filters: dict[str, str | None], kinds: tuple[type, ...]
) -> None:
    with pytest.raises(InvalidInput, match="the cursor cannot be used") as found:
        read_cursor(text, route, filters, kinds)
    assert found.value.code == "VALIDATION_ERROR"


@given(st.text(max_size=60))
def test_no_text_makes_a_cursor_fail_in_another_way(text: str) -> None:
    with suppress(InvalidInput):
        assert text == write_cursor("/v1/jobs", FILTERS, read_cursor(text, "/v1/jobs", FILTERS, (int,)))


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    rate = Rate(10, 3)
    bucket = full(rate, now_ms=0)
    waits = []
    for now_ms in (0, 0, 0, 0, 50, 100, 100, 1_000, 1_000, 1_000, 1_000):
        bucket, wait_ms = take(bucket, rate, now_ms=now_ms)
        waits.append(wait_ms)
    assert waits == [0, 0, 0, 100, 50, 0, 100, 0, 0, 0, 100]


def test_a_clock_set_back_gives_nothing() -> None:
    rate = Rate(10, 1)
    bucket, _ = take(full(rate, now_ms=1_000), rate, now_ms=1_000)
    assert take(bucket, rate, now_ms=0)[1] == 100


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("localhost:7733", True),
        ("LOCALHOST:7733", True),
        ("jobs.example", True),
        ("jobs.example:80", True),
        ("jobs.example.", True),
        ("[::1]:7733", True),
        ("localhost", False),
        ("localhost:80", False),
        ("localhost:7733, localhost:7733", False),
        ("evil.example:7733", False),
        ("localhost:7733.evil.example", False),
        ("localhost:7733@evil.example", False),
        ("::1:7733", False),
        ("", False),
    ],
)
def test_a_host_is_one_that_the_server_answers_for(named: str, expected: bool) -> None:
    assert host_is_allowed(named, ("localhost:7733", "jobs.example", "[::1]:7733"), "http") is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, True),
        ("", True),
        ("*/*", True),
        ("application/json", True),
        ("application/*", True),
        ("text/html, application/json;q=0.5", True),
        ("text/html", False),
        ("application/json;q=0", False),
        ("*/*, application/json;q=0", False),
        ("application/json;q=abc", False),
        ("application/json;q=0, */*", False),
    ],
)
def test_accept_allows_what_its_most_specific_range_says(header: str | None, expected: bool) -> None:
    assert (quality(header, "application/json") > 0) is expected


def test_media_types_paths_and_tags() -> None:
    assert is_media_type("application/json; charset=utf-8", "application/json")
    assert not is_media_type("application/json; charset=latin-1", "application/json")
    assert path_fault("/v1/jobs/a%3Ab", "/v1/jobs/a:b") is None
    assert path_fault("/v1/\u00e9", "/v1/\u00e9") is not None
    assert path_fault("/v1/a%252Fb", "/v1/a%2Fb") is not None
    assert path_part("run-1/seq-4~2 \u00e9") == "run-1%2Fseq-4~2%20%C3%A9"
    tag = weak_tag("job", 3)
    assert tag == weak_tag("job", 3) != weak_tag("job", 4)
    assert matches(tag, tag)
    assert matches(f'"x", {tag.removeprefix("W/")}', tag)
    assert matches("*", tag)
    assert not matches('"x"', tag)
    assert not matches(None, tag)
