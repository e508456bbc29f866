"""The borders of Pydantic: its models tell which keys there are, and its errors are put into plain words.

Keys of the long form are read off the models, so that no field is listed twice (WF-107).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from detent.contract.findings import Path, Spot
from detent.contract.shapes import FLAG_HINT, MAPPING_HINT, named, unknown_key
from detent.contract.words import shown
from detent.workflow.models import ModelWorkflowDefinition, ModelWorkflowStep
from detent.workflow.plain import STEP_FIELDS, Outline, PlainStep
from detent.workflow.vocabulary import ModelOnexError

M = TypeVar("M", bound=BaseModel)


def build(
    model: type[M], fields: Mapping[str, Any], spot: Spot, place: Callable[[Path], Path] | None = None
) -> M | None:
    """The model of these fields, or None with everything that is wrong reported.

    ``place`` tells where the document writes a field, if not under its own name.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as exc:
        for error in exc.errors(include_url=False):
            where = tuple(error["loc"])
            here = spot.at(*(place(where) if place else where))
            here.fault(*in_plain_words(error, named(here)))
    except ModelOnexError as exc:
        spot.fault(exc.message, exc.hint or "see docs/contract-file.md for what can stand here")
    return None


def outline_of(definition: ModelWorkflowDefinition) -> Outline:
    """What is read of a definition that is there as a model."""
    metadata = definition.workflow_metadata
    return Outline(
        definition.model_dump(mode="json", exclude_unset=True),
        parallel_allowed=definition.coordination_rules.parallel_execution_allowed,
        mode=metadata.execution_mode,
    )


def plain_of(step: ModelWorkflowStep) -> PlainStep:
    """What is read of a step that is there as a model."""
    return PlainStep({name: getattr(step, name) for name in STEP_FIELDS if name in step.model_fields_set})


def report_unknown(value: Any, model: type[BaseModel], spot: Spot) -> None:
    """Report every key that no model knows, at any depth; models that keep foreign keys are left alone."""
    if type(value) is not dict or model.model_config.get("extra") == "allow":
        return
    known = _inner_models(model)
    for key, item in value.items():
        if key not in known:
            unknown_key(key, known, spot, named(spot))
            continue
        inner = known[key]
        if inner is None:
            continue
        if type(item) is list:
            for index, entry in enumerate(item):
                report_unknown(entry, inner, spot.at(key, index))
        else:
            report_unknown(item, inner, spot.at(key))


@cache
def _inner_models(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """The fields of a model, each with the model inside it, if there is one."""
    fields: dict[str, type[BaseModel] | None] = {}
    for name, field in model.model_fields.items():
        parts = (field.annotation, *get_args(field.annotation))
        fields[name] = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
    return fields


# Pydantic's types of error that a contract can meet, in plain words. {name}, {got} and Pydantic's own context fill them.
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "missing": ("{name} is missing", "add it"),
    "string_type": ("{name} must be text, not {got}", "put it in quotes"),
    "string_too_short": ("{name} must not be empty", "write something"),
    "string_pattern_mismatch": ("{name} cannot be {got}", "write something that matches {pattern}"),
    "string_too_long": ("{name} has more than {max_length} characters", "shorten it"),
    "int_type": ("{name} must be a whole number, not {got}", "write digits alone, without quotes"),
    "int_parsing_size": ("{name} is too large a number", "write a smaller one"),
    "bool_type": ("{name} must be true or false, not {got}", FLAG_HINT),
    "greater_than_equal": ("{name} must be at least {ge}, got {got}", "write a larger number"),
    "less_than_equal": ("{name} must be at most {le}, got {got}", "write a smaller number"),
    "literal_error": ("{name} cannot be {got}", "one of {expected}"),
    "enum": ("{name} cannot be {got}", "one of {expected}"),
    "uuid_parsing": ("{name} must be a UUID, not {got}", "leave it out to have one made"),
    "uuid_type": ("{name} must be a UUID, not {got}", "leave it out to have one made"),
    "list_type": ("{name} must be a list, not {got}", "write it as [first, second]"),
    "dict_type": ("{name} must be a mapping (key: value), not {got}", MAPPING_HINT),
    "model_type": ("{name} must be a mapping (key: value), not {got}", MAPPING_HINT),
    "model_attributes_type": ("{name} must be a mapping (key: value), not {got}", MAPPING_HINT),
}


def in_plain_words(error: Any, name: str) -> tuple[str, str]:
    """One of Pydantic's errors as a message and a hint; ``name`` is what the field is called."""
    words = _WORDS.get(error["type"])
    if words is None:
        return (
            f"{name}: {error['msg'].removeprefix('Value error, ')}",
            "see docs/contract-file.md for what can stand here",
        )
    values = {**error.get("ctx", {}), "name": name, "got": shown(error["input"])}
    is_filled = "{expected}" in words[1] or "{pattern}" in words[1]
    return words[0].format_map(values), words[1].format_map(values) if is_filled else words[1]
