"""Discovery: which entries a run has, in which order, and the digest that names exactly these.

The order is that of the bytes of the normalised name (on disk: ``os.fsencode``, X-183), never the order in which a
directory lists them, so the same files get the same numbers on every machine and a name that is not UTF-8 has its place
like any other. An entry's seq is its place in the list: dense, from 0, and never given again (X-073).

A name that is found twice (two patterns match one file) is one entry. Entries that are values and not names need no
discovery: their order is the one they are given in, and equal values are different entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput

NAME_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Discovery:
    """The entries of a run: the seq of each is its index."""

    names: tuple[bytes, ...]
    repeated: int
    """How many eligible names were dropped because the same name had been found before."""

    @property
    def total(self) -> int:
        """The number of seqs."""
        return len(self.names)


def discover(names: Iterable[bytes], eligible: Callable[[bytes], bool] | None = None) -> Discovery:
    """Give every eligible entry exactly one seq; names that are not eligible get none (ORD-002, ORD-005)."""
    found: set[bytes] = set()
    seen = 0
    for name in names:
        plain = normalised(name)
        if eligible is None or eligible(plain):
            seen += 1
            found.add(plain)
    return Discovery(tuple(sorted(found)), seen - len(found))


def normalised(name: bytes) -> bytes:
    """A path without empty and ``.`` parts. ``..`` stays: behind a symbolic link it is not what it looks like."""
    if type(name) is not bytes or not name or len(name) > NAME_BYTES_MAX or 0 in name:
        raise InvalidInput(f"a name is 1 to {NAME_BYTES_MAX} bytes without a zero byte, not {show(name)}")
    parts = [part for part in name.split(b"/") if part not in {b"", b"."}]
    root = b"/" if name.startswith(b"/") else b""
    return root + b"/".join(parts) or b"."
