"""What people watch while an ordered run goes on: computed, committed, what waits, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from detent.cli.progress import Block, Console, Progress, clock_text
from detent.cli.progress_frame import DRAWN, Line, Look, fitted
from detent.pages.sheet import Cell
from detent.pages.text import BAD, FAINT, STRONG, WARN, safe
from detent.words.quantities import count_text, short_duration, size_text

if TYPE_CHECKING:
    from detent.runs.ordered.handle import OrderedHandle, OrderedView

BAR: Final = 24
BLOCKED_MS: Final = 1000
"""After this long, what the cursor waits for is worth a line."""
_WORDS: Final = {
    "committed": ("COMMITTED",),
    "computed": ("TERMINAL_SUCCESS", "TERMINAL_SKIP", "TERMINAL_FAIL"),
    "cancelled": ("TERMINAL_CANCEL",),
    "running": ("IN_FLIGHT",),
    "queued": ("DISPATCHED",),
    "not started": ("UNSEEN",),
}
"""What people read for the states of a window's items."""
LINE_EVERY_MS: Final = 5_000
"""Between two plain lines, unless another tenth is committed."""


class MapProgress(Progress):
    """Shows an ordered run for as long as the block lasts."""

    def __init__(self, handle: OrderedHandle, console: Console) -> None:
        super().__init__(lambda: None, console)  # type: ignore[arg-type, return-value]  # the views here are of another kind
        self._handle = handle

    def _draw_block(self) -> Callable[[bool], None]:
        block = Block()

        def draw(_ending: bool) -> None:
            columns, rows = size = self._console.size()
            lines = map_frame(self._handle.view(), self._handle.item_text, max(1, columns - 1), self._console.look)
            if text := block.update(lines[: max(1, rows - 1)], size, self._said()):
                self._console.write(text)

        return draw

    def _draw_lines(self) -> Callable[[bool], None]:
        said = PlainMapLines()

        def draw(ending: bool) -> None:
            lines = said.lines(self._handle.view(), self._handle.item_text, last=ending)
            if lines:
                self._console.write("".join(f"{line}\n" for line in lines))

        return draw


def map_frame(view: OrderedView, item_text: Callable[[int], str], columns: int, look: Look = DRAWN) -> tuple[Line, ...]:
    """One frame: no line is wider than the terminal."""
    share = view.committed / view.total if view.total else 1.0
    ahead = view.computed / view.total if view.total else 1.0
    full, half = int(share * BAR), int(ahead * BAR) - int(share * BAR)
    spent = max(1, view.now_ms - view.started_ms)
    fresh = view.committed - view.resumed_at
    head: Line = (
        Cell(safe(view.name), STRONG),
        Cell(f"  run {safe(view.run_id)}", FAINT),
        Cell("  resumed" if view.resumed else "", FAINT),
    )
    bar: Line = (
        Cell("  "),
        Cell(look.full * full),
        Cell(look.half * half, FAINT),
        Cell(look.empty * (BAR - full - half), FAINT),
        Cell(f"  {view.committed:,} of {view.total:,} committed"),
        Cell(f"  {short_duration(spent)}", FAINT),
    )
    rate = "" if view.resumed else f"  {fresh * 1000 // spent:,}/s"
    figures: Line = (
        Cell(f"  computed {view.computed:,}  lag {view.lag:,}  buffered {size_text(view.buffered_bytes)}{rate}"),
        Cell(f"  failed {view.failed:,}" if view.failed else "", BAD),
        Cell(f"  cancelled {view.cancelled:,}" if view.cancelled else "", WARN),
    )
    lines = [head, bar, figures]
    lines += [(Cell(f"  {text}", FAINT),) for text in _windows(view)]
    if (blocked := _blocked(view, item_text)) is not None:
        lines.append((Cell(f"  {blocked}", WARN),))
    if view.note:
        lines.append((Cell(f"  {safe(view.note)}", WARN),))
    return tuple(fitted(line, columns, look.cut) for line in lines)


class PlainMapLines:
    """Turns one view after the other into the lines that are new."""

    def __init__(self, clock: Callable[[int], str] = clock_text) -> None:
        self._clock = clock
        self._said_ms: int | None = None
        self._tenth = 0
        self._note = ""

    def lines(self, view: OrderedView, item_text: Callable[[int], str], *, last: bool = False) -> list[str]:
        """What there is to say since the view before."""
        told: list[str] = []
        if self._said_ms is None:
            self._said_ms = view.now_ms
            how = f"resumes at item {view.resumed_at:,}" if view.resumed else "started"
            told.append(
                f"{safe(view.name)} {how}: run {safe(view.run_id)}, {count_text(view.total, 'item')},"
                f" {count_text(view.workers, 'worker')}"
            )
        if view.note != self._note:
            self._note = view.note
            told += [safe(view.note)] if view.note else []
        tenth = view.committed * 10 // view.total if view.total else 10
        if last or tenth > self._tenth or view.now_ms - self._said_ms >= LINE_EVERY_MS:
            self._tenth, self._said_ms = tenth, view.now_ms
            told.append(figures_text(view))
            if not last and (blocked := _blocked(view, item_text)) is not None:
                told += [blocked, *_windows(view)]
        stamp = self._clock(view.now_ms)
        return [f"{stamp} {line}" for line in told]


def figures_text(view: OrderedView) -> str:
    """Where it stands, in one line."""
    failed = f", {view.failed:,} failed" if view.failed else ""
    cancelled = f", {view.cancelled:,} cancelled" if view.cancelled else ""
    return (
        f"{view.committed:,} of {view.total:,} committed, {view.computed:,} computed, lag {view.lag:,},"
        f" {size_text(view.buffered_bytes)} buffered{failed}{cancelled}"
    )


def _windows(view: OrderedView) -> list[str]:
    """The open windows, each with how many of its items are where."""
    told = []
    for window in view.windows:
        held = {word: sum(window.occupancy.get(state, 0) for state in states) for word, states in _WORDS.items()}
        counts = ", ".join(f"{count:,} {word}" for word, count in held.items() if count)
        told.append(f"{window.lane} items {window.start_seq:,} to {window.end_seq:,}: {counts}")
    return told


def _blocked(view: OrderedView, item_text: Callable[[int], str]) -> str | None:
    if view.blocked_seq is None or view.blocked_ms < BLOCKED_MS:
        return None
    item = f"item {view.blocked_seq:,} ({safe(item_text(view.blocked_seq))})"
    if view.write_failures:
        return f"the destination failed at {item}: retrying for {short_duration(view.blocked_ms)}"
    return f"waits for {item} for {short_duration(view.blocked_ms)}"
