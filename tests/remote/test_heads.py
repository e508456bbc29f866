"""Heads kept per server: a server that was put back to an older copy, or shows another history, is noticed by its clients."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import detent
from detent.errors import RolledBack
from tests.remote.sides import Project, project, served_project
from tests.serve.served import Served

HELLO = "name: hello\nsteps:\n  - {id: hi, run: {shell: echo hi}}\n"


def test_a_server_put_back_to_an_older_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = project(tmp_path / "here"), project(tmp_path / "there")
    (here.directory / "hello.yaml").write_text(HELLO)
    (there.directory / "hello.yaml").write_text(HELLO)
    there.detent("run", "hello.yaml")
    with served_project(there, "--workers", "1") as served:
        assert _look(here, served) == 0
        assert _look(here, served) == 0, "a ledger that stays or grows is as it should be"
    shutil.copytree(there.home, tmp_path / "backup", symlinks=True)
    there.detent("run", "hello.yaml", "--force")
    with served_project(there, "--workers", "1") as served:
        assert _look(here, served) == 0
    _put_back(there, tmp_path / "backup")
    with served_project(there, "--workers", "1") as served:
        refused = here.detent("list", "--connect", served.told["url"], "-o", "json", DETENT_KEY=served.token, expects=4)
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
        refused = here.detent("list", "--connect", served.told["url"], "-o", "json", DETENT_KEY=served.token, expects=4)
        assert "batches are not those that were seen from here" in refused.document["error"]["message"]
        kept = refused.document["error"]["hint"].split("remove ")[1].split(" and ")[0]
        Path(kept).unlink()
        assert _look(here, served) == 0, "what was meant can be accepted"


def _look(here: Project, served: Served) -> int:
    return here.detent("list", "--connect", served.told["url"], DETENT_KEY=served.token, expects=None).code


def _put_back(there: Project, backup: Path) -> None:
    """As from a backup of the whole machine: what its user keeps outside of the home goes back, too."""
    shutil.rmtree(there.home)
    shutil.copytree(backup, there.home, symlinks=True)
    shutil.rmtree(there.environment["XDG_STATE_HOME"])
