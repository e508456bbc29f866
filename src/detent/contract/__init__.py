"""Contracts: YAML bytes or plain data become a definition, steps and bindings, or findings with file and line."""

from __future__ import annotations

from typing import Any

from detent.contract import params, references
from detent.contract.findings import ContractInvalid, Finding, Place
from detent.contract.identity import bindings_digest, contract_digest, long_form
from detent.contract.load import from_document, load
from detent.contract.model import Binding, Contract, Kind, Param, Retry
from detent.contract.params import ParamsInvalid, parse_assignment


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of contract files, both forms; generated from the models (WF-107)."""
    from detent.contract import json_schema  # noqa: PLC0415 - loading a contract needs none of it

    return json_schema.schema()


__all__ = [
    "Binding",
    "Contract",
    "ContractInvalid",
    "Finding",
    "Kind",
    "Param",
    "ParamsInvalid",
    "Place",
    "Retry",
    "bindings_digest",
    "contract_digest",
    "from_document",
    "load",
    "long_form",
    "params",
    "parse_assignment",
    "references",
    "schema",
]
