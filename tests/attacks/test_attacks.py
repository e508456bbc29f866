"""A short part of the attack programme, the same cases every time, and the programme's own judgement.

`python -m tests.attacks.programme --minutes 60` is all of it, `make soak` runs that; docs/reliability.md has the figures.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from detent.canon import decode, encode
from tests.attacks import rows
from tests.attacks.asked import Answer
from tests.attacks.case import Case
from tests.attacks.mutate import changed_inside, mutated
from tests.attacks.programme import PARTS, Programme, command_of, table

SEED = 16


@pytest.fixture(scope="module")
def programme() -> Iterator[Programme]:
    with Programme(SEED) as made:
        yield made


@pytest.mark.parametrize(("part", "cases"), [("rows", 4), ("bundles", 6), ("guests", 10), ("cancels", 1)])
def test_some_cases_of_each_part_find_nothing_wrong(programme: Programme, part: str, cases: int) -> None:
    """X-196, C5: changed rows and bundles are found or listed, guests fail themselves at worst, cancels leave nothing."""
    for number in range(1, cases + 1):
        case = programme.case(part, SEED * 1_000_000 + number)
        assert case.problems == [], command_of(part, case.seed)
        assert case.outcome


def test_a_whole_run_of_hostile_guests_harms_no_other(programme: Programme) -> None:
    """C4, C5: through `detent run`, in jails and in plain workers."""
    case = programme.case("guests", SEED * 1_000_000)
    assert case.kind == "guests, detent run"
    assert case.problems == []


def said(document: str, code: int = 0) -> Answer:
    return Answer(("show", "run-1", "-o", "json"), code, document, "")


REPLAYED = "What no record says of a job: the usage it reported. `detent replay` compares it with the commands."
ABSENT = "That content which is not in the file is what its digest names, or still exists."


def judged(after: str, *not_proved: str, touched: str = "jobs", is_replayed: bool = True) -> Case:
    """What the programme says of a page that differs while `verify` is green."""
    case = Case("rows", 1)
    differing = list(rows.differences(said('{"state": "FAILED", "usage": 1}'), said(after)))
    rows._judge(case, differing, rows.Verdict({touched}, list(not_proved), is_replayed))
    return case


def test_a_page_that_differs_under_a_green_verify_is_a_problem() -> None:
    (problem,) = judged('{"state": "SUCCEEDED", "usage": 1}').problems
    assert problem.endswith("show run-1: .state: 'FAILED' -> 'SUCCEEDED'")


def test_a_page_that_is_the_same_is_none() -> None:
    assert judged('{"state": "FAILED", "usage": 1}').outcome == "no effect"


def test_what_is_listed_under_not_proved_is_no_problem_and_nothing_else_is_excused_by_it() -> None:
    usage, state = '{"state": "FAILED", "usage": 2}', '{"state": "SUCCEEDED", "usage": 2}'
    assert judged(usage, REPLAYED, is_replayed=False).outcome == "listed"
    assert judged(usage, is_replayed=False).problems, "it is not listed"
    assert judged(usage, REPLAYED).problems, "replay should have found it"
    assert judged(state, REPLAYED, is_replayed=False).problems, "the sentence is about something else"


def test_absence_is_excused_only_when_content_was_taken_away() -> None:
    absent = '{"state": null, "usage": 1}'
    assert judged(absent, ABSENT, touched="content").outcome == "listed"
    assert judged(absent, ABSENT, touched="jobs").problems


def test_a_list_with_other_elements_or_another_length_differs() -> None:
    def differing(before: str, after: str) -> list[str]:
        return [f"{one.path} {one.before} {one.after}" for one in rows.differences(said(before), said(after))]

    assert differing("[1, 2]", "[1, 3]") == ["[1] 2 3"]
    assert differing("[1, 2]", "[1]") == ["[1] 2 gone"]
    assert differing("[1]", "[1, 2]") == ["[1] not there 2"]
    assert differing("[1]", "[1, 1]") == [" 1 elements 2 elements"]


@pytest.mark.parametrize(
    ("code", "err"), [(None, ""), (70, ""), (1, "INVARIANT_VIOLATION"), (1, "Traceback (most recent call last)")]
)
def test_a_command_without_an_answer_is_a_problem(code: int | None, err: str) -> None:
    assert Answer(("verify",), code, "", err).fault is not None
    assert Answer(("verify",), 1, "", "error: 1 finding").fault is None


def test_a_value_is_changed_and_a_leaf_inside_encoded_bytes_is_reached() -> None:
    inner = {"state": "FAILED", "tick": 7}
    data = encode({"body": encode(inner), "rows": [1, 2]})
    reached = 0
    for seed in range(200):
        changed = changed_inside(random.Random(seed), data)
        if changed is None or changed == data:
            continue
        outer = decode(changed)
        body = outer.get("body") if isinstance(outer, dict) else None
        reached += isinstance(body, bytes) and body != encode(inner) and body[:1] == encode(inner)[:1]
    assert reached > 20


@pytest.mark.parametrize("value", [7, True, "text", b"bytes", encode({"a": 1}), None])
def test_values_become_others_of_their_own_and_of_other_kinds(value: object) -> None:
    made = [mutated(random.Random(seed), value) for seed in range(300)]
    assert sum(other != value for other in made) > 250
    assert len({type(other) for other in made}) > 3


def test_a_case_that_breaks_is_a_finding_and_names_the_line_that_repeats_it(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_seed: int) -> Case:
        raise RuntimeError("broken")

    with Programme(3, ["rows"]) as programme:
        programme._attacks["rows"] = broken
        programme.case("rows", 3_000_004)
    assert "again: python -m tests.attacks.programme --only rows --case 3000004" in capsys.readouterr().err
    assert "| rows | 1 | 1 broken | 1 | - | - |" in table(programme.lines)


def test_every_part_gets_its_share() -> None:
    counts: Counter[str] = Counter()

    def counted(part: str) -> Case:
        counts[part] += 1
        return Case(part, 0, outcome="found")

    with Programme(1) as programme:
        for part in PARTS:
            programme._attacks[part] = lambda _seed, part=part: counted(part)  # type: ignore[misc]
        while min(counts[part] for part in PARTS) < 3:
            programme.run(0.001)
    assert programme.problems == []
