"""Take the ledger from its owner again and again, in PostgreSQL: no answer is lost, nothing happens twice, no read goes back (X-172, X-173)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.disk import can_mount
from tests.faults.owners import CANCELED, FAULTS, SUBMITTED, Read, Said, programme, unanswered, wrong_reads

CYCLES = 40


def test_owners_that_are_killed_stopped_cut_off_or_out_of_room_lose_nothing(tmp_path: Path) -> None:
    """Their clocks are up to two days apart."""
    told = programme(tmp_path, CYCLES, seed=7)
    assert sum(told.faults.values()) == CYCLES
    # A small file system has to be mounted for the last one, which needs root.
    assert told.faults.keys() == FAULTS.keys() - (set() if can_mount() else {"out of room"})
    assert told.epochs > CYCLES, "each successor has an epoch of its own"
    assert told.answered >= 2 * CYCLES
    assert told.reads


SAID = [
    Said("asked", "job", SUBMITTED, 10, 1),
    Said("answered", "job", SUBMITTED, 20, 1),
    Said("asked", "job", CANCELED, 30, 1),
    Said("asked", "job", CANCELED, 50, 2),
    Said("answered", "job", CANCELED, 60, 2),
]


@pytest.mark.parametrize(
    ("why", "reads"),
    [
        ("before it was asked for", [Read("job", SUBMITTED, 1, 9)]),
        ("lost, though it was answered", [Read("job", 0, 21, 25)]),
        ("not as far as was answered", [Read("job", SUBMITTED, 61, 65)]),
        ("it went back", [Read("job", CANCELED, 31, 35), Read("job", SUBMITTED, 36, 40)]),
        ("never asked for", [Read("other", SUBMITTED, 31, 35)]),
    ],
)
def test_a_read_that_no_order_explains_is_found(why: str, reads: list[Read]) -> None:
    assert len(wrong_reads(SAID, reads)) == 1, why


def test_reads_beside_a_request_may_see_it_or_not() -> None:
    reads = [
        Read("job", 0, 1, 5),
        Read("job", 0, 12, 15),
        Read("job", SUBMITTED, 13, 16),
        Read("job", SUBMITTED, 31, 35),
        Read("job", CANCELED, 52, 55),
        Read("job", CANCELED, 70, 75),
    ]
    assert wrong_reads(SAID, reads) == []


def test_what_was_asked_without_an_answer_is_asked_again() -> None:
    lines = [f"{one.kind} {one.job_id} {one.value} {one.at_ns} {one.pid}" for one in SAID]
    assert unanswered("\n".join(lines[:3])) == [("job", CANCELED)]
    assert unanswered("\n".join(lines)) == []
    assert unanswered("\n".join([*lines[:2], "asked jo"])) == []
