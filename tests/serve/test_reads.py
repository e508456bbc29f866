"""The read API on a home where a pipeline ran in the server's workspace, beside the jobs of another tenant."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from detent.canon import parse_digest
from detent.canon.merkle import verify_consistency, verify_inclusion
from detent.kernel import transition_key
from detent.ledger.note import parse_head, parse_note
from detent.serve.routes import ALL
from tests.homes import RUN
from tests.serve.served import Served, serving
from tests.serve.worked import project


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = project(tmp_path_factory.mktemp("worked"))
    assert place.run("good.yaml") == 0
    assert place.run("bad.yaml") == 1
    with serving(place.played) as served:
        yield served


def pages(served: Served, path: str) -> list[Any]:
    """Every item of a listing, page by page."""
    items: list[Any] = []
    cursor = ""
    while True:
        page = served.json(path + cursor)
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = f"&cursor={quote(page['next'])}"


def run_of(served: Served, name: str) -> str:
    (run_id,) = (run["run_id"] for run in served.json("/v1/runs")["items"] if run["name"] == name)
    return str(run_id)


def job_of(served: Served, label: str) -> Any:
    found = (served.json(f"/v1/jobs/{job['job_id']}") for job in served.json("/v1/jobs")["items"])
    return next(job for job in found if job["label"] == label)


def test_a_listing_in_small_pages_has_everything_once(worked: Served) -> None:
    whole = worked.json("/v1/jobs")["items"]
    assert len(whole) == 5
    assert pages(worked, "/v1/jobs?limit=2") == whole
    assert [job["state"] for job in worked.json("/v1/jobs?state=failed")["items"]] == ["failed"]
    assert len(pages(worked, "/v1/jobs?state=succeeded&limit=1")) == 4
    run_id = run_of(worked, "doubles")
    assert {job["run_id"] for job in pages(worked, f"/v1/jobs?run={run_id}&limit=1")} == {run_id}
    assert len(pages(worked, "/v1/runs?limit=1")) == 2
    assert [run["name"] for run in worked.json("/v1/runs?status=failed")["items"]] == ["breaks"]


def test_a_cursor_for_other_filters_is_refused(worked: Served) -> None:
    cursor = quote(worked.json("/v1/jobs?limit=1")["next"])
    assert worked.get(f"/v1/jobs?limit=1&state=failed&cursor={cursor}").code == "VALIDATION_ERROR"
    assert worked.get(f"/v1/runs?limit=1&cursor={cursor}").code == "VALIDATION_ERROR"


def test_a_job_that_succeeded_is_read_with_its_value_and_times(worked: Served) -> None:
    job = job_of(worked, "doubles/numbers")
    assert (job["status"], job["state"], job["value"], job["attempts"]) == ("succeeded", "succeeded", [1, 2, 3], 1)
    assert job["submitted_at"] <= job["first_started_at"] <= job["finished_at"]
    assert (job["error"], job["result"], job["step"]) == (None, None, "numbers")
    reply = worked.get(f"/v1/jobs/{job['job_id']}")
    again = worked.get(f"/v1/jobs/{job['job_id']}", headers={"If-None-Match": reply.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    for asked, status in ((reply.headers["etag"], 304), ('W/"other"', 200)):
        told = worked.get(f"/v1/jobs/{job['job_id']}", headers={"If-None-Match": asked})
        assert (told.status, told.headers["etag"]) == (status, reply.headers["etag"])


def test_a_job_that_failed_is_read_with_its_error(worked: Served) -> None:
    """JOB-018"""
    job = job_of(worked, "breaks/broken")
    assert (job["status"], job["value"]) == ("failed", None)
    assert (job["error"]["type"], job["error"]["message"]) == ("ValueError", "no such river")
    (attempt,) = worked.json(f"/v1/jobs/{job['job_id']}/attempts")["items"]
    assert (attempt["attempt"], attempt["status"], attempt["report"]) == (1, "failed", "here")
    records = worked.json(f"/v1/jobs/{job['job_id']}/records")["items"]
    assert attempt["report_digest"] == records[-1]["evidence"]["detail_digest"], "the record of its end names it"
    assert re.fullmatch(r"[0-9a-f]{64}", attempt["signer"])
    assert attempt["usage"]["memory_bytes_peak"] > 0
    granting = next(one for one in records if one["fields"].get("dispatch"))
    lease = transition_key("local", job["job_id"], 0, granting["fields"]["transition_seq"])
    assert attempt["lease_id"] == lease.hex()
    explained = worked.json(f"/v1/jobs/{job['job_id']}/explain")
    assert explained["state"] == "failed"
    assert explained["now"][0].startswith("It failed at its first attempt")


def test_a_waiting_request_for_a_job_that_has_ended_is_answered_at_once(worked: Served) -> None:
    job = job_of(worked, "breaks/broken")
    assert worked.json(f"/v1/jobs/{job['job_id']}?wait=60")["status"] == "failed"
    assert worked.json(f"/v1/runs/{job['run_id']}?wait=60")["status"] == "failed"
    assert worked.get(f"/v1/jobs/{job['job_id']}?wait=61").code == "VALIDATION_ERROR"


def test_what_a_job_printed_is_read_from_any_offset(worked: Served) -> None:
    job = job_of(worked, "doubles/double")
    path = f"/v1/jobs/{job['job_id']}/logs"
    whole = worked.get(path)
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.body.startswith(b"doubling ")
    assert (whole.headers["detent-log-end"], whole.headers["detent-log-attempt"]) == ("true", "1")
    part = worked.get(f"{path}?offset=3&limit=4")
    assert part.body == whole.body[3:7]
    assert (part.headers["detent-log-next"], part.headers["detent-log-end"]) == ("7", "false")
    assert worked.get(f"{path}?stream=stderr").body.startswith(b"to ")
    assert worked.get(f"{path}?offset=100000").body == b""
    assert worked.get(f"{path}?attempt=2").code == "VALIDATION_ERROR"


def test_records_of_a_job_are_those_of_the_ledger(worked: Served) -> None:
    job = job_of(worked, "doubles/numbers")
    records = worked.json(f"/v1/jobs/{job['job_id']}/records")["items"]
    assert [(record["kind"], record["fields"].get("to_state")) for record in records] == [
        ("submitted", None),
        ("transition", "RUNNING"),
        ("transition", "SUCCEEDED"),
    ]
    assert all(record["readable"] for record in records)
    assert worked.json(f"/v1/jobs/{job['job_id']}/artifacts") == {"items": []}


def test_records_of_a_run_are_read_page_by_page(worked: Served) -> None:
    run_id = run_of(worked, "doubles")
    whole = worked.json(f"/v1/runs/{run_id}/records?limit=200")
    kinds = [record["kind"] for record in whole["items"]]
    assert (kinds[0], kinds[-1], whole["next"]) == ("run_started", "run_ended", None)
    jobs = {one["job_id"] for one in worked.json(f"/v1/jobs?run={run_id}")["items"]}
    assert {record["fields"]["job_id"] for record in whole["items"] if record["kind"] == "submitted"} == jobs
    paged, cursor = [], ""
    while True:
        page = worked.json(f"/v1/runs/{run_id}/records?limit=2{cursor}")
        assert len(page["items"]) <= 2
        paged += page["items"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert paged == whole["items"]
    other = worked.get(f"/v1/runs/{run_of(worked, 'breaks')}/records?limit=2{cursor}")
    assert other.status == 400, "a cursor belongs to one run"
    assert worked.get("/v1/runs/nowhere/records").code == "UNKNOWN_RUN"


def test_a_run_is_read_with_its_steps_and_its_graph(worked: Served) -> None:
    run_id = run_of(worked, "doubles")
    run = worked.json(f"/v1/runs/{run_id}")
    assert (run["status"], run["file"], run["steps"]) == (
        "succeeded",
        "good.yaml",
        [{"state": "succeeded", "steps": 2}],
    )
    steps = pages(worked, f"/v1/runs/{run_id}/steps?limit=1")
    assert [(step["step"], step["needs"], step["total"], step["done"]) for step in steps] == [
        ("numbers", [], 1, 1),
        ("double", ["numbers"], 3, 3),
    ]
    assert [job["index"] for job in steps[1]["jobs"]] == [0, 1, 2]
    assert worked.json(f"/v1/runs/{run_id}/steps?state=failed")["items"] == []
    graph = worked.json(f"/v1/runs/{run_id}/graph")
    assert (graph["steps"], graph["wave"], graph["edges"]) == (["numbers", "double"], [0, 1], [[0, 1]])
    explained = worked.json(f"/v1/runs/{run_id}/explain?step=double")
    assert [step["step"] for step in explained["steps"]] == ["double"]
    assert worked.get(f"/v1/runs/{run_id}/explain?step=none").status == 400


def test_counts_are_exact_and_of_this_workspace(worked: Served) -> None:
    assert worked.json("/v1/counts") == {"jobs": {"failed": 1, "succeeded": 4}, "runs": {"failed": 1, "succeeded": 1}}


def test_the_queue_shows_what_waits_without_any_id(served: Served) -> None:
    queue = served.json("/v1/queue")
    assert queue["waiting"] == 1  # A job of another tenant.
    assert queue["capacity"] == 2_560
    (pool,) = queue["pools"]
    assert (pool["pool"], pool["waiting"], len(pool["classes"])) == ("", 1, 10)
    assert [one for one in pool["classes"] if one["waiting"]] == [{"priority": 5, "waiting": 1, "capacity": 256}]


def test_many_jobs_are_read_at_once_in_the_order_asked(worked: Served) -> None:
    ids = [job["job_id"] for job in worked.json("/v1/jobs")["items"]]
    body = f'{{"job_ids":["{ids[1]}","done","{ids[0]}","none","{ids[1]}"]}}'.encode()
    reply = worked.ask("POST", "/v1/jobs:read", body=body)
    assert [job["job_id"] for job in reply.json["items"]] == [ids[1], ids[0]]


def test_proofs_of_the_ledger_verify(worked: Served) -> None:
    head = worked.json("/v1/ledger/head")
    signed = parse_head(parse_note(head["note"]).text)
    proof = worked.json(f"/v1/ledger/proof/1?size={signed.size}")
    path = [b64decode(one) for one in proof["path"]]
    assert parse_digest(proof["root"]) == signed.root
    assert verify_inclusion(parse_digest(proof["leaf"]), 1, signed.size, path, signed.root)
    grown = worked.json(f"/v1/ledger/consistency?from_size=2&to_size={signed.size}")
    path = [b64decode(one) for one in grown["path"]]
    assert verify_consistency(2, parse_digest(grown["from_root"]), signed.size, signed.root, path)
    for absent in ("proof/99999", "proof/x", "proof/1?partition=9", "consistency?from_size=5&to_size=2"):
        assert worked.get(f"/v1/ledger/{absent}").code == "NOT_FOUND"


@pytest.mark.parametrize(
    "route", [route for route in ALL if route.parameters in {("job_id",), ("run_id",)}], ids=lambda route: route.path
)
def test_every_route_answers_for_foreign_ids_as_for_absent_ones(worked: Served, route: Any) -> None:
    """The tenant `demo` has the job `done` and the run `run-1`."""
    own, foreign = ("{job_id}", "done") if route.parameters == ("job_id",) else ("{run_id}", RUN)
    body = None if route.body is None else b"{}"
    one, other = (worked.ask(route.method, route.path.replace(own, name), body=body) for name in (foreign, "none"))
    assert one.status == other.status == 404
    assert {**one.json, "instance": ""} == {**other.json, "instance": ""}
    assert one.headers.keys() == other.headers.keys()


def test_a_listing_of_a_foreign_run_is_empty(worked: Served) -> None:
    assert worked.json(f"/v1/jobs?run={RUN}")["items"] == []


def test_who_has_the_tag_of_a_foreign_job_is_told_nothing(worked: Served) -> None:
    """A tag is known under the workspace for which it was read, and a credential still comes first."""
    job_id = job_of(worked, "doubles/numbers")["job_id"]
    asked = {"If-None-Match": worked.get(f"/v1/jobs/{job_id}").headers["etag"]}
    assert worked.get(f"/v1/jobs/{job_id}", headers=asked).status == 304
    assert worked.get(f"/v1/jobs/{job_id}", headers=asked, token=None).status == 401
    made = worked.ask("POST", "/v1/workspaces", body=b'{"workspace": "beside", "name": "Beside"}')
    assert made.status == 201, made.body
    beside = worked.get(f"/v1/jobs/{job_id}", headers={**asked, "Detent-Workspace": "beside"})
    assert (beside.status, beside.code) == (404, "UNKNOWN_JOB")
