"""One frame of the live block: every line of it, whatever the size of the terminal and the number of steps."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from detent.cli.progress_frame import ASCII, fitted, frame
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD, shortened, width
from detent.runs.record.view import RunView
from detent.words.states import STEP_STATES
from tests.cli.run_views import START_MS, run_view, step, texts


def test_a_frame_has_one_line_for_each_step_between_a_head_and_a_foot() -> None:
    view = run_view(
        step("stations", "reused", done=1, cached=1, ended_ms=START_MS + 1_100),
        step("extract", "running", 5, done=3, cached=2, running=2, ran_ms=4_000),
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
    (_, line, _) = texts(frame(run_view(step("train", "running", running=1, fraction=0.425, ran_ms=4_000)), 60, 24))
    assert " 42% " in line
    assert "╸" in line or "━" in line


def test_a_step_that_waits_for_another_attempt_says_so() -> None:
    again = "failed (OSError: connection refused); attempt 2 of 3 in 1 s"
    view = run_view(step("load", "running", retrying=1, retries=1, again=again))
    (_, line, _) = texts(frame(view, 120, 24))
    assert line.startswith("  ↻ load")
    assert line.endswith(again)


def test_a_step_that_waits_is_not_drawn_as_running() -> None:
    """It has been submitted; no worker has begun it, or none is at it now."""
    view = run_view(
        step("now", "running", running=1, ran_ms=400),
        step("queued", "ready", started_ms=START_MS + 1_000),
        step("part", "ready", 3, done=1, started_ms=START_MS + 1_000, ran_ms=500),
    )
    (_, now, queued, part, foot) = texts(frame(view, 100, 24))
    assert now.startswith("  ⠋ now")
    assert now.endswith("0.4s")
    assert queued.startswith("  · queued")
    assert queued.endswith("waiting for 4.0s")
    assert part.startswith("  · part")
    assert "1 of 3   0.5s" in part
    assert "1 under way on 4 workers" in foot


def test_the_time_of_a_step_leaves_out_how_long_it_waited() -> None:
    """It used to be shown with the queue: tasks of 0.4 s as 6.3 s"""
    ended = {"done": 1, "started_ms": START_MS, "ended_ms": START_MS + 6_300}
    view = run_view(step("late", "succeeded", ran_ms=400, **ended), step("soon", "succeeded", ran_ms=6_200, **ended))
    (_, late, soon, _) = texts(frame(view, 100, 24))
    assert late.endswith("0.4s  after waiting 5.9s")
    assert soon.endswith("6.2s")


def test_a_fan_out_whose_size_is_not_known_shows_no_total() -> None:
    assert "0 of ?" in texts(frame(run_view(step("map", "running", None)), 80, 24))[1]


def test_the_spinner_turns_with_the_frames() -> None:
    view = run_view(step("a", "running"))
    first, second, again = (texts(frame(view, 60, 24, tick=tick))[1] for tick in (0, 1, 10))
    assert first != second
    assert first == again


def test_a_narrow_terminal_gets_fewer_words() -> None:
    view = run_view(
        step("extract", "running", 5, done=3, running=2, ran_ms=4_000), step("load", message="waits for extract")
    )
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
        step(f"over-{place}", "reused" if place < cached else "succeeded", done=1, ended_ms=START_MS + place)
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
