"""Listings with filters, as pages and as a whole, and searches in logs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from detent.serve.routes.jobs import lines_with
from tests.serve.served import Served, serving
from tests.serve.test_reads import job_of, pages
from tests.serve.worked import project

pytestmark = pytest.mark.door("route: GET /v1/jobs")


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = project(tmp_path_factory.mktemp("listing"))
    assert place.run("good.yaml") == 0
    time.sleep(1.1)
    assert place.run("bad.yaml") == 1
    with serving(place.played, "--workers", "0") as served:
        yield served


def ids(served: Served, query: str, kind: str = "jobs") -> list[str]:
    name = "job_id" if kind == "jobs" else "run_id"
    return [one[name] for one in pages(served, f"/v1/{kind}?limit=2&{query}")]


def test_jobs_are_found_by_the_beginning_of_their_ids(worked: Served) -> None:
    every = [job["job_id"] for job in worked.json("/v1/jobs")["items"]]
    for job_id in every:
        assert ids(worked, f"q={job_id}") == [job_id]
        assert job_id in ids(worked, f"q={job_id[:8]}")
    assert ids(worked, "q=done") == [], "a job of another workspace"
    assert ids(worked, "q=none-such") == []
    assert worked.get("/v1/jobs?q=abc").code == "VALIDATION_ERROR", "too short to mean few"
    assert worked.get("/v1/jobs?q=a%25b%25").code == "VALIDATION_ERROR"


def test_jobs_are_found_by_what_they_do(worked: Served) -> None:
    numbers = job_of(worked, "doubles/numbers")
    assert ids(worked, "label=doubles/numbers") == [numbers["job_id"]]
    assert ids(worked, "label=doubles/none") == []


def test_jobs_and_runs_are_found_by_time(worked: Served) -> None:
    jobs = worked.json("/v1/jobs")["items"]
    newest, oldest = jobs[0]["submitted_at"], jobs[-1]["submitted_at"]
    every = [job["job_id"] for job in jobs]
    assert ids(worked, f"since={newest}") == every[:1]
    assert ids(worked, f"until={newest}") == every[1:]
    assert ids(worked, f"since={oldest}") == every
    assert ids(worked, f"until={oldest}") == []
    assert ids(worked, f"since={oldest}&until={newest}") == every[1:]
    assert ids(worked, "since=2999-01-01T00:00:00Z") == ids(worked, "until=1970-01-01T00:00:00Z") == []
    assert ids(worked, f"since={newest}&state=failed") == every[:1]
    runs = worked.json("/v1/runs")["items"]
    first, last = runs[0], runs[-1]
    assert ids(worked, f"since={first['started_at']}", "runs") == [first["run_id"]]
    assert first["run_id"] not in ids(worked, f"until={first['started_at']}", "runs")
    assert ids(worked, f"since={last['started_at']}", "runs") == [run["run_id"] for run in runs]
    for wrong in ("yesterday", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T25:00:00Z"):
        assert worked.get(f"/v1/jobs?since={wrong}").code == "VALIDATION_ERROR"


def test_runs_are_found_by_name_and_by_the_beginning_of_their_ids(worked: Served) -> None:
    runs = worked.json("/v1/runs")["items"]
    breaks = [run["run_id"] for run in runs if run["name"] == "breaks"]
    assert ids(worked, "name=breaks", "runs") == breaks
    assert ids(worked, "name=break", "runs") == []
    assert ids(worked, f"q={breaks[0][:8]}", "runs") == breaks
    assert ids(worked, "q=run-1", "runs") == [], "a run of another workspace"


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("worker=w", "worker"),
        ("worker=w&state=failed", "worker"),
        ("label=a&run=b", "label"),
        ("run=a&q=bbbb", "q"),
        ("label=a&pool=b", "pool"),
        ("pool=a&run=b", "pool"),
        ("pool=a&q=bbbb", "q"),
        ("q=aaaa&since=2026-01-01T00:00:00Z", "q"),
    ],
)
def test_filters_that_no_index_answers_together_are_refused(worked: Served, query: str, named: str) -> None:
    reply = worked.get(f"/v1/jobs?{query}")
    assert reply.code == "VALIDATION_ERROR"
    assert [error["path"] for error in reply.json["errors"]] == [f"query.{named}"]
    assert worked.json("/v1/jobs?state=running&worker=w")["items"] == []


def test_a_page_names_the_next_one_in_a_link(worked: Served) -> None:
    first = worked.get("/v1/jobs?limit=2&state=succeeded")
    (link,) = re.findall(r'<([^>]+)>; rel="next"', first.headers["link"])
    second = worked.get(link)
    assert second.json["items"]
    assert not {job["job_id"] for job in first.json["items"]} & {job["job_id"] for job in second.json["items"]}
    last = second
    while "link" in last.headers:
        last = worked.get(re.findall(r"<([^>]+)>", last.headers["link"])[0])
    assert last.json["next"] is None


def test_a_whole_listing_is_lines_of_json(worked: Served) -> None:
    for path in ("/v1/jobs", "/v1/runs", "/v1/jobs?state=failed", "/v1/jobs?q=none-such"):
        reply = worked.get(path, headers={"Accept": "application/x-ndjson"})
        assert reply.headers["content-type"] == "application/x-ndjson"
        listed: list[Any] = [json.loads(line) for line in reply.body.splitlines()]
        assert listed == pages(worked, f"{path}{'&' if '?' in path else '?'}limit=1")
    assert worked.get("/v1/jobs", headers={"Accept": "application/json, application/x-ndjson"}).json["items"]
    assert worked.get("/v1/counts", headers={"Accept": "application/x-ndjson"}).code == "NOT_ACCEPTABLE"


def test_a_log_is_searched_as_a_whole(worked: Served) -> None:
    job = job_of(worked, "doubles/double")
    path = f"/v1/jobs/{job['job_id']}/logs"
    whole = worked.get(path).body
    found = worked.get(f"{path}?q=doubling")
    assert found.body == whole
    assert found.headers["detent-log-offsets"].startswith("0")
    none = worked.get(f"{path}?q=tripling")
    assert (none.body, none.headers["detent-log-offsets"]) == (b"", "")
    assert none.headers["detent-log-end"] == "true"


def test_lines_with_a_text_are_given_whole_and_go_on_where_they_ended() -> None:
    data = b"one 503\ntwo\nthree 503 503\n503 four"
    assert lines_with(data, b"503", 0, 100) == (b"one 503\nthree 503 503\n503 four", [0, 12, 26], len(data))
    first = lines_with(data, b"503", 0, 10)
    assert first == (b"one 503\n", [0], 8)
    assert lines_with(data, b"503", first[2], 1) == (b"three 503 503\n", [12], 26)
    assert lines_with(data, b"503", 26, 1) == (b"503 four", [26], len(data))
    assert lines_with(data, b"503", 99, 1) == (b"", [], len(data))
    assert lines_with(b"", b"x", 0, 1) == (b"", [], 0)
    many = lines_with(b"x\n" * 600, b"x", 0, 10_000)
    assert (len(many[1]), many[2]) == (500, 1_000)
