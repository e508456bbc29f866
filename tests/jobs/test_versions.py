from __future__ import annotations

from typing import Any

import pytest

from detent.errors import InvariantBroken
from detent.jobs import EnvelopeInvalid, read_payload, read_result
from detent.jobs.fields import (
    PAYLOAD_UPGRADES,
    RESULT_UPGRADES,
    SCHEMA_VERSION,
    Version,
    parse_version,
    upgrade,
    version_fault,
)
from tests.jobs.envelopes import EXECUTE, SUCCEEDED

READERS = [(read_payload, EXECUTE), (read_result, SUCCEEDED)]


@pytest.mark.parametrize(("read", "document"), READERS)
@pytest.mark.parametrize("version", ["2.0", "0.9", "10.0", "1", "1.0.0", "01.0", "1.x", "", None, 1, 1.0])
def test_another_major_version_is_refused(read: Any, document: dict[str, Any], version: Any) -> None:
    """JOB-075, JOB-076"""
    with pytest.raises(EnvelopeInvalid) as caught:
        read({**document, "schema_version": version})
    assert (caught.value.code, caught.value.details["path"]) == ("VALIDATION_ERROR", "schema_version")


@pytest.mark.parametrize(("read", "document"), READERS)
@pytest.mark.parametrize("version", ["1.0", "1.7", "1.10"])
def test_every_minor_of_the_current_major_is_read_and_written_back(
    read: Any, document: dict[str, Any], version: str
) -> None:
    """JOB-076, JOB-077, X-161: what a newer minor added is kept."""
    newer = {**document, "schema_version": version, "added_later": {"a": [1, 2.5]}}
    assert read(newer).document() == newer


def test_an_older_minor_is_brought_up_to_date_step_by_step() -> None:
    """JOB-077, X-161: a reader of 1.2 with one function for each minor before it."""
    steps = {
        0: lambda document: {**document, "colour": "grey"},
        1: lambda document: {**document, "shade": document["colour"] + "ish"},
    }
    old = {"schema_version": "1.0", "unknown": 1}
    assert upgrade(old, steps, current=Version(1, 2)) == {
        "schema_version": "1.2",
        "unknown": 1,
        "colour": "grey",
        "shade": "greyish",
    }
    assert old == {"schema_version": "1.0", "unknown": 1}
    middle = {"schema_version": "1.1", "colour": "red"}
    assert upgrade(middle, steps, current=Version(1, 2))["shade"] == "redish"
    newer = {"schema_version": "1.3", "colour": "red"}
    assert upgrade(newer, steps, current=Version(1, 2)) == newer


def test_a_missing_step_is_our_own_bug() -> None:
    with pytest.raises(InvariantBroken, match=r"1\.0"):
        upgrade({"schema_version": "1.0"}, {}, current=Version(1, 1))


def test_there_is_an_upgrade_for_every_minor_before_the_current_one() -> None:
    """JOB-077"""
    assert str(SCHEMA_VERSION) == "1.0"
    for registry in (PAYLOAD_UPGRADES, RESULT_UPGRADES):
        assert sorted(registry) == list(range(SCHEMA_VERSION.minor))


def test_versions_compare_as_numbers() -> None:
    assert parse_version("1.10") == Version(1, 10) > Version(1, 9)
    assert version_fault("1.0") is None
    assert "major version 1" in str(version_fault("2.0"))
