"""A full queue: told when to come back, or waited for."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serve.served import serving
from tests.serve.test_jobs_write import post, task
from tests.serve.worked import project

pytestmark = pytest.mark.door("route: POST /v1/jobs?wait=")


def test_a_submission_waits_for_room_and_a_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    """X-187"""
    worked = project(tmp_path)
    config = worked.played.home.path / "config.toml"
    config.write_text(config.read_text().replace("capacity_per_class = 256", "capacity_per_class = 2"))
    with serving(worked.played, "--project", str(worked.directory)) as served:
        jobs = []
        while (reply := post(served, "/v1/jobs", task())).status == 202:
            jobs.append(reply.json["job_id"])
        assert (reply.status, reply.code) == (429, "QUEUE_FULL")
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        assert reply.json["retry_after_ms"] >= 1_000
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(post, served, "/v1/jobs?wait=60", task())
            time.sleep(0.2)
            assert post(served, f"/v1/jobs/{jobs[0]}/cancel", {}).status == 200
            assert waiting.result(60).status == 202
        assert post(served, "/v1/jobs?wait=61", task()).status == 400
