"""From a draft to the payload that is signed: what the platform fills in, checks and derives (X-152, JOB-025).

Time and chance come in as arguments. The bytes made here are what the manifest's ``payload_digest`` is taken of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.errors import InvariantBroken
from detent.jobs.dedupe import ExecutionKey, execution_key, input_hash
from detent.jobs.fields import EnvelopeInvalid, validate
from detent.jobs.payload import DatasetDependency, ExecuteInputs, JobPayload, ObjectExecute, read_payload
from detent.jobs.platform_order import FILLED_IN


def complete_payload(draft: JobPayload, *, created_at: str, user_id: str, env_version: str, nonce: str) -> JobPayload:
    """The payload as the platform signs it: nothing left open, nothing left to defaults.

    Time and nonce are the platform's. An environment the draft chose is kept. A requester or a key that the draft
    already names must be the true one.
    """
    document = _written_out(draft.model_dump(mode="json"), draft.document())
    if draft.requested_by is not None and draft.requested_by.user_id != user_id:
        raise _invalid("requested_by.user_id", "is not the user who asks")
    document["requested_by"] = {**(document.get("requested_by") or {}), "user_id": user_id}
    document["created_at"], document["nonce"] = created_at, nonce
    if draft.environment.env_version is None:
        document["environment"]["env_version"] = env_version
    filled = validate(JobPayload, document, name="payload")
    key = key_of(filled)
    if draft.execution_key not in (None, key):
        raise _invalid("execution_key", f"is not the key of this work, which is {key}")
    return validate(JobPayload, {**filled.document(), "execution_key": key}, name="payload")


def _written_out(whole: Any, given: Any) -> Any:
    """A dump with every default in it, but without nulls that were not written."""
    if isinstance(whole, dict):
        named = given if isinstance(given, dict) else {}
        return {
            name: _written_out(value, named.get(name))
            for name, value in whole.items()
            if value is not None or name in named
        }
    if isinstance(whole, list) and isinstance(given, list):
        return [_written_out(*pair) for pair in zip(whole, given, strict=True)]
    return whole


def read_complete_payload(data: bytes | Mapping[str, Any]) -> JobPayload:
    """Read a payload as an executor does: a draft is refused by the first field it leaves open."""
    payload = read_payload(data)
    if (path := missing_field(payload)) is not None:
        raise _invalid(path, "is missing; an executor takes complete payloads only")
    return payload


def missing_field(payload: JobPayload) -> str | None:
    """The first field that a complete payload has and this one leaves out or to a default; None for a complete one."""
    for name in FILLED_IN:
        if getattr(payload, name) is None:
            return name
    if payload.environment.env_version is None:
        return "environment.env_version"
    return _first_missing(payload.model_dump(mode="json", exclude_none=True), payload.document())


def _first_missing(whole: Mapping[str, Any], given: Mapping[str, Any], path: str = "") -> str | None:
    for name, value in whole.items():
        if name not in given:
            return f"{path}{name}"
        if isinstance(value, dict) and isinstance(given[name], dict):
            found = _first_missing(value, given[name], f"{path}{name}.")
            if found is not None:
                return found
    return None


def ingredients(payload: JobPayload) -> dict[str, Any]:
    """What goes into the work, for `input_hash` and to explain why something ran again (JOB-021, JOB-023).

    Defaults are written out, so a draft and its complete form agree. Objects count by id and pinned content, datasets by
    digest alone: a file's name is not part of it. The wanted formats and the network are, because they change what comes
    out; limits are not, because they only decide whether it does.
    """
    inputs = payload.inputs.model_dump(mode="json", exclude={"object": {"dependencies"}, "dependency_snapshots": True})
    output = payload.output_spec.model_dump(mode="json")
    found: dict[str, Any] = {
        "inputs": inputs,
        "output_spec": {**output, "formats": sorted(output["formats"])},
        "language": payload.environment.language,
        "network_access": payload.environment.network_access,
    }
    if isinstance(payload, ObjectExecute):
        found.update(_dependencies(payload.inputs))
    return found


def _dependencies(inputs: ExecuteInputs) -> dict[str, Any]:
    pinned = sorted(inputs.dependency_snapshots, key=lambda snapshot: snapshot.id)
    datasets = {item.digest for item in inputs.object.dependencies if isinstance(item, DatasetDependency)}
    return {
        "objects": [[item.id, item.content_digest, item.resolved_runtime] for item in pinned],
        "datasets": sorted(datasets),
    }


def key_of(payload: JobPayload) -> ExecutionKey:
    """The execution key of a payload whose environment is known."""
    if payload.environment.env_version is None:
        raise InvariantBroken("the key of a payload is asked for before its environment is known")
    return execution_key(
        payload.job_type,
        payload.document_revision_id,
        payload.object_ids,
        input_hash(ingredients(payload), name="payload"),
        payload.environment.env_version,
    )


def _invalid(path: str, message: str) -> EnvelopeInvalid:
    return EnvelopeInvalid(f"payload.{path}: {message}", details={"path": path})
