"""Requests under an Idempotency-Key: one job, and the same bytes again, also when the server was killed before it could answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from detent.owner.home import Home
from detent.owner.wiring import Parts
from tests.serve.served import Reply, Served, serving, start
from tests.serve.test_jobs_write import CELL, task
from tests.serve.worked import Worked, project

pytestmark = pytest.mark.door("route: every one that takes an Idempotency-Key")
WINDOW_MS = 4_000


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Worked:
    found = project(tmp_path_factory.mktemp("once"))
    config = found.played.home.path / "config.toml"
    said = config.read_text().replace("window_ms = 86400000", f"window_ms = {WINDOW_MS}")
    config.write_text(said.replace("keys_max = 1000000", "keys_max = 40"))
    return found


@pytest.fixture(scope="module")
def served(worked: Worked) -> Iterator[Served]:
    with serving(worked.played, "--project", str(worked.directory)) as server:
        yield server


def post(served: Served, key: str, document: Any, path: str = "/v1/jobs") -> Reply:
    return served.ask("POST", path, body=json.dumps(document).encode(), headers={"Idempotency-Key": key})


def jobs(served: Served) -> int:
    with Parts().open_reader(Home(served.home).ledger) as reader:
        return sum(1 for _ in reader.jobs())


@pytest.mark.parametrize("document", [task(), {"payload": CELL}], ids=["task", "payload"])
def test_the_same_request_again_is_the_same_answer_and_no_second_job(served: Served, document: Any) -> None:
    """JOB-029 JOB-030 JOB-031"""
    before = jobs(served)
    first = post(served, f"again-{'task' in document}", document)
    again = post(served, f"again-{'task' in document}", document)
    assert first.status == 202, first.body
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["location"] == first.headers["location"]
    assert "detent-replayed" not in first.headers
    assert again.headers["detent-replayed"] == "true"
    assert jobs(served) == before + 1


def test_another_body_under_the_same_key_is_refused(served: Served) -> None:
    """JOB-032"""
    assert post(served, "other", task()).status == 202
    refused = post(served, "other", task(arguments=[5]))
    assert (refused.status, refused.code) == (422, "IDEMPOTENCY_KEY_REUSED")


def test_a_key_counts_for_its_route_alone(served: Served) -> None:
    """JOB-033"""
    one = post(served, "route", task())
    many = post(served, "route", {"items": [task()]}, "/v1/jobs:batch")
    assert (one.status, many.status) == (202, 200)
    assert "detent-replayed" not in many.headers


def test_a_refused_request_leaves_its_key_free(served: Served) -> None:
    assert post(served, "refused", task(target="none")).status == 400
    assert post(served, "refused", task()).status == 202


@pytest.mark.parametrize("key", ["x" * 256, " ", "caf\u00e9"])
def test_a_key_that_is_no_key_is_refused(served: Served, key: str) -> None:
    reply = served.ask("POST", "/v1/jobs", body=json.dumps(task()).encode(), headers={"Idempotency-Key": key})
    assert (reply.status, reply.code) == (400, "VALIDATION_ERROR")


def test_requests_that_come_at_once_under_one_key_make_one_job(served: Served) -> None:
    before = jobs(served)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: post(served, "at-once", task()), range(8)))
    assert {(reply.status, reply.body) for reply in replies} == {(202, replies[0].body)}
    assert sum("detent-replayed" not in reply.headers for reply in replies) == 1
    assert jobs(served) == before + 1


def test_a_key_is_free_again_when_its_time_is_over(served: Served) -> None:
    """JOB-030"""
    first = post(served, "aged", task())
    deadline = time.monotonic() + 60
    while (later := post(served, "aged", task())).headers.get("detent-replayed") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert later.status == 202
    assert later.json["job_id"] != first.json["job_id"]


def test_a_new_key_is_refused_when_as_many_are_kept_as_may_be(served: Served) -> None:
    known = post(served, "known", task())
    refused: Reply | None = None
    for number in range(200):
        reply = post(served, f"full-{number}", task())
        if reply.status != 202:
            refused = reply
            break
    assert refused is not None
    assert (refused.status, refused.code) == (429, "IDEMPOTENCY_KEYS_FULL")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    again = post(served, "known", task())
    assert again.body == known.body or again.status in {202, 429}


def test_an_answer_that_a_killed_server_did_not_give_is_given_by_the_next(tmp_path: Path) -> None:
    """JOB-031: kill -9 between the commit and the answer."""
    worked = project(tmp_path)
    environment, home = worked.environment, worked.played.home.path
    body = json.dumps(task(label="killed")).encode()
    told = []
    for round_ in range(3):
        served = start(home, environment, "--project", str(worked.directory), "--workers", "0")
        before = jobs(served)
        key = f"killed-{round_}-{time.monotonic_ns()}"
        with served.connect() as connection:
            connection.sendall(
                f"POST /v1/jobs HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
                f"Content-Type: application/json\r\nIdempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            deadline = time.monotonic() + 60
            while jobs(served) == before and time.monotonic() < deadline:
                pass
            served.kill()
        following = start(home, environment, "--project", str(worked.directory), "--workers", "0")
        try:
            first, again = (
                following.ask("POST", "/v1/jobs", body=body, headers={"Idempotency-Key": key}) for _ in "ab"
            )
            assert (first.status, again.status) == (202, 202)
            assert first.body == again.body
            assert first.headers.get("detent-replayed") == "true", "the killed server's answer was lost"
            assert jobs(following) == before + 1
            told.append(first.json["job_id"])
        finally:
            following.stop()
    assert len(set(told)) == 3
    line = [sys.executable, "-m", "detent", "verify", "--home", str(home)]
    verified = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
