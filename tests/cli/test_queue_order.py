"""The queue as its users see it: who goes first, what a full one does, and what the settings say about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import detent
from detent.sdk.client import Client
from tests.cli.conftest import Cli
from tests.cli.project import Project, detent_home, project
from tests.sdk import work_functions as functions

__all__ = ["detent_home", "project"]

WAITS = 'name: waits\nsteps: [{id: only, run: {python: "tasks:wait"}}]\n'
LOW, NORMAL, HIGH = functions.low, functions.square, functions.high


def set_up(project: Project, old: str, new: str) -> None:
    """Change a line of the home's settings."""
    path = project.home.path / "config.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def dispatched(project: Project) -> list[str]:
    """The jobs in the order in which they were given to a worker."""
    lines = [json.loads(line) for line in project("trace", "--all").out.splitlines()]
    return [line["job_id"] for line in lines if line["kind"] == "iter" and line.get("dispatch")]


def test_the_highest_class_goes_first_and_inside_a_class_the_first_come(project: Project) -> None:
    """PIPE-028, OC-CORE-1001a, OC-CORE-1003b, OC-CORE-1004a, OC-CORE-1004b, CORE-X014: by `detent trace`."""
    with Client(project.home.path, workers=0) as client:
        low, first, second, third, fourth = (
            *(client.submit(LOW, 1).job_id, client.submit(NORMAL, 2).job_id),
            *(client.submit(HIGH, 3).job_id, client.submit(NORMAL, 4).job_id, client.submit(HIGH, 5).job_id),
        )
    assert {job["job_id"]: job["priority"] for job in project.json("list", "--jobs")} == {
        low: 1,
        first: 5,
        second: 10,
        third: 5,
        fourth: 10,
    }
    with Client(project.home.path, workers=1) as client:
        assert client.handle(low).result(60) == 1
    assert dispatched(project) == [second, fourth, first, third, low]


def test_a_cancelled_job_is_never_given_to_a_worker_and_makes_room(project: Project) -> None:
    """OC-CORE-1005, X-083: the place that it leaves counts at once, however small the queue is."""
    set_up(project, "capacity_per_class = 256", "capacity_per_class = 2")
    with Client(project.home.path, workers=0) as client:
        first, second = client.submit(NORMAL, 1).job_id, client.submit(NORMAL, 2).job_id
        assert project("cancel", first).code == 0
        third = client.submit_call(NORMAL, [3], timeout=5).job_id
    with Client(project.home.path, workers=1) as client:
        assert [client.handle(job_id).result(60) for job_id in (second, third)] == [4, 9]
    assert dispatched(project) == [second, third]
    assert project.json("show", first)["attempts"] == 0


def test_each_class_of_the_queue_is_bounded_and_a_full_one_refuses(project: Project) -> None:
    """OC-CORE-1001b, OC-CORE-1002a: `reject` refuses the newcomer, and the other classes still have room."""
    set_up(project, "capacity_per_class = 256", "capacity_per_class = 2")
    with Client(project.home.path, workers=0) as client:
        kept = [client.submit(NORMAL, number).job_id for number in range(2)]
        with pytest.raises(detent.QueueFull):
            client.submit_call(NORMAL, [2], timeout=0.1)
        kept.append(client.submit_call(HIGH, [3], timeout=0.1).job_id)
    listed = project.json("list", "--jobs", "--state", "queued")
    assert {job["job_id"] for job in listed} == set(kept)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("drop-lru", {"refused": 0, "evicted": 3}),
        ("shed-low-priority", {"refused": 3, "evicted": 0}),
        ("reject", {"refused": 3, "evicted": 0}),
    ],
)
def test_replay_shows_what_another_policy_does_with_a_full_queue(
    cli: Cli, tmp_path: Path, policy: str, expected: dict[str, int]
) -> None:
    """OC-CORE-1002a, OC-CORE-1002b, X-082: whatever the policy, as many are refused or evicted as came too many."""
    (tmp_path / "policy.toml").write_text(f'[queue]\ncapacity_total = 2\nadmission_policy = "{policy}"\n')
    after = cli.json("replay", "--policy", "policy.toml")["after"]
    assert {name: after[name] for name in expected} == expected


@pytest.mark.door("setting [queue]")
def test_a_policy_that_does_not_exist_is_refused_with_the_ones_that_do(project: Project) -> None:
    """OC-CORE-1002a"""
    set_up(project, 'admission_policy = "reject"', 'admission_policy = "drop-all"')
    result = project("run", project.write("flow.yaml", WAITS))
    assert result.code == 2
    assert "admission_policy" in result.err
    assert "shed-low-priority" in result.err


def test_a_running_job_has_a_lease_a_holder_and_an_end_of_it(project: Project) -> None:
    """PIPE-058, PIPE-080: while its worker lives the lease does not lapse."""
    running = project.terminal("run", project.write("flow.yaml", WAITS), "-w", "1")
    project.wait_running()
    (job,) = project.json("list", "--jobs")
    shown = project.json("show", job["job_id"])
    assert (shown["state"], shown["attempt"]) == ("running", 1)
    lease = shown["lease"]
    assert lease["lease_id"] == shown["records"][-1]["lease_id"]
    assert lease["holder"] == shown["records"][-1]["evidence"]["replica_id"]
    assert lease["expiry_tick"] > shown["changed_tick"]
    project.release()
    assert running.ended().code == 0
    assert project.json("show", job["job_id"])["lease"] is None


def test_two_that_cancel_one_job_at_once_write_one_cancellation(project: Project) -> None:
    """PIPE-065, PIPE-066: each is answered, and the history has the two moves of one batch."""
    with Client(project.home.path, workers=0) as client:
        job_id = client.submit(NORMAL, 1).job_id
    both = [project.terminal("cancel", job_id) for _ in range(2)]
    assert [terminal.ended().code for terminal in both] == [0, 0]
    moves = [record["to_state"] for record in project.json("show", job_id)["records"] if "to_state" in record]
    assert moves == ["RUNNING", "CANCELED"]
