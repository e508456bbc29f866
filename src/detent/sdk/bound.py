"""A function by its name, and values as they are stored: what a call in another process is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from detent.canon import NotStrictJson, json_encode
from detent.executor.file import File
from detent.executor.json_form import DEPTH_MAX, UNTOUCHED, NoJsonForm, json_form
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
        if usual or value is None or type(value) is bool:
            return value
    kept = form_of(value, name, lambda given: given.keep(files) if isinstance(given, File) else UNTOUCHED)
    json_encode(kept, name=name)
    return kept


def form_of(value: Any, name: str, special: Callable[[Any], Any], *, depth_max: int = DEPTH_MAX) -> Any:
    """The stored form of an argument; one without a JSON form is refused by its name and the place in it (X-170)."""
    try:
        return json_form(value, special=special, depth_max=depth_max)
    except NoJsonForm as exc:
        shown = name.replace("=)", "=...)", 1)
        raise NotStrictJson(
            exc.told(shown), hint=f"pass {exc.instead}", details={"path": f"{name}{exc.place}"}
        ) from exc
