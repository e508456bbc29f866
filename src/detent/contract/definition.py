"""The upper part of a contract, in either form: name, version, mode, timeout, schedule, parameters.

Fields of the workflow contract that are checked, kept, and change nothing when a contract is run, with the reason (X-120, X-194).

Written with the value they have anyway, they are as good as left out, and nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from detent.canon.late import pattern
from detent.contract.findings import Path, Spot
from detent.contract.schedule import check_schedule
from detent.contract.shapes import BAD, Check, keep, mapping, refuse_short_timeout, shell, text
from detent.contract.words import BadDuration, parse_duration, shown
from detent.workflow.plain import RESERVED_MODES, Outline, PlainStep, plain_outline
from detent.workflow.vocabulary import EnumExecutionMode

MODE_DEFAULT: Final = EnumExecutionMode.PARALLEL.value
"""Of the short form. All modes plan one order; what may run at the same time is what people expect to run so."""
RUN_TIMEOUT_MS_MIN: Final = 1_000
MODES: Final = tuple(mode.value for mode in EnumExecutionMode if mode not in RESERVED_MODES)
_FIRST: Final = {"major": 1, "minor": 0, "patch": 0}
_VERSION: Final = pattern(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


def short_definition(checked: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that the checked keys of a short form stand for."""
    metadata = {
        "version": dict(_FIRST),
        "workflow_name": checked.get("name", "contract"),
        "workflow_version": checked.get("version", dict(_FIRST)),
        "description": checked.get("description", ""),
        "execution_mode": checked.get("mode", MODE_DEFAULT),
    }
    if "timeout" in checked:
        metadata["timeout_ms"] = checked["timeout"]
    return {"version": dict(_FIRST), "workflow_metadata": metadata, "execution_graph": {"version": dict(_FIRST)}}


def build_short(fields: Mapping[str, Any], spot: Spot) -> Outline | None:
    """The definition of a short form; what the tables let through and the model does not is reported where it is written."""
    return plain_outline(fields) or _modelled(fields, spot, _written_as)


def build_long(value: Any, spot: Spot) -> Outline | None:
    """The definition of a long form, with every key known and the mode one that can be planned."""
    if (outline := plain_outline(value)) is not None:
        return outline
    if mapping(value, spot) is BAD:
        return None
    from detent.contract.model_fields import report_unknown  # noqa: PLC0415 - loads the models
    from detent.workflow.models import ModelWorkflowDefinition  # noqa: PLC0415

    report_unknown(value, ModelWorkflowDefinition, spot)
    metadata = value.get("workflow_metadata")
    if type(metadata) is dict:
        here = spot.at("workflow_metadata")
        if refuse_short_timeout(metadata.get("timeout_ms"), here.at("timeout_ms")):
            metadata = {name: item for name, item in metadata.items() if name != "timeout_ms"}
            value = {**value, "workflow_metadata": metadata}
        if type(metadata.get("execution_mode")) is str:
            _mode(metadata["execution_mode"], here.at("execution_mode"))
        if type(metadata.get("workflow_name")) is str and metadata["workflow_name"].isspace():
            here.at("workflow_name").fault("workflow_name must not be empty", "name the workflow")
    return _modelled(value, spot)


def _modelled(value: Mapping[str, Any], spot: Spot, written_as: Callable[[Path], Path] | None = None) -> Outline | None:
    """The outline of a definition that its model checks."""
    from detent.contract.model_fields import build, outline_of  # noqa: PLC0415 - see above
    from detent.workflow.models import ModelWorkflowDefinition  # noqa: PLC0415

    definition = build(ModelWorkflowDefinition, value, spot, written_as)
    return None if definition is None else outline_of(definition)


def _written_as(field_path: Path) -> Path:
    name = field_path[1] if field_path[0] == "workflow_metadata" and len(field_path) > 1 else field_path[0]
    known = {"workflow_name": "name", "workflow_version": "version", "timeout_ms": "timeout", "execution_mode": "mode"}
    return (known.get(str(name), name), *field_path[2:])


def _mode(value: Any, spot: Spot) -> Any:
    if type(value) is str and value in MODES:
        return value
    known = f"one of {', '.join(MODES)}"
    if type(value) is str and value in {mode.value for mode in RESERVED_MODES}:
        spot.fault(f"execution mode {value!r} is reserved for a later version", known)
    else:
        spot.fault(f"there is no execution mode {shown(value)}", spot.report.nearest(value, MODES) or known)
    return BAD


def _description(value: Any, spot: Spot) -> Any:
    if type(value) is str:
        return value
    spot.fault(f"description must be text, not {shown(value)}", "put it in quotes")
    return BAD


def _version(value: Any, spot: Spot) -> Any:
    if type(value) is dict:
        if tuple(value) != tuple(_FIRST):
            from detent.contract.model_fields import report_unknown  # noqa: PLC0415 - see above
            from detent.workflow.models import ModelSemVer  # noqa: PLC0415

            report_unknown(value, ModelSemVer, spot)
        return value
    match = _VERSION.fullmatch(value) if type(value) is str else None
    if match is None:
        spot.fault(f"version cannot be {shown(value)}", "write three numbers: `version: 1.0.0`")
        return BAD
    return {name: int(number) for name, number in zip(_FIRST, match.groups(), strict=True)}


def _run_timeout(value: Any, spot: Spot) -> Any:
    try:
        return parse_duration(value, least_ms=RUN_TIMEOUT_MS_MIN)
    except BadDuration as exc:
        spot.fault(f"the timeout of a run {exc}", exc.hint)
        return BAD


SHORT_KEYS: Final[Mapping[str, Check]] = {
    "name": text,
    "mode": _mode,
    "description": _description,
    "version": _version,
    "timeout": _run_timeout,
    "schedule": check_schedule,
    "shell": shell,
    "params": keep,
    "steps": keep,
    "result": keep,
}
LONG_KEYS: Final = ("workflow_definition", "schedule", "shell", "params", "steps", "result")


_RESERVED: Final = "it is reserved for a later version"
IN_STEPS: Final[Mapping[str, str]] = {
    "continue_on_error": "error_action decides what follows a failure",
    "order_index": "steps run in the order of their needs and of the file",
    "parallel_group": "it is a label; needs and mode decide what runs at once",
    "compensation_action": _RESERVED,
    "checkpoint_required": f"{_RESERVED}; every result is kept anyway",
    "idempotency_key": f"{_RESERVED}; equal work is found by its content",
}
IN_DEFINITION: Final[Mapping[str, str]] = {
    "coordination_rules.synchronization_points": _RESERVED,
    "coordination_rules.failure_recovery_strategy": "retry and error_action of each step decide",
    "coordination_rules.max_retries": "retry of each step decides",
    "coordination_rules.retry_delay_ms": "the settings of the home have the delays",
    "compensation_enabled": _RESERVED,
    "saga_pattern": _RESERVED,
    "checkpoint_enabled": f"{_RESERVED}; every result is kept anyway",
}
_AS_GOOD_AS_UNSAID: Final = (None, False, 0)


def step_fields(step: PlainStep) -> Iterator[str]:
    """Those that a step sets."""
    return (
        name for name in IN_STEPS if name in step.model_fields_set and getattr(step, name) not in _AS_GOOD_AS_UNSAID
    )


def definition_fields(document: Mapping[str, Any]) -> frozenset[str]:
    """Those that a definition sets."""
    rules = document.get("coordination_rules", {})
    said = {**document, **{f"coordination_rules.{name}": value for name, value in rules.items()}}
    return frozenset(name for name in IN_DEFINITION if name in said and said[name] not in (*_AS_GOOD_AS_UNSAID, []))
