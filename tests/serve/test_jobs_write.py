"""Jobs submitted over HTTP: what is taken, what is refused and how, and what stands on the ledger afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.serve.served import Reply, Served, serving
from tests.serve.worked import TASKS, Worked, project

pytestmark = pytest.mark.door("route: POST /v1/jobs")

CELL: dict[str, Any] = {
    "schema_version": "1.0",
    "job_type": "object_execute",
    "project_id": "p",
    "document_id": "d",
    "document_revision_id": "r7",
    "target": {"object_id": "cell-3"},
    "inputs": {"object": {"type": "code", "content": {"format": "python", "value": "def main():\n    return 1\n"}}},
    "output_spec": {"formats": ["json"]},
}


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Worked:
    return project(tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="module")
def written(worked: Worked) -> Iterator[Served]:
    with serving(worked.played, "--project", str(worked.directory)) as served:
        yield served
        assert served.process.poll() is None, "the server ended while it was tested"


def post(served: Served, path: str, document: Any, **headers: str) -> Reply:
    return served.ask("POST", path, body=json.dumps(document).encode(), headers=headers)


def task(**said: Any) -> dict[str, Any]:
    return {"task": {"target": "tasks:double", "arguments": [4], **said}}


def test_a_task_is_durable_and_queued_when_it_is_answered(written: Served) -> None:
    """JOB-081"""
    reply = post(written, "/v1/jobs", task(label="twice", retries=1, timeout_ms=5_000))
    assert reply.status == 202, reply.body
    taken = reply.json
    assert reply.headers["location"] == taken["links"]["self"] == f"/v1/jobs/{taken['job_id']}"
    assert (taken["status"], taken["deduplicated"]) == ("queued", False)
    job = written.json(taken["links"]["self"])
    assert (job["state"], job["kind"], job["label"], job["max_retries"]) == ("queued", "task", "twice", 1)


def test_the_queue_says_where_own_jobs_stand_and_since_when(written: Served) -> None:
    first, last = (post(written, "/v1/jobs", task(label=f"queued {n}")).json["job_id"] for n in (1, 2))
    queue = written.json("/v1/queue")
    own = {one["job_id"]: one for one in queue["own"]}
    assert own[first]["place"] < own[last]["place"] <= queue["waiting"]
    assert own[first]["queued_at"] == written.json(f"/v1/jobs/{first}")["submitted_at"]
    assert queue["pools"][0]["oldest_at"] <= own[first]["queued_at"]
    assert (queue["rejected_per_minute"], queue["slots"], queue["slots_busy"]) == (0, 0, 0)
    assert {"done", "waiting"}.isdisjoint(own), "those of another workspace"


def test_the_principal_is_part_of_what_is_signed(written: Served) -> None:
    reply = post(written, "/v1/jobs", {"payload": CELL})
    assert reply.status == 202, reply.body
    assert written.json(reply.headers["location"])["requested_by"] == "p_local"
    job = post(written, "/v1/jobs", task()).headers["location"]
    assert written.json(job)["requested_by"] == "p_local"


def test_an_unended_equal_payload_answers_when_the_caller_joins(written: Served) -> None:
    """JOB-028"""
    payload = {**CELL, "document_revision_id": "joined"}
    first = post(written, "/v1/jobs", {"payload": payload})
    again = post(written, "/v1/jobs", {"payload": payload, "in_flight": "join"})
    assert (first.status, again.status) == (202, 200)
    assert again.json["job_id"] == first.json["job_id"]
    assert again.json["deduplicated"] is True
    assert post(written, "/v1/jobs", {"payload": payload}).status == 202


def test_equal_work_under_way_answers_a_task_that_allows_reuse(written: Served) -> None:
    first = post(written, "/v1/jobs", task(arguments=[77], reuse=True))
    again = post(written, "/v1/jobs", task(arguments=[77], reuse=True))
    assert (first.status, again.status) == (202, 200)
    assert again.json["job_id"] == first.json["job_id"]
    assert post(written, "/v1/jobs", task(arguments=[77])).status == 202


BAD: list[tuple[str, dict[str, Any], int, str]] = [
    ("neither", {}, 400, "VALIDATION_ERROR"),
    ("both", {**task(), "payload": CELL}, 400, "VALIDATION_ERROR"),
    ("unknown field", {**task(), "when": "now"}, 400, "VALIDATION_ERROR"),
    ("no function", task(target="tasks"), 400, "VALIDATION_ERROR"),
    ("path outside", task(target="../x.py:f"), 400, "VALIDATION_ERROR"),
    ("absolute path", task(target="/etc/x.py:f"), 400, "VALIDATION_ERROR"),
    ("negative retries", task(retries=-1), 400, "VALIDATION_ERROR"),
    ("text for a number", task(timeout_ms="5"), 400, "VALIDATION_ERROR"),
    ("resource that is not here", task(resources={"gpu": 1}), 422, "NO_FEASIBLE_POOL"),
    ("unknown quota", task(quota="gold"), 422, "POLICY_UNKNOWN"),
    ("a result of no job", task(arguments=[{"$result": "nothing"}]), 422, "CONTENT_UNKNOWN"),
    ("a file by digest", task(arguments=[{"$file": "sha256:" + "0" * 64}]), 422, "CONTENT_UNKNOWN"),
    ("an unknown word", task(arguments=[{"$env": "HOME"}]), 400, "VALIDATION_ERROR"),
    ("another workspace", {"payload": {**CELL, "workspace_id": "team-b"}}, 403, "WORKSPACE_MISMATCH"),
    ("an id of its own", {"payload": {**CELL, "job_id": "0" * 8}}, 400, "VALIDATION_ERROR"),
    ("another user", {"payload": {**CELL, "requested_by": {"user_id": "eve"}}}, 400, "VALIDATION_ERROR"),
    ("no job type", {"payload": {"schema_version": "1.0"}}, 400, "VALIDATION_ERROR"),
    (
        "a network",
        {"payload": {**CELL, "environment": {"network_access": "enabled"}}},
        403,
        "PLAN_EXCEEDED",
    ),
]


@pytest.mark.parametrize(("document", "status", "code"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_job_that_does_not_fit_is_refused_and_leaves_nothing(
    written: Served, document: dict[str, Any], status: int, code: str
) -> None:
    before = written.json("/v1/counts")["jobs"]
    reply = post(written, "/v1/jobs", document)
    assert (reply.status, reply.code) == (status, code), reply.body
    assert written.json("/v1/counts")["jobs"] == before


def test_a_network_is_granted_by_the_plan_of_the_workspace_and_the_grant_is_on_the_ledger(written: Served) -> None:
    """JOB-041"""
    asked = {"payload": {**CELL, "document_id": "networked", "environment": {"network_access": "enabled"}}}
    assert post(written, "/v1/jobs", asked).code == "PLAN_EXCEEDED"
    for plan, status in (({"network_access": True}, 202), (None, 403)):
        body = json.dumps({"plan": plan}).encode()
        assert written.ask("PATCH", "/v1/workspaces/local", body=body).status == 200
        assert post(written, "/v1/jobs", asked).status == status
    first, second = written.json("/v1/audit?action=workspace.change&server=true&limit=2")["items"]
    assert [one["parameters"]["plan"] for one in (first, second)] == [None, {"network_access": True}]


def test_every_fault_of_a_payload_is_told_at_its_place(written: Served) -> None:
    payload = {**CELL, "target": {}, "output_spec": {"formats": ["gif"]}}
    errors = post(written, "/v1/jobs", {"payload": payload}).json["errors"]
    assert {error["path"] for error in errors} == {
        "body.payload.target.object_id",
        "body.payload.output_spec.formats[0]",
    }


def test_requests_that_come_at_once_get_jobs_of_their_own(written: Served) -> None:
    def submit(number: int) -> Reply:
        return post(written, "/v1/jobs", task(target="nowhere:f" if number % 4 == 3 else "bad target", label="many"))

    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(submit, range(32)))
    taken = [reply.json["job_id"] for number, reply in enumerate(replies) if number % 4 == 3]
    assert len(set(taken)) == 8
    assert {reply.status for number, reply in enumerate(replies) if number % 4 != 3} == {400}


def test_the_code_of_a_task_is_read_and_never_run_by_the_server(written: Served, worked: Worked) -> None:
    (worked.directory / "loud.py").write_text("open('ran', 'w').close()\n\n\ndef f():\n    return 1\n")
    assert post(written, "/v1/jobs", task(target="loud:f", arguments=[])).status == 202
    assert not (worked.directory / "ran").exists()
    assert not Path("ran").exists()
    assert TASKS in (worked.directory / "tasks.py").read_text()
