"""`detent schema`: a JSON Schema that editors can use, for both forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from detent.contract.yaml_reader import read
from tests.cli.contracts import SMALL, Desk, desk

__all__ = ["desk"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def validator(desk: Desk) -> Draft202012Validator:
    said = desk("schema")
    assert (said.code, said.err) == (0, "")
    return Draft202012Validator(said.document)


def test_it_is_a_schema_and_the_same_for_people_and_programs(desk: Desk, validator: Draft202012Validator) -> None:
    """WF-107"""
    Draft202012Validator.check_schema(validator.schema)
    assert desk("schema").out == desk("schema", "-o", "json").out


def test_every_example_fits_the_schema(validator: Draft202012Validator) -> None:
    files = sorted(EXAMPLES.glob("*/*.yaml"))
    assert len(files) >= 5
    for file in files:
        errors = [error.message for error in validator.iter_errors(read(file.read_bytes(), name=file.name).value)]
        assert errors == [], file


@pytest.mark.parametrize(
    "change",
    [
        {"stpes": []},
        {"mode": "streaming"},
        {"steps": 3},
        {"name": None},
        {"steps": [{"id": "a", "run": {"shell": "ls"}, "neds": ["b"]}]},
        {"steps": [{"id": "a b", "run": {"shell": "ls"}}]},
        {"steps": [{"id": "a", "run": {"pyhton": "m:f"}}]},
    ],
)
def test_what_an_editor_should_mark_does_not_fit(validator: Draft202012Validator, change: dict[str, Any]) -> None:
    good = read(SMALL.encode(), name="small").value
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, **change})


def test_an_editor_can_complete_from_it(validator: Draft202012Validator) -> None:
    text = str(validator.schema)
    assert all(word in text for word in ("workflow_coordination", "needs", "python", "shell", "retry", "on_error"))
