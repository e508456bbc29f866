"""``input_hash`` and ``execution_key``: two jobs with equal keys do the same work (X-148, X-170, X-186).

A key is found by content, so it lives in an index beside the ledger and never in a record: a reader who guesses an input
could test the guess against it (X-171). Within the index it belongs to its workspace, so that tenants never share
results.

Not to be confused with the kernel's transition key (one request about one job) or with the client's idempotency key (one
HTTP request): see the glossary (X-015).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NewType

from detent.canon import digest, digest_text, encode_trusted, json_encode, json_encode_trusted, parse_digest, sha256
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel.manifest import digest_fault, id_fault

KEY_TAG: Final = "execution_key/v1"
INPUT_LABEL: Final = b"detent/input_hash/v1\0"
TARGETS_MAX: Final = 10_000
"""Objects one job may be about."""

ExecutionKey = NewType("ExecutionKey", str)
"""``sha256:`` and 64 hex digits; the same key means the same work."""


def input_hash(ingredients: Mapping[str, Any], *, name: str = "inputs") -> str:
    """The hash of everything that goes into a job, from the ingredients as strict JSON.

    ``name`` is what an error calls the value in which something has no strict JSON form (NaN, a tuple).
    """
    return digest_text(digest(INPUT_LABEL, json_encode(dict(ingredients), name=name)))


def hash_of_ingredients(ingredients: Mapping[str, Any]) -> str:
    """The same for ingredients that were put together out of checked parts."""
    return digest_text(digest(INPUT_LABEL, json_encode_trusted(ingredients)))


def execution_key(
    job_type: str, document_revision_id: str, target_object_ids: Iterable[str], input_hash: str, env_version: str
) -> ExecutionKey:
    """The key of a platform job. The order and repetition of the object ids do not matter."""
    if isinstance(target_object_ids, str):
        raise InvalidInput("target_object_ids is a list of ids, not one text", details={"path": "target_object_ids"})
    targets = sorted({_text("target_object_ids", value) for value in target_object_ids})
    if len(targets) > TARGETS_MAX:
        raise InvalidInput(f"a job is about at most {TARGETS_MAX} objects", details={"path": "target_object_ids"})
    return _key(
        _text("job_type", job_type),
        _text("document_revision_id", document_revision_id),
        targets,
        _hash(input_hash),
        _text("env_version", env_version),
    )


def work_key(job_type: str, binding_digest: bytes, input_hash: str, env_version: str) -> ExecutionKey:
    """The key of a job without a document: a task or a workflow action, told apart by what it is bound to (X-186).

    It has one part fewer than a platform job's, and bytes where that has text, so the two never meet.
    """
    if fault := digest_fault("binding_digest", binding_digest):
        raise InvalidInput(fault, details={"path": "binding_digest"})
    return _key(_text("job_type", job_type), binding_digest, _hash(input_hash), _text("env_version", env_version))


def _key(*parts: object) -> ExecutionKey:
    return ExecutionKey(digest_text(sha256(encode_trusted([KEY_TAG, *parts]))))


def _text(name: str, value: object) -> str:
    if fault := id_fault(name, value):
        raise InvalidInput(fault, details={"path": name})
    return str(value)


def _hash(value: str) -> str:
    try:
        parse_digest(value)
    except InvalidInput as exc:
        raise InvalidInput(f"input_hash is not a digest: {show(value)}", details={"path": "input_hash"}) from exc
    return value
