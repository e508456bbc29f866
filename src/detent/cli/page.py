"""What a command shows to people: lines, fields and tables, with colours where there is a terminal that wants them.

Three readers, one page: a terminal gets colours and drawn tables, a pipe or `NO_COLOR` gets plain aligned text without a
single escape sequence. Programs get neither; they ask for `-o json`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from textwrap import wrap

from detent.cli.terminal import coloured, page_columns, wants_colour
from detent.pages.sheet import Cell, Cellish, Row, Sheet, Table
from detent.pages.text import FAINT, STRONG, columns, safe, width

_ROOM_MIN = 20
"""Columns below which wrapping makes things worse."""

_GAP = "  "
"""Between two columns of a table."""


class Page(Sheet):
    """Standard output for people: what is put on it is drawn at once."""

    def __init__(self, *, colour: bool | None = None) -> None:
        super().__init__()
        self._colour = wants_colour(os.environ) if colour is None else colour
        self._width = page_columns()

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

    def hanging(self, lead: Row, text: Cellish) -> None:
        """A lead and a text; on a terminal the text's further lines stand below its first word.

        A pipe gets one line of any length: programs count lines, terminals count columns.
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

    def _fits(self, header: Sequence[str], rows: Sequence[Row]) -> bool:
        """Whether a table can be shown without breaking what should stay whole. A pipe takes everything."""
        cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        return not self._width or sum(_fitted(header, cells, 0)) + len(_GAP) * (len(header) - 1) <= self._width

    def table(self, header: Sequence[str], rows: Sequence[Row], *, narrow: Table | None = None) -> None:
        """Rows under a header. On a terminal long text is broken so that the rows fit; a pipe gets every row in one line."""
        if narrow is not None and not self._fits(header, rows):
            header, rows = narrow
        cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        if not self._width:
            plain = [[safe(name) for name in header], *([safe(cell.text) for cell in row] for row in cells)]
            sys.stdout.write("".join(line + "\n" for line in columns(plain)))
            return
        widths = _fitted(header, cells, self._width)
        self._row([Cell(name, STRONG) for name in header], widths)
        self.line(Cell("─" * min(self._width, sum(widths) + len(_GAP) * (len(widths) - 1)), FAINT))
        for row in cells:
            self._row(row, widths)

    def _row(self, cells: Sequence[Cell], widths: Sequence[int]) -> None:
        folded = [_folded(safe(cell.text), room) for cell, room in zip(cells, widths, strict=True)]
        for number in range(max(map(len, folded))):
            pieces: list[Cellish] = []
            lacking = ""
            for cell, lines, room in zip(cells, folded, widths, strict=True):
                text = lines[number] if number < len(lines) else ""
                if text:
                    pieces += [lacking, Cell(text, cell.style)]
                    lacking = ""
                lacking += " " * (room - width(text)) + _GAP
            self.line(*pieces)

    def _drawn(self, cell: Cellish) -> str:
        if not isinstance(cell, Cell):
            return safe(cell)
        return coloured(safe(cell.text), cell.style if self._colour else "")


def _fitted(header: Sequence[str], rows: Sequence[Sequence[Cell]], room: int) -> list[int]:
    """The widths of columns so that a table fits, if it can: text gives way, from the last column on; ids never break.

    The last column may break even long words, since what stands there is prose more often than not.
    """
    texts = [[safe(row[place].text) for row in rows] for place in range(len(header))]
    widths = [max(map(width, [name, *column])) for name, column in zip(header, texts, strict=True)]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    for place in reversed(range(len(widths))):
        words = [] if place == len(widths) - 1 else [word for text in texts[place] for word in text.split(" ")]
        least = max([width(header[place]), min(_ROOM_MIN, widths[place]), *map(width, words)])
        given = max(0, min(excess, widths[place] - least))
        widths[place] -= given
        excess -= given
    return widths


def _folded(text: str, room: int) -> list[str]:
    if width(text) <= room:
        return [text]
    return wrap(text, room, break_on_hyphens=False) or [""]
