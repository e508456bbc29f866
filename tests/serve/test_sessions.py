"""Sessions with budgets: what a job takes, what comes back, and that headers and streams say the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.served import ANSWER_SECONDS, Served, serving
from tests.serve.test_jobs_write import CELL, post, task
from tests.serve.worked import project

pytestmark = pytest.mark.door("route: /v1/sessions")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    worked = project(tmp_path_factory.mktemp("sessions"))
    with serving(worked.played, "--project", str(worked.directory)) as server:
        yield server
        assert server.process.poll() is None, "the server ended while it was tested"


def opened(served: Served, **budgets: int) -> str:
    reply = post(served, "/v1/sessions", budgets)
    assert reply.status == 201, reply.body
    return str(reply.json["session_id"])


def paid(session_id: str, **most: int) -> dict[str, Any]:
    return {**task(), "paid_by": {"session_id": session_id, **most}}


def remaining(served: Served, session_id: str) -> dict[str, Any]:
    return {
        name: left for name, left in served.json(f"/v1/sessions/{session_id}")["remaining"].items() if left is not None
    }


def test_a_job_takes_its_worst_case_and_gives_it_back_when_it_never_ran(served: Served) -> None:
    session_id = opened(served, tokens=100, cost=5)
    assert remaining(served, session_id) == {"tokens": 100, "cost": 5}
    reply = post(served, "/v1/jobs", paid(session_id, tokens=30, cost=2))
    assert reply.status == 202, reply.body
    assert (reply.headers["detent-budget-tokens"], reply.headers["detent-budget-cost"]) == ("70", "3")
    assert "detent-budget-time-ms" not in reply.headers
    refused = post(served, "/v1/jobs", paid(session_id, tokens=71))
    assert (refused.status, refused.code) == (429, "SESSION_BUDGET_EXCEEDED")
    assert post(served, f"/v1/jobs/{reply.json['job_id']}/cancel", {}).status == 200
    assert remaining(served, session_id) == {"tokens": 100, "cost": 5}


def test_a_payload_is_paid_for_like_a_task(served: Served) -> None:
    session_id = opened(served, time_ms=1_000)
    payload = {"payload": {**CELL, "document_id": "paid"}, "paid_by": {"session_id": session_id, "time_ms": 400}}
    assert post(served, "/v1/jobs", payload).headers["detent-budget-time-ms"] == "600"


def test_the_headers_of_answers_and_the_frames_of_the_stream_say_the_same(served: Served) -> None:
    """OC-CORE-1024 X-095"""
    session_id = opened(served, tokens=50)
    with served.connect() as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.sendall(
            f"GET /v1/events?topics=session:{session_id} HTTP/1.1\r\nHost: {served.host}\r\n"
            f"Authorization: Bearer {served.token}\r\n\r\n".encode()
        )
        lines = connection.makefile("rb")

        def frame() -> dict[str, Any]:
            event = ""
            while True:
                line = lines.readline().decode().strip()
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                if line.startswith("data: ") and event == "metrics":
                    return dict(json.loads(line.removeprefix("data: ")))

        assert frame() == {"session_id": session_id, "remaining": {"tokens": 50}}
        jobs = []
        for tokens, left in ((10, "40"), (15, "25")):
            reply = post(served, "/v1/jobs", paid(session_id, tokens=tokens))
            assert reply.headers["detent-budget-tokens"] == left
            assert frame()["remaining"] == {"tokens": int(left)}
            jobs.append(reply.json["job_id"])
        for job_id, tokens in zip(jobs, (35, 50), strict=True):
            post(served, f"/v1/jobs/{job_id}/cancel", {})
            assert frame()["remaining"] == {"tokens": tokens}


def test_a_session_that_is_not_there_is_told(served: Served) -> None:
    assert served.get("/v1/sessions/nothing").code == "NOT_FOUND"
    assert served.ask("DELETE", "/v1/sessions/nothing").code == "NOT_FOUND"
    assert post(served, "/v1/jobs", paid("nothing")).code == "NOT_FOUND"
    assert served.get("/v1/events?topics=session:nothing").code == "NOT_FOUND"


def test_a_closed_session_is_gone_and_named_on_the_ledger(served: Served) -> None:
    session_id = opened(served, tokens=1)
    assert session_id in served.json("/v1/sessions")["items"]
    assert served.ask("DELETE", f"/v1/sessions/{session_id}").status == 200
    assert session_id not in served.json("/v1/sessions")["items"]
    assert served.get(f"/v1/sessions/{session_id}").status == 404
