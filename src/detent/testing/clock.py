"""A clock that moves only when a test moves it."""

from __future__ import annotations


class FakeClock:
    """Wall and monotonic time as two numbers; `jump` moves both, `set_wall` only the one an operator could set."""

    def __init__(self, wall_ms: int = 1_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since the clock was made."""
        return self._monotonic_ms

    def jump(self, ms: int) -> None:
        """Let time pass."""
        self._wall_ms += ms
        self._monotonic_ms += ms

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock, as an operator or a time server might."""
        self._wall_ms = wall_ms
