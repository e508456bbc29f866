"""`detent dashboard`, and commands that name the page of what they show where a server runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.served import ANSWER_SECONDS, Served, play
from tests.serve.test_browser import log_in

pytestmark = pytest.mark.door("command: detent dashboard, detent show")


def detent(served: Served, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "detent", *words, "--home", str(served.home), "-o", "json"]
    return subprocess.run(
        line, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False, env=dict(served.environment)
    )


def test_dashboard_links_to_the_server_that_runs(served: Served) -> None:
    done = detent(served, "dashboard", "--print")
    assert done.returncode == 0, done.stderr
    link = json.loads(done.stdout)["login"]
    assert link.startswith(f"{served.told['url']}/login#dtl_")
    assert log_in(served, link.partition("#")[2]).status == 201


@pytest.mark.parametrize(("name", "page"), [("run-1", "runs/run-1"), ("done", "jobs/done")])
def test_show_names_the_page_of_what_it_shows(served: Served, name: str, page: str) -> None:
    done = detent(served, "show", name)
    assert done.returncode == 0, done.stderr
    assert f"dashboard  {served.told['url']}/w/demo/{page}" in done.stderr.splitlines()
    json.loads(done.stdout)


def test_dashboard_starts_a_server_where_none_runs_and_ends_with_it(tmp_path: Path) -> None:
    played = play(tmp_path)
    line = [sys.executable, "-m", "detent", "dashboard", "--print", "--workers", "0", "-o", "json"]
    process = subprocess.Popen(
        [*line, "--home", str(played.home.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **played.environment},
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    served = Served(process, played.home.path, told, {}, Path(told["token_file"]).read_text().strip())
    assert served.get("/w/demo/runs", token=None).status == 200
    assert Path(told["login_file"]).read_text().startswith(f"{told['url']}/login#dtl_")
    assert served.stop(signal.SIGINT) == 130


def test_dashboard_only_reads_beside_another_owner(tmp_path: Path) -> None:
    played = play(tmp_path)
    line = [sys.executable, "-m", "detent", "dashboard", "--print", "-o", "json", "--home", str(played.home.path)]
    with played.session() as owner:
        assert owner.owns
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **played.environment}
        )
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        served = Served(process, played.home.path, told, {}, Path(told["token_file"]).read_text().strip())
        assert (told["owner"], told["reads_only"]) == ("elsewhere", True)
        assert served.get("/v1/runs").status == 200
        scopes = set(served.json("/v1/me")["scopes"])
        assert {"runs:read", "ledger:read"} <= scopes
        assert not any(scope.endswith((":write", ":cancel", ":admin")) for scope in scopes)
        for path, body in (("/v1/keys", {"name": "k", "role": "viewer"}), ("/v1/runs/run-1/cancel", {})):
            refused = served.ask("POST", path, body=json.dumps(body).encode())
            assert (refused.status, refused.code) == (403, "FORBIDDEN")
        token = Path(told["login_file"]).read_text().strip().partition("#")[2]
        assert log_in(served, token).status == 201
        assert served.stop(signal.SIGINT) == 130


def test_dashboard_makes_no_home(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "detent", "dashboard", "--print", "-o", "json"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    assert done.returncode != 0
    assert "no home in" in done.stderr
    assert list(tmp_path.iterdir()) == []
