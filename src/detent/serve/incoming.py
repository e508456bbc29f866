"""What comes in: the head of a request as it was sent, and bodies that are read piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from starlette.types import Message, Receive


class Gone(Exception):
    """The caller has closed the connection; no answer can be sent."""


@dataclass(frozen=True, slots=True)
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


async def pieces_of(receive: Receive, bytes_max: int, too_large: Exception) -> AsyncIterator[bytes]:
    """A body as it comes; ``too_large`` is raised at the first byte too many."""
    size, more = 0, True
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        piece = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(piece)
        if size > bytes_max:
            raise too_large
        if piece:
            yield piece
