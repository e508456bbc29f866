"""The summary at the end of a run, as a page and as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from detent.cli.page import Page
from detent.cli.summary import draw_summary, next_commands, summary_data
from detent.runs.record.outcome import Artifact, StepFailure
from detent.runs.record.view import RunView, StepView

DONE = RunView(
    "rivers-7f3a",
    "rivers",
    "completed",
    (
        StepView("gauges", "gauges", "reused", 1, done=1, cached=1),
        StepView("fetch", "fetch", "succeeded", 6, done=6, cached=2, started_ms=1_000, ended_ms=3_500),
    ),
    0,
    9_000,
    4,
    "/srv/.detent",
    ended_ms=4_200,
)
FAILED = replace(
    DONE,
    status="failed",
    steps=(
        *DONE.steps,
        StepView("load", "load", "failed", failed=1, message="no"),
        StepView("report", "report", "blocked"),
    ),
)
REPORT = Artifact("report", "out/report.html", "out/report.html", 12_345, "sha256:aa")
BROKEN = StepFailure(
    "load", "USER_CODE_ERROR", "PYTHON_EXCEPTION", "ValueError: bad row", "job-1", "etl.py:42 in clean: float(row)", 3
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the run, and the one that is found from here."""
    home = tmp_path / ".detent"
    home.mkdir()
    (home / "config.toml").write_text("")
    monkeypatch.delenv("DETENT_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return home


def page_of(capsys: pytest.CaptureFixture[str], view: RunView, **said: object) -> list[str]:
    draw_summary(Page(colour=False), replace(view, home=str(Path.cwd() / ".detent")), **said)  # type: ignore[arg-type]
    return capsys.readouterr().out.splitlines()


def test_a_run_that_worked_shows_what_it_did_and_where_the_results_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert page_of(capsys, DONE, result={"rising": ["Ellet"]}, artifacts=[REPORT]) == [
        "rivers succeeded in 4.2s  run rivers-7f3a",
        "  steps     1 run, 1 reused",
        "  jobs      7 of 7 done, 3 reused",
        '  result    {"rising": ["Ellet"]}',
        "  artifact  out/report.html  12.1 KiB, report",
        "",
        "  detent show rivers-7f3a  every step and record",
        "  detent verify            check that the history is complete and untouched",
    ]


def test_a_run_that_failed_shows_why_on_which_line_and_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert page_of(capsys, FAILED, failures=[BROKEN])[1:] == [
        "  steps  1 run, 1 reused, 1 failed, 1 skipped",
        "  jobs   7 of 9 done, 3 reused",
        "",
        "load failed  USER_CODE_ERROR PYTHON_EXCEPTION  after 3 attempts",
        "  ValueError: bad row",
        "  at etl.py:42 in clean: float(row)",
        "",
        "  detent explain job-1      why it ran and how it ended",
        "  detent logs job-1         what it printed",
        "  detent show job-1         its traceback, arguments and records",
        "  detent retry rivers-7f3a  run what is missing; finished work is kept",
        "  detent verify             check that the history is complete and untouched",
    ]


def test_null_is_a_result_and_nothing_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "  result  null" in page_of(capsys, DONE, result=None)
    assert not any("result" in line for line in page_of(capsys, DONE))
    assert "result" not in summary_data(DONE)
    assert summary_data(DONE, result=None)["result"] is None


def test_long_results_messages_and_lists_are_cut_on_the_page_alone(capsys: pytest.CaptureFixture[str]) -> None:
    said = {
        "result": "x" * 1_000,
        "artifacts": [replace(REPORT, step=f"report{number}") for number in range(25)],
        "failures": [replace(BROKEN, message=f"{number}\n" + "line\n" * 19) for number in range(12)],
    }
    lines = page_of(capsys, FAILED, **said)
    assert next(line for line in lines if "result" in line).endswith("x…")
    assert sum("out/report.html" in line for line in lines) == 20
    assert any("... and 5 more: `-o json` has all" in line for line in lines)
    assert sum(line.startswith("load failed") for line in lines) == 10
    assert "  ... 12 more lines" in lines
    assert lines.count("  line") == 10 * 7
    assert "... and 2 more failures: `detent list --run rivers-7f3a`" in lines
    data = summary_data(FAILED, **said)  # type: ignore[arg-type]
    assert (len(data["result"]), len(data["artifacts"]), len(data["failures"])) == (1_000, 25, 12)


def test_many_files_of_one_step_are_one_line_and_hide_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    many = [Artifact("split", f"part-{number}", f"out/part-{number}", 1_024, "sha256:aa") for number in range(200)]
    shown = [line for line in page_of(capsys, DONE, artifacts=[*many, REPORT]) if "artifact" in line]
    assert shown == [
        "  artifact  out/part-0 and 199 more  200.0 KiB, split",
        "  artifact  out/report.html  12.1 KiB, report",
    ]
    few = [line for line in page_of(capsys, DONE, artifacts=many[:5]) if "artifact" in line]
    assert [line.split()[1] for line in few] == [f"out/part-{number}" for number in range(5)]


def test_a_fan_out_that_fails_for_one_reason_tells_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    failures = [replace(BROKEN, job_id=f"job-{number}", attempts=1, index=number + 3) for number in range(6)]
    lines = page_of(capsys, FAILED, failures=[*failures, replace(BROKEN, message="other", attempts=1)])
    assert [line for line in lines if line.startswith("load") and "failed" in line] == [
        "load[3] failed  USER_CODE_ERROR PYTHON_EXCEPTION  6 jobs alike",
        "load failed  USER_CODE_ERROR PYTHON_EXCEPTION",
    ]
    assert any("detent explain job-0" in line for line in lines)


def test_an_artifact_in_the_content_store_is_shown_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Artifact("formula", "formula.svg", "/elsewhere/content/b5/3634", 512, "sha256:bb")
    here = replace(REPORT, path=str(Path.cwd() / "out" / "report.html"), name="out/report.html")
    shown = [line for line in page_of(capsys, DONE, artifacts=[kept, here]) if "artifact" in line]
    assert shown == [
        "  artifact  /elsewhere/content/b5/3634  512 B, formula: formula.svg",
        "  artifact  out/report.html  12.1 KiB, report",
    ]


def test_what_users_wrote_reaches_no_terminal_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J"
    lines = page_of(
        capsys,
        replace(FAILED, name=evil, note=evil),
        result=evil,
        failures=[replace(BROKEN, message=evil, where=evil, step=evil)],
        artifacts=[replace(REPORT, path=evil)],
    )
    assert not any("\x1b" in line for line in lines)


def test_the_same_as_data(home: Path) -> None:
    data = summary_data(replace(FAILED, resumed=True, home=str(home)), artifacts=[REPORT], failures=[BROKEN])
    assert json.loads(json.dumps(data)) == data
    assert (data["run_id"], data["name"], data["status"], data["resumed"]) == ("rivers-7f3a", "rivers", "failed", True)
    assert data["elapsed_ms"] == 4_200
    assert list(data["steps"].items()) == [
        *(("total", 4), ("run", 1), ("reused", 1), ("failed", 1)),
        *(("skipped", 1), ("cancelled", 0), ("open", 0)),
    ]
    assert data["jobs"] == {"total": 9, "done": 7, "reused": 3, "failed": 1}
    assert data["step_list"][1]["elapsed_ms"] == 2_500
    assert data["step_list"][2]["message"] == "no"
    assert data["artifacts"][0]["path"] == "out/report.html"
    assert data["failures"][0]["where"] == "etl.py:42 in clean: float(row)"
    assert data["next"][0] == "detent explain job-1"


def test_a_run_that_was_left_as_it_stands_says_how_it_goes_on(home: Path) -> None:
    commands = dict(next_commands(replace(DONE, status="stopped", home=str(home))))
    assert commands["detent show rivers-7f3a"] == "what is done; run the same command again to resume"


def test_a_home_that_is_not_found_from_here_is_named() -> None:
    assert [line for line, _ in next_commands(replace(DONE, home="/else where/home"))] == [
        "detent show rivers-7f3a --home '/else where/home'",
        "detent verify --home '/else where/home'",
    ]
    below = str(Path.cwd() / "there" / ".detent")
    assert next_commands(replace(DONE, home=below))[-1][0] == "detent verify --home there/.detent"


def test_people_get_the_beginning_of_a_random_id_and_programs_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """It is enough for every command, and the line fits a terminal."""
    failure = replace(BROKEN, job_id="8e7ef8eb-8a04-81b0-a81b-dd75745516ae")
    assert "  detent logs 8e7ef8eb      what it printed" in page_of(capsys, FAILED, failures=[failure])
    assert f"detent explain {failure.job_id}" in summary_data(FAILED, failures=[failure])["next"][0]
