"""Where a verification puts what it must remember for good: a map from bytes to bytes that is read in order.

A ledger can be longer than memory. In memory by default; a shell that has files passes one that spills (X-168).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Heads(Protocol):
    """A map from bytes to bytes, read in the order of its keys."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None:
        """Forget a key, there or not."""

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All entries whose key starts so, in order. The map is not changed while this runs."""

    def __len__(self) -> int: ...


class MemoryHeads:
    """The map as a dictionary: for bundles of moderate size, and for tests."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        return self._values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self._values[key] = value

    def delete(self, key: bytes) -> None:
        """Forget a key."""
        self._values.pop(key, None)

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All entries whose key starts so, in order."""
        for key in sorted(key for key in self._values if key.startswith(prefix)):
            yield key, self._values[key]

    def __len__(self) -> int:
        return len(self._values)
