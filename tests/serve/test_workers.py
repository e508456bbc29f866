"""A server's own workers: a process beside it that runs jobs, is started again when it dies, and ends in order with the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detent.inspect.audit import verify_home
from detent.serve.children import PAUSE_SECONDS, PAUSE_SECONDS_MAX, SETTLED_SECONDS, pause_after
from tests.serve.laboured import Laboured, ended, eventually, offspring_of, project
from tests.serve.served import ANSWER_SECONDS, Served, start


@pytest.fixture
def laboured(tmp_path: Path) -> Laboured:
    return project(tmp_path)


def serve(laboured: Laboured, *options: str) -> Served:
    return start(laboured.home.path, laboured.environment, "--project", str(laboured.directory), *options)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that its parent has not looked at since counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.door("detent serve --workers")
def test_workers_of_a_server_run_what_others_submit_in_processes_of_their_own(laboured: Laboured) -> None:
    served = serve(laboured, "--workers", "2")
    jobs = laboured.submit("note", "one", "two")
    ended(served, jobs)
    assert laboured.done() == ["one", "two"]
    workers = offspring_of(served, "worker --home")
    assert served.stop() == 0
    assert gone(workers)


def test_a_job_under_way_is_finished_before_the_server_ends(laboured: Laboured) -> None:
    served = serve(laboured, "--workers", "1", "--drain-timeout", "60")
    laboured.submit("wait", "one")
    eventually(lambda: laboured.begun() == ["one"], "the job runs")
    served.process.send_signal(signal.SIGTERM)
    laboured.go()
    assert served.process.wait(ANSWER_SECONDS) == 0
    served.process.communicate()
    assert laboured.done() == ["one"]
    assert laboured.begun() == ["one"]


def test_workers_that_are_killed_are_started_again_and_nothing_is_lost(laboured: Laboured) -> None:
    """X-163"""
    served = serve(laboured, "--workers", "1")
    jobs = laboured.submit("wait", "one")
    eventually(lambda: laboured.begun() == ["one"], "the job runs")
    first = offspring_of(served, "worker --home")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(laboured.begun()) == 2, "another worker began it")
    assert offspring_of(served, "worker --home") != first
    laboured.go()
    ended(served, jobs)
    assert laboured.done() == ["one"]
    served.process.send_signal(signal.SIGTERM)
    assert "workers was killed by signal 9; starting again in 0.2 s" in served.process.communicate()[1]


def test_a_job_goes_on_when_the_server_is_killed_and_is_reported_to_the_next(laboured: Laboured) -> None:
    """X-172: a child never takes over; it finishes under the next owner, takes nothing new, and ends."""
    served = serve(laboured, "--workers", "1")
    jobs = laboured.submit("wait", "one")
    eventually(lambda: laboured.begun() == ["one"], "the job runs")
    workers = offspring_of(served, "worker --home")
    served.process.kill()
    served.process.wait(ANSWER_SECONDS)
    assert not gone(workers)
    again = serve(laboured, "--workers", "0")
    assert again.told["owner"] == "here"
    waiting = laboured.submit("note", "two")
    laboured.go()
    ended(again, jobs)
    assert (laboured.begun(), laboured.done()) == (["one"], ["one"])
    eventually(lambda: gone(workers), "the workers of the killed server end")
    assert again.json(f"/v1/jobs/{waiting[0]}")["status"] == "queued", "a server without workers runs nothing"
    assert again.stop() == 0
    assert verify_home(laboured.home, environment=laboured.environment).ok
    served.process.communicate()


@pytest.mark.door("detent worker")
def test_workers_can_be_started_by_hand_and_end_on_a_signal(laboured: Laboured) -> None:
    served = serve(laboured, "--workers", "0")
    line = [sys.executable, "-m", "detent", "worker", "--project", str(laboured.directory), "--workers", "1"]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, env=laboured.environment)
    try:
        ended(served, laboured.submit("note", "one"))
        process.send_signal(signal.SIGINT)
        assert process.wait(ANSWER_SECONDS) == 130
    finally:
        process.kill()
        process.communicate()
    assert served.stop() == 0


def test_the_pause_before_another_start_doubles_while_a_child_keeps_dying() -> None:
    pauses = [0.0]
    for _ in range(10):
        pauses.append(pause_after(1.0, pauses[-1]))
    assert pauses[1:4] == [PAUSE_SECONDS, 2 * PAUSE_SECONDS, 4 * PAUSE_SECONDS]
    assert pauses[-1] == PAUSE_SECONDS_MAX
    assert pause_after(SETTLED_SECONDS, PAUSE_SECONDS_MAX) == PAUSE_SECONDS
