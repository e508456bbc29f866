"""A task whose worker is killed each time it runs: what the user is told, and when it ends."""

from __future__ import annotations

import re

import pytest

from tests.cli.project import Project, detent_home, project
from tests.homes import BACKOFF, retry_at_once

__all__ = ["detent_home", "project"]


@pytest.fixture
def greedy(project: Project) -> str:
    """A pipeline whose only task kills its own process, as the kernel does when memory runs out."""
    project.write("greedy.py", "import os, signal\n\ndef eat():\n    os.kill(os.getpid(), signal.SIGKILL)\n")
    return project.write("greedy.yaml", 'name: greedy\nsteps:\n  - {id: eat, run: {python: "greedy:eat"}}\n')


def test_a_task_that_is_killed_each_time_fails_soon_and_says_why(project: Project, greedy: str) -> None:
    """X-191, X-163"""
    retry_at_once(project.home)
    result = project("run", greedy, "-w", "1")
    assert result.code == 1
    assert "eat failed: its worker was killed each time it ran (out of memory?)" in result.err
    (job,) = project.json("list", "--jobs")
    shown = project.json("show", job["job_id"])
    assert (shown["interruptions"], shown["attempt_id"]) == (10, 10)
    told = project("explain", job["job_id"])
    assert "It may be interrupted 10 times, and that is used up." in told.out
    assert "When memory runs out, the kernel does that" in told.out


def test_progress_says_that_the_worker_was_killed_and_when_the_next_attempt_comes(
    project: Project, greedy: str
) -> None:
    """X-191: the pause after the third interruption is written as an hour here, so that it can be met."""
    settings = project.home.path / "config.toml"
    text = settings.read_text()
    assert BACKOFF in text
    settings.write_text(text.replace(BACKOFF, f"{BACKOFF}\ninterruptions = [0, 0, 3600000]"))
    running = project.terminal("run", greedy, "-w", "1")
    assert running.process.stderr is not None
    found = None
    for line in running.process.stderr:
        if found := re.search(r"eat was killed \(out of memory\?\); attempt 4 in (1 h|5\d min)", line):
            break
    assert found is not None
    assert "interruptions: 3 of at most 10" in project("explain", project.json("list", "--jobs")[0]["job_id"]).out
    assert project("cancel", "greedy").code == 0
    assert running.ended().code == 130
