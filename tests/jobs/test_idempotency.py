from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.errors import InvalidInput, Refused
from detent.jobs import (
    IDEMPOTENCY_WINDOW_MS,
    Fresh,
    IdempotencyScope,
    Repeated,
    StoredAnswer,
    body_digest,
    decide_idempotency,
    parse_idempotency_key,
)
from detent.jobs.order import Call, Order, Origin
from detent.owner.kept_answers import request_digest

BODY, OTHER = b'{"x": 1}', b'{"x":1}'
STORED = StoredAnswer(body_digest(BODY), b'{"job_id":"j","status":"QUEUED"}', stored_at_ms=1_000)
HOUR = 3_600_000


def decide(stored: StoredAnswer | None = STORED, body: bytes = BODY, now_ms: int = 1_000, **fields: Any) -> Any:
    return decide_idempotency(stored, body_digest=body_digest(body), now_ms=now_ms, **fields)


def test_an_unused_key_is_fresh() -> None:
    """JOB-030"""
    assert decide(None) == Fresh()


@pytest.mark.parametrize("later", [0, 1, HOUR, IDEMPOTENCY_WINDOW_MS - 1])
def test_the_same_request_within_the_window_gets_the_stored_bytes(later: int) -> None:
    """JOB-031, X-027: also after the job has moved on, since only the stored answer is looked at."""
    assert decide(now_ms=1_000 + later) == Repeated(b'{"job_id":"j","status":"QUEUED"}')


def test_the_key_is_free_again_when_the_window_is_over() -> None:
    """JOB-030"""
    assert IDEMPOTENCY_WINDOW_MS == 24 * HOUR
    assert decide(now_ms=1_000 + IDEMPOTENCY_WINDOW_MS) == Fresh()
    assert decide(now_ms=1_000 + IDEMPOTENCY_WINDOW_MS, body=OTHER) == Fresh()
    assert decide(now_ms=1_000 + HOUR, window_ms=HOUR) == Fresh()
    assert decide(now_ms=999 + HOUR, window_ms=HOUR) == Repeated(STORED.response)


def test_a_clock_that_went_back_does_not_free_the_key() -> None:
    """JOB-030"""
    assert decide(now_ms=0) == Repeated(STORED.response)


def test_the_same_key_with_another_body_is_refused() -> None:
    """JOB-032, X-150: another spelling of the same JSON is another body."""
    refused = decide(body=OTHER)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.details) == (
        "IDEMPOTENCY_KEY_REUSED",
        {"valid_until_ms": 1_000 + IDEMPOTENCY_WINDOW_MS},
    )


@pytest.mark.parametrize("change", ["workspace_id", "user_id", "endpoint", "key"])
def test_the_same_key_elsewhere_is_another_key(change: str) -> None:
    """JOB-033"""
    names = {"workspace_id": "w", "user_id": "u", "endpoint": "POST /v1/jobs", "key": "k"}
    stored = {IdempotencyScope(**names): STORED}  # type: ignore[arg-type]
    assert decide(stored.get(IdempotencyScope(**names))) == Repeated(STORED.response)  # type: ignore[arg-type]
    other = IdempotencyScope(**{**names, change: "another"})  # type: ignore[arg-type]
    assert decide(stored.get(other)) == Fresh()


@pytest.mark.parametrize("text", ["k", "a b", "6f1c-..", "x" * 255, '"quoted"'])
def test_a_key_is_an_opaque_printable_text(text: str) -> None:
    assert parse_idempotency_key(text) == text


@pytest.mark.parametrize("text", ["", " k", "k ", "a\nb", "é", "x" * 256, None, b"k"])
def test_what_no_header_should_hold_is_refused(text: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_idempotency_key(text)
    assert (caught.value.code, caught.value.details["path"]) == ("VALIDATION_ERROR", "Idempotency-Key")


def test_a_body_is_named_by_a_digest() -> None:
    with pytest.raises(InvalidInput):
        decide_idempotency(STORED, body_digest=b"short", now_ms=0)


def test_a_request_is_the_same_whatever_trace_and_request_id_it_has() -> None:
    """JOB-030: a repeat has another id, and often another trace."""
    order = Order(Call(kind="python", target="tasks:double", arguments=(1,)), "double", origin=Origin(requested_by="p"))
    again = replace(order, origin=replace(order.origin, traceparent="00-a-b-01", request_id="req_2"))
    assert request_digest(again) == request_digest(order)
    assert request_digest(replace(again, label="other")) != request_digest(order)
