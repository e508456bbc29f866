"""The JSON Schema of contract files, for editors: both forms, every key with a line of help.

What the planner gets is generated from its models, one way and never back (WF-107, WF-108). What only the loader
knows (the short form, bindings, parameters) is written here; a test holds it to the tables that the loader checks by.

A schema cannot say everything: references, cycles and Python targets are left to ``detent validate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from detent.canon.grammar import (
    AMOUNT_MAX,
    CHUNK_MAX,
    LABEL,
    LABELS_MAX,
    POLICY,
    POLICY_SECTIONS,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    PRIORITY_NAMES,
    RESOURCE,
    RESOURCES_MAX,
)
from detent.contract.bindings import CATEGORIES, RETRY_MAX
from detent.contract.definition import LONG_KEYS, MODE_DEFAULT, MODES
from detent.contract.map_run import CHUNK_MAX as ITEMS_CHUNK_MAX
from detent.contract.map_run import FUNCTIONS, MAP_KEYS, ON_ERROR, RETRIES_MAX, WINDOW_MAX
from detent.contract.params import TYPES
from detent.contract.schedule import KEYS as SCHEDULE_KEYS
from detent.contract.schedule import MACROS, OVERLAPS, SKIP, UTC
from detent.contract.shapes import WORDS_MAX
from detent.contract.steps import LONG_STEP_KEYS, SHORT_STEP_KEYS
from detent.contract.words import KEY, STEPS_MAX
from detent.workflow.models import ModelWorkflowDefinition, ModelWorkflowStep
from detent.workflow.vocabulary import STEP_TYPES

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema of a contract file in either form."""
    return {
        "$schema": DIALECT,
        "title": "Detent contract",
        "description": "A workflow: steps, what they need and what they run. See docs/contract-file.md.",
        "if": {"type": "object", "required": ["workflow_coordination"]},
        "then": {"$ref": "#/$defs/LongForm"},
        "else": {"$ref": "#/$defs/ShortForm"},
        "$defs": _definitions(),
    }


def _definitions() -> dict[str, Any]:
    models = _model_definitions()
    step = models.pop("ModelWorkflowStep")
    fields = step["properties"]
    fields["step_type"]["enum"] = [name for name in fields["step_type"]["enum"] if name in STEP_TYPES]
    metadata = models["ModelWorkflowDefinitionMetadata"]["properties"]
    metadata["execution_mode"] = {"default": metadata["execution_mode"]["default"], "enum": list(MODES)}
    return {
        "LongForm": _object({"workflow_coordination": _ref("Coordination")}, "workflow_coordination"),
        "Coordination": _object(_in_order(_COORDINATION, LONG_KEYS), "workflow_definition"),
        "LongStep": _object(
            _in_order({**fields, **_BINDING, "depends_on": _NEEDS, "id": _ID}, LONG_STEP_KEYS), *step["required"]
        ),
        "ShortForm": _object(_SHORT, "name", "steps"),
        "ShortStep": _object(
            _in_order({**_short_fields(fields), **_BINDING, "needs": _NEEDS, "id": _ID}, SHORT_STEP_KEYS), "id", "run"
        ),
        **_PARTS,
        **models,
    }


def _model_definitions() -> dict[str, Any]:
    """The models' own schemas. Keys that a model would silently ignore are refused, as the loader refuses them."""
    _, document = models_json_schema([(ModelWorkflowDefinition, "validation"), (ModelWorkflowStep, "validation")])
    definitions: dict[str, Any] = _without_titles(document["$defs"])
    for name, model in _models(ModelWorkflowDefinition, ModelWorkflowStep).items():
        if model.model_config.get("extra") != "allow":
            definitions[name]["additionalProperties"] = False
    return definitions


def _models(*roots: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found = {root.__name__: root for root in roots}
    for root in roots:
        for field in root.model_fields.values():
            inner = [field.annotation, *getattr(field.annotation, "__args__", ())]
            found |= _models(*(part for part in inner if isinstance(part, type) and issubclass(part, BaseModel)))
    return found


def _short_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What the short form takes from the model under its own name, and what under a shorter one."""
    return {
        **{name: fields[name] for name in ("enabled", "error_action", "skip_on_failure")},
        "priority": {
            "anyOf": [
                {"type": "integer", "minimum": PRIORITY_MIN, "maximum": PRIORITY_MAX},
                {"enum": list(PRIORITY_NAMES)},
            ],
            "default": PRIORITY_DEFAULT,
            "description": "What goes first among work that waits; more is sooner.",
        },
        "name": {**fields["step_name"], "description": "For people; the id, if left out."},
        "type": {**fields["step_type"], "description": "Where the action is routed; follows from run, if left out."},
        "on_error": {"enum": ["stop", "continue"], "description": "What a failure of this step does to the run."},
    }


def _in_order(properties: Mapping[str, Any], keys: Any) -> dict[str, Any]:
    return {key: properties[key] for key in keys}


def _without_titles(value: Any) -> Any:
    """Pydantic titles everything after its name, which tells an editor nothing."""
    if isinstance(value, dict):
        return {key: _without_titles(item) for key, item in value.items() if key != "title" or isinstance(item, dict)}
    return [_without_titles(item) for item in value] if isinstance(value, list) else value


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return made | ({"required": list(required)} if required else {})


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _anchored(pattern: str) -> str:
    return f"^(?:{pattern})$"


_TEXT: Final = {"type": "string", "pattern": r"\S"}
_TEXTS: Final = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_ID: Final = {
    "type": "string",
    "pattern": _anchored(KEY.pattern),
    "description": "The key by which other steps, references and people name this step; unique in the file.",
}
_LABEL: Final = {"type": "string", "pattern": _anchored(LABEL.pattern)}
_NEEDS: Final = {**_TEXTS, "description": "The steps that have to succeed first."}
_REFERENCE: Final = {"oneOf": [_object({"$from": _TEXT}, "$from"), _object({"$param": _TEXT}, "$param")]}
_VERSION: Final = {"type": "string", "pattern": _anchored(r"(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}")}
_CODE_VERSION: Final = {**_TEXT, "description": 'Your own word for "the code is the same"; change it to run again.'}
_WITH: Final = {"type": "object", "description": "Keyword arguments; values may be {$from: step} or {$param: name}."}

_SHELL: Final = {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "maxItems": WORDS_MAX, "items": _TEXT}]}

_BINDING: Final[Mapping[str, Any]] = {
    "run": _ref("Run"),
    "inputs": {
        **_TEXTS,
        "description": "Paths or globs whose content decides whether the step is reused; {name} stands for an argument. Empty: no file counts.",
    },
    "outputs": {
        "anyOf": [*_TEXTS["anyOf"], {"type": "object", "additionalProperties": _TEXT}],
        "description": "Files or globs that the step leaves behind, in a list or by name.",
    },
    "env": {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": {"anyOf": [{"type": ["string", "number", "boolean"]}, _ref("Reference")]},
        "description": "Environment variables.",
    },
    "cwd": {**_TEXT, "description": "Working directory."},
    "timeout": {**_ref("Duration"), "description": "Wall limit of one attempt; no limit if left out."},
    "retry": {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": RETRY_MAX},
            _object(
                {
                    "max": {"type": "integer", "minimum": 0, "maximum": RETRY_MAX},
                    "on": {"type": "array", "minItems": 1, "items": {"enum": list(CATEGORIES)}},
                },
                "max",
            ),
        ],
        "description": "How often a failed attempt is repeated, and after which categories of failure.",
    },
    "cache": {"type": "boolean", "default": True, "description": "Whether an earlier result may be reused."},
    "map": {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": {"anyOf": [{"type": "array"}, _ref("Reference")]},
        "description": "Run once for each element of a list; the element is handed over under this name.",
    },
    "chunk": {
        "type": "integer",
        "minimum": 1,
        "maximum": CHUNK_MAX,
        "description": "How many elements of map share one job. Without it, their durations decide; 1: each has its own.",
    },
    "resources": {
        "type": "object",
        "maxProperties": RESOURCES_MAX,
        "propertyNames": {"pattern": _anchored(RESOURCE.pattern)},
        "additionalProperties": {"type": "integer", "minimum": 1, "maximum": AMOUNT_MAX},
        "description": "What one attempt takes of cpu, and of what config.toml or a worker elsewhere counts.",
    },
    "pool": {**_LABEL, "description": "The pool of workers elsewhere that may take the step."},
    "labels": {
        "anyOf": [_LABEL, {"type": "array", "items": _LABEL, "maxItems": LABELS_MAX}],
        "description": "What a worker elsewhere must be to take the step.",
    },
    **{
        kind: {
            "type": "string",
            "pattern": _anchored(POLICY.pattern),
            "description": f"The {kind} of the step's jobs: a name under [{section}] in config.toml.",
        }
        for kind, section in POLICY_SECTIONS.items()
    },
    "shell": {**_SHELL, "description": "The shell of a step that runs a command; the contract's, if left out."},
}
_DURATION_TEXT: Final = {
    "type": "string",
    "pattern": r"^(?=[0-9])([0-9.]+d)?([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)?$",
}
_SCHEDULE: Final[Mapping[str, Any]] = {
    "every": {
        "anyOf": [{"type": "number", "minimum": 1}, _DURATION_TEXT],
        "description": "A period, counted from 1970-01-01 00:00 UTC; from 1s to 366 days.",
    },
    "offset": {
        "anyOf": [{"type": "number", "minimum": 0}, _DURATION_TEXT],
        "default": 0,
        "description": "How long after the beginning of each period.",
    },
    "cron": {
        "type": "string",
        "pattern": rf"^\s*({'|'.join(MACROS)}|\S+(\s+\S+){{4}})\s*$",
        "description": "Minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly.",
    },
    "timezone": {**_TEXT, "default": UTC, "description": "The time zone of the cron line, such as Europe/Berlin."},
    "overlap": {
        "enum": list(OVERLAPS),
        "default": SKIP,
        "description": "What happens to an occurrence whose predecessor still runs: it is missed, or it waits.",
    },
}
_FUNCTION: Final = {"type": "string", "pattern": ".:.", "description": "module:function or path/file.py:function"}


def _or_param(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a setting of a map may be, or a parameter in its place; the help stays beside it, where editors look for it."""
    outer = {name: said[name] for name in ("description", "default") if name in said}
    inner = {name: value for name, value in said.items() if name not in outer}
    return {"anyOf": [*inner.get("anyOf", [inner]), _ref("Parameter")], **outer}


_GLOB: Final = _or_param(_TEXT)
_MAP: Final[Mapping[str, Any]] = {
    "files": {
        "anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _GLOB}],
        "description": "Files by a glob, or several; the function gets a path, in the order of names.",
    },
    "items": {
        "anyOf": [_TEXT, {"type": "array"}, _object({"$from": _TEXT}, "$from")],
        "description": "A list, a step's or parameter's list, or the name of a file with a JSON value a line.",
    },
    "compute": {**_FUNCTION, "description": "What is called on each item: module:function or path/file.py:function."},
    "commit": {
        "type": "string",
        "pattern": "^(?:(append|jsonl|jsonl[+]seq):.+|sqlite:.+#.+|(?!(append|jsonl|sqlite):).+:.+)$",
        "description": "Where the results go: append:FILE, jsonl:FILE, jsonl+seq:FILE, sqlite:FILE#TABLE, module:function.",
    },
    "filter": {**_FUNCTION, "description": "A function that says which items are computed; others are skipped."},
    "window": {
        "type": "integer",
        "minimum": 1,
        "maximum": WINDOW_MAX,
        "default": 2048,
        "description": "Items computed ahead of the slowest one, twice.",
    },
    "chunk": {
        "type": "integer",
        "minimum": 1,
        "maximum": ITEMS_CHUNK_MAX,
        "description": "Items of one job; by their number, if left out.",
    },
    "on_error": {"enum": list(ON_ERROR), "default": "stop", "description": "After a failed item."},
    "retries": {
        "type": "integer",
        "minimum": 0,
        "maximum": RETRIES_MAX,
        "default": 0,
        "description": "How often a failed item is tried again.",
    },
    "item_timeout": {**_ref("Duration"), "description": "Wall limit of one item; no limit if left out."},
    "commit_timeout": {
        **_ref("Duration"),
        "description": "How long the destination may take over one commit; 1h if left out.",
    },
}
_RESULT: Final = {"description": "What a run gives back; values may be {$from: step} or {$param: name}."}
_CONTRACT_SHELL: Final = {
    **_SHELL,
    "description": "The shell of `shell` steps; `bash -euo pipefail` if left out, `sh -eu` where there is no bash.",
}
_STEPS: Final = {"type": "array", "maxItems": STEPS_MAX}
_COORDINATION: Final[Mapping[str, Any]] = {
    "workflow_definition": _ref("ModelWorkflowDefinition"),
    "schedule": _ref("Schedule"),
    "shell": _CONTRACT_SHELL,
    "params": _ref("Params"),
    "steps": {**_STEPS, "items": _ref("LongStep")},
    "result": _RESULT,
}
_SHORT: Final[Mapping[str, Any]] = {
    "name": {**_TEXT, "description": "Name of the workflow."},
    "mode": {"enum": list(MODES), "default": MODE_DEFAULT, "description": "How the workflow is processed."},
    "description": {"type": "string", "default": ""},
    "version": {"anyOf": [_VERSION, _ref("ModelSemVer")], "default": "1.0.0"},
    "timeout": {**_ref("Duration"), "description": "Limit of the whole run, at least 1s; no limit if left out."},
    "schedule": _ref("Schedule"),
    "shell": _CONTRACT_SHELL,
    "params": _ref("Params"),
    "steps": {**_STEPS, "items": _ref("ShortStep")},
    "result": _RESULT,
}
_PARTS: Final[Mapping[str, Any]] = {
    "Run": {
        "description": "What the step runs: exactly one of python, code, shell, job, map.",
        "oneOf": [
            _object(
                {
                    "python": {
                        "type": "string",
                        "pattern": ".:.",
                        "description": "module:function or path/file.py:function",
                    },
                    "with": _WITH,
                    "args": {"type": "array", "description": "Positional arguments."},
                    "version": _CODE_VERSION,
                },
                "python",
            ),
            _object(
                {
                    "code": {**_TEXT, "description": "Python source; runs in the sandbox."},
                    "with": _WITH,
                    "entrypoint": {
                        "type": "string",
                        "pattern": r"^[^\W\d]\w*$",
                        "default": "main",
                        "description": "The function to call.",
                    },
                    "version": _CODE_VERSION,
                },
                "code",
            ),
            _object(
                {"shell": {**_TEXT, "description": "A command line for the step's shell."}, "version": _CODE_VERSION},
                "shell",
            ),
            _object({"job": {"type": "object", "required": ["job_type"], "properties": {"job_type": _TEXT}}}, "job"),
            _object({"map": _ref("Map"), "version": _CODE_VERSION}, "map"),
        ],
    },
    "Map": {
        **_object(
            {key: _MAP[key] if key in FUNCTIONS else _or_param(_MAP[key]) for key in MAP_KEYS}, "compute", "commit"
        ),
        "description": "A function over items, on all cores; results are committed strictly in order, each exactly once.",
        "oneOf": [{"required": ["files"]}, {"required": ["items"]}],
    },
    "Params": {
        "type": "object",
        "propertyNames": {"pattern": _anchored(KEY.pattern)},
        "additionalProperties": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "array", "null"]},
                _object({"type": {"enum": list(TYPES)}, "default": True, "description": {"type": "string"}}),
            ]
        },
        "description": "Parameters: a default each, a declaration, or nothing for one that every run must be given.",
    },
    "Duration": {
        "anyOf": [
            {"type": "number", "minimum": 0.1},
            _DURATION_TEXT,
        ]
    },
    "Schedule": {
        **_object(_in_order(_SCHEDULE, SCHEDULE_KEYS)),
        "description": "When the contract is run again, with `detent run --watch`: either every or cron.",
        "oneOf": [
            {"required": ["every"], "properties": {"timezone": False}},
            {"required": ["cron"], "properties": {"offset": False}},
        ],
    },
    "Reference": _REFERENCE,
    "Parameter": {**_object({"$param": _TEXT}, "$param"), "description": "The value of a parameter."},
}
