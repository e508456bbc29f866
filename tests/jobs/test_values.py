"""Stored values: whatever a user's value holds, it is read back as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import json_decode, json_encode
from detent.errors import InvalidInput
from detent.jobs.values import (
    escaped,
    files_named,
    is_file,
    is_result,
    restored,
    result_reference,
    results_named,
)

KEYS = st.one_of(
    st.text(max_size=4), st.sampled_from(["$", "$$", "$file", "$result", "$from", "$param", "$$file", "a$"])
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def never(named: Any) -> Any:
    raise AssertionError(f"nothing refers to {named}")


@given(VALUES)
def test_escaping_is_undone_by_restoring(value: Any) -> None:
    """X-177, X-170: also by way of the bytes that are stored."""
    stored = json_decode(json_encode(escaped(value), name="value"))
    assert restored(stored, never, never) == value
    assert list(results_named(stored)) == []
    assert list(files_named(stored)) == []


@given(VALUES)
def test_only_keys_with_a_dollar_are_changed(value: Any) -> None:
    if "$" not in str(value):
        assert escaped(value) == value


def test_a_result_is_put_in_wherever_it_is_named() -> None:
    """X-177: with its own escapes undone, and as often as it is named."""
    values = {"sha256:a": {"$$from": [1]}, "sha256:b": 2}
    stored = {
        "x": [result_reference("sha256:a"), {"y": result_reference("sha256:b")}],
        "z": result_reference("sha256:a"),
    }
    assert restored(stored, values.__getitem__, never) == {"x": [{"$from": [1]}, {"y": 2}], "z": {"$from": [1]}}
    assert list(results_named(stored)) == ["sha256:a", "sha256:b", "sha256:a"]


def test_a_file_becomes_what_files_are() -> None:
    """X-170."""
    file = {"$file": "sha256:f", "size": 3, "name": "a.txt", "type": "text/plain"}
    assert restored({"in": [file]}, never, lambda mapping: mapping["name"]) == {"in": ["a.txt"]}
    assert list(files_named({"a": file, "b": [file]})) == ["sha256:f", "sha256:f"]
    assert is_file(file)
    assert not is_file({"$$file": 1})


def test_a_mapping_with_more_than_the_reference_is_none() -> None:
    assert is_result({"$result": "d"})
    assert not is_result({"$result": "d", "more": 1})
    assert not is_result([{"$result": "d"}])


@pytest.mark.parametrize("digest", [None, 3, ["a"]])
def test_a_file_without_a_digest_is_refused(digest: Any) -> None:
    with pytest.raises(InvalidInput, match="needs a digest"):
        list(files_named({"$file": digest}))


def test_a_name_that_was_recorded_as_it_is_is_read_as_a_name() -> None:
    """X-177: before names of output files were escaped, a file called ``$file`` or ``$result`` left such a mapping."""
    file = {"$file": "d", "name": "$file", "size": 1, "type": "t"}
    for word in ("$file", "$result"):
        old = {word: file}
        assert not is_result(old)
        assert list(files_named(old)) == ["d"]
        assert list(results_named(old)) == []
        assert restored(old, lambda _: None, lambda one: one["name"]) == {word[1:]: "$file"}
