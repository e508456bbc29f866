"""Commands and clients with workers of their own, beside a server of several workspaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import detent
from detent.errors import RequestRefused
from detent.owner.server_address import insist_on_owning, insist_on_sharing
from detent.owner.wiring import Parts
from tests.serve.served import ANSWER_SECONDS, Served
from tests.serve.shared import Shared

pytestmark = pytest.mark.door("command: detent run; SDK: Client; setting: [serve] embedded")
HELLO = "name: hello\nsteps:\n  - {id: hi, run: {shell: echo hi}}\n"


def run(home: Path, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (directory / "hello.yaml").write_text(HELLO)
    line = [sys.executable, "-m", "detent", *words, "--home", str(home)]
    return subprocess.run(
        line, cwd=directory, env=os.environ, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
    )


def test_a_run_with_workers_of_its_own_is_told_the_line_to_type(shared: Shared, tmp_path: Path) -> None:
    before = shared.served.json("/v1/runs")["items"]
    ended = run(shared.played.home.path, tmp_path, "run", "hello.yaml")
    assert ended.returncode == 3, ended.stderr
    assert "EMBEDDED_REFUSED" in ended.stderr
    assert f"detent run FILE --connect {shared.served.told['url']}" in ended.stderr
    assert shared.served.json("/v1/runs")["items"] == before
    with pytest.raises(RequestRefused) as refused:
        detent.Client(shared.played.home.path, workers=1)
    assert refused.value.code == "EMBEDDED_REFUSED"


def test_commands_and_clients_without_workers_go_on(shared: Shared, tmp_path: Path) -> None:
    assert run(shared.played.home.path, tmp_path, "list").returncode == 0
    with detent.Client(shared.played.home.path, workers=0) as client:
        assert client is not None


def test_join_allows_it_and_one_workspace_needs_no_setting(shared: Shared, served: Served) -> None:
    home = shared.played.home
    config = home.path / "config.toml"
    before = config.read_text()
    with Parts().open_reader(home.ledger) as reader:
        with pytest.raises(RequestRefused):
            insist_on_sharing(home, reader)
        with pytest.raises(RequestRefused, match="its workers would run"):
            insist_on_owning(home, reader, owns=False)
        try:
            config.write_text(before.replace("[serve]", '[serve]\nembedded = "join"'))
            insist_on_sharing(home, reader)
            insist_on_owning(home, reader, owns=False)
        finally:
            config.write_text(before)
    with detent.Client(served.home, workers=0):
        pass
