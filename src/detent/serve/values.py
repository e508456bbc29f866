"""Values that a request gives to a function: plain JSON, in which ``{"$result": JOB}`` stands for the result of a job of the workspace.

A key that begins with ``$`` is written with one ``$`` more, as in contracts. A digest that a caller writes is never followed: what a
request may name belongs to its workspace, and for everything else the answer is the same, whether it exists or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from detent.canon import parse_digest
from detent.canon.strict_json import JsonValue
from detent.errors import InvalidInput, RequestRefused
from detent.jobs.values import FILE, RESULT, result_reference

ResultOf = Callable[[str], str | None]
"""The name of a job's result; None when the workspace has no such result."""
FILE_FIELDS: Final = {"name": str, "size": int, "type": str}


def files_in(value: JsonValue, path: str) -> Iterator[tuple[bytes, str]]:
    """The digests of the files that a value names, each with its place. Raises `InvalidInput` for one that is not a file."""
    if type(value) is list:
        for place, item in enumerate(value):
            yield from files_in(item, f"{path}[{place}]")
    elif type(value) is dict and FILE in value:
        said = {name: type(item) for name, item in value.items() if name != FILE}
        if type(value[FILE]) is not str or any(FILE_FIELDS.get(name) is not kind for name, kind in said.items()):
            raise _invalid(path, "is not a file: {'$file': DIGEST, 'name': TEXT, 'size': BYTES, 'type': TEXT}")
        try:
            yield parse_digest(value[FILE]), path
        except InvalidInput:
            raise _invalid(path, "names a file by something that is not a digest") from None
    elif type(value) is dict:
        for key, item in value.items():
            yield from files_in(item, f"{path}.{key}")


def received(value: JsonValue, path: str, result_of: ResultOf) -> JsonValue:
    """A value as it is stored; refuses a result that the workspace does not have. Its files were looked at before."""
    if type(value) is list:
        return [received(item, f"{path}[{place}]", result_of) for place, item in enumerate(value)]
    if type(value) is not dict or FILE in value:
        return value
    if RESULT in value:
        return _result(value, path, result_of)
    for key in value:
        if key[:1] == "$" and key[:2] != "$$":
            raise _invalid(path, "has an unknown $ key")
    return {key: received(item, f"{path}.{key}", result_of) for key, item in value.items()}


def unknown_content(path: str) -> RequestRefused:
    """The one answer for content that a workspace may not name, whether it exists or not."""
    return RequestRefused(
        f"{path} names content that this workspace does not have",
        code="CONTENT_UNKNOWN",
        hint="upload the file first, or name the result of a job that has succeeded",
        details={"errors": [{"path": path, "message": "names content that this workspace does not have"}]},
    )


def _invalid(path: str, message: str) -> InvalidInput:
    return InvalidInput(
        f"{path} {message}",
        code="VALIDATION_ERROR",
        hint="write a key that begins with $ with one $ more",
        details={"errors": [{"path": path, "message": message}]},
    )


def _result(value: dict[str, Any], path: str, result_of: ResultOf) -> dict[str, str]:
    named = value[RESULT]
    found = result_of(named) if type(named) is str and len(value) == 1 else None
    if found is None:
        raise unknown_content(path)
    return result_reference(found)
