"""The schema for editors: generated, published, and of one mind with the loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from detent.contract import from_document, long_form, schema
from detent.contract.bindings import RUN_KEYS
from detent.contract.definition import LONG_KEYS, SHORT_KEYS
from detent.contract.map_run import MAP_KEYS
from detent.contract.schedule import KEYS as SCHEDULE_KEYS
from detent.contract.steps import LONG_STEP_KEYS, SHORT_STEP_KEYS
from detent.contract.yaml_reader import read
from detent.workflow.models import ModelWorkflowDefinition
from tests.contract import golden
from tests.contract.contracts import FEWER, documents, findings, marked, one_step
from tests.contract.test_findings import LONG, LONG_HEAD, STEP, TOP

SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# What only `detent validate` can tell: names that lead nowhere, targets, source, references, durations in numbers.
BEYOND_A_SCHEMA = (
    *("names", "needs", "no parameter", "reference", "$from", "code", "given twice", "timeout", "map cannot", "UUID"),
    *("say the same", "listed twice", "'1x'", "default", "retry says", "without run", "must not be empty"),
    *("cannot be used with run map", "of a kind that is not known", "means nothing", "no closing quotation"),
)


def test_the_published_schema_is_the_generated_one() -> None:
    """WF-107: after a wanted change `make golden`, and a review of the diff"""
    assert golden.SCHEMA.read_text(encoding="utf-8") == golden.schema_text()


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_long_form_is_the_models_own_schema() -> None:
    """WF-107, WF-108: every field of the models, and no field beside them"""
    generated = ModelWorkflowDefinition.model_json_schema()
    for name, part in [("ModelWorkflowDefinition", generated), *generated["$defs"].items()]:
        if "properties" in part:
            assert SCHEMA["$defs"][name]["properties"].keys() == part["properties"].keys()
            assert SCHEMA["$defs"][name].get("required") == part.get("required")


def test_the_schema_and_the_loader_know_the_same_keys() -> None:
    parts = SCHEMA["$defs"]
    assert list(parts["ShortForm"]["properties"]) == list(SHORT_KEYS)
    assert list(parts["ShortStep"]["properties"]) == list(SHORT_STEP_KEYS)
    assert list(parts["LongStep"]["properties"]) == list(LONG_STEP_KEYS)
    assert list(parts["Coordination"]["properties"]) == list(LONG_KEYS)
    runs = {run["required"][0]: list(run["properties"]) for run in parts["Run"]["oneOf"]}
    assert runs == {kind: list(keys) for kind, keys in RUN_KEYS.items()}
    assert list(parts["Map"]["properties"]) == list(MAP_KEYS)
    assert list(parts["Schedule"]["properties"]) == list(SCHEDULE_KEYS)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_every_example_fits_the_schema(path: Path) -> None:
    """WF-107"""
    VALIDATOR.validate(read(path.read_bytes()).value)


@FEWER
@given(documents())
def test_what_loads_fits_the_schema_in_both_forms(document: dict[str, Any]) -> None:
    VALIDATOR.validate(document)
    VALIDATOR.validate(json.loads(json.dumps(long_form(from_document(document)))))


def _broken() -> list[tuple[str, str]]:
    rows = [(marked(one_step(lines))[0], message) for lines, message, _ in STEP]
    rows += [(marked(text)[0], message) for text, message in TOP]
    rows += [
        (marked(LONG_HEAD.replace(old, new, 1) if old else LONG_HEAD + new)[0], message) for old, new, message in LONG
    ]
    return [row for row in rows if not any(words in row[1] for words in BEYOND_A_SCHEMA)]


@pytest.mark.parametrize(("text", "message"), _broken(), ids=lambda value: value[:50])
def test_what_is_broken_does_not_fit_the_schema(text: str, message: str) -> None:
    """WF-107: an editor marks what the loader refuses"""
    assert message in [finding.message for finding in findings(text)]
    assert not VALIDATOR.is_valid(read(text.encode()).value)
