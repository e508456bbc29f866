"""A terminal that a block of lines is drawn on, again and again at the same place.

Between two frames the terminal is always in order: the cursor is visible and stands at the beginning of the line below the
block. It is hidden only inside the one write that draws a frame. So there is nothing to restore when a run ends, not even
after `kill -9`, and the next output starts on its own line.

The weak spot is a terminal that is made narrower: most break the lines that no longer fit, and the block then covers more
rows than it has lines. We count with that; the few that cut such lines off (xterm, the Linux console) lose as many lines
above the block as we count too many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, TextIO

from detent.canon.late import dataclass
from detent.cli.progress_frame import ASCII, DRAWN, Line, Look, line_width
from detent.cli.terminal import coloured, takes_block, terminal_size

_HIDE, _SHOW, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[K", "\x1b[J"
_UTF8: Final = frozenset({"utf-8", "utf8"})


@dataclass(frozen=True, slots=True)
class Console:
    """Where progress is shown, and how."""

    write: Callable[[str], None]
    live: bool
    """Whether a block can be drawn; otherwise plain lines are written."""
    size: Callable[[], tuple[int, int]]
    """Columns and rows, asked for each frame: people resize windows."""
    look: Look = DRAWN

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str]) -> Console:
        """A stream as it is: a block for a terminal that takes one, plain lines for everything else."""
        look = DRAWN if (stream.encoding or "").lower().replace("_", "-") in _UTF8 else ASCII
        return cls(_writer(stream), takes_block(stream, environment), lambda: terminal_size(stream), look)


@dataclass(slots=True)
class Block:
    """The lines that stand on the terminal now, and how to put others in their place."""

    _drawn: tuple[str, ...] = ()
    _widths: tuple[int, ...] = ()
    _size: tuple[int, int] = field(default=(0, 0))

    def update(self, lines: Sequence[Line], size: tuple[int, int], above: Sequence[str] = ()) -> str:
        """What to write so that ``lines`` stand there, with ``above`` printed for good above them; empty for no change."""
        drawn = tuple("".join(coloured(cell.text, cell.style) for cell in line) for line in lines)
        moved = size != self._size
        if drawn == self._drawn and not above and not moved:
            return ""
        # Line by line, and what is left over at the end: clearing a whole screen at once makes some terminals keep a copy
        # of it in their history.
        pieces = [_HIDE, self._up(size), *(f"{line}{_CLEAR_LINE}\n" for line in above)]
        before = () if above or moved else self._drawn
        for place, line in enumerate(drawn):
            same = place < len(before) and before[place] == line
            pieces.append("\n" if same else f"{line}{_CLEAR_LINE}\n")
        pieces += [_CLEAR_BELOW, _SHOW]
        self._drawn, self._size = drawn, size
        self._widths = tuple(line_width(line) for line in lines)
        return "".join(pieces)

    def _up(self, size: tuple[int, int]) -> str:
        columns, rows = size
        covered = sum(max(1, -(-wide // max(1, columns))) for wide in self._widths)
        up = min(covered, max(0, rows - 1))
        return f"\r\x1b[{up}A" if up else "\r"


def _writer(stream: TextIO) -> Callable[[str], None]:
    """Write past the stream's buffer and its lock: a terminal that is stopped must not hold up the end of the process."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):

        def write_through(text: str) -> None:
            stream.write(text)
            stream.flush()

        return write_through
    encoding = stream.encoding or "utf-8"

    def write(text: str) -> None:
        stream.flush()
        data = memoryview(text.encode(encoding, "backslashreplace"))
        while data:
            data = data[os.write(descriptor, data) :]

    return write
