"""Tampering with ``run_reused``: an attacker with the owner's key who has a run take results that are not there, or not its own."""

from __future__ import annotations

from typing import Any

import pytest

from detent.canon import decode, encode
from tests.ledger.build import Builder, codes
from tests.tamper.forge import append, check, found, place_of, position_of, rewrite


def twice() -> Builder:
    """A run of two jobs, one that failed, one of another tenant, and one that took the results of the first."""
    ledger = Builder()
    for run_id, tenant in (("run-1", "acme"), ("failed", "acme"), ("foreign", "umbrella")):
        ledger.start_run(run_id, tenant)
        for number in range(2):
            ledger.submit(f"{run_id}-{number}", tenant=tenant, run_id=run_id)
        ledger.claim(2)
        for number in range(2):
            ledger.finish(f"{run_id}-{number}")
        ledger.end_run(run_id, "failed" if run_id == "failed" else "completed")
    ledger.start_run("run-2")
    ledger.reuse_run("run-2", "run-1")
    ledger.commit()
    ledger.end_run("run-2")
    ledger.commit()
    return ledger


def test_an_honest_reuse_of_a_run_verifies() -> None:
    report = check(twice())
    assert report.ok, report.findings


@pytest.mark.parametrize(
    "changes",
    [
        {"reused_run_id": "failed"},
        {"reused_run_id": "foreign"},
        {"reused_run_id": "run-2"},
        {"reused_run_id": "nowhere"},
        {"jobs_digest": bytes(32)},
        {"except_steps": ["step"]},
        {"steps_reused": 1},
        {"steps_reused": 0},
        {"steps_reused": 3},
    ],
    ids=str,
)
def test_a_run_that_takes_other_results_than_it_says_is_found(changes: dict[str, Any]) -> None:
    """Tampering: the reuse of a run points at a run that failed, at another tenant's, at itself, at none, or at other histories."""
    ledger = twice()
    place = place_of(ledger, "run_reused")
    rewrite(ledger, *place, **changes)
    assert found(check(ledger), "REUSE_WRONG").position == position_of(ledger, *place)


def test_a_reuse_of_a_run_of_another_contract_is_found() -> None:
    ledger = twice()
    number, index = place_of(ledger, "run_started")
    rewrite(ledger, number, index, contract_digest=bytes(32))
    assert found(check(ledger), "REUSE_WRONG").position == position_of(ledger, *place_of(ledger, "run_reused"))


def test_a_reuse_of_a_run_that_is_dropped_is_found() -> None:
    ledger = twice()
    number, index = place_of(ledger, "run_reused")
    del ledger.commits[number].records[index]
    assert "RUN_JOBS_WRONG" in codes(check(ledger)), "the end of the run counts the reused steps"


def test_a_reuse_of_a_run_that_is_repeated_is_found() -> None:
    ledger = twice()
    number, index = place_of(ledger, "run_reused")
    records = ledger.commits[number].records
    records.insert(index, records[index])
    report = check(ledger)
    assert found(report, "REUSE_WRONG").position == position_of(ledger, number, index + 1)
    assert "RUN_JOBS_WRONG" in codes(report)


def test_a_reuse_by_a_run_that_has_ended_or_never_began_is_found() -> None:
    ledger = twice()
    number, index = place_of(ledger, "run_reused")
    body, evidence = ledger.commits[number].records[index]
    append(ledger, (body, evidence))
    assert "RUN_UNKNOWN" in codes(check(ledger))
    ledger.commits.pop()
    append(ledger, (encode(decode(body) | {"run_id": "nowhere"}), evidence))
    assert "RUN_UNKNOWN" in codes(check(ledger))
