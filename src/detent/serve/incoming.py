"""What comes in: the head of a request as it was sent, and bodies that are read piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field


class Gone(Exception):
    """The caller has closed the connection; no answer can be sent."""


@dataclass(slots=True, eq=False)  # Nothing changes it; one is made for each request.
class Head:
    """What a request says before its body, as it was sent."""

    method: str
    scheme: str
    host: str
    """One that this server answers for."""
    path: str
    query: str
    header: Callable[[bytes], str | None] = field(repr=False)
    """The value of a header, by its name in small letters; several lines of it are one list."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A body that is read piece by piece, within the bound of its route."""

    pieces: AsyncIterator[bytes]
    size_bytes: int | None
    """As the request says it; None where it is sent in chunks."""


async def pieces_of(
    piece: Callable[[], Awaitable[bytes]], bytes_max: int, too_large: Callable[[], Exception]
) -> AsyncIterator[bytes]:
    """A body as it comes; what ``too_large`` makes is raised at the first byte too many."""
    size = 0
    while data := await piece():
        size += len(data)
        if size > bytes_max:
            raise too_large()
        yield data
