"""Batches of jobs, and jobs that are cancelled, retried and erased over HTTP, with who asked for it on the ledger."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from detent.canon import decode
from detent.kernel.records import OPERATED, TRANSITION
from detent.owner.home import Home
from detent.owner.wiring import Parts
from tests.serve.keyed import key, post_as
from tests.serve.served import Served, serving
from tests.serve.test_jobs_write import CELL, post, task
from tests.serve.worked import Worked, project

pytestmark = pytest.mark.door("route: POST /v1/jobs:batch, /cancel, /retry, /erase")


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Worked:
    found = project(tmp_path_factory.mktemp("changed"))
    config = found.played.home.path / "config.toml"
    config.write_text(config.read_text().replace("capacity_per_class = 256", "capacity_per_class = 1200"))
    return found


@pytest.fixture(scope="module")
def served(worked: Worked) -> Iterator[Served]:
    with serving(worked.played, "--project", str(worked.directory)) as server:
        yield server
        assert server.process.poll() is None, "the server ended while it was tested"


def actions(served: Served) -> list[tuple[str, str, str]]:
    """Every operator action on the ledger: what, to what, and how it ended."""
    with Parts().open_reader(Home(served.home).ledger) as reader:
        bodies: list[Any] = [decode(row.body) for row in reader.records_of_kind(0, OPERATED)]
    return [(body["action"], body["object_id"], body["outcome_code"]) for body in bodies]


def new_job(served: Served, **said: Any) -> str:
    return str(post(served, "/v1/jobs", task(**said)).json["job_id"])


def batches(served: Served) -> int:
    return int(served.json("/v1/ledger/head")["size"])


def test_a_batch_is_one_commit_and_answers_in_order(served: Served) -> None:
    before = batches(served)
    items = [task(arguments=[n]) if n % 3 else {"payload": {**CELL, "document_id": f"d{n}"}} for n in range(9)]
    items.insert(4, task(target="none"))
    reply = post(served, "/v1/jobs:batch", {"items": items})
    assert reply.status == 200, reply.body
    told = reply.json["items"]
    assert [("problem" in one) for one in told] == [place == 4 for place in range(10)]
    assert told[4]["problem"]["code"] == "VALIDATION_ERROR"
    assert len({one["job_id"] for one in told if "job_id" in one}) == 9
    assert batches(served) == before + 1


def test_an_atomic_batch_with_a_fault_submits_nothing(served: Served) -> None:
    before = served.json("/v1/counts")["jobs"]
    reply = post(served, "/v1/jobs:batch", {"items": [task(), task(target="none")], "atomic": True})
    assert (reply.status, reply.code) == (400, "VALIDATION_ERROR")
    assert served.json("/v1/counts")["jobs"] == before


def test_an_atomic_batch_that_the_queue_cannot_hold_submits_nothing(served: Served) -> None:
    before = post(served, "/v1/jobs:cancel", {"state": "queued", "expected": 5_000, "dry_run": True}).json["matched"]
    full = {"items": [task(priority="low") for _ in range(1_000)], "atomic": True}
    first = post(served, "/v1/jobs:batch", full, **{"Idempotency-Key": "thousand"})
    assert first.status == 200, first.body
    again = post(served, "/v1/jobs:batch", full, **{"Idempotency-Key": "thousand"})
    assert again.body == first.body
    assert again.headers["detent-replayed"] == "true"
    refused = post(served, "/v1/jobs:batch", full)
    assert (refused.status, refused.code) == (429, "QUEUE_FULL")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    matched = post(served, "/v1/jobs:cancel", {"state": "queued", "expected": 5_000, "dry_run": True}).json["matched"]
    assert matched == before + 1_000
    part = post(served, "/v1/jobs:batch", {"items": [task(priority="low") for _ in range(300)]})
    problems = [one["problem"]["code"] for one in part.json["items"] if "problem" in one]
    assert problems == ["QUEUE_FULL"] * 100
    cancelled = post(served, "/v1/jobs:cancel", {"state": "queued", "expected": 1_000})
    assert (cancelled.status, cancelled.code) == (409, "CONFLICT")


def test_a_batch_is_bounded(served: Served) -> None:
    assert post(served, "/v1/jobs:batch", {"items": [task()] * 1_001}).status == 400
    assert post(served, "/v1/jobs:batch", {"items": []}).status == 400


def test_a_cancelled_job_says_who_asked_and_why(served: Served) -> None:
    job_id = new_job(served)
    reply = post(served, f"/v1/jobs/{job_id}/cancel", {"reason": "wrong input"})
    assert (reply.status, reply.json["status"]) == (200, "cancelled")
    assert post(served, f"/v1/jobs/{job_id}/cancel", {}).json == reply.json
    assert actions(served).count(("job.cancel", job_id, "OK")) == 1
    explained = served.json(f"/v1/jobs/{job_id}/explain")
    assert explained["reason"] == "wrong input"


def test_what_cannot_be_cancelled_is_told(served: Served) -> None:
    assert post(served, "/v1/jobs/nothing/cancel", {}).code == "UNKNOWN_JOB"
    job_id = new_job(served)
    assert post(served, f"/v1/jobs/{job_id}.0/cancel", {}).code == "CONFLICT"
    assert post(served, f"/v1/jobs/{job_id}/retry", {}).code == "CONFLICT"
    assert post(served, f"/v1/jobs/{job_id}/erase", {}).code == "CONFLICT"


def test_a_submitter_cancels_what_it_submitted_and_nothing_else(served: Served) -> None:
    ann, bob, eve = key(served, "submitter"), key(served, "submitter"), key(served, "viewer")
    hers, also_hers = (post_as(served, ann, "/v1/jobs", task()).json["job_id"] for _ in range(2))
    payload = {"payload": {**CELL, "document_id": "ann's"}}
    cell = post_as(served, ann, "/v1/jobs", payload).json["job_id"]
    local = new_job(served)
    refused = post_as(served, bob, f"/v1/jobs/{hers}/cancel", {})
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    assert ("job.cancel", hers, "FORBIDDEN") in actions(served)
    assert post_as(served, ann, f"/v1/jobs/{local}/cancel", {}).code == "FORBIDDEN"
    assert post_as(served, eve, f"/v1/jobs/{hers}/cancel", {}).code == "FORBIDDEN"
    for job_id in (hers, cell):
        assert post_as(served, ann, f"/v1/jobs/{job_id}/cancel", {}).json["status"] == "cancelled"
    many = {"expected": 5_000, "dry_run": True}
    assert post_as(served, bob, "/v1/jobs:cancel", many).json["matched"] == 0
    assert post_as(served, ann, "/v1/jobs:cancel", many).json["matched"] == 1
    assert post_as(served, ann, "/v1/jobs:cancel", {"expected": 0}).code == "CONFLICT"
    done = post_as(served, ann, "/v1/jobs:cancel", {"expected": 1}).json
    assert done == {"matched": 1, "cancelled": 1, "dry_run": False}
    assert served.json(f"/v1/jobs/{also_hers}")["status"] == "cancelled"
    assert served.json(f"/v1/jobs/{local}")["status"] == "queued"
    assert post_as(served, key(served, "operator"), f"/v1/jobs/{local}/cancel", {}).json["status"] == "cancelled"


def test_open_jobs_are_cancelled_together_if_they_are_as_many_as_expected(served: Served) -> None:
    post(served, "/v1/jobs:batch", {"items": [task() for _ in range(5)]})
    dry = post(served, "/v1/jobs:cancel", {"expected": 5_000, "dry_run": True}).json
    queued = dry["matched"]
    assert (queued >= 5, dry["cancelled"], dry["dry_run"]) == (True, 0, True)
    assert post(served, "/v1/jobs:cancel", {"expected": queued - 1}).code == "CONFLICT"
    home = Home(served.home)
    with Parts().open_reader(home.ledger) as reader:
        waiting = {row.job_id for row in reader.jobs(state="QUEUED") if row.tenant_id == "local"}
    done = post(served, "/v1/jobs:cancel", {"expected": queued, "reason": "cleared"})
    assert done.json == {"matched": queued, "cancelled": queued, "dry_run": False}
    with Parts().open_reader(home.ledger) as reader:
        rows = [row for row in reader.records(0) if row.job_id in waiting and row.kind == TRANSITION]
    assert ({row.job_id for row in rows}, len(waiting)) == (waiting, queued)
    assert len({row.batch_no for row in rows}) == 1, "in one commit"
    assert served.json("/v1/jobs?state=queued")["items"] == []
    assert ("job.cancel", "open", "OK") in actions(served)


@pytest.mark.parametrize("document", [task(label="again"), {"payload": {**CELL, "document_id": "again"}}])
def test_a_retried_job_is_a_new_one_that_names_the_old(served: Served, document: Any) -> None:
    job_id = post(served, "/v1/jobs", document).json["job_id"]
    post(served, f"/v1/jobs/{job_id}/cancel", {})
    reply = post(served, f"/v1/jobs/{job_id}/retry", {}, **{"Idempotency-Key": f"retry-{job_id}"})
    assert reply.status == 202, reply.body
    again = served.json(reply.headers["location"])
    assert (again["retry_of"], again["state"], again["requested_by"]) == (job_id, "queued", "p_local")
    assert ("job.retry", job_id, "OK") in actions(served)
    repeated = post(served, f"/v1/jobs/{job_id}/retry", {}, **{"Idempotency-Key": f"retry-{job_id}"})
    assert repeated.body == reply.body


def test_a_job_that_was_read_before_is_told_as_it_is_now(served: Served) -> None:
    """Lists and details are kept in memory: they go by the row, and nothing that is erased is told from memory."""
    job_id = new_job(served, arguments=["told"], label="a private name")
    listed = f"/v1/jobs?q={job_id}"
    for _ in range(2):
        assert served.json(listed)["items"][0]["state"] == "queued"
        assert served.json(f"/v1/jobs/{job_id}")["label"] == "a private name"
    post(served, f"/v1/jobs/{job_id}/cancel", {})
    for _ in range(2):
        assert served.json(listed)["items"][0]["state"] == "cancelled"
        detail = served.json(f"/v1/jobs/{job_id}")
        assert (detail["state"], detail["label"]) == ("cancelled", "a private name")
    assert post(served, f"/v1/jobs/{job_id}/erase", {}).status == 200
    for _ in range(2):
        assert served.json(f"/v1/jobs/{job_id}")["label"] is None


def test_an_erased_job_keeps_its_history_and_loses_its_content(served: Served) -> None:
    job_id = new_job(served, label="secret", arguments=["hush"])
    kept = post(served, "/v1/jobs", task(arguments=["kept"]), **{"Idempotency-Key": "of-the-erased"}).json["job_id"]
    for one in (job_id, kept):
        post(served, f"/v1/jobs/{one}/cancel", {})
    dry = post(served, f"/v1/jobs/{job_id}/erase", {"dry_run": True}).json
    assert dry["dry_run"] is True
    assert dry["erased"] >= 1
    done = post(served, f"/v1/jobs/{job_id}/erase", {})
    assert done.status == 200, done.body
    assert done.json["erased"] == dry["erased"]
    assert ("job.erase", job_id, "OK") in actions(served)
    job = served.json(f"/v1/jobs/{job_id}")
    assert (job["state"], job["label"]) == ("cancelled", None)
    assert post(served, f"/v1/jobs/{job_id}/retry", {}).status in {400, 404, 409}
    assert post(served, f"/v1/jobs/{kept}/erase", {}).status == 200
    again = post(served, "/v1/jobs", task(arguments=["kept"]), **{"Idempotency-Key": "of-the-erased"})
    assert "detent-replayed" not in again.headers, "an answer outlived the content that it was about"


def test_the_ledger_verifies_with_all_of_it(served: Served, worked: Worked) -> None:
    line = [sys.executable, "-m", "detent", "verify", "--home", str(served.home), "-o", "json"]
    verified = subprocess.run(line, env=worked.environment, capture_output=True, text=True, timeout=300, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)["ok"] is True
