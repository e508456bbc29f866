"""A contract written down again, in the long form, as plain JSON data.

Loading what is written here gives an equal contract, down to which fields were set and which were left to their default:
the planner and the driver tell these apart (X-101, X-162).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from detent.canon.strict_json import JsonValue
from detent.contract.durations import format_duration
from detent.contract.model import Binding, Contract
from detent.contract.params import declaration_of
from detent.contract.schedule import schedule_document
from detent.contract.words import KEY
from detent.workflow.plain import PlainStep


def long_form(contract: Contract) -> dict[str, JsonValue]:
    """The contract as a document in the long form, every id written out."""
    coordination: dict[str, JsonValue] = {"workflow_definition": dict(contract.outline.document)}
    if contract.schedule is not None:
        coordination["schedule"] = schedule_document(contract.schedule)
    if contract.params:
        coordination["params"] = {name: declaration_of(param) for name, param in contract.params.items()}
    documents = binding_documents(contract)
    coordination["steps"] = [_step(step, contract, documents) for step in contract.plain_steps]
    if contract.result is not None:
        coordination["result"] = contract.result
    return {"workflow_coordination": coordination}


def binding_documents(contract: Contract) -> Mapping[UUID, dict[str, JsonValue]]:
    """The bindings of a contract as the keys of their steps, made once; not to be changed."""
    return contract.made("bindings", lambda: {key: binding_document(one) for key, one in contract.bindings.items()})


def step_documents(contract: Contract) -> Mapping[UUID, dict[str, JsonValue]]:
    """The steps of a contract as plain JSON, made once; not to be changed."""
    return contract.made("documents", lambda: {step.step_id: step.document() for step in contract.plain_steps})


def binding_document(binding: Binding) -> dict[str, JsonValue]:
    """A binding as the keys of a step; what has its default is left out."""
    run: dict[str, JsonValue] = {binding.kind.value: binding.target}
    _put(run, "args", list(binding.arguments))
    _put(run, "with", dict(binding.keywords))
    _put(run, "entrypoint", binding.entrypoint if binding.entrypoint != "main" else None)
    _put(run, "version", binding.version)
    written: dict[str, JsonValue] = {"run": run}
    if binding.inputs is not None:
        written["inputs"] = list(binding.inputs)
    _put(written, "outputs", dict(binding.outputs))
    _put(written, "env", dict(binding.env))
    _put(written, "cwd", binding.cwd)
    if binding.timeout_ms is not None:
        written["timeout"] = format_duration(binding.timeout_ms)
    if binding.retry is not None:
        written["retry"] = {"max": binding.retry.max, "on": list(binding.retry.on)}
    if not binding.cache:
        written["cache"] = False
    if binding.map is not None:
        written["map"] = {binding.map[0]: binding.map[1]}
    _put(written, "resources", dict(binding.resources))
    written.update(binding.policies)
    _put(written, "shell", list(binding.shell))
    return written


def _step(step: PlainStep, contract: Contract, bindings: Mapping[UUID, dict[str, JsonValue]]) -> dict[str, JsonValue]:
    key = contract.keys[step.step_id]
    written: dict[str, Any] = {}
    # A key that could not be written as an id is the step's name or its step_id, and will be again.
    if KEY.fullmatch(key):
        written["id"] = key
    written |= step_documents(contract)[step.step_id]
    return written | bindings.get(step.step_id, {})


def _put(target: dict[str, JsonValue], key: str, value: JsonValue) -> None:
    if value:
        target[key] = value
