"""`detent run --connect`: code travels, the server drives the run, and the same command finds it again."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    assert (good.document["result"], good.document["home"]) == ([2, 4, 6], served.told["url"])
    assert good.document["status"] == "succeeded"
    assert {step["step"]: step["state"] for step in good.document["step_list"]} == {
        "numbers": "succeeded",
        "double": "succeeded",
    }
    assert f"dashboard  {served.told['url']}/w/local/runs/{good.document['run_id']}" in good.err.splitlines()
    bad = there.detent("run", "bad.yaml", expects=1)
    assert "no such river" in bad.out
    assert not here.home.exists(), "nothing ran here"
    again = there.detent("run", "good.yaml", "-o", "json")
    assert again.document["run_id"] != good.document["run_id"]
    assert "nothing to run again" in there.detent("retry", "doubles").out
    retried = there.detent("retry", "breaks", "-o", "json", expects=1).document
    assert (retried["name"], retried["status"], retried["home"]) == ("breaks", "failed", served.told["url"])
    assert retried["failures"][0]["message"] == "ValueError: no such river"
    wrong = there.detent("run", "tasks.py:flow", expects=2)
    assert "has no flow" in wrong.err


def test_a_run_at_a_server_ends_with_the_summary_of_a_run_here(
    apart: tuple[Project, Project, Served], tmp_path: Path
) -> None:
    here, _, served = apart
    local = project(tmp_path / "local")
    for file, code in (("good.yaml", 0), ("bad.yaml", 1)):
        _compare(here, local, served, file, code)


def _compare(here: Project, local: Project, served: Served, file: str, code: int) -> None:
    url = served.told["url"]
    words = ["run", file, "--force"]
    beside = [local.detent(*words, expects=code), local.detent(*words, "-o", "json", expects=code)]
    at = ["--connect", url]
    key = {"DETENT_KEY": served.token}
    through = [
        here.detent(*words, *at, expects=code, **key),
        here.detent(*words, *at, "-o", "json", expects=code, **key),
    ]
    assert _page(through[0].out.replace(f" {' '.join(at)}", "")) == [
        line for line in _page(beside[0].out) if not line.startswith("detent verify")
    ]
    note, started = through[0].err.splitlines()[:2]
    assert re.fullmatch(
        r"note: sending 2 files of .*; \d+ other files there stay here \(.*\); name data under .*", note
    )
    began, first = started.split(" ", 1)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", began)
    assert began != "00:00:00" or time.strftime("%H") in {"23", "00"}
    assert re.fullmatch(r"\w+ started: run [\w-]+, 2 steps", first)
    there, near = through[1].document, beside[1].document
    assert there["home"] == url
    assert [line for line in there["next"] if url not in line] == []
    assert _lasting(there) == _lasting(near)
    assert [_lasting(one) for one in there["failures"]] == [_lasting(one) for one in near["failures"]]
    assert [_lasting(one) for one in there["step_list"]] == [_lasting(one) for one in near["step_list"]]


def test_a_run_outlasts_a_kill_of_its_server_and_so_does_its_command(tmp_path: Path) -> None:
    here, there = project(tmp_path / "here"), Project(tmp_path / "there", project(tmp_path / "here").environment)
    there.directory.mkdir()
    there.detent("init")
    go = tmp_path / "go"
    with served_project(there, "--workers", "1") as served:
        running = subprocess.Popen(
            [
                *(sys.executable, "-m", "detent", "run", "waits.yaml", "-p", f"path={go}"),
                *("--connect", served.told["url"]),
            ],
            cwd=here.directory,
            env={**here.environment, "DETENT_KEY": served.token},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None
        assert "waits started" in [running.stderr.readline() for _ in range(2)][1]
        deadline = time.monotonic() + 120
        while not there.detent("list", "--jobs", "--state", "running", "-o", "json").document:
            assert time.monotonic() < deadline
        served.process.send_signal(signal.SIGKILL)  # Its worker lives on and holds the pipes: they are read later.
        served.process.wait(60)
        with served_project(there, "--workers", "1", "--port", str(served.port)) as again:
            assert again.port == served.port
            go.write_text("")
            out, err = running.communicate(timeout=180)
    assert running.returncode == 0, err
    assert out.startswith("waits succeeded in")
    assert "1 run, 0 reused" in out
    assert [run["status"] for run in there.detent("list", "-o", "json").document] == ["succeeded"]


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
    assert b"waits started" in [first.stderr.readline() for _ in range(2)][1], "it is under way"
    deadline = time.monotonic() + 120
    while b"detent_http_streams 1.0" not in served.get("/metrics").body:
        assert time.monotonic() < deadline, "it looks by the clock"
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    out, err = (stream.decode() for stream in first.communicate(timeout=120))
    (left,) = there.detent("list", "-o", "json").document
    run_id = left["run_id"]
    assert (first.returncode, out.startswith("waits running in ")) == (130, True), out
    going_on, page = err.splitlines()[-2:]
    assert going_on == f"run {run_id} goes on at the server; the same command watches it again"
    assert page == f"dashboard  {served.told['url']}/w/local/runs/{run_id}"
    at = f"--connect {served.told['url']}"
    for line in (f"detent logs {run_id} -f {at}  follow what its jobs print", f"detent cancel {run_id} {at}"):
        assert line in re.sub("   +", "  ", out)
    deadline = time.monotonic() + 120
    while b"detent_http_streams 0.0" not in served.get("/metrics").body:
        assert time.monotonic() < deadline, "the server holds the stream of a command that has ended"
        time.sleep(0.1)
    assert [run["status"] for run in there.detent("list", "-o", "json").document] == ["running"]
    asked = _looked(tmp_path)
    again = subprocess.Popen(
        [sys.executable, "-m", "detent", *words, "-q"],
        cwd=here.directory,
        env=variables,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    deadline = time.monotonic() + 120
    while _looked(tmp_path) == asked:  # It looks at the run, so it has settled which one it is.
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


def _looked(directory: Path) -> int:
    return (directory / "access.log").read_text().count("/v1/runs/{run_id}")


def _page(text: str) -> list[str]:
    """A summary without ids, times and the spaces between columns."""
    text = re.sub(r" in [\d.]+m?s\b", " in TIME", text)
    text = re.sub(r"\b(doubles|breaks)-[0-9a-f]+", r"\1-ID", text)
    text = re.sub(r"\b[0-9a-f]{8}\b", "JOB", text)
    return [re.sub(r"  +", "  ", line.strip()) for line in text.splitlines()]


def _lasting(document: dict[str, Any]) -> dict[str, Any]:
    """What does not differ between two runs of one contract."""
    passing = {"run_id", "home", "job_id", "next", "failures", "step_list"}
    return {name: value for name, value in document.items() if name not in passing and not name.endswith("_ms")}
