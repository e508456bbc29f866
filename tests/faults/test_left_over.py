"""What a killed process leaves is removed by the next one, and only that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detent.executor.leftovers import PREFIX, has_leftovers
from detent.executor.sandbox.collect import Staging, sweep
from detent.executor.sandbox.supervisor import _mount_point
from detent.owner.state_directory import KeptHeads, PlaceKeeper
from detent.runs.erase import collect
from detent.runs.record.inputs import RunLock
from detent.store.content import marked_name
from detent.testing import temporary_home
from tests.faults.commands import ROOT

STEPS = """
import os, pathlib, signal
import detent

def make():
    pathlib.Path("made").write_bytes(b"x" * 100_000)
    if not pathlib.Path("tried").exists():
        pathlib.Path("tried").touch()
        # What the task returns is written, and the worker is gone before it is durable.
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    return detent.File("made")
"""
CONTRACT = "name: half\nsteps: [{id: make, run: {python: 'steps:make'}}]\n"


def name_of_the_dead() -> str:
    """The name under which a process that has ended would have left half a file."""
    script = "from detent.store.content import marked_name; print(marked_name())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return f"new-{ended.stdout.strip()}"


def test_a_run_whose_worker_is_killed_while_it_keeps_a_file_leaves_no_half_of_it() -> None:
    """X-163: the job is run again, and nothing waits for the next command to be removed."""
    with temporary_home() as home:
        (home.directory / "steps.py").write_text(STEPS)
        (home.directory / "half.yaml").write_text(CONTRACT)
        environment = {**os.environ, **home.environment, "PYTHONPATH": str(ROOT / "src")}
        ended = subprocess.run(
            [sys.executable, "-m", "detent", "run", "half.yaml", "-o", "json"],
            cwd=home.directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert (home.directory / "tried").exists()
        assert list((home.path / "content").glob("new-*")) == []
        assert home.verify().ok


def test_who_gives_a_home_up_removes_what_dead_processes_left_and_only_that() -> None:
    with temporary_home() as home:
        content = home.path / "content"
        session = home.session()
        session.partition("any")
        dead, living = content / name_of_the_dead(), content / f"new-{marked_name()}"
        for path in (dead, living):
            path.write_bytes(b"half")
        session.close()
        assert list(content.glob("new-*")) == [living]


def test_garbage_collection_removes_what_dead_processes_left_however_young_it_is() -> None:
    with temporary_home() as home:
        content = home.path / "content"
        content.mkdir(exist_ok=True)
        dead, living = content / name_of_the_dead(), content / f"new-{marked_name()}"
        for path in (dead, living):
            path.write_bytes(b"half")
        assert collect(home.home, dry_run=True).unfinished == 0
        assert collect(home.home).unfinished == 1
        assert list(content.glob("new-*")) == [living]


def test_the_folder_of_a_sandbox_goes_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    held = Staging()
    left = tmp_path / f"{PREFIX}left"
    (left / "job-1" / "out").mkdir(parents=True)
    (left / "input-1").write_bytes(b"x")
    (tmp_path / "somebody-else").mkdir()
    assert has_leftovers()
    sweep()
    assert not has_leftovers()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([held.path.name, "somebody-else"])
    held.close()
    held.close()
    assert [path.name for path in tmp_path.iterdir()] == ["somebody-else"]


def test_locks_of_drivers_that_were_killed_are_removed_but_for_those_of_open_runs(tmp_path: Path) -> None:
    held = RunLock.take(tmp_path, "held")
    assert held is not None
    for name in ("left", "open"):
        (tmp_path / "runs" / f"{name}.lock").touch()
    RunLock.sweep(tmp_path, {"open"})
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["held.lock", "open.lock"]
    held.release()
    RunLock.sweep(tmp_path, ())
    assert list((tmp_path / "runs").iterdir()) == []


def test_half_a_kept_tree_head_of_a_process_that_is_gone_is_removed(tmp_path: Path) -> None:
    keeper = KeptHeads(tmp_path, "detent/1")
    gone, alive = (keeper.path.with_name(f"{keeper.path.name}.{pid}.tmp") for pid in (2**22 + 1, os.getpid()))
    place = PlaceKeeper({"XDG_STATE_HOME": "/nowhere"}, "detent/1").path.name
    for path in (gone, alive, tmp_path / f"{place}.{2**22 + 1}.tmp"):
        path.touch()
    keeper.prepare()
    assert list(tmp_path.iterdir()) == [alive]


def test_a_primitive_whose_trial_is_killed_does_not_count_as_working() -> None:
    lines = (
        "import os",
        "from detent.executor.sandbox import trial",
        "print([trial.attempt(lambda: None), trial.attempt(lambda: os.kill(os.getpid(), 9))])",
    )
    answer = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "['', 'its trial ended with status 9']\n"


def test_a_jail_is_built_where_others_can_go_although_temporary_files_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert _mount_point() in {"/tmp", "/usr"}
    monkeypatch.setattr("tempfile.tempdir", "/usr")
    assert _mount_point() == "/usr"
