"""What is told of a run where there is no terminal: lines, and not too many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from detent.cli.progress import PlainLines
from detent.runs.record.view import RunView
from tests.cli.run_views import START_MS, run_view, step

AGAIN = "was killed (out of memory?); attempt 5 in 2 s"


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
    after = run_view(
        *(step(f"s{place}", "running", retrying=1, retries=1, again=AGAIN) for place in range(100)), after_ms=100
    )
    assert len(told([before, after])) == 1 + 20


def test_a_slow_fan_out_speaks_every_half_minute() -> None:
    views = [run_view(step("map", "running", 10_000, done=n), after_ms=n * 1_000) for n in range(100)]
    assert [line.split()[2] for line in told(views)[1:]] == ["30/10,000", "60/10,000", "90/10,000"]


def test_many_ends_at_once_are_told_in_one_line() -> None:
    before = run_view(*(step(f"s{place}") for place in range(1_000)), after_ms=0)
    after = run_view(
        *(step(f"s{place}", "reused" if place < 380 else "succeeded", done=1) for place in range(1_000)), after_ms=100
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
        run_view(step("a", "running", retrying=1, retries=1, again=AGAIN), after_ms=100, note="stopping"),
        run_view(step("a", "running", retrying=1, retries=1, again=AGAIN), after_ms=200, note="stopping"),
        run_view(step("a", "running", 5, retrying=2, retries=3, again=f"[3] {AGAIN}"), after_ms=300, note="stopping"),
    ]
    assert told(views)[1:] == [
        "0.1 stopping",
        f"0.1 a {AGAIN}",
        f"0.3 a[3] {AGAIN} (1 more waiting for another attempt)",
    ]


def test_a_step_is_told_with_how_long_it_ran_and_how_long_it_waited_before() -> None:
    ended = {"done": 1, "started_ms": START_MS, "ended_ms": START_MS + 6_300}
    views = [
        run_view(step("a", "ready", started_ms=START_MS), step("b", "ready", started_ms=START_MS), after_ms=0),
        run_view(
            step("a", "succeeded", ran_ms=400, **ended), step("b", "succeeded", ran_ms=6_000, **ended), after_ms=6_300
        ),
    ]
    assert told(views)[1:] == ["6.3 a done in 0.4s (waited 5.9s)", "6.3 b done in 6.0s"]
