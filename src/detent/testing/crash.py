"""Crash points: end the owner at a named moment, the way a power cut would, without killing the test."""

from __future__ import annotations

from detent.errors import StoreUnavailable


class Crash(StoreUnavailable):
    """The owner stopped at a crash point; nothing after that point happened."""


class CrashAt:
    """Raises `Crash` the n-th time the owner passes a named point.

    Points: ``decided`` (the kernel has decided, nothing is written), ``sealed`` (the batch is signed), ``appended`` (it is
    durable, nobody knows), ``committed`` (the last moment before anybody is answered).
    """

    POINTS = ("decided", "sealed", "appended", "committed")

    def __init__(self, point: str, times: int = 1) -> None:
        if point not in self.POINTS:
            raise ValueError(f"there is no crash point {point!r}; known: {', '.join(self.POINTS)}")
        self.point = point
        self.left = times

    def __call__(self, name: str) -> None:
        """Called by the owner at each of its points."""
        if name == self.point:
            self.left -= 1
            if self.left == 0:
                raise Crash(f"crash at {name}")
