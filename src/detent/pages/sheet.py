"""What is shown to people, before it is drawn: lines, fields and tables of cells, in order.

A sheet knows nothing about a terminal. `cli/page.py` draws one; a server sends one. On the wire a sheet is a list of parts, each a list that
begins with its kind, and a cell is a text or a list of text and style.

The files that a run left, as lines of a page: one for each file, or for all files of a step that made many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from detent.errors import InvalidInput
from detent.pages.text import FAINT, STATE_STYLES, STYLES
from detent.words.quantities import size_text
from detent.words.states import word_of

if TYPE_CHECKING:
    from detent.runs.record.outcome import Artifact


class Cell(NamedTuple):
    """A text with the style it is shown in."""

    text: str
    style: str = ""


Cellish: TypeAlias = str | Cell


def state_cell(state: str) -> Cell:
    """A state as people read it, in its colour; ``state`` may also be the name that a record has for it."""
    word = word_of(state)
    return Cell(word, STATE_STYLES.get(word, ""))


Row: TypeAlias = Sequence[Cellish]
Table: TypeAlias = tuple[Sequence[str], Sequence[Row]]
"""Its header and its rows."""
Part: TypeAlias = tuple[Any, ...]
LINE, FIELDS, HANGING, TABLE = "line", "fields", "hanging", "table"


class Sheet:
    """Parts of a page, in order."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def line(self, *cells: Cellish) -> None:
        """One line, made of pieces with or without a style."""
        self.parts.append((LINE, cells))

    def fields(self, pairs: Sequence[tuple[str, Cellish]], *, indent: str = "") -> None:
        """Names and values, one pair a line."""
        self.parts.append((FIELDS, pairs, indent))

    def hanging(self, lead: Row, text: Cellish) -> None:
        """A lead and a text; on a terminal the text's further lines stand below its first word."""
        self.parts.append((HANGING, lead, text))

    def table(self, header: Sequence[str], rows: Sequence[Row], *, narrow: Table | None = None) -> None:
        """Rows under a header; ``narrow`` is shown instead where they do not fit into the width of a terminal."""
        self.parts.append((TABLE, header, rows, narrow))

    def to_list(self) -> list[Any]:
        """The sheet as it is sent."""
        return [[part[0], *map(_sent, part[1:])] for part in self.parts]

    def onto(self, other: Sheet) -> None:
        """Add everything to another sheet, or draw it on a page."""
        for kind, *rest in self.parts:
            if kind == LINE:
                other.line(*rest[0])
            elif kind == FIELDS:
                other.fields(rest[0], indent=rest[1])
            elif kind == HANGING:
                other.hanging(*rest)
            else:
                other.table(rest[0], rest[1], narrow=rest[2])


@dataclass(slots=True)
class Told:
    """The answer of a command."""

    document: Any
    """For programs: what `-o json` prints."""
    sheet: Sheet = field(default_factory=Sheet)
    notes: list[str] = field(default_factory=list)
    """Said beside the answer, on standard error."""
    code: int = 0
    """The exit code that the answer stands for."""

    def to_map(self) -> dict[str, Any]:
        """The answer as it is sent."""
        return {"document": self.document, "page": self.sheet.to_list(), "notes": self.notes, "exit_code": self.code}


def told(document: Any, draw: Callable[[Sheet], None], *, code: int = 0, notes: Sequence[str] = ()) -> Told:
    """An answer whose page is drawn by a function."""
    answer = Told(document, notes=list(notes), code=code)
    draw(answer.sheet)
    return answer


def read_told(sent: Any) -> Told:
    """An answer that was sent. Another program wrote it: what does not have the form is refused."""
    try:
        told = Told(
            sent["document"], read_sheet(sent["page"]), [_text(note) for note in sent["notes"]], sent["exit_code"]
        )
        if type(told.code) is not int or not 0 <= told.code <= 255:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise InvalidInput("the page is not one that can be drawn", code="ANSWER_INVALID", hint=_VERSIONS) from None
    return told


def read_sheet(sent: Any) -> Sheet:
    """A sheet that was sent; `ValueError`, `TypeError` or `KeyError` for anything else."""
    sheet = Sheet()
    for kind, *rest in sent:
        if kind == LINE:
            sheet.line(*map(_cell, *rest))
        elif kind == FIELDS:
            pairs, indent = rest
            sheet.fields([(_text(name), _cell(value)) for name, value in pairs], indent=_text(indent))
        elif kind == HANGING:
            lead, text = rest
            sheet.hanging([_cell(cell) for cell in lead], _cell(text))
        elif kind == TABLE:
            header, rows, narrow = rest
            sheet.table(*_table([header, rows]), narrow=None if narrow is None else _table(narrow))
        else:
            raise ValueError(kind)
    return sheet


_VERSIONS: Final = "is the server of another version? `detent --version` and GET /v1/version tell"


def _sent(value: Any) -> Any:
    """A part as it is sent; a cell is a tuple as well, so that it becomes its text and its style."""
    return [_sent(one) for one in value] if isinstance(value, list | tuple) else value


def _table(sent: Any) -> Table:
    header, rows = sent
    names = [_text(name) for name in header]
    cells = [[_cell(cell) for cell in row] for row in rows]
    if any(len(row) != len(names) for row in cells):
        raise ValueError("a row has as many cells as the header")
    return names, cells


def _cell(sent: Any) -> Cellish:
    if isinstance(sent, str):
        return sent
    text, style = sent
    if style not in {"", *STYLES}:
        raise ValueError(style)
    return Cell(_text(text), style)


def _text(sent: Any) -> str:
    if not isinstance(sent, str):
        raise TypeError(sent)
    return sent


ARTIFACTS_SHOWN_MAX: Final = 20
ARTIFACTS_OF_STEP_MAX: Final = 5
"""Files of one step that are shown one by one; of more, the first stands for all, so that no step hides the others."""


def artifact_fields(name: str, artifacts: Sequence[Artifact]) -> list[tuple[str, Cellish]]:
    """The files of a run under a name, and how many are not shown."""
    groups = _grouped(artifacts)
    fields: list[tuple[str, Cellish]] = [(name, _artifact_text(*group)) for group in groups[:ARTIFACTS_SHOWN_MAX]]
    if (more := sum(map(len, groups[ARTIFACTS_SHOWN_MAX:]))) > 0:
        fields.append(("", Cell(f"... and {more:,} more: `-o json` has all", FAINT)))
    return fields


def _grouped(artifacts: Sequence[Artifact]) -> list[Sequence[Artifact]]:
    """The files of each step, one by one or, where they are many, as one."""
    steps: dict[str, list[Artifact]] = {}
    for artifact in artifacts:
        steps.setdefault(artifact.step, []).append(artifact)
    return [
        group
        for made in steps.values()
        for group in ([made] if len(made) > ARTIFACTS_OF_STEP_MAX else [[one] for one in made])
    ]


def _artifact_text(artifact: Artifact, *others: Artifact) -> str:
    path = Path(artifact.path)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    # A file in the content store has a digest for a name; people know it by the one that the step gave it.
    name = "" if path.name == Path(artifact.name).name else f": {artifact.name}"
    more = f" and {len(others):,} more" if others else ""
    size = sum(one.size_bytes for one in (artifact, *others))
    return f"{shown}{more}  {size_text(size)}, {artifact.step}{name}"
