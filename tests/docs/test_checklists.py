"""Rows that only list other rows hold when each of those has a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TRACEABILITY = Path(__file__).resolve().parents[2] / "docs" / "traceability.md"


@pytest.mark.parametrize(
    ("part", "row"),
    [
        ("execution_key", "JOB-022"),
        ("idempotency keys", "JOB-031"),
        ("persistence with lifecycle", "JOB-082"),
        ("dedupe lookup and reuse", "JOB-026"),
        ("signed URLs", "JOB-054"),
        ("bounded output storage", "JOB-056"),
    ],
)
def test_every_part_of_the_platforms_checklist_has_a_test(part: str, row: str) -> None:
    """JOB-079"""
    found = re.search(rf"^\| {row} \|.*$", TRACEABILITY.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert "`tests/" in found[0], f"{part} ({row}) has no test"
