"""Values on their way into and out of the user's function, inside the worker.

The rules are those of `detent.jobs.values` and `detent.canon.strict_json`. They stand here once more for the plain case only,
because loading those rooms would double the time in which a worker is ready; values that are not plain are left to
`detent.executor.json_form`, so that there is one truth about what is converted and refused, and one wording for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from detent.executor.plain import wire

_DEPTH_MAX = 64
_INTEGER_BITS_MAX = 2048
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=True
).encode
_decode = json.JSONDecoder().decode


class NotPlain(Exception):
    """A value that needs a closer look."""


class Encoded:
    """A result that our own code has written as stored strict JSON already: it is passed on as it is."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Unfit(Exception):
    """A result that cannot be kept: why, under which code, in which category."""

    def __init__(self, category: str, code: str, message: str) -> None:
        super().__init__(message)
        self.category = category
        self.code = code
        self.message = message


def arguments(data: bytes, values: bytes, content: str) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments as the user's function gets them."""
    positional, named = _decode(data.decode())
    if b'"$' not in data:
        return positional, named
    results = {digest: _decode(value.decode()) for digest, value in wire.read_values(values).items()}
    positional = [restored(value, results, content) for value in positional]
    return positional, {_unescaped(name): restored(value, results, content) for name, value in named.items()}


class ArrayArguments:
    """The arguments of an array's elements."""

    def __init__(self, data: bytes, values: bytes, content: str) -> None:
        self.elements: list[tuple[int, int | None, list[Any], dict[str, Any]]] = _decode(data.decode())
        """Place, index, positional and named arguments, as they are stored."""
        self._is_plain = b'"$' not in data
        self._values, self._content = values, content
        self._results: dict[str, Any] | None = None

    def restored(self, positional: list[Any], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of one element as the user's function gets them."""
        if self._is_plain:
            return positional, named
        if self._results is None:
            read = wire.read_values(self._values)
            self._results = {digest: _decode(value.decode()) for digest, value in read.items()}
        results, content = self._results, self._content
        positional = [restored(value, results, content) for value in positional]
        return positional, {_unescaped(name): restored(value, results, content) for name, value in named.items()}


def restored(value: Any, results: dict[str, Any], content: str) -> Any:
    """A stored value with its references resolved: see `detent.jobs.values.restored`."""
    if type(value) is dict:
        if len(value) == 1 and "$result" in value and type(value["$result"]) is not dict:
            if value["$result"] not in results:
                raise Unfit(
                    "DEPENDENCY_ERROR", "DEPENDENCY_MISSING", f"the result {value['$result']:.80} did not come along"
                )
            return restored(results[value["$result"]], results, content)
        if "$file" in value and type(value["$file"]) is not dict:
            from detent.executor.file import File  # noqa: PLC0415 - only where there is one

            return File.kept(value, content)
        return {_unescaped(key): restored(item, results, content) for key, item in value.items()}
    if type(value) is list:
        return [restored(item, results, content) for item in value]
    return value


def _unescaped(key: str) -> str:
    return key[1:] if key[:1] == "$" else key


def result(value: Any, content: str, bytes_max: int) -> bytes:
    """A function's result as stored strict JSON; raises `Unfit` for one that has none, naming the place."""
    if value is None:
        return b"null"
    try:
        data = value.data if type(value) is Encoded else _encode(_plain(value, 0)).encode()
    except (NotPlain, ValueError, RecursionError):  # Among the second: NaN, lone surrogates.
        data = _closely(value, content, bytes_max)
    if len(data) > bytes_max:
        raise _too_large(len(data), bytes_max)
    return data


def written(value: Any) -> bytes:
    """A stored value of our own making as strict JSON."""
    return _encode(value).encode()


def _plain(value: Any, depth: int) -> Any:
    """The value itself, once it is certain that it can be written as it is."""
    kind = type(value)
    if kind is str or kind is float or kind is bool or value is None:
        return value
    if kind is int:
        if value.bit_length() > _INTEGER_BITS_MAX:
            raise NotPlain
        return value
    if depth == _DEPTH_MAX:
        raise NotPlain
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or key[:1] == "$":
                raise NotPlain
            _plain(item, depth + 1)
    elif kind is list or kind is tuple:  # Which JSON writes as a list.
        for item in value:
            _plain(item, depth + 1)
    else:
        raise NotPlain
    return value


def _closely(value: Any, content: str, bytes_max: int) -> bytes:
    from detent.executor.json_form import NoJsonForm, json_form  # noqa: PLC0415 - most results are plain

    try:
        return _encode(json_form(value, special=_keeper(content))).encode()
    except NoJsonForm as exc:
        raise Unfit("USER_CODE_ERROR", "RESULT_NOT_JSON", f"{exc.told('result')}; return {exc.instead}") from None
    except MemoryError:
        raise _too_large(None, bytes_max) from None


def _keeper(content: str) -> Callable[[Any], Any]:
    """What keeps files and names them; everything else is left as it is."""
    from detent.executor.json_form import UNTOUCHED  # noqa: PLC0415

    def keep(value: Any) -> Any:
        file = getattr(sys.modules.get("detent.executor.file"), "File", None)
        if file is None or not isinstance(value, file):
            return UNTOUCHED
        from detent.errors import StoreUnavailable  # noqa: PLC0415 - only where there is a file
        from detent.store.content import content_store  # noqa: PLC0415

        try:
            return value.keep(content_store(content))
        except StoreUnavailable as exc:
            raise unavailable(exc) from exc

    return keep


def unavailable(exc: Exception) -> Unfit:
    """The disk's failure, not that of the user's code: it may be tried again."""
    return Unfit("INTERNAL_ERROR", "CONTENT_UNAVAILABLE", f"what the task made cannot be kept: {exc}")


def _too_large(size: int | None, bytes_max: int) -> Unfit:
    said = "more bytes than memory holds" if size is None else f"{size} bytes"
    return Unfit(
        "RESOURCE_LIMIT",
        "RESULT_TOO_LARGE",
        f"the result has {said} as JSON, and {bytes_max} are allowed: write it to a file and return detent.File(path)",
    )
