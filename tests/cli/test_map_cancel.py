"""`detent cancel` of a run of `detent map`: from another terminal, at a boundary without a gap, and what `retry` makes of it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.cli.conftest import Result
from tests.cli.map_project import MapProject, detent_home, eventually, opened, project
from tests.warm import Warm

__all__ = ["detent_home", "project"]

LINE = ("map", "--items", "rows.jsonl", "--compute", "words.py:slow", "--commit", "jsonl:out.jsonl")
CUT = ("--window", "16", "--chunk", "4", "-w", "2", "-o", "json")


class Live:
    """A map whose item 40 waits at a gate, and a cancellation of it from another terminal."""

    def __init__(self, project: MapProject, cut: tuple[str, ...] = CUT) -> None:
        self._project = project
        os.mkfifo(project.directory / "gate")
        self.map = project.start(*LINE, *cut)
        project.appears("running")
        self.run_id = project.newest()

    def cancel(self, *more: str) -> Result:
        """Cancel it; the item goes on when the driver has been asked."""
        cancelling = self._project.start("cancel", self.run_id, *more)
        self.asked()
        self.open_gate()
        return self._project.ended(cancelling)

    def asked(self) -> None:
        """Wait until the driver has recorded a boundary."""
        project, run_id = self._project, self.run_id
        eventually(
            lambda: project.json("show", run_id)["ordered"]["cancel_boundary"] is not None, "no boundary is recorded"
        )

    def open_gate(self) -> None:
        """Let the item that waits go on."""
        gate = self._project.directory / "gate"
        eventually(lambda: opened(gate) or self.map.poll() is not None, "no item waits at the gate")
        gate.unlink()
        gate.write_text("open")

    def ended(self) -> Result:
        return self._project.ended(self.map)


def assert_cut(project: MapProject, run_id: str, ended: Result) -> int:
    """The map ended as cancelled, with everything below its boundary and nothing else; the boundary."""
    assert ended.code == 130, ended.err
    shown = project.json("show", run_id)
    boundary = shown["ordered"]["cancel_boundary"]
    assert shown["status"] == ended.document["status"] == "cancelled"
    assert project.lines() == list(range(boundary)), "there is a gap, or something was written behind the boundary"
    counts = ended.document["items"]
    assert (counts["committed"], counts["succeeded"], counts["cancelled"]) == (boundary, boundary, 100 - boundary)
    assert shown["ordered"]["committed"] == boundary
    told = f"{boundary} of 100 committed ({boundary} succeeded), {100 - boundary} cancelled"
    assert told in project("show", run_id).out
    assert f"{boundary} of 100 are committed: {boundary} succeeded.\n" in project("explain", run_id).out
    return int(boundary)


def test_cancel_from_another_terminal_ends_a_live_map_at_a_boundary(project: MapProject) -> None:
    """X-193, X-069, ORD-038: no gap, status cancelled, exit 0."""
    live = Live(project)
    said = live.cancel("--reason", "wrong corpus", "-o", "json")
    boundary = assert_cut(project, live.run_id, live.ended())
    assert (said.code, said.document["status"], said.document["cancelled"]) == (0, "cancelled", True)
    assert (said.document["items"]["boundary"], said.document["items"]["committed"]) == (boundary, boundary)
    assert boundary > 40, "what is below the boundary runs to its natural end"


def test_progress_counts_cancelled_items_apart_from_committed_ones(project: MapProject) -> None:
    live = Live(project, tuple(word for word in CUT if word not in {"-o", "json"}))
    assert live.cancel("--at", "80").code == 0
    said = live.ended().err
    assert "80 of 100 committed, 80 computed, lag 0, 0 B buffered, 20 cancelled" in said
    assert "100 of 100 committed" not in said


def test_the_request_and_its_reason_are_on_the_ledger(project: MapProject) -> None:
    """ORD-052: the audit shows what was asked for, by whom it was answered, and where it was cut."""
    live = Live(project)
    live.cancel("--reason", "wrong corpus")
    boundary = assert_cut(project, live.run_id, live.ended())
    notes = {job["note"]: job["job_id"] for job in project.json("show", live.run_id)["job_list"] if job["note"]}
    assert notes["request"] == f"{live.run_id}/request-0"
    assert notes["cancel"] == f"{live.run_id}/cancel-{boundary}"
    asked = project.json("show", "--job", notes["request"])
    assert asked["report"]["value"] == {"at": 0, "reason": "wrong corpus"}
    cut = project.json("show", "--job", notes["cancel"])
    assert cut["report"]["value"] == {"boundary": boundary, "reason": "wrong corpus", "requested": 0}


def test_retry_goes_on_from_the_recorded_cursor(project: MapProject) -> None:
    """X-193: the new run has the cancelled items and no other."""
    live = Live(project)
    assert live.cancel().code == 0
    boundary = assert_cut(project, live.run_id, live.ended())
    again = project.json("retry", live.run_id)
    assert (again["status"], again["items"]["total"]) == ("succeeded", 100 - boundary)
    assert project.lines() == list(range(100))


def test_at_chooses_the_boundary(project: MapProject) -> None:
    """ORD-038: the outcome depends on the number alone."""
    live = Live(project)
    said = live.cancel("--at", "80")
    assert said.code == 0
    assert "from  item 80 on" in said.out
    assert assert_cut(project, live.run_id, live.ended()) == 80


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("100", "has items 0 to 99, and 100 is not among them"),
        ("3", "is committed already, and so is everything below"),
    ],
)
def test_a_boundary_that_cannot_be_is_refused_with_the_one_that_can(project: MapProject, at: str, said: str) -> None:
    """ORD-038: nothing that was committed can be cancelled, and the answer says where the earliest boundary is."""
    live = Live(project)
    eventually(lambda: project.json("show", live.run_id)["ordered"]["committed"] >= 16, "nothing is committed")
    refused = project("cancel", live.run_id, "--at", at)
    assert (refused.code, said in refused.err) == (2, True), refused.err
    if at == "3":
        committed = project.json("show", live.run_id)["ordered"]["committed"]
        assert f"the boundary can be {committed} at the earliest" in refused.err
    assert project.json("list")[0]["status"] == "running"
    live.open_gate()
    assert live.ended().code == 0


def test_at_is_refused_for_what_has_no_items(project: MapProject) -> None:
    (project.directory / "flow.yaml").write_text(
        "name: flow\nsteps:\n  - {id: one, run: {python: 'words:square', with: {x: 2}}}\n"
    )
    project("run", "flow.yaml")
    (job,) = project.json("list", "--jobs")
    assert project("cancel", job["job_id"], "--at", "1").code == 2


# -- everything is computed, and the destination is slow -----------------------------------------------------------------


PATIENT = """
import sys
if driver := sys.modules.get("detent.runs.ordered.driver"): driver.LEAVE_SECONDS = 3600.0
"""
"""The destination is loaded where the run is driven: held by a test, it is slow and not stuck, however slow the machine is."""


def slow_destination(project: MapProject, *more: str) -> tuple[Warm, str]:
    """A map of twelve items, all of them computed, whose destination is at the fourth; and its run."""
    os.mkfifo(project.directory / "gate")
    (project.directory / "rows.jsonl").write_text("".join(f"{number}\n" for number in range(12)))
    line = ("map", "--items", "rows.jsonl", "--compute", "words.py:square", "--commit", "words:take", "--chunk", "1")
    (project.directory / "words.py").write_text(
        (project.directory / "words.py").read_text().replace("def square(x): return x * x", "def square(x): return x")
        + PATIENT
    )
    process = project.start(*line, "-w", "2", "-o", "json", *more)
    project.appears("writing")
    run_id = project.newest()
    eventually(lambda: snapshot(project, run_id).get("terminal_count") == 12, "not everything is computed")
    return process, run_id


def snapshot(project: MapProject, run_id: str) -> dict[str, Any]:
    """What `detent show --snapshot` says from another terminal; nothing while there is none."""
    result = project("show", run_id, "--snapshot", "-o", "json")
    return {**result.document, **result.document["snapshot"]} if result.code == 0 else {}


def test_a_slow_destination_is_cut_where_it_stands(project: MapProject) -> None:
    """X-193: only the driver closes the run; nothing is written after `cancel` has answered, and `retry` writes the rest."""
    process, run_id = slow_destination(project)
    cancelling = project.start("cancel", run_id, "--reason", "too slow", "-o", "json")
    eventually(lambda: snapshot(project, run_id).get("message") == "too slow", "the driver was not asked")
    assert project.json("list")[0]["status"] == "running", "it was closed while its driver was writing"
    eventually(lambda: opened(project.directory / "gate"), "the destination does not wait")
    said = project.ended(cancelling)
    assert (said.code, said.document["status"]) == (0, "cancelled")
    taken = project.taken()
    ended = project.ended(process)
    assert (ended.code, ended.document["status"]) == (130, "cancelled")
    assert project.taken() == taken == [0, 1, 2, 3]
    assert said.document["items"]["boundary"] == len(taken)
    again = project.json("retry", run_id)
    assert (again["status"], again["items"]["total"]) == ("succeeded", 12 - len(taken))
    assert project.taken() == list(range(12))


def test_an_interrupt_cuts_a_slow_destination_too(project: MapProject) -> None:
    """X-069: Ctrl-C and `detent cancel` mean the same."""
    process, run_id = slow_destination(project)
    process.send_signal(signal.SIGINT)
    eventually(lambda: snapshot(project, run_id).get("message") == "interrupted", "the driver was not interrupted")
    eventually(lambda: opened(project.directory / "gate"), "the destination does not wait")
    ended = project.ended(process)
    assert (ended.code, ended.document["status"]) == (130, "cancelled")
    assert project.taken() == [0, 1, 2, 3]
    assert project.json("show", run_id)["ordered"]["cancel_boundary"] == 4


# -- no process drives it ------------------------------------------------------------------------------------------------


def test_a_map_whose_process_was_killed_is_closed_where_its_destination_stands(project: MapProject) -> None:
    """X-193: what the killed process wrote and did not record is cut off, so `retry` writes no item twice."""
    live = Live(project)
    eventually(lambda: project.json("show", live.run_id)["ordered"]["committed"] >= 16, "nothing is committed")
    os.killpg(live.map.pid, signal.SIGKILL)
    live.map.communicate()
    with (project.directory / "out.jsonl").open("a") as file:
        file.write("4711\n")  # As a batch looks that was written and not recorded.
    gate = project.directory / "gate"
    gate.unlink()
    gate.write_text("open")
    refused = project("cancel", live.run_id, "--at", "90")
    assert (refused.code, "no process works on run" in refused.err) == (2, True)
    said = project.json("cancel", live.run_id)
    boundary = said["items"]["boundary"]
    assert (said["status"], boundary) == ("cancelled", said["items"]["committed"])
    assert project.lines() == list(range(boundary))
    assert project.json("retry", live.run_id)["status"] == "succeeded"
    assert project.lines() == list(range(100))


def test_a_request_outlives_the_driver_it_was_made_to(project: MapProject) -> None:
    """ORD-052: killed after it was asked, the run that is taken up again ends at the boundary that was recorded."""
    live = Live(project)
    cancelling = project.start("cancel", live.run_id, "--at", "80")
    live.asked()
    os.killpg(cancelling.pid, signal.SIGKILL)
    os.killpg(live.map.pid, signal.SIGKILL)
    gate = project.directory / "gate"
    gate.unlink()
    gate.write_text("open")
    again = project(*LINE, *CUT)
    assert assert_cut(project, live.run_id, again) == 80
    assert json.loads(again.out)["resumed"] is True
