"""docs/jobs.md says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from detent.errors import CODES
from detent.jobs import (
    TIMEOUT_CODES,
    Bounds,
    ErrorCategory,
    JobStatus,
    JobType,
    Limits,
    project_status,
    read_payload,
    read_result,
)
from detent.jobs.payload import ARTIFACTS_MAX, MEMORY_MB_MAX, OUTPUT_KB_MAX, TIME_MS_MAX
from detent.kernel.manifest import RETRY_CATEGORIES_DEFAULT

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```json (\w+)\n(.*?)```", PAGE, re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without quotes around names."""
    below = PAGE.split(f"\n{heading}\n", 1)[1]
    lines = re.findall(r"^\|.*\|$", below.split("\n#", 1)[0], re.MULTILINE)
    cells = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]
    return cells[2:]


@pytest.mark.parametrize(("kind", "text"), BLOCKS)
def test_every_example_on_the_page_is_read(kind: str, text: str) -> None:
    """JOB-034, JOB-045, JOB-049, JOB-058"""
    read = {"payload": read_payload, "result": read_result}[kind]
    assert read(text.encode()).document() == json.loads(text)
    assert len(BLOCKS) == 4


def test_the_page_lists_the_limits_with_their_defaults_bounds_and_codes() -> None:
    """JOB-036, X-146"""
    most = (TIME_MS_MAX, TIME_MS_MAX, MEMORY_MB_MAX, OUTPUT_KB_MAX, ARTIFACTS_MAX)
    listed = rows("### Limits")
    assert [(row[0], row[1], row[2]) for row in listed] == [
        (name, str(default), str(bound))
        for (name, default), bound in zip(Limits().model_dump().items(), most, strict=True)
    ]
    for row in listed:
        code = row[3].split()[0]
        assert CODES[code].category == "RESOURCE_LIMIT"
        assert row[4] == project_status("FAILED", True, code)


def test_the_page_lists_the_job_types_and_categories() -> None:
    """JOB-060..JOB-066"""
    assert [row[0] for row in rows("### Job types")] == [kind.value for kind in JobType]
    listed = rows("### Error categories")
    assert [row[0] for row in listed] == [category.value for category in ErrorCategory]
    assert [row[2].startswith("yes") for row in listed] == [
        category.value in RETRY_CATEGORIES_DEFAULT for category in ErrorCategory
    ]


def test_the_page_tells_the_projection_as_it_is() -> None:
    """X-003"""
    for state, dispatched, status, detail in rows("## Status"):
        name, _, failed_with = state.partition(", with ")
        code = min(TIMEOUT_CODES) if failed_with == "a deadline code" else "LIMIT_MEMORY"
        found = project_status(None if name == "no job yet" else name, dispatched == "yes", code)
        assert found == JobStatus(status)
        assert bool(detail) == (found == "RUNNING" != name)


def test_the_page_names_the_bounds() -> None:
    """X-155"""
    named = {row[0]: row[1] for row in rows("### What is cut, and what fails")}
    assert named["log entries"] == str(Bounds().max_log_entries)
    assert named["a log message, an error message"] == f"{Bounds().max_log_message_bytes} bytes"
    assert named["error.details as JSON"] == f"{Bounds().max_error_details_bytes} bytes"
