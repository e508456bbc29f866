"""Field types that the models share.

Scalars are strict: a contract that writes ``"100"`` or ``true`` where a number belongs gets an error, and nothing is
coerced. Ids stay lenient, because text is how they are written in a file.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, StrictBool, StrictInt, StrictStr

from detent.canon import NotStrictJson, json_encode
from detent.workflow.errors import ModelOnexError
from detent.workflow.limits import TIMEOUT_MS_MIN

Text = StrictStr
Integer = StrictInt
Flag = StrictBool


def _refuse_short(value: Any) -> Any:
    """Refuse a timeout below the least one with the contract's own error; other faults are left to the field's type."""
    if type(value) is int and value < TIMEOUT_MS_MIN:
        raise ModelOnexError(
            f"a timeout must be at least {TIMEOUT_MS_MIN} ms, got {value}", context={"timeout_ms": value}
        )
    return value


Timeout = Annotated[StrictInt, BeforeValidator(_refuse_short)]


def require_json(value: object, name: str) -> None:
    """Raise ``ModelOnexError`` unless ``value`` is a strict JSON value; the message names the place inside ``name``."""
    if type(value) is dict and _is_plain(value):
        return
    try:
        json_encode(value, name=name)
    except NotStrictJson as exc:
        raise ModelOnexError(
            str(exc),
            context={"path": exc.details.get("path", name)},
            hint="use only dict, list, str, int, float, bool and None",
        ) from exc


def _is_plain(value: dict[object, object]) -> bool:
    """Whether there is nothing but ASCII text: nearly every payload, and much cheaper to see than to encode."""
    for key, item in value.items():
        if type(key) is not str or type(item) is not str or not (key.isascii() and item.isascii()):
            return False
    return True


def _json_object(value: Any) -> Any:
    require_json(value, "payload")
    return value


JsonPayload = Annotated[dict[str, Any], BeforeValidator(_json_object)]
