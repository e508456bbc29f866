"""``result:``: what a run gives back, in either form."""

from __future__ import annotations

import pytest

from detent.contract import contract_digest, load, long_form
from tests.contract.contracts import findings

SHORT = """
name: sums
params: {n: 3}
steps:
  - id: add
    run: {python: "builtins:sum", args: [[1, 2]]}
"""


@pytest.mark.parametrize("written", ["{$from: add}", "[{$from: add}, {$param: n}, text]", "{total: {$from: add}}", "7"])
def test_a_result_is_kept_and_written_again(written: str) -> None:
    """X-177"""
    contract = load(f"{SHORT}result: {written}\n".encode())
    document = long_form(contract)
    assert document["workflow_coordination"]["result"] == contract.result
    assert load(repr(document).replace("'", '"').encode()) == contract


def test_a_result_is_part_of_what_is_planned_and_adds_no_dependency() -> None:
    plain, with_result = load(SHORT.encode()), load(f"{SHORT}result: {{$from: add}}\n".encode())
    assert contract_digest(plain) != contract_digest(with_result)
    assert plain.steps == with_result.steps
    assert plain.result is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{$from: ad}", "the result names 'ad', which is not a step"),
        ("[{$param: m}]", "there is no parameter 'm'"),
        ("{$form: add}", "key '$form' is not a reference"),
        ("{$from: add, x: 1}", "a reference stands alone"),
    ],
)
def test_a_wrong_reference_is_found_on_its_line(written: str, said: str) -> None:
    """X-177"""
    (finding,) = findings(f"{SHORT}result: {written}\n")
    assert said in finding.message
    assert finding.line == 7
