"""What people watch while a pipeline runs: frames, what is written to a terminal for them, and plain lines for all others."""

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
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.cli.page import FAINT, GOOD, Cell
from detent.cli.progress import Progress
from detent.cli.progress_frame import ASCII, Line, fitted, frame, shortened, span_text
from detent.cli.progress_lines import PlainLines
from detent.cli.progress_terminal import Block, Console, takes_block
from detent.cli.text import width
from detent.engine.run_view import STEP_STATES, RunView, StepView, counts, elapsed_ms, share_done, step_elapsed_ms

START_MS = 1_700_000_000_000


def run_view(*steps: StepView, after_ms: int = 5_000, **changes: object) -> RunView:
    view = RunView("run-7f3a", "weather", "running", steps, START_MS, START_MS + after_ms, 4, "/home/.detent")
    return replace(view, **changes)  # type: ignore[arg-type]


def step(key: str, state: str = "waiting", total: int | None = 1, **figures: object) -> StepView:
    begun = state in {"running", "succeeded", "cached", "failed", "cancelled"}
    figures = {"started_ms": START_MS + 1_000 if begun else None, **figures}
    return StepView(key, str(figures.pop("name", key)), state, total, **figures)  # type: ignore[arg-type]


def texts(lines: Sequence[Line]) -> list[str]:
    return ["".join(cell.text for cell in line) for line in lines]


# -- one frame ---------------------------------------------------------------------------------------------------------


def test_a_frame_has_one_line_for_each_step_between_a_head_and_a_foot() -> None:
    view = run_view(
        step("stations", "cached", done=1, cached=1, ended_ms=START_MS + 1_100),
        step("extract", "running", 5, done=3, cached=2, running=2),
        step("daily", message="waits for extract"),
    )
    assert texts(frame(view, 78, 24)) == [
        "weather  run-7f3a",
        "  ✓ stations ━━━━━━━━━━━━━━━━━━━━━━━━ 1 of 1   reused   0.1s",
        "  ⠋ extract  ━━━━━━━━━━━━━━────────── 3 of 5 2 reused   4.0s",
        "  · daily     waits for extract",
        "  1 of 3 steps done (1 reused) · 2 under way on 4 workers · 5.0s",
    ]


def test_a_failed_step_tells_why_on_a_line_of_its_own() -> None:
    view = run_view(step("load", "failed", failed=1, message="ValueError: bad row"), step("report", "blocked"))
    shown = texts(frame(view, 60, 24))
    assert shown[1].startswith("  ✗ load")
    assert shown[2] == "    ValueError: bad row"
    assert shown[3] == "  - report  blocked"
    assert shown[4] == "  0 of 2 steps done · 1 failed · 1 not run · 5.0s"


def test_a_task_that_says_how_far_it_is_shows_a_percentage() -> None:
    (_, line, _) = texts(frame(run_view(step("train", "running", running=1, fraction=0.425)), 60, 24))
    assert " 42% " in line
    assert "╸" in line or "━" in line


def test_a_step_that_waits_for_another_attempt_says_so() -> None:
    view = run_view(step("load", "running", retrying=1, message="connection refused"))
    (_, line, _) = texts(frame(view, 100, 24))
    assert line.startswith("  ↻ load")
    assert line.endswith("1 to be tried again: connection refused")


def test_a_fan_out_whose_size_is_not_known_shows_no_total() -> None:
    assert "0 of ?" in texts(frame(run_view(step("map", "running", None)), 80, 24))[1]


def test_the_spinner_turns_with_the_frames() -> None:
    view = run_view(step("a", "running"))
    first, second, again = (texts(frame(view, 60, 24, tick=tick))[1] for tick in (0, 1, 10))
    assert first != second
    assert first == again


def test_a_narrow_terminal_gets_fewer_words() -> None:
    view = run_view(step("extract", "running", 5, done=3, running=2), step("load", message="waits for extract"))
    shown = texts(frame(view, 39, 24))
    assert " 3/5 " in shown[1]
    assert shown[2] == "  · load     waits for extract"
    assert shown[3] == "  0/2 done · 5.0s"
    assert texts(frame(view, 28, 24))[2] == "  · load"


def test_a_terminal_without_utf_8_gets_ascii() -> None:
    view = run_view(*(step(f"s{place}", state) for place, state in enumerate(STEP_STATES)))
    assert "".join(texts(frame(view, 80, 24, look=ASCII))).isascii()


def test_what_users_wrote_moves_no_cursor() -> None:
    view = run_view(step("a\x1b[2J", "failed", message="b\x1b[H\n"), name="c\x07", note="d\r", resumed=True)
    shown = "".join(texts(frame(view, 200, 24)))
    assert "\\x1b[2J" in shown
    assert all(character.isprintable() for character in shown)


def test_columns_stand_still_while_a_fan_out_goes_on() -> None:
    ends = {len(texts(frame(run_view(step("x", "running", 10_000, done=done)), 80, 24))[1]) for done in (0, 10, 9_999)}
    assert len(ends) == 1


# -- too many steps ----------------------------------------------------------------------------------------------------


def many(over: int, cached: int, running: int, waiting: int, failed: int = 0) -> RunView:
    steps = [
        step(f"over-{place}", "cached" if place < cached else "succeeded", done=1, ended_ms=START_MS + place)
        for place in range(over)
    ]
    steps += [step(f"bad-{place}", "failed", failed=1, message="no") for place in range(failed)]
    steps += [step(f"now-{place}", "running", running=1) for place in range(running)]
    steps += [step(f"later-{place}") for place in range(waiting)]
    return run_view(*steps)


def test_what_is_over_and_what_waits_folds_when_rows_are_few() -> None:
    shown = texts(frame(many(412, 380, 3, 585, failed=1), 80, 12))
    assert shown[1] == "  ✓ 412 steps done (380 reused)"
    assert [line.split()[-1] if line == "    no" else line.split()[1] for line in shown[2:10]] == [
        *("bad-0", "no", "now-0", "now-1", "now-2"),
        *("later-0", "later-1", "later-2"),
    ]
    assert shown[-2] == "  · 582 more steps waiting"
    assert len(shown) == 12


def test_room_that_is_left_goes_to_what_ended_last() -> None:
    shown = texts(frame(many(100, 0, 1, 0), 80, 8))
    assert shown[1] == "  ✓ 96 steps done"
    assert [line.split()[1] for line in shown[2:7]] == [*(f"over-{place}" for place in range(96, 100)), "now-0"]


def test_what_failed_and_runs_keeps_its_line_before_anything_else_does() -> None:
    shown = texts(frame(many(500, 0, 5, 500, failed=2), 80, 11))
    assert [line.split()[1] for line in shown[2:9]] == ["bad-0", "bad-1", *(f"now-{place}" for place in range(5))]


def test_more_running_steps_than_rows_are_counted() -> None:
    shown = texts(frame(many(10, 0, 50, 10, failed=1), 80, 10))
    assert len(shown) == 10
    assert "bad-0" in " ".join(shown)
    assert any(re.fullmatch(r"  . \d+ more running", line) for line in shown)
    seen = sum("now-" in line for line in shown)
    assert f" {50 - seen} more running" in " ".join(shown)


@given(
    numbers=st.tuples(*[st.integers(0, 30)] * 5),
    columns=st.integers(1, 120),
    rows=st.integers(1, 40),
    name=st.text(max_size=40),
)
def test_no_frame_is_larger_than_its_terminal(numbers: tuple[int, ...], columns: int, rows: int, name: str) -> None:
    over, cached, running, waiting, failed = numbers
    view = many(over, cached, running, waiting, failed)
    named = [replace(each, key=f"{name}{each.key}", name=name) for each in view.steps]
    lines = frame(replace(view, steps=tuple(named), note=name), columns, rows)
    assert len(lines) <= rows
    assert all(width(text) <= columns for text in texts(lines))


def test_long_and_wide_names_are_cut_with_an_ellipsis() -> None:
    view = run_view(step("测量数据清洗和汇总步骤测量数据清洗", "running", running=1), step("b" * 90, "running"))
    for columns in (40, 80):
        lines = frame(view, columns, 24)
        assert all("…" in line for line in texts(lines)[1:3])
        assert len({sum(width(cell.text) for cell in line) for line in lines[1:3]}) == 1


@given(text=st.text(), columns=st.integers(0, 20))
def test_a_shortened_text_fits(text: str, columns: int) -> None:
    assert width(shortened(text, columns)) <= columns


def test_a_line_that_is_cut_says_so_even_between_two_cells() -> None:
    line = (Cell("abc", GOOD), Cell("def", FAINT))
    assert "".join(cell.text for cell in fitted(line, 6)) == "abcdef"
    assert "".join(cell.text for cell in fitted(line, 5)) == "abcd…"
    assert "".join(cell.text for cell in fitted(line, 3)) == "ab…"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0.0s"),
        (59_949, "59.9s"),
        (59_950, "1m00s"),
        (723_000, "12m03s"),
        (11_220_000, "3h07m"),
        (1_047_600_000, "12d03h"),
    ],
)
def test_durations_are_short(ms: int, text: str) -> None:
    assert span_text(ms) == text
    assert len(text) <= 6


# -- a view ------------------------------------------------------------------------------------------------------------


def test_a_view_is_counted_by_steps_and_by_elements() -> None:
    said = counts(
        [*(step(state, state) for state in STEP_STATES), step("map", "running", 5, done=3, cached=2, failed=1)]
    )
    assert (said.steps, said.done, said.cached, said.failed, said.skipped, said.cancelled) == (10, 2, 1, 1, 2, 1)
    assert (said.running, said.waiting) == (2, 2)
    assert (said.jobs, said.jobs_done, said.jobs_cached, said.jobs_failed) == (14, 3, 2, 1)


def test_time_is_never_negative_and_stops_with_the_end() -> None:
    assert elapsed_ms(run_view(after_ms=-1)) == 0
    assert elapsed_ms(run_view(after_ms=9_000, ended_ms=START_MS + 2_000)) == 2_000
    assert step_elapsed_ms(step("a"), START_MS) is None
    assert step_elapsed_ms(step("a", "running"), START_MS) == 0
    assert step_elapsed_ms(step("a", "succeeded", ended_ms=START_MS + 1_500), START_MS + 9_000) == 500


def test_a_share_counts_what_is_over() -> None:
    assert share_done(step("a", "running", 4, done=1, failed=1)) == 0.5
    assert share_done(step("a", "running", None)) is None
    assert share_done(step("a", "running", fraction=7.0)) == 1.0
    assert share_done(step("a", "cached", 0)) == 1.0


# -- a terminal --------------------------------------------------------------------------------------------------------


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


# -- plain lines -------------------------------------------------------------------------------------------------------


def told(views: Sequence[RunView]) -> list[str]:
    plain = PlainLines(clock=lambda now_ms: f"{(now_ms - START_MS) / 1000:.1f}")
    return [line for place, view in enumerate(views) for line in plain.lines(view, last=place == len(views) - 1)]


def test_a_pipe_is_told_what_changed_and_nothing_else() -> None:
    running = run_view(step("extract", "running", 5, done=0), step("load"), after_ms=1_000)
    views = [
        run_view(step("extract"), step("load"), after_ms=0),
        running,
        running,
        replace(running, steps=(step("extract", "running", 5, done=3), step("load")), now_ms=START_MS + 3_000),
        run_view(
            step("extract", "succeeded", 5, done=5, cached=1, ended_ms=START_MS + 4_000), step("load"), after_ms=4_000
        ),
        run_view(
            step("extract", "succeeded", 5, done=5, cached=1, ended_ms=START_MS + 4_000),
            step("load", "failed", failed=1, message="ValueError: no"),
            after_ms=5_000,
        ),
    ]
    assert told(views) == [
        "0.0 weather started: run run-7f3a, 2 steps, 4 workers",
        "3.0 extract 3/5 done",
        "4.0 extract 5/5 done, 1 reused in 3.0s",
        "5.0 load failed: ValueError: no",
    ]


def test_the_time_of_day_leads_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    (line,) = PlainLines().lines(run_view(after_ms=0))
    assert re.match(r"\d\d:\d\d:\d\d weather started", line)


def test_ten_thousand_elements_are_not_ten_thousand_lines() -> None:
    views = [run_view(step("map", "running", 10_000, done=done), after_ms=done * 10) for done in range(0, 10_000, 10)]
    lines = told(views)
    assert len(lines) == 1 + 9
    assert lines[1].endswith("map 1,000/10,000 done")


def test_a_quick_fan_out_speaks_once_a_second() -> None:
    views = [run_view(step("map", "running", 100, done=n), after_ms=n * 25) for n in range(100)]
    assert [line.split()[0] for line in told(views)[1:]] == ["1.0", "2.0"]


def test_a_storm_of_retries_is_no_storm_of_lines() -> None:
    before = run_view(*(step(f"s{place}", "running") for place in range(100)), after_ms=0)
    after = run_view(*(step(f"s{place}", "running", retrying=1) for place in range(100)), after_ms=100)
    assert len(told([before, after])) == 1 + 20


def test_a_slow_fan_out_speaks_every_half_minute() -> None:
    views = [run_view(step("map", "running", 10_000, done=n), after_ms=n * 1_000) for n in range(100)]
    assert [line.split()[2] for line in told(views)[1:]] == ["30/10,000", "60/10,000", "90/10,000"]


def test_many_ends_at_once_are_told_in_one_line() -> None:
    before = run_view(*(step(f"s{place}") for place in range(1_000)), after_ms=0)
    after = run_view(
        *(step(f"s{place}", "cached" if place < 380 else "succeeded", done=1) for place in range(1_000)), after_ms=100
    )
    assert told([before, after])[1:] == ["0.1 1,000 steps done (380 reused)"]


def test_no_pace_of_steps_makes_more_than_two_lines_a_second_for_long() -> None:
    done = [step(f"s{place}", "succeeded", done=1) for place in range(600)]
    waiting = [step(f"s{place}", "waiting", done=1) for place in range(600)]
    views = [run_view(*done[:now], *waiting[now:], after_ms=now * 100) for now in range(601)]
    lines = told(views)
    assert len(lines) <= 20 + 2 * 60 + 2
    total = sum(int(found[1]) if (found := re.search(r"(\d+) steps? done", line)) else 1 for line in lines[1:])
    assert total == 600


def test_a_failure_is_told_however_much_else_there_is() -> None:
    before = run_view(*(step(f"s{place}") for place in range(100)), after_ms=0)
    after = run_view(*(step(f"s{place}", "failed", failed=1, message="no") for place in range(100)), after_ms=100)
    assert sum("failed: no" in line for line in told([before, after])) == 100


def test_steps_that_never_ran_say_why() -> None:
    views = [
        run_view(step("a"), step("b"), step("c"), after_ms=0),
        run_view(
            step("a", "blocked", message="load failed"), step("b", "skipped"), step("c", "cancelled"), after_ms=100
        ),
    ]
    assert told(views)[1:] == ["0.1 a not run: load failed", "0.1 b skipped", "0.1 c cancelled"]


def test_another_attempt_and_a_note_are_told() -> None:
    views = [
        run_view(step("a", "running"), after_ms=0),
        run_view(step("a", "running", retrying=1, message="timed out"), after_ms=100, note="stopping"),
    ]
    assert told(views)[1:] == ["0.1 stopping", "0.1 a to be tried again: timed out"]


# -- the thread --------------------------------------------------------------------------------------------------------


class Written:
    """A console that keeps what was written, and tells when it was."""

    def __init__(self, *, live: bool) -> None:
        self.text = ""
        self.happened = Event()
        self.console = Console(self._write, live, lambda: (60, 24))

    def _write(self, text: str) -> None:
        self.text += text
        self.happened.set()


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_last_state_is_shown_whatever_ended_the_run(live: bool, error: type[BaseException]) -> None:
    views = [run_view(step("a", "running"), after_ms=0)]
    written = Written(live=live)

    def run() -> None:
        with Progress(lambda: views[-1], written.console):
            assert written.happened.wait(10)
            views.append(run_view(step("a", "succeeded", done=1, ended_ms=START_MS + 1_000), after_ms=1_000))
            raise error

    with pytest.raises(error):
        run()
    assert ("✓ \x1b[0ma" if live else " a done in 0.0s") in written.text


def test_messages_are_said_in_both_forms_and_made_safe() -> None:
    for live in (True, False):
        written = Written(live=live)
        with Progress(lambda: run_view(step("a", "running")), written.console) as progress:
            progress.say("first\nsecond \x1b[2J")
        assert "first" in written.text
        assert "second \\x1b[2J" in written.text


def test_a_view_that_cannot_be_made_ends_the_drawing_and_not_the_run() -> None:
    def view() -> RunView:
        raise ZeroDivisionError

    written = Written(live=True)
    with Progress(view, written.console) as progress:
        progress.say("still fine")
    assert isinstance(progress.fault, ZeroDivisionError)
    assert written.text == ""


def test_a_terminal_that_is_gone_ends_the_drawing_and_not_the_run() -> None:
    def write(text: str) -> None:
        raise OSError(5, "Input/output error")

    with Progress(run_view, Console(write, True, lambda: (80, 24))) as progress:
        pass
    assert isinstance(progress.fault, OSError)
    progress.close()


def test_a_message_never_waits_for_the_terminal() -> None:
    release, blocked = Event(), Event()

    def write(text: str) -> None:
        blocked.set()
        release.wait(30)

    progress = Progress(run_view, Console(write, True, lambda: (80, 24)))
    with progress:
        assert blocked.wait(10)
        progress.say("goes on at once")
        release.set()


# -- a real terminal ---------------------------------------------------------------------------------------------------

PROGRAM = """
import os, select, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # Whoever starts the tests in the background ignores it.
from detent.cli.progress import Progress
from detent.cli.progress_terminal import Console
from detent.engine.run_view import RunView, StepView
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
