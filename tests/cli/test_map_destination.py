"""Destinations of `detent map` that never answer or fail: the time limit, the way out, and the snapshot that tells why."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from detent.owner.place import LOCKS
from tests.cli.map_project import MapProject, detent_home, eventually, opened, project

__all__ = ["detent_home", "project"]

LINE = ("map", "--items", "rows.jsonl", "--compute", "words:square", "--commit", "words:take", "--chunk", "1")
SNAPSHOT = {
    "total", "next_commit_seq", "max_seen_seq", "terminal_count", "committed_count", "dispatched_count", "in_flight_count",
    "active_windows", "oldest_blocked", "buffered_bytes", "buffered_count", "commit_lag", "cancel_boundary",
    "write_failures", "now_ms",
}  # fmt: skip


def stuck(project: MapProject) -> None:
    """Nine items whose results are 0 to 8; the destination does not return from that of 3."""
    os.mkfifo(project.directory / "gate")
    (project.directory / "rows.jsonl").write_text("".join(f"{number}\n" for number in range(9)))
    text = (project.directory / "words.py").read_text()
    (project.directory / "words.py").write_text(text.replace("return x * x", "return x"))


def test_a_destination_that_never_returns_ends_the_command_with_its_time_limit(project: MapProject) -> None:
    """ORD-044, X-076: typed, with the snapshot on stdout and in a file; the same line goes on at that item."""
    stuck(project)
    ended = project.ended(project.start(*LINE, "-w", "2", "--commit-timeout", "500ms", "-o", "json"))
    document = ended.document
    assert (ended.code, document["error"]["code"], document["status"]) == (4, "COMMIT_TIMEOUT", "stopped")
    assert "did not return from a commit" in ended.err
    assert document["error"]["details"]["limit_ms"] == 500
    snapshot = document["snapshot"]
    assert set(snapshot) == SNAPSHOT
    assert (snapshot["total"], snapshot["oldest_blocked"]["seq"]) == (9, snapshot["next_commit_seq"])
    left = json.loads(Path(document["snapshot_file"]).read_text())["snapshot"]
    assert left["next_commit_seq"] == snapshot["next_commit_seq"] <= 3
    (project.directory / "go").touch()
    again = project.ended(project.start(*LINE, "-w", "2", "-o", "json"))
    assert (again.code, again.document["run_id"], again.document["status"]) == (0, document["run_id"], "succeeded")
    assert again.document["resumed"] is True
    taken = project.taken()
    assert sorted(set(taken)) == list(range(9))
    assert taken[-6:] == list(range(3, 9)), (
        "it goes on at the item that was not taken, and not before what was recorded"
    )
    assert not list((project.home.path / LOCKS).iterdir()), "a run that has ended leaves no snapshot"


def test_the_first_interrupt_gets_out_of_a_destination_that_never_returns(project: MapProject) -> None:
    """X-157: the run is left as it stands, and the same line goes on."""
    stuck(project)
    process = project.start(*LINE, "-w", "2")
    project.appears("writing")
    process.send_signal(signal.SIGINT)
    ended = project.ended(process)
    assert ended.code == 130
    assert "run the same command again to resume" in ended.out
    run_id = project.newest()
    assert project.json("list")[0]["status"] == "running"
    (project.directory / "go").touch()
    assert project("cancel", run_id).code == 0
    assert project.json("retry", run_id)["status"] == "succeeded"
    assert sorted(set(project.taken())) == list(range(9))


def test_a_step_has_the_same_limit(project: MapProject) -> None:
    """X-076: the step fails with the code, and the next run of the workflow goes on."""
    stuck(project)
    (project.directory / "flow.yaml").write_text(
        "name: flow\nsteps:\n  - id: all\n    run:\n      map: {items: rows.jsonl, compute: 'words:square',"
        " commit: 'words:take', chunk: 1, commit_timeout: 500ms}\n"
    )
    ended = project.ended(project.start("run", "flow.yaml", "-w", "2"))
    assert (ended.code, "COMMIT_TIMEOUT" in ended.out) == (1, True), ended.out
    (project.directory / "go").touch()
    assert project.ended(project.start("run", "flow.yaml", "-w", "2")).code == 0
    assert sorted(set(project.taken())) == list(range(9))


def test_a_destination_that_fails_leaves_its_snapshot(project: MapProject) -> None:
    """ORD-046, ORD-047, ORD-048, ORD-049: in the one document, and in the file that the message names."""
    (project.directory / "refuses.py").write_text("def same(x): return x\ndef put(value): raise OSError('no route')\n")
    (project.directory / "rows.jsonl").write_text("0\n1\n2\n")
    line = ("map", "--items", "rows.jsonl", "--compute", "refuses.py:same", "--commit", "refuses.py:put", "-w", "1")
    ended = project(*line, "-o", "json")
    document = ended.document
    assert (ended.code, document["error"]["code"]) == (4, "DOWNSTREAM_WRITE_FAILED")
    snapshot = document["snapshot"]
    assert set(snapshot) == SNAPSHOT
    assert (snapshot["next_commit_seq"], snapshot["commit_lag"], snapshot["write_failures"]) == (0, 3, 4)
    (window,) = snapshot["active_windows"]
    assert (window["start_seq"], window["end_seq"], window["occupancy"]) == (0, 2, {"TERMINAL_SUCCESS": 3})
    assert (snapshot["oldest_blocked"]["seq"], snapshot["oldest_blocked"]["state"]) == (0, "TERMINAL_SUCCESS")
    assert snapshot["buffered_bytes"] > 0
    shown = project("show", document["run_id"], "--snapshot")
    assert "interrupted: no process is working on it; this is its last state" in shown.out
    assert "item 0: TERMINAL_SUCCESS for" in shown.out
    assert "failed 4 times in a row" in shown.out
    left = project.json("show", document["run_id"])["snapshot"]
    assert (left["run_id"], left["snapshot"]["write_failures"]) == (document["run_id"], 4)
    text = project(*line, "-q")
    assert (text.code, document["snapshot_file"] in text.err) == (4, True)


def test_a_live_run_shows_which_worker_it_waits_for(project: MapProject) -> None:
    """ORD-014, ORD-048, X-013, X-078: the owner of the blocked item is the holder of its job's lease, and it is heard of."""
    os.mkfifo(project.directory / "gate")
    line = ("map", "--items", "rows.jsonl", "--compute", "words.py:slow", "--commit", "jsonl:out.jsonl")
    process = project.start(*line, "--window", "16", "--chunk", "4", "-w", "2")
    project.appears("running")
    run_id = project.newest()

    def blocked() -> dict[str, object]:
        result = project("show", run_id, "--snapshot", "-o", "json")
        return result.document["snapshot"]["oldest_blocked"] if result.code == 0 else {}

    eventually(lambda: blocked().get("seq") == 40 and blocked()["state"] == "IN_FLIGHT", "it does not wait for item 40")
    lease = project("show", "--job", f"{run_id}/seq-40-43", "-o", "json").document["lease"]
    assert blocked()["owner"] == lease["holder"]
    first = blocked()["heartbeat_ms"]
    assert isinstance(first, int)
    eventually(lambda: int(str(blocked()["heartbeat_ms"])) > first, "its worker is not heard of any more")
    shown = project("show", run_id, "--snapshot")
    assert "item 40: IN_FLIGHT for" in shown.out
    assert lease["holder"] in " ".join(shown.out.split())
    eventually(lambda: opened(project.directory / "gate"), "no item waits")
    assert project.ended(process).code == 0
    gone = project("show", run_id, "--snapshot")
    assert (gone.code, "has ended (succeeded)" in gone.err) == (2, True)
