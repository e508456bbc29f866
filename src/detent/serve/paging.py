"""What listings share: their bounds, and the states that filters name."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, Field, WithJsonSchema

from detent.access.actions import ACTIONS
from detent.access.cursor import CURSOR_CHARS_MAX
from detent.access.scopes import ROLES, SCOPES
from detent.owner.names import NAME_CHARS_MAX, NAME_PATTERN
from detent.serve.call import Answer, Shape
from detent.serve.listing import Place
from detent.serve.table import ID_PATTERN, JOB_ID_PATTERN
from detent.words.states import CANCELLED, FAILED, JOB_STATES, RUNNING, STEP_STATES, SUCCEEDED

_MOMENT: Final = re.compile(
    r"^([1-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(\.[0-9]{1,9})?Z$"
)
LIMIT: Final = 50
LIMIT_MAX: Final = 200

Id = Annotated[str, Field(pattern=ID_PATTERN)]
JobId = Annotated[str, Field(pattern=JOB_ID_PATTERN)]
Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX)]
Cursor = Annotated[str, Field(pattern=rf"^[A-Za-z0-9_-]{{1,{CURSOR_CHARS_MAX}}}$")]


Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=NAME_CHARS_MAX)]
"""What something is called; it lies beside the ledger and can be forgotten."""
Prefix = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:~/-]{4,200}$")]
"""The beginning of an id: at least four characters, so that it means few."""
Position = Annotated[str, Field(pattern=r"^[0-9]{1,5}:[0-9]{1,12}(?:,[0-9]{1,5}:[0-9]{1,12}){0,255}$")]
"""A position of the ledger, as ids of events are written: `0:1234`."""
Moment = Annotated[str, Field(pattern=_MOMENT.pattern)]
"""A moment in UTC, such as `2026-11-16T12:03:10Z`."""


def moment_ms(written: str | None) -> int | None:
    """A moment as milliseconds since 1970; the 29th of February of a common year is the 1st of March."""
    found = None if written is None else _MOMENT.fullmatch(written)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[place]) for place in range(1, 7))
    since = date(year, month, 1) - date(1970, 1, 1) + timedelta(day - 1, hour * 3_600 + minute * 60 + second)
    return max(0, since // timedelta(milliseconds=1) + int((found[7] or ".0")[1:].ljust(3, "0")[:3]))


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

NDJSON: Final = "application/x-ndjson"
"""For a whole listing, one item a line."""
ROWS_MAX: Final = 100_000
"""Items of a whole listing; more are read in pages."""
ROWS_AT_ONCE: Final = 500
T = TypeVar("T")


def whole_listing(
    page: Callable[[Place | None, int], Awaitable[tuple[list[T], Place | None]]],
    place: Place | None,
    shown: Callable[[T], Shape],
) -> Answer:
    """A listing from a place to its end, as lines of JSON that are read from the ledger while they are sent."""

    async def lines() -> AsyncIterator[bytes]:
        at, left = place, ROWS_MAX
        while left > 0:
            found, at = await page(at, min(ROWS_AT_ONCE, left))
            left -= len(found)
            if found:
                yield b"".join(shown(one).model_dump_json().encode() + b"\n" for one in found)
            if at is None:
                return

    return Answer(lines(), media_type=NDJSON)
