"""What listings share: their bounds, and the states that filters name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

from pydantic import AfterValidator, Field, WithJsonSchema

from detent.access.actions import ACTIONS
from detent.access.cursor import CURSOR_CHARS_MAX
from detent.access.scopes import ROLES, SCOPES
from detent.owner.names import NAME_CHARS_MAX, NAME_PATTERN
from detent.serve.table import ID_PATTERN
from detent.words.states import CANCELLED, FAILED, JOB_STATES, RUNNING, STEP_STATES, SUCCEEDED

LIMIT: Final = 50
LIMIT_MAX: Final = 200

Id = Annotated[str, Field(pattern=ID_PATTERN)]
Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX)]
Cursor = Annotated[str, Field(pattern=rf"^[A-Za-z0-9_-]{{1,{CURSOR_CHARS_MAX}}}$")]


Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=NAME_CHARS_MAX)]
"""What something is called; it lies beside the ledger and can be forgotten."""


def one_of(words: Sequence[str], value: str) -> str:
    """Check that a filter names one of these words, and say which there are."""
    if value not in words:
        raise ValueError(f"is not one of {', '.join(words)}")
    return value


def _word(words: Sequence[str]) -> tuple[AfterValidator, WithJsonSchema]:
    return AfterValidator(partial(one_of, words)), WithJsonSchema({"type": "string", "enum": list(words)})


Role = Annotated[str, *_word(tuple(ROLES))]
ScopeName = Annotated[str, *_word(tuple(sorted(SCOPES)))]
ActionName = Annotated[str, *_word(tuple(sorted(ACTIONS)))]
JobState = Annotated[
    str, AfterValidator(partial(one_of, JOB_STATES)), WithJsonSchema({"type": "string", "enum": list(JOB_STATES)})
]
StepState = Annotated[
    str, AfterValidator(partial(one_of, STEP_STATES)), WithJsonSchema({"type": "string", "enum": list(STEP_STATES)})
]
RUN_FILTERS: Final = (RUNNING, SUCCEEDED, FAILED, CANCELLED)
RunStatus = Annotated[
    str, AfterValidator(partial(one_of, RUN_FILTERS)), WithJsonSchema({"type": "string", "enum": list(RUN_FILTERS)})
]
