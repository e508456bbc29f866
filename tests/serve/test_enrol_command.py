"""`detent keys enrol`: from a new home to a result of a worker on another machine, with nothing but commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import detent
from tests.serve.elsewhere import RemoteWorker
from tests.serve.served import ANSWER_SECONDS, start

pytestmark = pytest.mark.door("detent keys enrol")
TASKS = "def double(number):\n    return 2 * number\n"


def run(environment: Mapping[str, str], *words: str, code: int = 0) -> str:
    line = [sys.executable, "-m", "detent", *words]
    ended = subprocess.run(
        line, env=dict(environment), check=False, capture_output=True, text=True, timeout=ANSWER_SECONDS
    )
    assert ended.returncode == code, (ended.stdout, ended.stderr)
    return ended.stdout if code == 0 else ended.stderr


def document(environment: Mapping[str, str], *words: str) -> Any:
    return json.loads(run(environment, *words, "-o", "json"))


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of the server's machine, with a new home."""
    home = tmp_path / "server" / ".detent"
    home.parent.mkdir()
    (home.parent / "tasks.py").write_text(TASKS)
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "DETENT_HOME": str(home)}
    run(environment, "init")
    return environment


def test_a_token_made_by_the_command_brings_a_worker_whose_results_verify_names(
    machine: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = Path(machine["DETENT_HOME"]), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tasks.py").write_text(TASKS)
    before = document(machine, "keys", "enrol")["token"]
    served = start(home, machine, "--project", str(home.parent))
    url = served.told["url"]
    try:
        made = document(machine, "keys", "enrol", "--label", "gpu", "--uses", "2")
        environment = {**machine, "XDG_STATE_HOME": str(tmp_path / "other-state")}
        workers = [RemoteWorker(elsewhere / f"worker-{number}", elsewhere, url, environment) for number in range(2)]
        for worker, token in zip(workers, (before, made["token"]), strict=True):
            worker.start(token).wait_for("takes jobs")
        workers[0].end()
        monkeypatch.syspath_prepend(str(home.parent))
        with detent.Client(url, key=served.token) as client:
            import tasks  # type: ignore[import-not-found]

            assert client.submit(tasks.double, 21).result(timeout=ANSWER_SECONDS) == 42
        assert workers[1].end() == 0
        listed = document(machine, "keys", "enrolments", "--all")["enrolments"]
        assert [(one["used"], one["state"]) for one in listed] == [(1, "used"), (1, "active")]
        assert served.json("/v1/enrolments")["items"] == listed
        shown = {one["worker_id"]: one["labels"] for one in served.json("/v1/workers")["items"]}
        assert shown == {workers[0].worker_id: [], workers[1].worker_id: ["gpu"]}
    finally:
        served.stop(signal.SIGTERM)
    verified = run(machine, "verify")
    assert f"1 by worker {workers[1].worker_id}" in verified
    for secret in (before, made["token"]):
        assert secret.encode() not in b"".join(path.read_bytes() for path in home.glob("ledger.db*"))


def test_a_revoked_token_is_refused_by_a_running_server(machine: dict[str, str], tmp_path: Path) -> None:
    served = start(Path(machine["DETENT_HOME"]), machine)
    try:
        made = document(machine, "keys", "enrol", "--all-workspaces", "--expires", "2d", "--pool", "fast")
        assert (made["tenants"], made["pools"], made["state"]) == (None, ["fast"], "active")
        assert document(machine, "keys", "revoke", made["token"]) == {
            "enrolment_id": made["enrolment_id"],
            "state": "revoked",
        }
        assert document(machine, "keys", "enrolments") == {"enrolments": []}
        where = ("worker", "--connect", served.told["url"], "--enrol", made["token"], "--state", str(tmp_path / "w"))
        assert "was revoked (ENROLMENT_REFUSED)" in run(machine, *where, code=2)
    finally:
        served.stop(signal.SIGTERM)


def test_the_page_shows_the_command_for_the_other_machine(machine: dict[str, str]) -> None:
    page = run(machine, "keys", "enrol")
    assert "It enrols 1 worker until " in page
    assert "detent worker --connect URL --enrol dte_" in page
    assert "0 of 1  active" in run(machine, "keys", "enrolments")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--workspace", "nowhere"), "there is no workspace 'nowhere'"),
        (("--workspace", "local", "--all-workspaces"), "give either --workspace or --all-workspaces"),
        (("--expires", "31d"), "lasts 30d at most"),
        (("--uses", "0"), "--uses"),
        (("--uses", "1001"), "a token enrols 1,000 workers at most"),
        (("--label", "a b"), "--label 'a b' is not 1 to 100 characters without spaces"),
    ],
)
def test_what_a_token_cannot_allow_is_refused(machine: dict[str, str], words: tuple[str, ...], why: str) -> None:
    assert why in run(machine, "keys", "enrol", *words, code=2)
    assert document(machine, "keys", "enrolments", "--all") == {"enrolments": []}
