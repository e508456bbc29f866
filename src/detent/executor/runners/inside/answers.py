"""How a tool answers: the files it made, or why it could not. Plain values, returned as the job's result."""

from __future__ import annotations

import os
from typing import Any, NoReturn

TEXT_MAX = 400

INVALID, TOO_LARGE, UNSUPPORTED = "invalid", "too large", "unsupported"
"""The kinds of fault: the user's input is wrong; drawing it needs more than the job may have; not done here."""


class Fault(Exception):
    """The input cannot be drawn, for a reason that its author can act on."""

    def __init__(self, kind: str, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.line = line
        self.column = column

    def answer(self) -> dict[str, Any]:
        """As it is reported outside."""
        found: dict[str, Any] = {"kind": self.kind, "message": str(self)[:TEXT_MAX]}
        if self.line is not None:
            found["line"] = self.line
        if self.column is not None:
            found["column"] = self.column
        return {"fault": found}


def invalid(message: str, text: str | None = None, place: int = 0) -> NoReturn:
    """Raise a fault of the user's input, at a place of a text."""
    if text is None:
        raise Fault(INVALID, message)
    before = text[:place]
    raise Fault(INVALID, message, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def too_large(what: str, width: float, height: float, pixels_max: int) -> NoReturn:
    """Raise a fault for a picture with more pixels than the job's memory is meant to hold."""
    raise Fault(
        TOO_LARGE,
        f"{what} is {width:.0f} x {height:.0f} pixels; with this job's memory {pixels_max} pixels are allowed",
    )


def write(name: str, data: bytes) -> None:
    """Leave an output file."""
    with open(os.path.join(os.environ["DETENT_OUT"], name), "xb") as file:  # noqa: PTH118, PTH123  # as the guest does
        file.write(data)
