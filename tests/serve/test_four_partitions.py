"""A server on a home of four partitions: jobs, batches, sessions, bulk cancels and workers elsewhere use all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from detent.kernel import Grant, partition_of
from detent.owner.home import Home
from tests.serve.elsewhere import HandWorker, ended, remote_worker, task
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import Reply, Served, start
from tests.serve.test_placing import lease_line

P = 4


@pytest.fixture(scope="module")
def laboured(tmp_path_factory: pytest.TempPathFactory) -> Laboured:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DETENT_PARTITIONS", str(P))
        made = project(tmp_path_factory.mktemp("server"))
    with (made.home.path / "config.toml").open("a") as settings:
        settings.write("\n[leases.remote]\nttl_ms = 600000\nheartbeat_ms = 600000\n")
    return made


@pytest.fixture(scope="module")
def served(laboured: Laboured) -> Iterator[Served]:
    """One server for all tests; in the end its history verifies and replays."""
    server = start(laboured.home.path, laboured.environment, "--project", str(laboured.directory))
    yield server
    assert server.process.poll() is None, "the server ended while it was tested"
    server.stop()
    home = Home(laboured.home.path)
    assert verify_home(home, environment=laboured.environment).findings == ()
    assert replay_home(home).ok


def post(served: Served, path: str, document: Any, **headers: str) -> Reply:
    return served.ask("POST", path, body=json.dumps(document).encode(), headers=headers)


def call(laboured: Laboured, word: str) -> dict[str, Any]:
    return {"task": {"target": "tasks:note", "arguments": [word, str(laboured.directory)]}}


def cancelled(served: Served, expected: int) -> int:
    reply = post(served, "/v1/jobs:cancel", {"state": "queued", "expected": expected})
    assert reply.status == 200, reply.body
    return int(reply.json["cancelled"])


def test_a_batch_lies_in_one_partition_all_or_none_and_once(served: Served, laboured: Laboured) -> None:
    """JOB-029, PIPE-061"""
    seen = set()
    for number in range(8):
        body = {"items": [call(laboured, f"b{number}-{place}") for place in range(3)], "atomic": True}
        reply = post(served, "/v1/jobs:batch", body, **{"Idempotency-Key": f"batch-{number}"})
        assert reply.status == 200, reply.body
        again = post(served, "/v1/jobs:batch", body, **{"Idempotency-Key": f"batch-{number}"})
        assert again.json == reply.json
        (partition,) = {partition_of(item["job_id"], P) for item in reply.json["items"]}
        seen.add(partition)
    assert len(seen) > 1
    listed = served.json("/v1/jobs?limit=100")["items"]
    assert len(listed) == 24
    assert [job["submitted_at"] for job in listed] == sorted((job["submitted_at"] for job in listed), reverse=True)
    assert served.json("/v1/jobs?limit=100&state=queued")["items"] == listed
    assert cancelled(served, 24) == 24


def test_pages_of_jobs_go_through_all_partitions_once(served: Served, laboured: Laboured) -> None:
    jobs = [task(served, "tasks:note", f"p{number}", str(laboured.directory)) for number in range(9)]
    assert len({partition_of(job_id, P) for job_id in jobs}) > 1
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = served.json(f"/v1/jobs?limit=2&state=queued{'&cursor=' + cursor if cursor else ''}")
        found += [job["job_id"] for job in page["items"]]
        cursor = page["next"]
    assert found == jobs[::-1]
    actions = len(served.json("/v1/audit?limit=100")["items"])
    assert cancelled(served, 9) == 9
    own = len({partition_of(job_id, P) for job_id in jobs})
    eventually(
        lambda: len(served.json("/v1/audit?limit=100")["items"]) == actions + own, "one record beside each effect"
    )


def test_a_session_pays_for_jobs_in_its_own_partition(served: Served, laboured: Laboured) -> None:
    """X-030: a budget is never overspent, whatever partition the session is in"""
    sessions = []
    for _ in range(5):
        opened = post(served, "/v1/sessions", {"tokens": 100})
        assert opened.status == 201, opened.body
        sessions.append(opened.json["session_id"])
    assert len(served.json("/v1/sessions")["items"]) == 5
    for session_id in sessions:
        paid = {**call(laboured, session_id), "paid_by": {"session_id": session_id, "tokens": 60}}
        reply = post(served, "/v1/jobs", paid)
        assert (reply.status, reply.headers["detent-budget-tokens"]) == (202, "40")
        refused = post(served, "/v1/jobs", {**paid, **call(laboured, f"{session_id}-2")})
        assert refused.code == "SESSION_BUDGET_EXCEEDED"
    assert cancelled(served, 5) == 5


def test_workers_elsewhere_take_jobs_from_every_partition(served: Served, laboured: Laboured, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text((laboured.directory / "tasks.py").read_text())
    with remote_worker(served, tmp_path) as worker:
        jobs: list[str] = []
        while len(jobs) < 16 or {partition_of(job_id, P) for job_id in jobs} != set(range(P)):
            jobs.append(task(served, "tasks:note", f"w{len(jobs)}", str(laboured.directory)))
        for job_id in jobs:
            found = ended(served, job_id)
            assert (found["status"], found["attempt"]) == ("succeeded", 1)
        assert worker.end() == 0
    assert laboured.done() == sorted(f"w{number}" for number in range(len(jobs)))


@pytest.mark.door("setting: [leases.remote]")
def test_each_partition_extends_leases_elsewhere_by_the_remote_policy(
    served: Served, laboured: Laboured, tmp_path: Path
) -> None:
    worker = HandWorker(served, tmp_path / "worker")
    job_id = task(served, "tasks:note", "extended", str(laboured.directory))
    (told,) = worker.turn(wanted=1, wait_ms=20_000).grants
    before = lease_line(served, job_id)

    def is_extended() -> bool:
        worker.turn()  # It does not name the lease, so its grant is told again and begins anew.
        return lease_line(served, job_id) > before

    eventually(is_extended, "the lease holds longer by the policy of workers elsewhere")
    worker.turn(reports=(worker.report(Grant(*told.grant)),))
    assert ended(served, job_id)["attempt"] == 1
    worker.http.close()
