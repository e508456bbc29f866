"""References in bindings: plain data, replaced whole, with a way to write what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from detent.contract import references
from detent.contract.findings import Report, Spot
from detent.contract.words import VALUE_DEPTH_MAX
from tests.contract.contracts import findings, values
from tests.contract.resolved import resolved

VALUE = {
    "rows": {"$from": "extract"},
    "n": [{"$param": "count"}, {"$from": "load"}, {"$from": "extract"}],
    "text": "$from",
}


def test_the_names_in_a_value_come_once_and_in_order() -> None:
    """X-177"""
    assert references.step_keys(VALUE) == ("extract", "load")
    assert references.param_names(VALUE) == ("count",)
    assert references.step_keys(({"$from": "a"},)) == ("a",)


def test_references_are_replaced_and_nothing_else_is() -> None:
    """X-177: no expressions, nothing inside text"""
    found = resolved(VALUE, {"extract": [1, 2], "load": None}, {"count": 3})
    assert found == {"rows": [1, 2], "n": [3, None, [1, 2]], "text": "$from"}


def test_a_doubled_dollar_is_the_key_with_one_less() -> None:
    """X-177: `$$` escapes"""
    value = {"a": {"$$from": "x"}, "$$$b": 1, "c$": 2}
    assert references.step_keys(value) == ()
    assert resolved(value, {}, {}) == {"a": {"$from": "x"}, "$$b": 1, "c$": 2}


def test_data_with_a_key_from_passes_unchanged() -> None:
    """X-177"""
    value = {"from": "x", "param": {"from": ["y"]}}
    assert resolved(value, {"x": 1}, {}) == value


FILE = {"$file": "sha256:" + "ab" * 32, "size": 3, "name": "a.txt", "type": "text/plain"}


def test_a_file_stands_as_it_is() -> None:
    """X-170: it is named by digest, and only a worker makes bytes of it"""
    value = {"text": FILE, "more": [FILE, {"$from": "a"}]}
    found: list[references.Reference] = []
    report = Report()
    references.scan(value, Spot(report), found)
    assert (report.faults, [one.name for one in found]) == ([], ["a"])
    assert resolved(value, {"a": 1}, {}) == {"text": FILE, "more": [FILE, 1]}


@pytest.mark.parametrize(
    "changed",
    [{"$file": "sha256:abc"}, {"$file": 7}, {"size": -1}, {"size": True}, {"name": "a/b"}, {"type": None}, {"more": 1}],
)
def test_what_only_looks_like_a_file_is_refused(changed: dict[str, Any]) -> None:
    report = Report()
    references.scan({"text": {**FILE, **changed}}, Spot(report), [])
    assert [fault.message for fault in report.faults] == [
        "a file needs its digest, size, name and type, and nothing else"
    ]


@given(values)
def test_a_value_without_dollars_resolves_to_itself(value: Any) -> None:
    """X-177"""
    found: list[references.Reference] = []
    report = Report()
    references.scan(value, Spot(report), found)
    assert (found, report.faults) == ([], [])
    assert resolved(value, {}, {}) == value


def test_a_value_may_be_as_deep_as_the_long_form_can_hold() -> None:
    def text(depth: int) -> str:
        return f"name: n\nsteps:\n- {{id: a, run: {{python: m:f, with: {{x: {'[' * depth}{']' * depth}}}}}}}\n"

    assert findings(text(VALUE_DEPTH_MAX)) == []
    found = findings(text(VALUE_DEPTH_MAX + 1))
    assert [finding.message for finding in found] == ["a value nested deeper than 48 lists and mappings"]
