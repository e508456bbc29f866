"""A contract written down again as plain data, and the digests and ids that follow from it.

Digests of a contract, and the ids that follow from them.

A step without an id of its own gets one made of the contract's digest and the step's position (X-122): the same file
gives the same ids wherever and whenever it is loaded. What a step runs is not part of that digest, so that editing a
binding leaves the ids alone. When a contract is run (`schedule:`) is part of none: it changes nothing in a run.

A contract written down again, in the long form, as plain JSON data.

Loading what is written here gives an equal contract, down to which fields were set and which were left to their default:
the planner and the driver tell these apart (X-101, X-162).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from detent.canon import digest_text, encode_trusted, json_digest, json_encode, json_encode_trusted, sha256
from detent.canon.strict_json import JsonValue
from detent.contract.model import Binding, Contract, Param
from detent.contract.params import declaration_of
from detent.contract.schedule import schedule_document
from detent.contract.steps import Draft
from detent.contract.words import KEY, LONG_FORM_BYTES_MAX, format_duration
from detent.workflow.identity import uuid8
from detent.workflow.ordering import Edges
from detent.workflow.plain import PlainStep

STEP_LABEL: Final = "contract-step/v1"
CORRELATION_LABEL: Final = "contract-correlation/v1"


def contract_digest(contract: Contract) -> str:
    """The digest of what is planned: definition, steps, parameters and what the run gives back."""
    document: dict[str, JsonValue] = {
        "definition": dict(contract.outline.document),
        "params": {name: declaration_of(param) for name, param in contract.params.items()},
        "steps": [*step_documents(contract).values()],
    }
    if contract.result is not None:
        document["result"] = contract.result
    return digest_text(_digest(document))


def bindings_digest(contract: Contract) -> str:
    """The digest of what the steps run, each under its id and with the key that references use."""
    documents = binding_documents(contract)
    document: list[JsonValue] = [
        [str(step.step_id), contract.keys[step.step_id], documents[step.step_id]]
        for step in contract.plain_steps
        if step.step_id in documents
    ]
    return digest_text(_digest(document))


def id_maker(
    definition: Mapping[str, Any], params: Mapping[str, Param], drafts: Sequence[Draft], edges: Edges
) -> Callable[[str, int], UUID]:
    """A function from label and position to an id. Computed from the document without any id that is to be made."""
    document = {
        "definition": definition,
        "params": {name: declaration_of(param) for name, param in params.items()},
        "steps": [
            {"id": draft.key, "fields": draft.fields, "needs": list(needed)}
            for draft, needed in zip(drafts, edges, strict=True)
        ],
    }
    seed = json_digest(json_encode(document, name="contract", bytes_max=LONG_FORM_BYTES_MAX))

    def make(label: str, index: int) -> UUID:
        return uuid8(sha256(encode_trusted([label, seed, index]))[:16])

    return make


def _digest(document: JsonValue) -> bytes:
    """The digest of a document whose parts were checked when the contract was loaded."""
    return json_digest(json_encode_trusted(document))


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
    _put(written, "chunk", binding.chunk)
    _put(written, "resources", dict(binding.resources))
    _put(written, "pool", binding.pool)
    _put(written, "labels", list(binding.labels))
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
