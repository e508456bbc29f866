"""What work and ledger run with, as the ledger has it: packages in reports, the pinned dependencies in every owner's epoch."""

from __future__ import annotations

import platform
import sys
from hashlib import sha256
from importlib import metadata
from typing import Any

from detent.canon import decode
from detent.store.sqlite import SqliteStore
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]


def test_the_report_of_a_task_names_the_packages_that_its_code_reaches(project: Project) -> None:
    """JOB-052, X-151, X-176: the same packages as in the key; a function that reaches none names the interpreter alone."""
    project.write("pages.py", "import click\n\ndef drawn(): return click.style('x')\n\ndef plain(): return 1\n")
    project.write(
        "two.yaml",
        "name: two\nsteps:\n"
        "  - {id: drawn, run: {python: 'pages:drawn'}}\n"
        "  - {id: uncached, run: {python: 'pages:drawn'}, cache: false}\n"
        "  - {id: plain, run: {python: 'pages:plain'}}\n"
        "  - {id: command, run: {shell: 'true'}}\n",
    )
    run = project.run("two.yaml")
    jobs = {step["step"]: step["jobs"][0]["job_id"] for step in project.json("show", run["run_id"])["step_list"]}
    told = {step: project.json("show", job_id)["report"]["env_version"] for step, job_id in jobs.items()}
    machine = f"python-{platform.python_version()}-{sys.platform}-{platform.machine()}"
    assert told["plain"] == told["command"] == machine
    assert told["drawn"] == told["uncached"] == f"{machine}+click-{metadata.version('click')}"


def test_an_owner_with_another_sqlite_begins_an_epoch_under_another_replay_token(project: Project) -> None:
    """PIPE-032, X-051: the versions of what the ledger is written with are part of the environment that is recorded."""
    project.write("one.yaml", "name: one\nsteps: [{id: a, run: {python: 'tasks:numbers', with: {count: 1}}}]\n")
    newer = project.directory / "newer" / "apsw-99.0.dist-info"
    newer.mkdir(parents=True)
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: apsw\nVersion: 99.0\n")
    paths = project.environment["PYTHONPATH"]
    before = len(_tokens(project))
    for places in (paths, paths, f"{newer.parent}:{paths}"):
        project.environment["PYTHONPATH"] = places
        assert project.terminal("run", "one.yaml").ended().code == 0
    first, second, third = _tokens(project)[before:]
    assert first == second != third


def test_the_lock_file_of_the_project_is_part_of_the_environment_and_is_named(project: Project) -> None:
    """PIPE-031, PIPE-032: covered where there is one; `doctor` and `show` say which; what was done is still reused."""
    project.write("one.yaml", "name: one\nsteps: [{id: a, run: {python: 'tasks:numbers', with: {count: 1}}}]\n")

    def run() -> tuple[bytes, str, dict[str, Any]]:
        assert project.terminal("run", "one.yaml").ended().code == 0
        checks = {check["name"]: check["text"] for check in project.json("doctor", "--quick")["checks"]}
        newest = project.json("list")[0]["run_id"]
        (step,) = project.json("show", newest)["step_list"]
        return _tokens(project)[-1], checks["environment"], project.json("show", step["jobs"][0]["job_id"])

    plain, told, job = run()
    assert "the project has no lock file" in told
    assert job["environment"]["locks"] == {}
    project.write("uv.lock", "version = 1\n")
    locked, told, job = run()
    digest = "sha256:" + sha256(b"version = 1\n").hexdigest()
    assert f"uv.lock ({digest})" in told
    assert job["environment"]["locks"] == {}, "its job was reused from the run before"
    assert project.terminal("run", "one.yaml", "--force").ended().code == 0
    again = project.json("list", "--jobs")[0]["job_id"]
    shown = project.json("show", again)["environment"]
    assert shown["locks"] == {"uv.lock": digest}
    assert shown["covers"]["lock:uv.lock"] == digest
    assert f"uv.lock ({digest})" in " ".join(project("show", again).out.split())
    project.write("uv.lock", "version = 2\n")
    changed = run()[0]
    assert len({plain, locked, changed}) == 3
    (project.directory / "uv.lock").unlink()
    assert run()[0] == plain, "without a lock the environment is the one it always was"


def _tokens(project: Project) -> list[bytes]:
    """The replay tokens of the owners' epochs, oldest first."""
    reader = SqliteStore.open_reader(project.home.ledger_file)
    try:
        bodies = [decode(row.body) for row in reader.records_of_kind(0, "owner_epoch")]
    finally:
        reader.close()
    return [body["replay_token"] for body in bodies]
