"""What people watch while a pipeline runs: a live block on a terminal, plain lines everywhere else.

    with Progress(driver.view, Console.of(sys.stderr, os.environ)) as progress:
        driver.run()

A thread of its own asks for the view and draws it. The run never waits for it: messages go through a queue, a terminal
that has stopped (Ctrl-S) stops this thread and nothing else, and any error while drawing ends the drawing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event, Thread
from time import thread_time
from types import TracebackType
from typing import Final, Self

from detent.cli.progress_frame import frame
from detent.cli.progress_lines import PlainLines
from detent.cli.progress_terminal import Block, Console
from detent.cli.terminal import safe
from detent.runs.record.view import RunView

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
