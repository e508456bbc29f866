"""What people watch while a pipeline runs: a live block on a terminal, plain lines everywhere else.

    with Progress(driver.view, Console.of(sys.stderr, os.environ)) as progress:
        driver.run()

A thread of its own asks for the view and draws it. The run never waits for it: messages go through a queue, a terminal
that has stopped (Ctrl-S) stops this thread and nothing else, and any error while drawing ends the drawing.

Progress for pipes, logs and plain terminals: a line when something happened, and never a flood of them.

A fan-out of 10,000 elements says how far it is at every tenth or now and then, not 10,000 times; many short steps that end
at once are summed up in one line. Failures are always shown.

A terminal that a block of lines is drawn on, again and again at the same place.

Between two frames the terminal is always in order: the cursor is visible and stands at the beginning of the line below the
block. It is hidden only inside the one write that draws a frame. So there is nothing to restore when a run ends, not even
after `kill -9`, and the next output starts on its own line.

The weak spot is a terminal that is made narrower: most break the lines that no longer fit, and the block then covers more
rows than it has lines. We count with that; the few that cut such lines off (xterm, the Linux console) lose as many lines
above the block as we count too many.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from threading import Event, Thread
from time import localtime, strftime, thread_time
from types import TracebackType
from typing import Final, Self, TextIO

from detent.canon.late import dataclass
from detent.cli.progress_frame import ASCII, DRAWN, WAITED_SHOWN_MS, Line, Look, fold_text, frame, line_width
from detent.cli.terminal import coloured, takes_block, terminal_size
from detent.pages.text import safe
from detent.runs.record.view import RunView, StepView, step_time_ms, step_waited_ms
from detent.words.quantities import count_text, short_duration
from detent.words.states import BLOCKED, CANCELLED, FAILED, OVER, READY, REUSED, RUNNING, SKIPPED

FRAME_SECONDS: Final = 0.1
"""Ten frames a second at most."""
COST_SHARE_MAX: Final = 0.015
"""Part of a core that drawing may take: a frame that costs more makes the next one wait longer."""
FRAME_SECONDS_MAX: Final = 2.0
MESSAGES_MAX: Final = 10_000
END_SECONDS: Final = 2.0
"""How long the end of a run waits for the last frame; a terminal that has stopped does not get it."""


class Progress:
    """Shows a run for as long as the block lasts, and leaves its last state on the screen."""

    def __init__(self, view: Callable[[], RunView], console: Console) -> None:
        self._view = view
        self._console = console
        self._messages: deque[str] = deque(maxlen=MESSAGES_MAX)
        self._wake = Event()
        self._ending = False
        self._thread: Thread | None = None
        self.fault: BaseException | None = None
        """What ended the drawing before its time, for those who want to know."""

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._show, name="detent-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def say(self, message: str) -> None:
        """Print a message for good: above the block, or as a line among the others."""
        self._messages.append(message)

    def close(self) -> None:
        """Draw the last state and stop; safe to call twice."""
        self._ending = True
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(END_SECONDS)

    def _show(self) -> None:
        try:
            draw = self._draw_block() if self._console.live else self._draw_lines()
            while True:
                self._wake.clear()
                ending = self._ending  # After the line above, or an end between the two would go unnoticed.
                began = thread_time()
                draw(ending)
                if ending:
                    return
                cost = thread_time() - began
                self._wake.wait(min(FRAME_SECONDS_MAX, max(FRAME_SECONDS, cost / COST_SHARE_MAX)))
        except BaseException as exc:  # noqa: BLE001 - a run does not fail because its progress cannot be drawn
            self.fault = exc

    def _draw_block(self) -> Callable[[bool], None]:
        block = Block()
        ticks = iter(range(1 << 62))

        def draw(_ending: bool) -> None:
            view = self._view()
            columns, rows = size = self._console.size()
            # One row stays free for the cursor, one column so that no terminal wraps a full line.
            lines = frame(view, max(1, columns - 1), max(1, rows - 1), tick=next(ticks), look=self._console.look)
            if text := block.update(lines, size, self._said()):
                self._console.write(text)

        return draw

    def _draw_lines(self) -> Callable[[bool], None]:
        plain = PlainLines()

        def draw(ending: bool) -> None:
            view = self._view()
            stamp = plain.clock(view.now_ms)
            lines = [*plain.lines(view, last=ending), *(f"{stamp} {line}" for line in self._said())]
            if lines:
                self._console.write("".join(f"{line}\n" for line in lines))

        return draw

    def _said(self) -> list[str]:
        lines = []
        while self._messages:
            lines += [safe(line) for line in self._messages.popleft().splitlines()]
        return lines


BURST_LINES: Final = 20
"""Lines that may be written at once before ends are summed up."""
LINE_EVERY_MS: Final = 500
"""After a burst, one more line may be written each time this much has passed."""
ELEMENTS_EVERY_MS: Final = 1_000
"""A mapped step that gets on says so at most this often, and only at every tenth,"""
ELEMENTS_SLOW_MS: Final = 30_000
"""or after this long, wherever it is."""


@dataclass(slots=True)
class _Seen:
    """What was last said about a step."""

    state: str
    done: int = 0
    failed: int = 0
    retries: int = 0
    said_ms: int = 0


def clock_text(now_ms: int) -> str:
    """The time of day where the reader sits."""
    return strftime("%H:%M:%S", localtime(now_ms / 1000))


@dataclass(slots=True)
class PlainLines:
    """Turns one view after the other into the lines that are new."""

    clock: Callable[[int], str] = clock_text
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _ended: list[StepView] = field(default_factory=list)
    """Steps that ended and wait to be told together."""
    _room: float = BURST_LINES
    _last_ms: int | None = None
    _note: str = ""
    _warned: int = 0

    def lines(self, view: RunView, *, last: bool = False) -> list[str]:
        """What there is to say since the view before; the last view says everything that is left."""
        told: list[str] = []
        if self._last_ms is None:
            self._last_ms = view.now_ms
            how = "goes on" if view.resumed else "started"
            workers = "" if view.workers is None else f", {count_text(view.workers, 'worker')}"
            told.append(
                f"{safe(view.name)} {how}: run {safe(view.run_id)}, {count_text(len(view.steps), 'step')}{workers}"
            )
        self._room = min(BURST_LINES, self._room + max(0, view.now_ms - self._last_ms) / LINE_EVERY_MS)
        self._last_ms = view.now_ms
        if view.note != self._note:
            self._note = view.note
            told += [safe(view.note)] if view.note else []
        told += [f"warning: {safe(text)}" for text in view.warnings[self._warned :]]
        self._warned = len(view.warnings)
        changed = [step for step in view.steps if self._has_changed(step, view.now_ms)]
        # What has ended comes first: who only gets on may wait for room.
        told += [_failure(step) for step in changed if step.state == FAILED]
        self._ended += [step for step in changed if step.state in OVER and step.state != FAILED]
        told += self._ends(view.now_ms, last=last)
        for step in view.steps:
            if step.state in {RUNNING, READY} and step.started_ms is not None:
                told += self._getting_on(step, view.now_ms)
        stamp = self.clock(view.now_ms)
        return [f"{stamp} {line}" for line in told]

    def _has_changed(self, step: StepView, now_ms: int) -> bool:
        seen = self._seen.get(step.key)
        if seen is None:
            self._seen[step.key] = _Seen(step.state, said_ms=now_ms)
            return True
        before, seen.state = seen.state, step.state
        return before != step.state

    def _getting_on(self, step: StepView, now_ms: int) -> Iterable[str]:
        seen = self._seen[step.key]
        if step.again and step.retries > seen.retries and self._take():
            more = f" ({step.retrying - 1:,} more waiting for another attempt)" if step.retrying > 1 else ""
            yield f"{safe(step.key)}{'' if step.again.startswith('[') else ' '}{safe(step.again)}{more}"
        seen.retries = step.retries
        if step.total != 1 and self._is_worth_a_line(step, seen, now_ms) and self._take():
            seen.done, seen.failed, seen.said_ms = step.done, step.failed, now_ms
            yield _elements(step)

    def _is_worth_a_line(self, step: StepView, seen: _Seen, now_ms: int) -> bool:
        if not step.total or (step.done, step.failed) == (seen.done, seen.failed):
            return False
        waited_ms = now_ms - seen.said_ms
        if step.failed and not seen.failed:
            return True
        if waited_ms < ELEMENTS_EVERY_MS:
            return False
        over, before = step.done + step.failed, seen.done + seen.failed
        return over * 10 // step.total > before * 10 // step.total or waited_ms >= ELEMENTS_SLOW_MS

    def _ends(self, now_ms: int, *, last: bool) -> list[str]:
        ended = self._ended
        if not ended or (not last and self._room < 1):
            return []
        self._ended = []
        if len(ended) <= self._room:
            self._room -= len(ended)
            return [_end(step, now_ms) for step in ended]
        self._room = max(0.0, self._room - 1)
        return [fold_text(ended)]

    def _take(self) -> bool:
        if self._room < 1:
            return False
        self._room -= 1
        return True


def _failure(step: StepView) -> str:
    return f"{safe(step.key)} failed" + (f": {safe(step.message)}" if step.message else "")


def _elements(step: StepView) -> str:
    text = f"{safe(step.key)} {step.done:,}/{step.total:,} done"
    if step.cached:
        text += f", {step.cached:,} reused"
    return text + (f", {step.failed:,} failed" if step.failed else "")


def _end(step: StepView, now_ms: int) -> str:
    key = safe(step.key)
    if step.state in {SKIPPED, BLOCKED, CANCELLED}:
        what = "not run" if step.state == BLOCKED else step.state
        return f"{key} {what}" + (f": {safe(step.message)}" if step.message else "")
    spent, waited = step_time_ms(step, now_ms), step_waited_ms(step, now_ms)
    took = "" if spent is None or step.state == REUSED else f" in {short_duration(spent)}"
    if took and waited is not None and waited >= WAITED_SHOWN_MS:
        took += f" (waited {short_duration(waited)})"
    if step.total == 1:
        return f"{key} {REUSED if step.state == REUSED else 'done'}{took}"
    return _elements(step) + took


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
