"""Documents as the contract writes them, whole and short, and small ways to change them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from detent.jobs import JobPayload, JobResult, complete_payload, read_payload, read_result

JOB_ID = "0b5f7a52-6f0e-4c1d-9d6a-2f6f5f6d7c01"
OTHER_JOB_ID = "0b5f7a52-6f0e-4c1d-9d6a-2f6f5f6d7c02"
WORKSPACE, PROJECT, DOCUMENT, REVISION = "workspace-1", "project-1", "document-1", "rev-1"
DIGEST_A, DIGEST_B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
ENV_VERSION = "py-executor@2026.01.10"
NONCE = "00112233445566778899aabbccddeeff"
CREATED_AT = "2026-01-10T10:00:00Z"

HEAD: dict[str, Any] = {
    "schema_version": "1.0",
    "job_id": JOB_ID,
    "workspace_id": WORKSPACE,
    "project_id": PROJECT,
    "document_id": DOCUMENT,
    "document_revision_id": REVISION,
}

# The four shortened payloads, with every field that the contract names for the type.
EXECUTE: dict[str, Any] = {
    **HEAD,
    "job_type": "object_execute",
    "target": {"object_id": "obj-a"},
    "inputs": {
        "object": {
            "type": "code",
            "content": {"format": "blockdoc", "value": {"blocks": []}},
            "dependencies": [{"kind": "object", "id": "obj-b"}, {"kind": "dataset", "digest": DIGEST_A}],
            "runtime": {"language": "python", "entrypoint": "main", "parameters": {"x": 10}},
        },
        "dependency_snapshots": [
            {"kind": "object", "id": "obj-b", "content_digest": DIGEST_B, "resolved_runtime": None}
        ],
    },
    "output_spec": {"return_stdout": True, "return_stderr": True, "formats": ["json", "png", "svg"]},
}
RENDER: dict[str, Any] = {
    **HEAD,
    "job_type": "object_render",
    "target": {"object_id": "obj-a"},
    "inputs": {"object": {"type": "equation", "content": {"format": "latex", "value": "\\int_0^1 x^2 dx"}}},
    "output_spec": {"formats": ["svg", "png"]},
}
EXPORT: dict[str, Any] = {
    **HEAD,
    "job_type": "document_export",
    "inputs": {"export_format": "pdf", "view_mode": "slide", "include_speaker_notes": False},
    "output_spec": {"formats": ["pdf"]},
}
THUMBNAIL: dict[str, Any] = {
    **HEAD,
    "job_type": "thumbnail_generate",
    "inputs": {"width": 320, "height": 180},
    "output_spec": {"formats": ["png"]},
}
SHORT = {document["job_type"]: document for document in (EXECUTE, RENDER, EXPORT, THUMBNAIL)}

# What the whole envelope has besides, with the contract's values.
REST: dict[str, Any] = {
    "created_at": CREATED_AT,
    "priority": "normal",
    "requested_by": {"user_id": "user-1"},
    "limits": {"timeout_ms": 30000, "cpu_ms": 30000, "memory_mb": 512, "max_output_kb": 256, "max_artifacts": 50},
    "environment": {"language": "python", "env_version": ENV_VERSION, "network_access": "disabled"},
    "nonce": NONCE,
}

SUCCEEDED: dict[str, Any] = {
    "schema_version": "1.0",
    "job_id": JOB_ID,
    "job_type": "object_execute",
    "status": "SUCCEEDED",
    "started_at": "2026-01-10T10:00:10Z",
    "finished_at": "2026-01-10T10:00:12Z",
    "duration_ms": 2000,
    "environment": {"env_version": ENV_VERSION},
    "resource_usage": {"cpu_ms": 1800, "memory_mb_peak": 210},
    "outputs": {"result_json": {"y": 100}, "stdout": "hello\n", "stderr": ""},
    "artifacts": [
        {
            "artifact_id": "artifact-1",
            "kind": "plot",
            "format": "png",
            "digest": DIGEST_A,
            "size_bytes": 120394,
            "uri": "s3://bucket/path/to/file.png",
            "content_type": "image/png",
            "metadata": {"width": 1024, "height": 768},
        }
    ],
    "logs": [{"level": "info", "message": "done", "timestamp": "2026-01-10T10:00:12Z"}],
    "nonce": NONCE,
}
FAILED: dict[str, Any] = {
    "schema_version": "1.0",
    "job_id": JOB_ID,
    "job_type": "object_execute",
    "status": "FAILED",
    "started_at": "2026-01-10T10:00:10Z",
    "finished_at": "2026-01-10T10:00:11Z",
    "environment": {"env_version": ENV_VERSION},
    "error": {
        "category": "USER_CODE_ERROR",
        "code": "PYTHON_EXCEPTION",
        "message": "ZeroDivisionError: division by zero",
        "details": {"traceback": "Traceback ...", "line": 12, "column": 3},
    },
    "outputs": {"stdout": "", "stderr": "oops"},
    "artifacts": [],
}


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document with one field, named by its path, set to another value."""
    copy = deepcopy(document)
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = copy
    for part in above:
        place = place[part]
    place[last] = value
    return copy


def without(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The document without one field."""
    copy = deepcopy(document)
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = copy
    for part in above:
        place = place[part]
    del place[last]
    return copy


def payload(document: dict[str, Any] = EXECUTE, **fields: Any) -> JobPayload:
    """A complete payload, made from a short document as the platform makes it."""
    names: dict[str, Any] = {
        "created_at": CREATED_AT,
        "user_id": "user-1",
        "env_version": ENV_VERSION,
        "nonce": NONCE,
    }
    return complete_payload(read_payload(document), **{**names, **fields})


def result(**fields: Any) -> JobResult:
    """A success, with some fields replaced."""
    return read_result({**SUCCEEDED, **fields})


def failure(category: str, code: str, status: str = "FAILED", **fields: Any) -> JobResult:
    """A failure of a category with a code."""
    error = {"category": category, "code": code, "message": "what was wrong"}
    return read_result({**FAILED, "status": status, "error": error, **fields})
