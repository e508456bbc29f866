"""`detent.SKIP`: what a computation returns when an item has nothing to commit."""

from __future__ import annotations

from typing import Final


class Skip:
    """What the function of an ordered run returns for an item that has no entry: it is skipped, and nothing is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "detent.SKIP"

    def __reduce__(self) -> str:
        return "SKIP"


SKIP: Final = Skip()
