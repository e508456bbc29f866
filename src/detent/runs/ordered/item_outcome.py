"""How an item of a chunk ends: with a value, skipped by `detent.SKIP`, or failed. Workers load this, so it loads nothing."""

from __future__ import annotations

from typing import Final

SUCCESS, SKIPPED, FAILED = "3", "4", "5"


class Skip:
    """What the function of an ordered run returns for an item that has no entry: it is skipped, and nothing is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "detent.SKIP"

    def __reduce__(self) -> str:
        return "SKIP"


SKIP: Final = Skip()


class ItemFailed(Exception):
    """An item that cannot even be given to the user's function: its file has changed, or is gone."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
