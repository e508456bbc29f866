"""Tampering with the elements of an array: with one outcome, with one value, with their order, and with what a lost worker left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from detent.canon import SigningKey
from detent.jobs.elements import FAILED, OPEN, SUCCEEDED, Elements
from detent.jobs.work import Failure
from tests.ledger.build import Builder, codes, key
from tests.tamper.test_reports import RESULT, both_ways, hand_in, report_of, signed, working

HONEST = Elements(bytes([SUCCEEDED] * 3), [b"1", b"2", b"3"], [5, 5, 5], [7, 8, 9])
FAILURE = {"category": "USER_CODE_ERROR", "code": "PYTHON_EXCEPTION", "message": "no"}


def ended(elements: Elements, root: bytes | None = None, signer: SigningKey = RESULT) -> Builder:
    """An array has ended by a report of these elements, and another job honestly."""
    ledger = working()
    report = report_of(ledger, "first", elements=elements, elements_root=root or elements.root())
    hand_in(ledger, "first", signed(report, signer))
    hand_in(ledger, "second", signed(report_of(ledger, "second")))
    ledger.end_run("run-1")
    ledger.commit()
    return ledger


def test_an_honest_array_verifies() -> None:
    assert [codes(report) for report in both_ways(ended(HONEST))] == [set(), set()]


@pytest.mark.parametrize(
    "change",
    [
        {"values": [b"1", b"7", b"3"]},
        {"values": [b"2", b"1", b"3"]},
        {"values": [b"1", None, b"3"], "codes": bytes([SUCCEEDED, FAILED, SUCCEEDED]), "failures": {1: FAILURE}},
        {"values": [b"1", None, b"3"], "codes": bytes([SUCCEEDED, OPEN, SUCCEEDED])},
        {"values": [b"1", b"2"], "codes": bytes([SUCCEEDED] * 2), "started_ms": [5, 5], "wall_us": [7, 8]},
        {"streams": {2: [[b"said\n", None, False], [b"", None, False]]}},
        {"values": [b"1", None, b"3"], "contents": {1: [b"c" * 32, b"v" * 32]}},
    ],
    ids=["value", "order", "outcome", "dropped outcome", "dropped element", "output", "moved value"],
)
def test_a_changed_element_under_the_root_of_the_honest_ones_is_found(change: dict[str, Any]) -> None:
    """Even if the executor's key signs it: the root over the elements is another."""
    for report in both_ways(ended(replace(HONEST, **change), HONEST.root())):
        assert codes(report) == {"RESULT_MISMATCH"}


def lost(report: Callable[[Builder], bytes]) -> Builder:
    """An array lost its worker when one of its elements had ended, and was finished by the next."""
    ledger = working()
    digest = ledger.content(report(ledger))
    ledger.finish("first", ok=False, kind="worker_lost", reason_code="WORKER_LOST", category=None, detail_digest=digest)
    hand_in(ledger, "second", signed(report_of(ledger, "second")))
    ledger.commit()
    ledger.advance(60_000)
    ledger.claim(1)
    ledger.commit()
    hand_in(ledger, "first", signed(report_of(ledger, "first", elements=HONEST, elements_root=HONEST.root())))
    ledger.end_run("run-1")
    ledger.commit()
    return ledger


PARTIAL = replace(HONEST, codes=bytes([SUCCEEDED, OPEN, OPEN]), values=[b"1", None, None])


def partial(ledger: Builder, **changes: Any) -> Any:
    said: dict[str, Any] = {
        "status": "FAILED",
        "error": Failure("INTERNAL_ERROR", "WORKER_LOST"),
        "elements": PARTIAL,
        "elements_root": PARTIAL.root(),
    }
    return report_of(ledger, "first", **(said | changes))


def test_what_a_lost_worker_had_done_of_an_array_verifies() -> None:
    assert [codes(report) for report in both_ways(lost(lambda ledger: signed(partial(ledger))))] == [set(), set()]


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (lambda ledger: signed(partial(ledger), key("a stranger")), "KEY_UNKNOWN"),
        (lambda ledger: signed(partial(ledger, elements=HONEST)), "RESULT_MISMATCH"),
        (lambda ledger: signed(partial(ledger, job_id="second")), "RESULT_MISMATCH"),
        (lambda ledger: signed(partial(ledger, attempt_id=1)), "RESULT_MISMATCH"),
        (lambda ledger: signed(partial(ledger, status="SUCCEEDED", error=None)), "RESULT_MISMATCH"),
    ],
    ids=["foreign key", "other elements", "other job", "other attempt", "success"],
)
def test_a_forged_report_of_a_lost_worker_is_found(report: Callable[[Builder], bytes], code: str) -> None:
    for verified in both_ways(lost(report)):
        assert codes(verified) == {code}
