"""One frame of the live block: a run and a size of the terminal go in, lines come out.

Nothing here knows a terminal, a clock or a colour code, so every frame can be looked at in a test. Three promises:

* no line is wider than the terminal, in any alphabet;
* there are never more lines than the terminal has rows: what has ended folds into one line, what waits into another, and
  what runs or failed keeps its own for as long as there is room at all;
* columns stand still while a run goes on: their widths follow from what the steps can come to, not from where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from detent.canon.late import dataclass
from detent.cli.terminal import STATE_MARKS, STATE_MARKS_ASCII
from detent.pages.sheet import Cell
from detent.pages.text import BAD, FAINT, GOOD, NOTE, STATE_STYLES, STRONG, WARN, safe, shortened, width
from detent.runs.record.view import RunView, StepView, counts, elapsed_ms, share_done, step_time_ms, step_waited_ms
from detent.words.quantities import count_text, short_duration
from detent.words.states import BLOCKED, CANCELLED, FAILED, READY, REUSED, RUNNING, SKIPPED, SUCCEEDED, WAITING

Line: TypeAlias = tuple[Cell, ...]

LABEL_MAX: Final = 32
NAME_MIN: Final = 12
"""Columns below which the beginning of a name beside its key says nothing."""
BAR_MAX, BAR_MIN = 24, 5
TIME_WIDTH: Final = 6
MESSAGE_MIN: Final = 16
"""Columns below which a message behind a step says nothing any more."""
NARROW: Final = 60
"""Columns below which `3 of 5` is written `3/5`."""
WAITED_SHOWN_MS: Final = 1_000
"""Shorter waits are not shown for steps that have ended."""
NEXT_SHOWN: Final = 3
"""Waiting steps that keep a line of their own while the others are folded."""


@dataclass(frozen=True, slots=True)
class Look:
    """The characters of a block."""

    marks: Mapping[str, str]
    spinner: str
    full: str
    half: str
    empty: str
    retry: str
    dot: str
    cut: str


DRAWN: Final = Look(
    marks=STATE_MARKS,
    spinner="⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
    full="━",
    half="╸",
    empty="─",
    retry="↻",
    dot="·",
    cut="…",
)
ASCII: Final = Look(
    marks=STATE_MARKS_ASCII,
    spinner="|/-\\",
    full="#",
    half="#",
    empty=".",
    retry="~",
    dot="-",
    cut="~",
)
"""For terminals that do not speak UTF-8."""

_OVER_QUIETLY: Final = frozenset({SUCCEEDED, REUSED, SKIPPED, BLOCKED, CANCELLED})


def frame(view: RunView, columns: int, rows: int, *, tick: int = 0, look: Look = DRAWN) -> tuple[Line, ...]:
    """The block: a head, the steps, a foot; at most ``rows`` lines of at most ``columns`` columns.

    ``tick`` counts frames and turns the spinner.
    """
    room = max(1, rows)
    head = () if room < 4 else (_head(view, look),)
    foot = (_foot(view, columns, look),)
    table = _Table.fit(view, columns, tick, look)
    lines = (*head, *table.lines(max(0, room - len(head) - 1)), *foot)
    return tuple(_stripped(fitted(line, columns, look.cut)) for line in lines)


def fitted(line: Sequence[Cell], columns: int, cut: str = "…") -> Line:
    """A line in at most ``columns`` columns: what is too much is cut off, with a sign that it was."""
    if line_width(line) <= columns:
        return tuple(line)
    left = columns
    kept: list[Cell] = []
    for cell in line:
        if _width(cell.text) >= left:
            # One column more than there are, so that the sign stands also where a cell ends just here.
            kept.append(Cell(shortened(cell.text + " " * (left + 1), left, cut), cell.style))
            break
        kept.append(cell)
        left -= _width(cell.text)
    return tuple(kept)


def line_width(line: Sequence[Cell]) -> int:
    """How many columns a line takes."""
    return sum(_width(cell.text) for cell in line)


def fold_text(steps: Iterable[StepView]) -> str:
    """Steps that are over as one sentence: ``412 steps done (380 reused), 3 skipped``."""
    said = counts(steps)
    words = []
    if said.done:
        words.append(f"{count_text(said.done, 'step')} done" + (f" ({said.cached:,} reused)" if said.cached else ""))
    for number, what in ((said.skipped, SKIPPED), (said.cancelled, CANCELLED)):
        if number:
            words.append(f"{f'{number:,}' if words else count_text(number, 'step')} {what}")
    return ", ".join(words)


def _stripped(line: Line) -> Line:
    """The same without blanks at its end: a terminal that is made narrower would break them into a line of their own."""
    while line and not line[-1].text.rstrip():
        line = line[:-1]
    return (*line[:-1], Cell(line[-1].text.rstrip(), line[-1].style)) if line else line


def _head(view: RunView, look: Look) -> Line:
    line = [Cell(safe(view.name), STRONG), Cell(f"  {safe(view.run_id)}", FAINT)]
    if view.resumed:
        line.append(Cell("  resumed", NOTE))
    if view.note:
        line.append(Cell(f" {look.dot} {safe(view.note)}", WARN))
    return tuple(line)


def _foot(view: RunView, columns: int, look: Look) -> Line:
    """What all steps come to; in a narrow terminal with fewer words rather than with half of them."""
    said = counts(view.steps)
    between = f" {look.dot} "
    done = f"{said.done:,} of {count_text(said.steps, 'step')} done"
    long = [Cell("  "), Cell(done, GOOD if said.steps and said.done == said.steps else "")]
    short = [Cell("  "), Cell(f"{said.done:,}/{said.steps:,} done", long[1].style)]
    if said.cached:
        long.append(Cell(f" ({said.cached:,} reused)"))
    if said.failed:
        failed = [Cell(between, FAINT), Cell(f"{said.failed:,} failed", BAD)]
        long += failed
        short += failed
    if said.skipped or said.cancelled:
        long.append(Cell(f"{between}{said.skipped + said.cancelled:,} not run", FAINT))
    if said.running and view.ended_ms is None:
        jobs = sum(step.running for step in view.steps)
        where = "" if view.workers is None else f" on {count_text(view.workers, 'worker')}"
        long.append(Cell(f"{between}{jobs:,} under way{where}", FAINT))
    spent = Cell(f"{between}{short_duration(elapsed_ms(view))}", FAINT)
    whole = (*long, spent)
    return whole if line_width(whole) <= columns else (*short, spent)


@dataclass(frozen=True, slots=True)
class _Table:
    """The steps of one frame with the widths of their columns."""

    view: RunView
    columns: int
    tick: int
    look: Look
    label: int
    bar: int
    count: int
    cached: int
    of: str
    """What stands between how many and of how many."""

    @classmethod
    def fit(cls, view: RunView, columns: int, tick: int, look: Look) -> _Table:
        """Choose widths: names first, then numbers, then the bar, then what `reused` adds; the bar goes before names do."""
        longest = max((_label_width(step.key, step.name) for step in view.steps), default=0)
        most = max((step.total or 0 for step in view.steps), default=0)
        some_cached = max((step.cached for step in view.steps if step.total != 1), default=0)
        of = " of " if columns >= NARROW else "/"
        count = max(4, 2 * len(f"{most:,}") + len(of))
        cached = width(f"{most:,} reused") if some_cached else 6 if any(step.cached for step in view.steps) else 0
        fixed = 4 + 1 + count + 1 + TIME_WIDTH
        left = columns - fixed
        label = max(4, min(longest, LABEL_MAX, max(left - BAR_MIN - 1, min(left, columns // 3))))
        bar = min(BAR_MAX, columns - fixed - label - 1 - (cached + 1 if cached else 0))
        if bar < BAR_MIN and cached:
            bar, cached = min(BAR_MAX, columns - fixed - label - 1), 0
        return cls(view, columns, tick, look, label, bar if bar >= BAR_MIN else 0, count, cached, of)

    def lines(self, room: int) -> list[Line]:
        """At most ``room`` lines: every step in the contract's order, or folded when there are too many."""
        steps = self.view.steps
        if len(steps) <= room:
            told = [line for step in steps for line in self._told(step)]
            # The second line of a failure is the first thing to go when it gets narrow.
            return told if len(told) <= room else [self._step(step) for step in steps]
        return self._folded(room)

    def _folded(self, room: int) -> list[Line]:
        over = [step for step in self.view.steps if step.state in _OVER_QUIETLY]
        loud = [step for step in self.view.steps if step.state in {FAILED, RUNNING} or step.retrying]
        waiting = [step for step in self.view.steps if step.state in {WAITING, READY} and not step.retrying]
        left = room - bool(over) - bool(waiting)
        if len(loud) > left:
            return self._crowded(loud, over, waiting, room)
        told = [line for step in loud for line in self._told(step)]
        if len(told) > left:
            told = [self._step(step) for step in loud]
        left -= len(told)
        upcoming = waiting[: min(NEXT_SHOWN, left)]
        left -= len(upcoming)
        recent = sorted(over, key=lambda step: step.ended_ms or 0)[len(over) - min(left, len(over)) :] if left else []
        shown = {id(step) for step in recent}
        rest = [step for step in over if id(step) not in shown]
        lines = [self._fold(fold_text(rest), self.look.marks[SUCCEEDED], GOOD)] if rest else []
        lines += [self._step(step) for step in recent]
        lines += told
        lines += [self._step(step) for step in upcoming]
        if len(waiting) > len(upcoming):
            lines.append(self._waiting(len(waiting) - len(upcoming), more=bool(upcoming)))
        return lines

    def _crowded(self, loud: list[StepView], over: list[StepView], waiting: list[StepView], room: int) -> list[Line]:
        """More runs or failed than there are rows: failures first, then what has run longest, then a line for the rest."""
        # The foot counts what is over and what waits; in so little room the loud ones get the lines.
        folds = [self._fold(fold_text(over), self.look.marks[SUCCEEDED], GOOD)] if over and room > 4 else []
        left = max(0, room - len(folds) - 1 - (1 if waiting and room > 5 else 0))
        first = sorted(loud, key=lambda step: (step.state != FAILED, step.started_ms or 0))[:left]
        shown = {id(step) for step in first}
        lines = folds + [self._step(step) for step in loud if id(step) in shown]
        rest = [step for step in loud if id(step) not in shown]
        failed = sum(1 for step in rest if step.state == FAILED)
        words = [f"{len(rest) - failed:,} more running"] if len(rest) > failed else []
        words += [f"{failed:,} more failed"] if failed else []
        if rest and len(lines) < room:
            lines.append(self._fold(", ".join(words), self._spin(), BAD if failed else NOTE))
        if waiting and len(lines) < room:
            lines.append(self._waiting(len(waiting), more=False))
        return lines

    def _fold(self, text: str, mark: str, style: str) -> Line:
        return (Cell(f"  {mark} ", style), Cell(text, FAINT))

    def _waiting(self, number: int, *, more: bool) -> Line:
        return self._fold(
            f"{count_text(number, 'more step' if more else 'step')} waiting", self.look.marks[WAITING], FAINT
        )

    def _told(self, step: StepView) -> list[Line]:
        """A step's line and, where it failed, a second one with the reason."""
        if step.state == FAILED and step.message:
            return [self._step(step), (Cell("    "), Cell(safe(step.message), BAD))]
        return [self._step(step)]

    def _step(self, step: StepView) -> Line:
        style = STATE_STYLES[step.state]
        mark = self._spin() if step.state == RUNNING else self.look.marks[step.state]
        if step.retrying and not step.running:
            mark, style = self.look.retry, WARN
        begun = step.state not in {WAITING, READY, SKIPPED, BLOCKED} or step.ran_ms is not None or step.retrying > 0
        cells = [Cell(f"  {mark} ", style), *self._label(step, faint=not begun)]
        if begun:
            cells += self._figures(step)
        said = step.message if step.state != FAILED else ""
        if step.retrying:
            said = (f"{step.retrying:,} waiting for another attempt: " if step.retrying > 1 else "") + step.again
        elif step.failed and step.state in {RUNNING, READY}:
            said = f"{step.failed:,} failed"
        elif step.state == READY and step.started_ms is not None and not said:
            said = _waited(step, self.view.now_ms, "waiting for")
        elif step.state in {SUCCEEDED, FAILED} and not said:
            said = _waited(step, self.view.now_ms, "after waiting", least_ms=WAITED_SHOWN_MS)
        elif not begun and not said and step.state not in {WAITING, READY}:
            said = step.state
        left = self.columns - line_width(cells)
        if said and left >= MESSAGE_MIN + 2:
            cells.append(Cell("  " + safe(said), WARN if step.retrying or step.failed else FAINT))
        return tuple(cells)

    def _label(self, step: StepView, *, faint: bool) -> list[Cell]:
        key = shortened(safe(step.key), self.label, self.look.cut)
        cells = [Cell(key, FAINT if faint else "")]
        left = self.label - width(key)
        name = " " + safe(step.name)
        if step.name != step.key and left >= min(width(name), NAME_MIN):
            name = shortened(name, left, self.look.cut)
            cells.append(Cell(name, FAINT))
            left -= width(name)
        return [*cells, Cell(" " * left)]

    def _figures(self, step: StepView) -> list[Cell]:
        share = share_done(step)
        cells = []
        if self.bar:
            cells += [Cell(" "), *self._bar(share, step)]
        count = f"{step.done:,}{self.of}{'?' if step.total is None else f'{step.total:,}'}"
        if step.total == 1 and step.state == RUNNING and step.fraction is not None and share is not None:
            count = f"{int(share * 100)}%"
        cells.append(Cell(" " + count.rjust(self.count)))
        if self.cached:
            said = "" if not step.cached else REUSED if step.total == 1 else f"{step.cached:,} reused"
            cells.append(Cell(" " + said.rjust(self.cached), NOTE))
        spent = step_time_ms(step, self.view.now_ms)
        cells.append(Cell(" " + ("" if spent is None else short_duration(spent)).rjust(TIME_WIDTH), FAINT))
        return cells

    def _bar(self, share: float | None, step: StepView) -> list[Cell]:
        halves = int((share or 0.0) * 2 * self.bar)
        full = self.look.full * (halves // 2) + (self.look.half if halves % 2 else "")
        style = BAD if step.failed or step.state == FAILED else WARN if step.state == CANCELLED else GOOD
        return [Cell(full, style), Cell(self.look.empty * (self.bar - len(full)), FAINT)]

    def _spin(self) -> str:
        return self.look.spinner[self.tick % len(self.look.spinner)]


def _waited(step: StepView, now_ms: int, words: str, least_ms: int = 0) -> str:
    waited = step_waited_ms(step, now_ms)
    return "" if waited is None or waited < least_ms else f"{words} {short_duration(waited)}"


# Bars, counts and names come again in every frame, and looking at each of their characters is what a frame costs.
_width = lru_cache(maxsize=4096)(width)


@lru_cache(maxsize=4096)
def _label_width(key: str, name: str) -> int:
    return width(safe(key)) if name == key else width(f"{safe(key)} {safe(name)}")
