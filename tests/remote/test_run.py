"""`detent run --connect`: code travels, the server drives the run, and the same command finds it again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.sides import Project, project, served_project
from tests.serve.served import Served


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[tuple[Project, Project, Served]]:
    """A project here and a home elsewhere that has none of its code."""
    here, there = project(tmp_path / "here"), Project(tmp_path / "there", project(tmp_path / "here").environment)
    there.directory.mkdir()
    there.detent("init")
    with served_project(there, "--workers", "2", "--access-log", str(tmp_path / "access.log")) as served:
        yield here, there, served


def test_a_run_brings_its_code_and_answers_with_its_steps(apart: tuple[Project, Project, Served]) -> None:
    here, _, served = apart
    there = Project(here.directory, {**here.environment, "DETENT_KEY": served.token, "DETENT_URL": served.told["url"]})
    good = there.detent("run", "good.yaml", "-o", "json")
    assert good.document["status"] == "succeeded"
    assert {step["step"]: step["state"] for step in good.document["step_list"]} == {
        "numbers": "succeeded",
        "double": "succeeded",
    }
    bad = there.detent("run", "bad.yaml", expects=1)
    assert "no such river" in bad.out
    assert not here.home.exists(), "nothing ran here"
    again = there.detent("run", "good.yaml", "-o", "json")
    assert again.document["run_id"] != good.document["run_id"]
    wrong = there.detent("run", "tasks.py:flow", expects=2)
    assert "contract files" in wrong.err


def test_the_run_goes_on_without_its_command_and_is_found_again(
    apart: tuple[Project, Project, Served], tmp_path: Path
) -> None:
    here, there, served = apart
    stop = tmp_path / "go"
    words = ["run", "waits.yaml", "-p", f"path={stop}", "--connect", served.told["url"]]
    variables = {**here.environment, "DETENT_KEY": served.token}
    first = subprocess.Popen(
        [sys.executable, "-m", "detent", *words],
        cwd=here.directory,
        env=variables,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert first.stderr is not None
    assert first.stderr.readline()  # Progress: it is under way.
    first.kill()
    first.communicate()
    assert [run["status"] for run in there.detent("list", "-o", "json").document] == ["running"]
    asked = _steps_asked(tmp_path)
    again = subprocess.Popen(
        [sys.executable, "-m", "detent", *words, "-q"],
        cwd=here.directory,
        env=variables,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    deadline = time.monotonic() + 120
    while _steps_asked(tmp_path) == asked:  # It looks at the run, so it has settled which one it is.
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stop.write_text("")
    assert again.wait(120) == 0
    again.communicate()
    assert len(there.detent("list", "-o", "json").document) == 1, "the second command took up the run of the first"


def test_cancel_ends_a_run_at_the_server_and_says_so(apart: tuple[Project, Project, Served], tmp_path: Path) -> None:
    here, there, served = apart
    key, url = served.token, served.told["url"]
    words = ["run", "waits.yaml", "-p", f"path={tmp_path / 'never'}", "--connect", url, "-q", "-o", "json"]
    running = subprocess.Popen(
        [sys.executable, "-m", "detent", *words],
        cwd=here.directory,
        env={**here.environment, "DETENT_KEY": key},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    deadline = time.monotonic() + 120
    while not there.detent("list", "--jobs", "--state", "running", "-o", "json").document:
        assert time.monotonic() < deadline
    ended = here.detent("cancel", "waits", "--reason", "wrong file", "--connect", url, "-o", "json", DETENT_KEY=key)
    assert (ended.document["kind"], ended.document["cancelled"], len(ended.document["jobs_cancelled"])) == (
        "run",
        True,
        1,
    )
    assert running.wait(120) == 130
    running.communicate()
    again = here.detent("cancel", "waits", "--connect", url, DETENT_KEY=key)
    assert "was cancelled before" in again.out


def _steps_asked(directory: Path) -> int:
    return (directory / "access.log").read_text().count("/steps")
