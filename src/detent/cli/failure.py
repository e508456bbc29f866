"""What a command that could not do its work says: lines for people, and one JSON document for programs.

Under ``-o json`` standard output has exactly one document, whether a command succeeds or not: ``{"ok": false, "error": {...}}`` when
it could not answer. The lines on standard error are the same either way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from detent.errors import registered

_ASKED = re.compile(r"-[A-Za-z]*?o(?P<format>.*)")
_END_OF_OPTIONS = "--"


@dataclass(frozen=True, slots=True)
class CommandFailure:
    """Why a command ended without an answer; its code says with which exit code."""

    code: str
    message: str
    hint: str | None = None
    retryable: bool | None = None
    """None: as the registry says of the code."""
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """What the process ends with."""
        return registered(self.code).exit_code

    def lines(self, *, named: bool = True) -> list[str]:
        """For people; an error with several reasons has a line for each. ``named``: with the code behind it."""
        listed = self.details.get("errors")
        reasons = [_reason(one) for one in listed] if isinstance(listed, list) else []
        code = f" ({self.code})" if named else ""
        several = bool(reasons) and "\n".join(reasons) == self.message
        said = [f"error: {reason}{code}" for reason in (reasons if several else [self.message])]
        return [*said, f"hint:  {self.hint}"] if self.hint else said

    def document(self) -> dict[str, object]:
        """The one document, as data."""
        entry = registered(self.code)
        error = {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "retryable": entry.retryable if self.retryable is None else self.retryable,
            "exit_code": entry.exit_code,
            "details": dict(self.details),
        }
        return {"ok": False, "error": error}

    def json(self) -> str:
        """The one document."""
        return json.dumps(self.document(), indent=2, default=str)


def _reason(one: object) -> str:
    """One of several reasons; a fault of a document is told with its path."""
    return f"{one['path']}: {one['message']}" if isinstance(one, Mapping) and "path" in one else str(one)


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, also one that cannot be parsed; the last ``-o`` counts."""
    asked = ""
    words = words[: words.index(_END_OF_OPTIONS)] if _END_OF_OPTIONS in words else words
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if (found := _ASKED.fullmatch(word)) is not None:
            asked = found["format"] or following
    return asked == "json"
