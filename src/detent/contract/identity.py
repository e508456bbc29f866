"""Digests of a contract, and the ids that follow from them.

A step without an id of its own gets one made of the contract's digest and the step's position (X-122): the same file
gives the same ids wherever and whenever it is loaded. What a step runs is not part of that digest, so that editing a
binding leaves the ids alone. When a contract is run (`schedule:`) is part of none: it changes nothing in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from detent.canon import digest_text, encode_trusted, json_digest, json_encode, json_encode_trusted, sha256
from detent.canon.strict_json import JsonValue
from detent.contract.limits import LONG_FORM_BYTES_MAX
from detent.contract.model import Contract, Param
from detent.contract.params import declaration_of
from detent.contract.steps import Draft
from detent.contract.written import binding_documents, step_documents
from detent.workflow.identity import uuid8
from detent.workflow.ordering import Edges

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
