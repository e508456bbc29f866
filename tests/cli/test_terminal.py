"""Text for terminals: nothing in it does anything but fill columns."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.pages.text import columns, safe, short, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größer", "größer"),
        ("日本", "日本"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\r", "a\\x0ab\\x09c\\x0d"),
        ("\x7f\x9b31m", "\\x7f\\x9b31m"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\u2028", "\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert safe(text) == shown


@given(st.text())
def test_nothing_that_is_shown_controls_a_terminal(text: str) -> None:
    assert all(unicodedata.category(character)[0] != "C" for character in safe(text))
    assert safe(safe(text)) == safe(text)


def test_columns_are_aligned_by_what_a_terminal_shows() -> None:
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert columns([["ab", "x"], ["日本", "y"], ["e\u0301", ""]]) == ["ab    x", "日本  y", "e\u0301"]
    assert columns([]) == []


def test_digests_are_shortened() -> None:
    assert short("sha256:" + "ab" * 32) == "sha256:abababababab…"
