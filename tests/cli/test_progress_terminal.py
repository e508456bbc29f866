"""What is written to a terminal for a block that stays in its place, on a screen that is made up and on real ones."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from fcntl import ioctl
from pathlib import Path

import pytest

from detent.cli.progress import Block
from detent.cli.progress_frame import frame
from detent.cli.terminal import takes_block
from detent.pages.text import width
from detent.runs.record.view import RunView
from tests.cli.run_views import run_view, step, texts


class Screen:
    """The few things a block asks of a terminal, done to a grid; lines that no longer fit are broken on a resize."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [""]
        self.row = self.column = 0
        self.cursor_visible = True

    def write(self, data: str) -> None:
        for token in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", data):
            self._take(token)

    def resize(self, columns: int) -> None:
        """Break lines as most terminals do; the cursor keeps its place behind them."""
        broken: list[str] = []
        row = 0
        for place, line in enumerate(self.lines):
            if place == self.row:
                row = len(broken)
            broken += [line[start : start + columns] for start in range(0, max(1, len(line)), columns)]
        self.lines, self.columns, self.row = broken, columns, row

    def _take(self, token: str) -> None:
        if token == "\r":
            self.column = 0
        elif token == "\n":
            self.row, self.column = self.row + 1, 0
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif token.startswith("\x1b["):
            self._control(token[2:-1], token[-1])
        else:
            before = self.lines[self.row].ljust(self.column)
            after = before[self.column + len(token) :]
            self.lines[self.row] = before[: self.column] + token + after
            self.column += len(token)
            assert self.column < self.columns, "a line must not reach the last column"

    def _control(self, number: str, what: str) -> None:
        if what == "A":
            self.row -= int(number)
            assert self.row >= 0
        elif what == "K":
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif what == "J":
            self.lines = [*self.lines[: self.row], self.lines[self.row][: self.column]]
        elif what in "hl":
            self.cursor_visible = what == "h"
        else:
            assert what == "m"


def drawn(screen: Screen, block: Block, view: RunView, above: Sequence[str] = (), tick: int = 0) -> str:
    lines = frame(view, screen.columns - 1, screen.rows - 1, tick=tick)
    text = block.update(lines, (screen.columns, screen.rows), above)
    screen.write(text)
    return text


def test_a_block_is_drawn_again_at_its_own_place() -> None:
    screen, block = Screen(60, 24), Block()
    screen.write("$ detent run\n")
    for view in (run_view(step("a"), step("b")), run_view(step("a", "running"), step("b")), run_view(step("a"))):
        drawn(screen, block, view)
        assert screen.lines == ["$ detent run", *texts(frame(view, 59, 23)), ""]
        assert (screen.column, screen.row, screen.cursor_visible) == (0, len(screen.lines) - 1, True)


def test_messages_stay_above_the_block() -> None:
    screen, block = Screen(60, 24), Block()
    view = run_view(step("a", "running"))
    drawn(screen, block, view)
    drawn(screen, block, view, ["first", "second"])
    drawn(screen, block, run_view(step("a", "succeeded", done=1)), ["third"])
    assert screen.lines[:4] == ["first", "second", "third", "weather  run-7f3a"]
    assert len(screen.lines) == 7


def test_a_frame_that_changes_nothing_writes_nothing() -> None:
    screen, block = Screen(60, 24), Block()
    view = run_view(step("a"))
    assert drawn(screen, block, view)
    assert drawn(screen, block, view) == ""


def test_only_lines_that_changed_are_written_again() -> None:
    screen, block = Screen(60, 24), Block()
    drawn(screen, block, run_view(step("a"), step("b", "running")))
    text = drawn(screen, block, run_view(step("a"), step("b", "running")), tick=1)
    assert "weather" not in text
    assert "b    " in text


def test_a_narrower_terminal_gets_the_block_at_its_own_place_again() -> None:
    screen, block = Screen(90, 40), Block()
    view = run_view(step("extract", "running", 5, running=2, message="x" * 30), step("load", message="y" * 40))
    screen.write("before\n")
    drawn(screen, block, view)
    screen.resize(50)
    drawn(screen, block, view)
    assert screen.lines == ["before", *texts(frame(view, 49, 39)), ""]


def test_the_cursor_is_visible_whenever_a_write_has_ended() -> None:
    """Nothing has to be restored, so nothing can be left undone: not by Ctrl-C, not by kill -9."""
    block = Block()
    for tick in range(3):
        text = block.update(frame(run_view(step("a", "running")), 59, 23, tick=tick), (60, 24))
        assert text.startswith("\x1b[?25l")
        assert text.endswith("\x1b[?25h")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_only_a_terminal_that_wants_one_gets_a_block(
    stream: io.StringIO, environment: dict[str, str], expected: bool
) -> None:
    assert takes_block(stream, environment) is expected


# -- a real terminal ---------------------------------------------------------------------------------------------------


PROGRAM = """
import os, select, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell that starts the tests in the background ignores it.
from detent.cli.progress import Progress
from detent.cli.progress import Console
from detent.runs.record.view import RunView, StepView
step = StepView("extract", "extract", "running", 5, done=3, running=1, started_ms=0)
view = RunView("run-1", "weather", "running", (step,), 0, 1000, 2, "/h")
with Progress(lambda: view, Console.of(sys.stderr, os.environ)):
    # A plain read would not notice an interrupt that comes at the very moment before it.
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        pass
"""


def on_terminal(end: Callable[[subprocess.Popen[bytes]], None], **variables: str) -> tuple[int, str]:
    """Exit code and everything written by the program on a terminal of 50 columns, ended in some way after a frame."""
    main, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 50, 0, 0))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color", **variables}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stderr=terminal, env=environment, cwd=Path.cwd()
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(main, 65_536)
        except OSError:  # Linux reports the other end's closing as an error.
            break
        if not piece:
            break
        if not shown:
            end(process)
        shown += piece
    os.close(main)
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(), shown.decode()


def answer(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (answer, 0),
        (lambda process: process.send_signal(signal.SIGINT), None),
        (lambda process: process.send_signal(signal.SIGTERM), -signal.SIGTERM),
        (lambda process: process.send_signal(signal.SIGKILL), -signal.SIGKILL),
    ],
)
def test_a_real_terminal_is_left_in_order_by_every_end(
    end: Callable[[subprocess.Popen[bytes]], None], code: int | None
) -> None:
    ended, shown = on_terminal(end)
    assert ended == code if code is not None else ended != 0
    assert "extract" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0
    before = shown[: shown.rindex("\x1b[?25h")]
    assert before.endswith("\r\n\x1b[J")
    plain = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", before)
    assert max(width(line) for line in plain.splitlines()) < 50


def test_a_terminal_that_wants_no_colour_gets_plain_lines() -> None:
    _, shown = on_terminal(answer, NO_COLOR="1")
    assert "\x1b" not in shown
    assert "weather started: run run-1, 1 step, 2 workers" in shown
