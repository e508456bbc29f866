from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.executor.sandbox.collect import name_fault


@pytest.mark.parametrize("name", ["a", "plot.png", "a/b/c.txt", "Übung 1.svg", "a..b", "x" * 200, "9", "a-b_c+d=e,f"])
def test_plain_names_are_fine(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "..", "a\\..\\x", "/"])
def test_a_name_that_points_elsewhere_is_a_violation(name: str) -> None:
    fault = name_fault(name)
    assert fault is not None
    assert fault.category == "SANDBOX_VIOLATION"


@pytest.mark.parametrize(
    "name",
    ["", ".", "a//b", "a/", "-rf", ".x", " a", "a.", "a ", "a\nb", "a\0b", "a\x1bb", "a\u202eb", "a\u2028b", "a\\b", "a:b",
     "a|b", "con", "NUL.txt", "com1", "LPT9.log", "e\u0301", "\udcff", "x" * 201, "a/" * 20 + "b", "é" * 300],
)  # fmt: skip
def test_a_name_that_is_hidden_odd_or_too_long_is_not_valid(name: str) -> None:
    fault = name_fault(name)
    assert fault is not None
    assert fault.category == "VALIDATION_ERROR"


@given(st.text(st.sampled_from("ab./\\-: \n"), max_size=12))
def test_no_accepted_name_leaves_its_directory(name: str) -> None:
    if name_fault(name) is None:
        parts = name.split("/")
        assert all(part not in {"", ".", ".."} for part in parts)
        assert "\\" not in name
