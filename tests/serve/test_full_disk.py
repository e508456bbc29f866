"""The disk of a server is full: the whole of it where this user may mount one, and by a limit on the size of files everywhere."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from detent.inspect.audit import verify_home
from tests.serve.laboured import project
from tests.serve.namespaces import INNER, can_enter, run_inside
from tests.serve.served import ANSWER_SECONDS, start
from tests.serve.test_driven_runs import post

SECONDS = 400


@pytest.mark.skipif(not can_enter(), reason="this user may mount nothing; the limit on file sizes is tried instead")
@pytest.mark.door("detent serve", "GET /readyz", "POST /v1/jobs", "PUT /v1/uploads/{digest}")
def test_a_server_on_a_full_disk(tmp_path: Path) -> None:
    run_inside(INNER / "full_disk.py", tmp_path / "report.xml", seconds=SECONDS)


@pytest.mark.door("detent serve", "POST /v1/jobs")
def test_a_commit_that_finds_no_room_ends_the_server_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """X-173: what was not answered with 2xx may be repeated; what was is there."""
    laboured = project(tmp_path)
    served = start(laboured.home.path, laboured.environment)
    body = {"task": {"target": "tasks:note", "arguments": ["a", str(tmp_path)]}}
    kept = post(served, "/v1/jobs", body).json["job_id"]
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    reply = post(served, "/v1/jobs", body)
    assert (reply.status, reply.json["retryable"]) == (503, True)
    assert reply.code in {"STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"}
    assert "retry-after" in reply.headers
    assert served.process.wait(ANSWER_SECONDS) == 4
    assert "a commit failed, and the server ended rather than answer from memory" in served.process.communicate()[1]
    again = start(laboured.home.path, laboured.environment)
    assert [one["job_id"] for one in again.json("/v1/jobs")["items"]] == [kept]
    assert again.stop() == 0
    assert verify_home(laboured.home, environment=laboured.environment).ok
