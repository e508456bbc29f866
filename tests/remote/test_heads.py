"""Heads kept per server: a server that was put back to an older copy, or shows another history, is noticed by its clients."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import detent
from detent.errors import RolledBack
from tests.remote.sides import Project, project, served_project
from tests.serve.elsewhere import RemoteWorker, enrolment
from tests.serve.served import Served

HELLO = "name: hello\nsteps:\n  - {id: hi, run: {shell: echo hi}}\n"


def test_a_server_put_back_to_an_older_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = project(tmp_path / "here"), project(tmp_path / "there")
    (here.directory / "hello.yaml").write_text(HELLO)
    (there.directory / "hello.yaml").write_text(HELLO)
    there.detent("run", "hello.yaml")
    made = there.detent("keys", "create", "laptop", "--role", "viewer", "-o", "json").document
    key = str(made["secret"])
    worker = _worker(here, tmp_path)
    with served_project(there, "--workers", "1") as served:
        worker.url = served.told["url"]
        worker.start(enrolment(served)).wait_for("takes jobs")
        worker.end()
        assert _look(here, served, key) == 0
        assert _look(here, served, key) == 0, "a ledger that stays or grows is as it should be"
    shutil.copytree(there.home, tmp_path / "backup", symlinks=True)
    there.detent("run", "hello.yaml", "--force")
    with served_project(there, "--workers", "1", "--port", str(served.port)) as served:
        assert _look(here, served, key) == 0
        _meet(worker, tmp_path / "worker-state")
    _put_back(there, tmp_path / "backup")
    with served_project(there, "--workers", "1", "--port", str(served.port)) as served:
        worker.start(alone=True)
        assert worker.process is not None
        _, told = worker.process.communicate(timeout=300)
        assert (worker.process.returncode, "LEDGER_ROLLED_BACK" in told) == (4, True), told
        refused = here.detent("list", "--connect", served.told["url"], "-o", "json", DETENT_KEY=key, expects=4)
        error = refused.document["error"]
        assert error["code"] == "LEDGER_ROLLED_BACK"
        assert "does not go on from the history that it showed before" in error["message"]
        assert "an older copy was put in its place" in error["hint"]
        monkeypatch.setenv("XDG_STATE_HOME", here.environment["XDG_STATE_HOME"])
        with detent.Client(served.told["url"], key=served.token) as client, pytest.raises(RolledBack):
            client.submit(pow, 2, 3)
    for _ in range(4):
        there.detent("run", "hello.yaml", "--force")
    with served_project(there, "--workers", "1") as served:
        refused = here.detent("list", "--connect", served.told["url"], "-o", "json", DETENT_KEY=key, expects=4)
        assert "batches are not those that were seen from here" in refused.document["error"]["message"]
        kept = refused.document["error"]["hint"].split("remove ")[1].split(" and ")[0]
        Path(kept).unlink()
        assert _look(here, served, key) == 0, "what was meant can be accepted"


def _look(here: Project, served: Served, key: str) -> int:
    """A look with a key that may do nothing but look."""
    return here.detent("list", "--connect", served.told["url"], DETENT_KEY=key, expects=None).code


def _worker(here: Project, directory: Path) -> RemoteWorker:
    """A worker on a machine of its own."""
    environment = {**here.environment, "XDG_STATE_HOME": str(directory / "worker-state")}
    return RemoteWorker(directory / "worker", here.directory, "", environment)


def _meet(worker: RemoteWorker, state: Path) -> None:
    """Have a worker see its server once more, and end."""
    kept = state / "detent" / "servers"
    for one in kept.glob("*.heads"):
        one.unlink()  # Of its first contact.
    worker.start(alone=True)
    deadline = time.monotonic() + 300
    while not list(kept.glob("*.heads")):
        assert time.monotonic() < deadline, "the worker keeps what it sees"
        time.sleep(0.05)
    worker.end()


def _put_back(there: Project, backup: Path) -> None:
    """As from a backup of the whole machine: what its user keeps outside of the home goes back, too."""
    shutil.rmtree(there.home)
    shutil.copytree(backup, there.home, symlinks=True)
    shutil.rmtree(there.environment["XDG_STATE_HOME"])
