"""Text for terminals: nothing in it does anything but fill columns."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.cli.text import columns, count_text, safe, short, size_text, time_text, width


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


def test_sizes_and_counts_read_well() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 40_000, 5 * 1024**3)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "39.1 KiB",
        "5.0 GiB",
    ]
    assert [count_text(count, "batch", "batches") for count in (0, 1, 1_234)] == [
        "0 batches",
        "1 batch",
        "1,234 batches",
    ]


def test_digests_and_times_are_shortened() -> None:
    assert short("sha256:" + "ab" * 32) == "sha256:abababababab…"
    assert time_text("2026-01-02T03:04:05.678Z") == "2026-01-02 03:04:05.678"
