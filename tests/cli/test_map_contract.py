"""The contract of ordered runs, as `detent map` and `detent show` let a user see it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.cli.map_project import MapProject, detent_home, eventually, opened, project

__all__ = ["detent_home", "project"]

LINE = ("map", "--items", "rows.jsonl", "--commit", "jsonl:out.jsonl", "-w", "2")


def job_of(project: MapProject, run_id: str, seqs: str) -> Any:
    return project.json("show", "--job", f"{run_id}/seq-{seqs}")


def moves(job: Any) -> list[str]:
    """The transitions of a job, in order."""
    records = [record for record in job["records"] if record["kind"] == "transition"]
    return [f"{record['from_state']}->{record['to_state']}" for record in records]


def test_the_cursor_waits_for_the_first_item_that_has_not_ended(project: MapProject) -> None:
    """ORD-006, ORD-009, ORD-010, ORD-017, ORD-018, ORD-019, ORD-021, ORD-029, ORD-036, ORD-046, ORD-047, ORD-049, ORD-053,
    ORD-054, X-024, X-073, X-080: item 40 does not end, all others of the two open windows do, and nothing behind them is begun.
    """
    os.mkfifo(project.directory / "gate")
    process = project.start(*LINE, "--compute", "words.py:slow", "--window", "16", "--chunk", "4")
    project.appears("running")
    run_id = project.newest()

    def snapshot() -> Any:
        result = project("show", run_id, "--snapshot", "-o", "json")
        return result.document["snapshot"] if result.code == 0 else {}

    eventually(
        lambda: (snapshot().get("committed_count"), snapshot().get("commit_lag")) == (40, 20), "it does not wait"
    )
    told = snapshot()
    assert (told["next_commit_seq"], told["committed_count"], told["terminal_count"]) == (40, 40, 60)
    assert (told["in_flight_count"], told["dispatched_count"], told["max_seen_seq"]) == (4, 0, 63)
    assert [(window["lane"], window["start_seq"], window["end_seq"]) for window in told["active_windows"]] == [
        ("W0", 32, 47),
        ("W1", 48, 63),
    ]
    assert [window["occupancy"] for window in told["active_windows"]] == [
        {"IN_FLIGHT": 4, "TERMINAL_SUCCESS": 4, "COMMITTED": 8},
        {"TERMINAL_SUCCESS": 16},
    ]
    assert (told["buffered_count"], told["oldest_blocked"]["seq"]) == (20, 40)
    assert project.lines() == list(range(40))
    jobs = {job["job_id"]: job["state"] for job in project.json("show", run_id)["job_list"] if job["note"] is None}
    assert set(jobs) == {f"{run_id}/seq-{first}-{first + 3}" for first in range(0, 64, 4)}
    assert {state for job_id, state in jobs.items() if not job_id.endswith("/seq-40-43")} == {"succeeded"}
    running = job_of(project, run_id, "40-43")
    assert (running["state"], running["job_kind"], moves(running)) == ("running", "seq", ["QUEUED->RUNNING"])
    eventually(lambda: opened(project.directory / "gate"), "no item waits")
    assert project.ended(process).code == 0
    assert project.lines() == list(range(100))


def test_every_item_ends_once_and_only_successes_are_written(project: MapProject) -> None:
    """ORD-002, ORD-004, ORD-011, ORD-020, ORD-033, ORD-039, X-070, X-074: skips and failures pass the cursor, too."""
    with (project.directory / "words.py").open("a") as file:
        file.write("def is_small(x): return x < 90\n")
    line = ("--compute", "words:picky", "--filter", "words:is_small", "--on-error", "continue", "--window", "16")
    document = project.json(*LINE, *line, "--chunk", "4", code=1)
    items = document["items"]
    assert (items["total"], items["succeeded"], items["skipped"], items["failed"], items["cancelled"]) == (
        100, 89, 10, 1, 0,
    )  # fmt: skip
    assert project.lines() == [number for number in range(90) if number != 3]
    end = document["snapshot"]
    assert end["next_commit_seq"] == end["committed_count"] == end["terminal_count"] == end["total"] == 100
    assert (end["active_windows"], end["oldest_blocked"], end["buffered_count"], end["commit_lag"]) == ([], None, 0, 0)


FLAKY = """
import os, pathlib
def flaky(x):
    first = not pathlib.Path(f"tried-{x}").exists()
    pathlib.Path(f"tried-{x}").touch()
    if x == 2 and first: %s
    return x
"""


@pytest.mark.parametrize("fault", ["raise ValueError('once')", "os.kill(os.getpid(), 9)"])
def test_an_attempt_that_fails_is_followed_by_another_of_the_same_item(project: MapProject, fault: str) -> None:
    """ORD-003, ORD-013, ORD-022, ORD-024, ORD-027, ORD-037, ORD-041, X-068, X-072: by an error, or by the death of its worker."""
    (project.directory / "flaky.py").write_text(FLAKY % fault)
    (project.directory / "rows.jsonl").write_text("0\n1\n2\n3\n")
    document = project.json(*LINE, "--compute", "flaky:flaky", "--chunk", "1", "--retries", "1")
    assert (document["items"]["total"], document["items"]["succeeded"]) == (4, 4)
    assert project.lines() == [0, 1, 2, 3]
    job = job_of(project, document["run_id"], "2")
    assert (job["attempts"], job["attempt_id"]) == (2, 1)
    assert moves(job) == [
        "QUEUED->RUNNING",
        "RUNNING->RETRYING",
        "RETRYING->QUEUED",
        "QUEUED->RUNNING",
        "RUNNING->SUCCEEDED",
    ]
    assert job_of(project, document["run_id"], "1")["attempts"] == 1


@pytest.mark.parametrize("retries", [0, 2])
def test_an_item_that_always_fails_ends_with_its_last_retry(project: MapProject, retries: int) -> None:
    """ORD-025, ORD-026"""
    (project.directory / "rows.jsonl").write_text("1\n2\n3\n")
    line = ("--compute", "words:picky", "--chunk", "1", "--on-error", "continue", "--retries", str(retries))
    document = project.json(*LINE, *line, code=1)
    assert (document["items"]["failed"], document["items"]["succeeded"]) == (1, 2)
    assert job_of(project, document["run_id"], "2")["attempts"] == retries + 1
    assert project.lines() == [1, 2]


def test_equal_items_have_an_equal_summary_however_they_are_cut_and_computed(project: MapProject) -> None:
    """ORD-007, ORD-035, X-077: neither workers, windows nor chunks show in it."""
    digests = set()
    for number, cut in enumerate((("-w", "1", "--chunk", "7"), ("-w", "2", "--chunk", "1", "--window", "5"))):
        line = ("map", "--items", "rows.jsonl", "--compute", "words:square", "--commit", f"jsonl:out-{number}.jsonl")
        digests.add(project.json(*line, *cut)["digest"])
    assert len(digests) == 1
    assert project.lines("out-0.jsonl") == project.lines("out-1.jsonl") == [number**2 for number in range(100)]
