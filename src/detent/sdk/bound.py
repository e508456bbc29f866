"""A function by its name, and values as they are stored: what a call in another process is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from detent.canon import NotStrictJson, json_encode
from detent.canon.strict_json import JSON_DEPTH_MAX
from detent.sdk.file import File
from detent.store.content import ContentFiles

_PLAIN: Final = (str, int, float, bool, type(None))
_USUAL: Final = 1 << 63
"""Numbers nearer to zero need no look, nor does short plain text."""
SHORT: Final = 4096


@dataclass(frozen=True, slots=True)
class BoundAlone:
    """A function by its name, with what was said about it where it was made a task."""

    name: str
    target: str
    base: str | None
    retries: tuple[int, tuple[str, ...]] | None
    timeout_ms: int | None


def stored_value(value: Any, name: str, files: ContentFiles) -> Any:
    """A value of the user's as it is stored; one that is not JSON is refused by its name and the place in it (X-170)."""
    if type(value) in _PLAIN:
        usual = (type(value) is int and -_USUAL < value < _USUAL) or (
            type(value) is str and len(value) < SHORT and value.isascii()
        )
        if not usual and value is not None and type(value) is not bool:
            _check(value, value, name)
        return value
    kept = _kept(value, files, 0)
    _check(kept, value, name)
    return kept


def _check(kept: Any, value: Any, name: str) -> None:
    try:
        json_encode(kept, name=name)
    except NotStrictJson as exc:
        from detent.sdk.recording import JSON_VALUES, instead  # noqa: PLC0415 - for mistakes alone

        # `submit(f, {1})` and a flow that calls `f({1})` make the same mistake and are told the same.
        raise NotStrictJson(str(exc).replace("=)", "=...)", 1), hint=f"{JSON_VALUES}; {instead(value)}") from exc


def _kept(value: Any, files: ContentFiles, depth: int) -> Any:
    """Files kept and named, keys escaped, tuples as lists; what JSON cannot hold stays for the encoder to name."""
    kind = type(value)
    if depth > JSON_DEPTH_MAX:
        return value
    if kind is dict:
        return {
            f"${key}" if type(key) is str and key[:1] == "$" else key: _kept(item, files, depth + 1)
            for key, item in value.items()
        }
    if kind is list or kind is tuple:
        return [_kept(item, files, depth + 1) for item in value]
    return value.keep(files) if isinstance(value, File) else value
