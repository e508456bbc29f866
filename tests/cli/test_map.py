"""`detent map`: files and rows to a destination, what is shown meanwhile and afterwards, signals, and the same line again."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from detent.cli.map_progress import PlainMapLines, map_frame
from detent.cli.progress_frame import ASCII, line_width
from detent.ordered.actions import WindowView
from detent.runs.ordered.handle import OrderedView
from tests.cli.map_project import MapProject, detent_home, eventually, opened, project
from tests.runs.rig import WAIT_SECONDS

__all__ = ["detent_home", "project"]


def test_files_are_mapped_in_the_order_of_their_names(project: MapProject) -> None:
    """ORD-005."""
    corpus = project.directory / "corpus" / "deep"
    corpus.mkdir(parents=True)
    for name, words in ((b"b.txt", 2), (b"a.txt", 1), (b"\xff.txt", 3)):
        (corpus / os.fsdecode(name)).write_text("word " * words)
    result = project(
        "map", "--files", "corpus/**/*.txt", "--compute", "words:count", "--commit", "jsonl:out.jsonl", "-w", "1"
    )
    assert result.code == 0, result.err
    assert project.lines() == [1, 2, 3]
    assert "3 committed, of 3" in result.out
    assert "count started: run count-" in result.err
    assert "3 of 3 committed, 3 computed, lag 0" in result.err


def test_the_document_has_the_digest_and_the_counts(project: MapProject) -> None:
    """X-077, ORD-046: the digest is the same on every run, and the snapshot is the run's last."""
    said = ["--filter", "words.py:is_even", "--commit", "jsonl:out.jsonl", "-o", "json"]
    first = project.map("words.py:square", *said).document
    second = project.map("words.py:square", *said, "--window", "7", "--chunk", "3", "--append").document
    assert first["items"] == {
        "total": 100,
        "committed": 100,
        "succeeded": 50,
        "skipped": 50,
        "failed": 0,
        "cancelled": 0,
    }
    assert (first["status"], first["digest"]) == ("succeeded", second["digest"])
    assert (first["snapshot"]["committed_count"], first["snapshot"]["oldest_blocked"]) == (100, None)
    assert first["run_id"] != second["run_id"]
    assert project.lines() == [x * x for x in range(0, 100, 2)] * 2


def test_a_run_is_listed_exported_and_proved_like_any_other(project: MapProject) -> None:
    """X-167: a stranger verifies the bundle of one ordered run, notes and chunks included."""
    run_id = project.map("words:square", "--commit", "jsonl:out.jsonl", "-o", "json").document["run_id"]
    assert run_id in project("list").out
    root = project("export", run_id, "--output", "run.detent", "-o", "json").document["root"]
    verified = project("verify", "run.detent", "--root", root)
    assert verified.code == 0, verified.out
    assert project("replay").code == 0
    chunk = project("show", f"{run_id}/seq-0-3", "-o", "json").document
    assert (chunk["state"], chunk["job_kind"]) == ("succeeded", "seq")


def test_the_notes_of_a_run_are_counted_and_not_listed_among_its_chunks(project: MapProject) -> None:
    run_id = project.map("words:square", "--commit", "jsonl:out.jsonl", "--chunk", "4", "-o", "json").document["run_id"]
    shown, document = project("show", run_id).out, project("show", run_id, "-o", "json").document
    # The timeline names runs, not jobs: what names a job here is the table of jobs.
    chunks = [line.split()[0] for line in shown.splitlines() if line.startswith(f"{run_id}/")]
    assert chunks[:3] == [f"{run_id}/seq-0-3", f"{run_id}/seq-4-7", f"{run_id}/seq-8-11"], (
        "by their items, not as texts"
    )
    assert all("/seq-" in chunk for chunk in chunks)
    notes = [job["note"] for job in document["job_list"] if job["note"] is not None]
    assert {"begin", "commit", "summary"} == set(notes)
    assert f"25 succeeded, and {len(notes)} notes of the run about itself" in shown


def test_a_run_of_items_is_explained_and_found_by_the_beginning_of_its_id(project: MapProject) -> None:
    """Its jobs' ids begin with its own; half of it means the run."""
    run_id = project.map("words:square", "--commit", "jsonl:out.jsonl", "-o", "json").document["run_id"]
    out = project("explain", run_id[:10]).out
    assert out.splitlines() == [
        f"run {run_id}  succeeded  square",
        "  It calls words:square on 100 items and commits the results in their order to jsonl:out.jsonl.",
        "  100 of 100 are committed: 100 succeeded.",
        f"  `detent show {run_id}` lists its jobs, and `detent explain JOB` explains each.",
    ]
    assert project("show", "square").out == project("show", run_id).out
    refused = project("explain", run_id, "square")
    assert (refused.code, "it has items and no steps" in refused.err) == (2, True)


def test_failures_are_told_with_their_items_and_can_be_retried(project: MapProject) -> None:
    """X-183: a new run of the failed ones alone, which names their old seqs."""
    result = project.map("words.py:picky", "--commit", "jsonl:out.jsonl", "--on-error", "continue", "--chunk", "5")
    assert result.code == 1
    assert "item 3 3  ValueError: three" in result.out
    run_id = result.out.split("run ")[1].split()[0]
    assert f"detent retry {run_id}" in result.out
    shown = project("show", run_id)
    assert "100 of 100 committed (99 succeeded, 1 failed)" in shown.out
    (project.directory / "words.py").write_text("def picky(x): return -x\n")
    again = project("retry", run_id, "-o", "json").document
    assert (again["status"], again["items"]["total"], again["run_id"] != run_id) == ("succeeded", 1, True)
    assert project.lines() == [x for x in range(100) if x != 3] + [-3]
    origin = project("show", again["run_id"], "-o", "json").document["ordered"]["origin"]
    assert origin == {"run_id": run_id, "origin_seq": [3]}
    assert "nothing to run again" in project("retry", again["run_id"]).out


def test_items_that_fail_for_one_reason_tell_it_once(project: MapProject) -> None:
    (project.directory / "rows.jsonl").write_text("".join(f"{number % 2}\n" for number in range(20)))
    (project.directory / "words.py").write_text("def same(x): raise ValueError(f'no {x}')\n")
    out = project.map("words:same", "--commit", "jsonl:out.jsonl", "--on-error", "continue").out
    assert [line.strip() for line in out.splitlines() if "ValueError" in line] == [
        "item 0 0 and 9 more  ValueError: no 0",
        "item 1 1 and 9 more  ValueError: no 1",
    ]
    assert "more failed item" not in out


def test_a_function_that_has_no_name_is_refused_before_there_is_a_run(project: MapProject) -> None:
    result = project.map("words", "--commit", "jsonl:out.jsonl")
    assert (result.code, "--compute 'words' names no function" in result.err) == (2, True)
    assert project("list", "-o", "json").document == []


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("words:nope", "words.py has no 'nope', which 'words:nope' asks for"),
        ("words.py:nope", "words.py has no 'nope', which 'words.py:nope' asks for"),
        ("gone:nope", "cannot import 'gone' from"),
        ("gone.py:nope", "there is no file"),
        ("json:nope", "has no 'nope', which 'json:nope' asks for"),
    ],
)
def test_a_function_that_is_not_there_is_refused_before_there_is_a_run(
    project: MapProject, function: str, said: str
) -> None:
    for line in ((function,), ("words:square", "--filter", function)):
        result = project.map(*line, "--commit", "jsonl:out.jsonl")
        assert (result.code, said in result.err) == (2, True), result.err
    assert project("list", "-o", "json").document == []


@pytest.mark.parametrize("function", ["words:made", "math:sqrt"])
def test_a_function_that_only_loading_finds_is_found(project: MapProject, function: str) -> None:
    with (project.directory / "words.py").open("a") as file:
        file.write("globals()['made'] = lambda x: x\n")
    assert project.map(function, "--commit", "jsonl:out.jsonl").code == 0


def test_an_item_that_takes_too_long_fails_and_the_others_do_not(project: MapProject) -> None:
    more = ("--commit", "jsonl:out.jsonl", "--chunk", "5", "--on-error", "continue", "--item-timeout", "0.2")
    result = project.map("words:stuck", *more, "-o", "json")
    assert (result.code, result.document["items"]["succeeded"]) == (1, 99)
    assert result.document["failure_codes"] == {"LIMIT_WALL": 1}
    (failure,) = result.document["failures"]
    assert (failure["seq"], failure["message"]) == (3, "took longer than its limit of 200 ms")
    assert project("show", result.document["run_id"], "-o", "json").document["ordered"]["item_ms"] == 200
    assert "an item may take 200ms" in project("show", result.document["run_id"]).out


def test_a_stop_cancels_the_rest_and_retry_runs_it(project: MapProject) -> None:
    result = project.map("words.py:picky", "--commit", "jsonl:out.jsonl", "--window", "4", "--chunk", "2", "-o", "json")
    assert result.code == 1
    assert result.document["items"]["cancelled"] == 92
    (project.directory / "words.py").write_text("def picky(x): return x\n")
    assert project("retry", result.document["run_id"], "-o", "json").document["items"]["succeeded"] == 93
    assert sorted(project.lines()) == list(range(100))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give either --files or --items"),
        (("--files", "*.txt", "--items", "rows.jsonl"), "give either --files or --items"),
        (("--items", "bad.jsonl"), "bad.jsonl:2:"),
        (("--items", "rows.jsonl", "--commit", "csv:x"), "destination"),
        (("--items", "rows.jsonl", "--item-timeout", "soon"), "--item-timeout cannot be 'soon': write it as 500ms"),
        (("--items", "rows.jsonl", "--item-timeout", "0.01"), "--item-timeout must be at least 100 ms"),
        (("--items", "rows.jsonl", "--filter", "words"), "--filter 'words' names no function"),
    ],
)
def test_a_line_that_means_nothing_is_refused(project: MapProject, arguments: tuple[str, ...], said: str) -> None:
    (project.directory / "bad.jsonl").write_text("1\n{\n")
    commit = () if "--commit" in arguments else ("--commit", "jsonl:out.jsonl")
    result = project("map", *arguments, "--compute", "words:square", *commit)
    assert (result.code, said in result.err) == (2, True), result.err


@pytest.mark.parametrize(
    ("commit", "said"),
    [
        ("jsonl:nowhere/out.jsonl", "nowhere, which is not a directory"),
        ("sqlite:nowhere/out.db#rows", "nowhere, which is not a directory"),
        ("word:put", "cannot import 'word'"),
        ("words:put", "has no 'put'"),
    ],
)
def test_a_destination_that_cannot_be_is_refused_before_there_is_a_run(
    project: MapProject, commit: str, said: str
) -> None:
    result = project.map("words:square", "--commit", commit)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "hint:" in result.err
    assert json.loads(project("list", "-o", "json").out) == []


def test_no_item_is_a_run_that_is_done(project: MapProject) -> None:
    """ORD-008."""
    (project.directory / "rows.jsonl").write_text("")
    result = project.map("words:square", "--commit", "jsonl:out.jsonl")
    assert (result.code, "none, of 0" in result.out) == (0, True)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 130)])
def test_a_killed_map_goes_on_when_the_line_is_typed_again(project: MapProject, sent: int, code: int) -> None:
    """X-174, X-022, ORD-016, ORD-032, ORD-034, ORD-040, ORD-055: the same run, and the destination has each item once.

    The cursor that was recorded before and after the kill goes from the first item to the last without a gap or a step back.
    """
    os.mkfifo(project.directory / "gate")
    line = ["map", "--items", "rows.jsonl", "--compute", "words.py:slow", "--commit", "jsonl:out.jsonl"]
    line += ["--window", "16", "--chunk", "4", "-w", "2"]
    process = project.start(*line)
    eventually((project.directory / "running").exists, "it does not run")
    eventually(
        lambda: (project.directory / "out.jsonl").exists() and len(project.lines()) >= 16, "nothing is committed"
    )
    process.send_signal(sent)
    process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == code
    (project.directory / "gate").unlink()
    (project.directory / "gate").write_text("open")
    again = project.start(*line)
    out, err = again.communicate(timeout=WAIT_SECONDS)
    assert again.returncode == 0, err
    assert "resumes at item" in err
    assert "resumed" in out
    assert project.lines() == list(range(100))
    commits = [job["job_id"] for job in project.json("show", project.newest())["job_list"] if job["note"] == "commit"]
    ranges = sorted(tuple(map(int, job_id.rpartition("/commit-")[2].split("-"))) for job_id in commits)
    assert [first for first, _ in ranges] == [0, *(last + 1 for _, last in ranges[:-1])]
    assert ranges[-1][1] == 99


def test_an_interrupt_cancels_at_a_boundary(project: MapProject) -> None:
    """X-069: what is below the boundary is committed, and the run has ended."""
    os.mkfifo(project.directory / "gate")
    line = ["map", "--items", "rows.jsonl", "--compute", "words.py:slow", "--commit", "jsonl:out.jsonl"]
    process = project.start(*line, "--window", "16", "--chunk", "4", "-w", "2", "-o", "json")
    eventually((project.directory / "running").exists, "it does not run")
    process.send_signal(signal.SIGINT)
    eventually(lambda: opened(project.directory / "gate") or process.poll() is not None, "no task waits at the gate")
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130, err
    document = json.loads(out)
    done = document["items"]["succeeded"]
    assert (document["status"], document["items"]["cancelled"]) == ("cancelled", 100 - done)
    assert project.lines() == list(range(done))


# -- what is shown meanwhile -------------------------------------------------------------------------------------------


def view(**said: Any) -> OrderedView:
    known: dict[str, Any] = {
        "run_id": "map-1", "name": "map", "status": "running", "total": 1000, "computed": 500, "committed": 300,
        "failed": 0, "buffered_bytes": 4096, "blocked_seq": 300, "blocked_ms": 0, "write_failures": 0,
        "started_ms": 0, "now_ms": 10_000, "workers": 2, "home": "/h",
    }  # fmt: skip
    return OrderedView(**{**known, **said})


def test_a_frame_shows_lag_bytes_and_the_oldest_blocked_item() -> None:
    """ORD-048, ORD-049."""
    lines = map_frame(view(blocked_ms=90_000, failed=2), lambda seq: f"file-{seq}.txt", 100, ASCII)
    text = "\n".join("".join(cell.text for cell in line) for line in lines)
    assert "300 of 1,000 committed" in text
    assert "computed 500  lag 200  buffered 4.0 KiB  30/s" in text
    assert "failed 2" in text
    assert "waits for item 300 (file-300.txt) for 1m30s" in text
    (*_, last) = map_frame(view(blocked_ms=90_000, write_failures=2), lambda seq: f"file-{seq}.txt", 100, ASCII)
    said = "".join(cell.text for cell in last)
    assert "the destination failed at item 300 (file-300.txt): retrying for 1m30s" in said


def test_the_progress_shows_the_occupancy_of_both_windows() -> None:
    """ORD-047"""
    windows = (
        WindowView("W0", 0, 511, {"COMMITTED": 300, "IN_FLIGHT": 1, "TERMINAL_SUCCESS": 208, "TERMINAL_FAIL": 3}),
        WindowView("W1", 512, 1023, {"TERMINAL_SKIP": 1, "IN_FLIGHT": 4, "DISPATCHED": 7, "UNSEEN": 500}),
    )
    expected = [
        "W0 items 0 to 511: 300 committed, 211 computed, 1 running",
        "W1 items 512 to 1,023: 1 computed, 4 running, 7 queued, 500 not started",
    ]
    lines = map_frame(view(windows=windows), str, 100, ASCII)
    assert [cell.text.strip() for line in lines[3:] for cell in line] == expected
    plain = PlainMapLines(lambda _: "T")
    plain.lines(view(windows=windows), str)
    said = plain.lines(view(windows=windows, committed=400, blocked_ms=2_000), str)
    assert said[1:] == ["T waits for item 300 (300) for 2.0s", *(f"T {line}" for line in expected)]


def test_no_line_of_a_frame_is_wider_than_the_terminal() -> None:
    for columns in (1, 10, 40, 79):
        lines = map_frame(view(name="x" * 300, blocked_ms=5000, note="y" * 300), lambda _: "z" * 300, columns)
        assert all(line_width(line) <= columns for line in lines)


def test_plain_lines_come_at_every_tenth_and_at_the_end() -> None:
    plain = PlainMapLines(lambda _: "T")
    said = [plain.lines(view(committed=done, now_ms=10_000 + done), str) for done in (0, 50, 100, 101)]
    assert [len(lines) for lines in said] == [1, 0, 1, 0]
    assert said[0] == ["T map started: run map-1, 1,000 items, 2 workers"]
    assert said[2] == ["T 100 of 1,000 committed, 500 computed, lag 400, 4.0 KiB buffered"]
    assert len(plain.lines(view(committed=102, now_ms=10_102), str, last=True)) == 1
    resumed = PlainMapLines(lambda _: "T").lines(view(resumed=True, resumed_at=7), str)
    assert resumed[0] == "T map resumes at item 7: run map-1, 1,000 items, 2 workers"
