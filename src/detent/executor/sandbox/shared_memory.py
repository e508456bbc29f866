"""Charges a job for shared anonymous mappings where no control group counts memory.

The pages of such a mapping belong to an object of the kernel. A process can drop them from its own count (``MADV_DONTNEED``),
or unmap all but one page, and the object keeps every page it ever had. So what processes hold says nothing about it. The size of
an object is fixed when it is mapped, which the filter reports; an object is gone when no process maps any of it, which shows in
``/proc``. Between the two, each object is charged in full: with ``k`` objects left, the ``k`` largest sizes that were mapped.
"""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


class SharedMemory:
    """The shared anonymous mappings of one job."""

    __slots__ = ("largest_bytes", "peak_bytes", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.largest_bytes = 0
        self.peak_bytes = 0

    @property
    def charged_bytes(self) -> int:
        """What the job is charged for now; never less than what the kernel holds for it."""
        return sum(self.sizes)

    def map(self, size_bytes: int) -> None:
        """A mapping was asked for."""
        self.sizes.append(-(-size_bytes // _PAGE) * _PAGE)
        self.largest_bytes = max(self.largest_bytes, self.sizes[-1])

    def settle(self, objects: int | None) -> None:
        """Let go of what is gone: so many objects are left. None: that could not be seen, and nothing is let go.

        A mapping that was asked for a moment ago may not be there yet. When it shows up later, there are more objects
        than sizes, and each of those is charged as the largest there ever was.
        """
        if objects is not None:
            self.sizes = sorted(self.sizes, reverse=True)[:objects]
            self.sizes += [self.largest_bytes] * (objects - len(self.sizes))
        self.peak_bytes = max(self.peak_bytes, self.charged_bytes)
