"""What a command shows to people: lines, fields and tables, with colours where there is a terminal that wants them.

Three readers, one page: a terminal gets colours and drawn tables, a pipe or `NO_COLOR` gets plain aligned text without a
single escape sequence. Programs get neither; they ask for `-o json`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import NamedTuple, TypeAlias

from detent.cli.text import columns, safe, width

GOOD, BAD, WARN, NOTE, STRONG, FAINT = "good", "bad", "warn", "note", "strong", "faint"

_ROOM_MIN = 20
"""Columns below which wrapping makes things worse."""

_WHOLE_MAX = 23
"""A column of a drawn table that needs no more than this, a moment with milliseconds, is never broken."""

_ANSI: Mapping[str, str] = {GOOD: "32", BAD: "31", WARN: "33", NOTE: "36", STRONG: "1", FAINT: "2"}
_RICH: Mapping[str, str] = {
    GOOD: "green",
    BAD: "red",
    WARN: "yellow",
    NOTE: "cyan",
    STRONG: "bold",
    FAINT: "dim",
}

STATE_STYLES: Mapping[str, str] = {
    "SUCCEEDED": GOOD,
    "FAILED": BAD,
    "CANCELED": WARN,
    "RUNNING": NOTE,
    "RETRYING": WARN,
    "completed": GOOD,
    "failed": BAD,
    "cancelled": WARN,
    "running": NOTE,
    "succeeded": GOOD,
    "cached": GOOD,
    "blocked": BAD,
}
"""How the states of jobs, runs and steps are coloured; the others stay plain."""


class Cell(NamedTuple):
    """A text with the style it is shown in."""

    text: str
    style: str = ""


Cellish: TypeAlias = str | Cell


def state_cell(state: str) -> Cell:
    """A state in its colour."""
    return Cell(state, STATE_STYLES.get(state, ""))


def wants_colour(environment: Mapping[str, str]) -> bool:
    """Whether standard output is a terminal that takes colours."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return _is_terminal()


class Page:
    """Standard output for people."""

    def __init__(self, *, colour: bool | None = None) -> None:
        self._colour = wants_colour(os.environ) if colour is None else colour
        self._width = get_terminal_size().columns if _is_terminal() else 0

    @property
    def colour(self) -> bool:
        """Whether styles are drawn."""
        return self._colour

    def line(self, *cells: Cellish) -> None:
        """One line, made of pieces with or without a style. Everything but our own escape sequences is made safe."""
        sys.stdout.write("".join(self._drawn(cell) for cell in cells) + "\n")

    def fields(self, pairs: Sequence[tuple[str, Cellish]], *, indent: str = "") -> None:
        """Names and values, one pair a line."""
        longest = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            self.hanging([indent, Cell(name.ljust(longest), FAINT), "  "], value)

    def hanging(self, lead: Sequence[Cellish], text: Cellish) -> None:
        """A lead and a text; on a terminal the text's further lines stand below its first word.

        A pipe gets one line whatever its length: programs count lines, terminals count columns.
        """
        cell = text if isinstance(text, Cell) else Cell(text)
        indent = sum(width(safe(piece.text if isinstance(piece, Cell) else piece)) for piece in lead)
        shown = safe(cell.text)
        room = self._width - indent if self._width else 0
        lines = [shown]
        if room > _ROOM_MIN and width(shown) > room:
            # Long words stay whole: a digest that is broken cannot be copied.
            lines = wrap(shown, room, break_on_hyphens=False, break_long_words=False)
        self.line(*lead, Cell(lines[0], cell.style))
        for line in lines[1:]:
            self.line(" " * indent, Cell(line, cell.style))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Cellish]]) -> None:
        """Rows under a header; the last column takes what room is left."""
        cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        if self._colour:
            _drawn_table(header, cells)
            return
        plain = [[safe(name) for name in header], *([safe(cell.text) for cell in row] for row in cells)]
        sys.stdout.write("".join(line + "\n" for line in columns(plain)))

    def _drawn(self, cell: Cellish) -> str:
        if not isinstance(cell, Cell):
            return safe(cell)
        if not self._colour or not cell.style:
            return safe(cell.text)
        return f"\x1b[{_ANSI[cell.style]}m{safe(cell.text)}\x1b[0m"


def _is_terminal() -> bool:
    try:
        return sys.stdout.isatty()
    except ValueError:  # Closed.
        return False


def _drawn_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    # Only here, because loading it takes longer than everything else that `detent list` does.
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1), show_edge=False)
    for place, name in enumerate(header):
        widest = max((width(safe(row[place].text)) for row in rows), default=0)
        table.add_column(name, overflow="fold", no_wrap=widest <= _WHOLE_MAX)
    for row in rows:
        table.add_row(*(Text(safe(cell.text), style=_RICH.get(cell.style, "")) for cell in row))
    Console(file=sys.stdout, highlight=False, markup=False, emoji=False).print(table)
