"""OpenAPI 3.1 from the table of routes (CORE-X008): every route, every answer, every code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from detent.access.changes import PRINCIPAL_PATTERN, WORKSPACE_PATTERN
from detent.access.headers import weak_tag
from detent.access.problem import MEDIA_TYPE
from detent.access.scopes import PUBLIC, own_scope
from detent.errors import registered
from detent.serve.table import ID_PATTERN, JOB_ID_PATTERN, JSON, Route, Table
from detent.version import __version__

_REF: Final = "#/components/schemas/{model}"
_TEXT: Final = {"type": "string"}
PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Why a request was not answered as asked (RFC 9457).",
    "required": ["type", "title", "status", "detail", "instance", "code", "retryable"],
    "properties": {
        "type": {"type": "string", "description": "Where the code is explained."},
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "instance": {"type": "string", "description": "The id of the request."},
        "code": _TEXT,
        "retryable": {"type": "boolean", "description": "Whether the same request may succeed later, unchanged."},
        "retry_after_ms": {"type": "integer"},
        "expected_transition_seq": {
            "type": "integer",
            "description": "Of a conflict: where the request expected the job.",
        },
        "stored_transition_seq": {"type": "integer", "description": "Of a conflict: where the job stands."},
        "committed_state": {"type": "string", "description": "Of a conflict: the state of the job."},
        "hint": _TEXT,
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {"path": _TEXT, "message": _TEXT},
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
_OWN_PATTERNS: Final = {
    "job_id": JOB_ID_PATTERN,
    "artifact": JOB_ID_PATTERN,
    "code": "^[A-Z][A-Z0-9_]{1,60}$",
    "batch": "^[0-9]{1,18}$",
    "upload": "^(sha256:[0-9a-f]{64}|up_[0-9a-f]{32})$",
    "principal": PRINCIPAL_PATTERN,
    "workspace": WORKSPACE_PATTERN,
    "record": "^[0-9]{1,5}:[0-9]{1,12}$",
}


def described(table: Table) -> tuple[bytes, str]:
    """The description as a server answers it, and its tag."""
    data = json.dumps(document(table), sort_keys=True).encode()
    return data, weak_tag(data)


def document(table: Table) -> dict[str, Any]:
    """The whole description."""
    routes = [route for route in table if not route.page]
    schemas = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, schemas)
        at = paths.setdefault(route.path, {})
        at[route.method.lower()] = operation
        if route.method == "GET":
            at["head"] = _head(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Detent",
            "version": __version__,
            "summary": "A job and workflow orchestrator whose history a stranger can check.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM, **schemas},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _models(routes: Iterable[Route]) -> Iterable[tuple[type[BaseModel], str]]:
    for route in routes:
        yield from ((model, "validation") for model in (route.body, route.query) if model is not None)
        yield from ((model, "serialization") for model in route.answers.values() if model is not None)


def _schemas(routes: Sequence[Route]) -> dict[str, Any]:
    models: Any = list(dict.fromkeys(_models(routes)))
    _, found = models_json_schema(models, ref_template=_REF)
    return dict(sorted(found.get("$defs", {}).items()))


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "x-detent-scope": route.scope,
        "x-detent-codes": sorted(route.all_codes),
        "x-detent-audited": route.audited,
    }
    if (own := own_scope(route.scope)) is not None:
        operation["x-detent-own-scope"] = own  # It is enough for what the caller submitted itself.
    parameters = [_path_parameter(name) for name in route.parameters]
    if route.query is not None:
        parameters += _query_parameters(schemas[route.query.__name__])
    parameters += _header_parameters(route)
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        content = {JSON: {"schema": {"$ref": _REF.format(model=route.body.__name__)}}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.takes:
        content = {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in route.takes}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = _responses(route)
    operation["security"] = [] if route.scope == PUBLIC else [{"key": []}]
    return operation


def _operation_id(route: Route) -> str:
    words = route.path.replace("{", "").replace("}", "").replace(":", "/").replace(".", "/").split("/")
    return "_".join([route.method.lower(), *(word for word in words if word and word != "v1")])


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": _OWN_PATTERNS.get(name, ID_PATTERN)}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of a query's model; a parameter that is null is left out."""
    parameters = []
    for name, field in schema.get("properties", {}).items():
        plain = {key: value for key, value in field.items() if key not in {"title", "anyOf", "default"}}
        choices = [one for one in field.get("anyOf", ()) if one != {"type": "null"}]
        if len(choices) == 1:
            plain |= choices[0]
        if field.get("default") is not None:
            plain["default"] = field["default"]
        required = name in schema.get("required", ())
        parameters.append({"name": name, "in": "query", "required": required, "schema": plain})
    return parameters


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    names = [*(["If-None-Match"] if route.etag else []), *(["Last-Event-ID"] if route.streams else [])]
    names += [*(["Idempotency-Key"] if route.idempotent else []), *route.headers]
    return [{"name": name, "in": "header", "required": False, "schema": {"type": "string"}} for name in names]


def _responses(route: Route) -> dict[str, Any]:
    headers = {"Detent-Request-Id": {"schema": _TEXT}, "Detent-Version": {"schema": _TEXT}}
    found: dict[str, Any] = {}
    for status, model in route.answers.items():
        if status == 204:
            found["204"] = {"description": "Done.", "headers": headers}
            continue
        if model is not None:
            content: dict[str, Any] = {JSON: {"schema": {"$ref": _REF.format(model=model.__name__)}}}
        else:
            schema = {"type": "object"} if route.media_type == JSON else _TEXT
            content = {route.media_type.partition(";")[0]: {"schema": schema}}
        content |= {media_type: {"schema": _TEXT} for media_type in route.also}
        described = (model.__doc__ or "").strip().splitlines()[0] if model is not None else "The answer."
        found[str(status)] = {"description": described, "headers": headers, "content": content}
    if route.etag:
        found["304"] = {"description": "The caller has it already.", "headers": headers}
    by_status: dict[int, list[str]] = {}
    for code in sorted(route.all_codes):
        by_status.setdefault(registered(code).http_status, []).append(code)
    for status, codes in sorted(by_status.items()):
        described = "; ".join(f"{code}: {registered(code).meaning}" for code in codes)
        found[str(status)] = {
            "description": described,
            "headers": headers,
            "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}},
        }
    return found


def _head(operation: dict[str, Any]) -> dict[str, Any]:
    """HEAD where GET is: the same without content."""
    responses = {
        status: {key: value for key, value in answer.items() if key != "content"}
        for status, answer in operation["responses"].items()
    }
    return {
        **operation,
        "operationId": operation["operationId"].replace("get_", "head_", 1),
        "responses": responses,
    }
