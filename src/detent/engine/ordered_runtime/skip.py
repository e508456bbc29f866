"""`detent.SKIP`: what a computation returns when an item has nothing to commit."""

from __future__ import annotations

from typing import Final


class Skip:
    """The type of `SKIP`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "detent.SKIP"

    def __reduce__(self) -> str:
        return "SKIP"


SKIP: Final = Skip()
