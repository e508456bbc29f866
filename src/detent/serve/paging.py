"""What listings share: their bounds, and the states that filters name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field

from detent.access.cursor import CURSOR_CHARS_MAX
from detent.errors import InvalidInput
from detent.serve.table import ID_PATTERN
from detent.words.states import state_typed

LIMIT: Final = 50
LIMIT_MAX: Final = 200

Id = Annotated[str, Field(pattern=ID_PATTERN)]
Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX)]
Cursor = Annotated[str, Field(min_length=1, max_length=CURSOR_CHARS_MAX)]


def word_typed(path: str, typed: str, words: Sequence[str]) -> str:
    """The state that a filter names, in either spelling and either case, as for commands."""
    word = state_typed(typed)
    if word is None or word not in words:
        message = f"is not one of {', '.join(words)}"
        raise InvalidInput(
            f"{path} {message}", code="VALIDATION_ERROR", details={"errors": [{"path": path, "message": message}]}
        )
    return word
