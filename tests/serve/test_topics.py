"""Topics that are told live: output, the queue, actions of operators; and streams that change theirs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest

from tests.serve.served import ANSWER_SECONDS, Served, serving
from tests.serve.test_events import stream, until
from tests.serve.test_reads import job_of
from tests.serve.worked import project

pytestmark = pytest.mark.door("route: GET /v1/events")
SLOW = """\
name: talks
steps:
  - {id: talk, run: {shell: "for n in 1 2 3; do echo line $n; sleep 1; done"}}
"""


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = project(tmp_path_factory.mktemp("topics"))
    assert place.run("good.yaml") == 0
    with serving(place.played, "--workers", "0") as served:
        yield served


def change(served: Served, name: str, *topics: str) -> tuple[int, str]:
    body = json.dumps({"topics": list(topics)}).encode()
    reply = served.ask("PUT", f"/v1/events/{name}/topics", body=body)
    return reply.status, "" if reply.status == 200 else reply.code


def test_output_of_a_job_is_told_with_its_offset(worked: Served) -> None:
    job = job_of(worked, "doubles/double")
    path = f"/v1/jobs/{job['job_id']}/logs"
    with stream(worked, f"log:{job['job_id']}") as told:
        next(told)
        found = [data for _, event_id, data in until(told, "log", stream="stderr") if event_id is None]
    out = next(data for data in found if data["stream"] == "stdout")
    assert (out["offset"], out["text"].encode()) == (0, worked.get(path).body)


def test_output_is_told_while_a_job_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = project(tmp_path_factory.mktemp("talks"))
    (place.directory / "slow.yaml").write_text(SLOW)
    with serving(place.played, "--workers", "0") as served, stream(served, "jobs") as told:
        name = next(told)[2]["stream"]
        running = threading.Thread(target=place.run, args=("slow.yaml",))
        running.start()
        job_id = until(told, "job", status="running")[-1][2]["job_id"]
        assert change(served, name, "jobs", f"log:{job_id}") == (200, "")
        events = until(told, "job", status="succeeded", job_id=job_id)
        running.join()
        assert "log" in [event for event, _, _ in events], "before the job ended"
        whole = b"line 1\nline 2\nline 3\n"
        pieces = [data for event, _, data in events if event == "log"]
        while sum(len(one["text"]) for one in pieces) < len(whole):
            pieces += [data for event, _, data in until(told, "log") if event == "log"]
        assert "".join(one["text"] for one in pieces).encode() == whole
        offsets = [one["offset"] for one in pieces]
        assert offsets == sorted(set(offsets)), "each piece once"


def test_a_stream_that_still_catches_up_changes_its_topics(worked: Served) -> None:
    for _ in range(20):
        with stream(worked, "jobs", last="0:0") as told:
            assert change(worked, next(told)[2]["stream"], "runs") == (200, "")


def test_the_queue_is_told_without_any_id(worked: Served) -> None:
    with stream(worked, "queue") as told:
        next(told)
        event, event_id, data = next(told)
        assert (event, event_id) == ("queue", None)
        assert data == worked.json("/v1/queue")


def test_a_stream_follows_other_topics_on_request(worked: Served) -> None:
    job_id = job_of(worked, "doubles/numbers")["job_id"]
    with stream(worked, "runs") as told:
        name = next(told)[2]["stream"]
        assert change(worked, name, "queue") == (200, "")
        (reset,) = until(told, "reset")
        assert reset[2]["topics"] == ["queue"]
        assert until(told, "queue")
        for topics, code in (
            (["everything"], "VALIDATION_ERROR"),
            (["job:done"], "UNKNOWN_JOB"),
            (["log:done"], "UNKNOWN_JOB"),
            (["run:run-1"], "UNKNOWN_RUN"),
            ([], "VALIDATION_ERROR"),
            ([f"job:{n}" for n in range(51)], "VALIDATION_ERROR"),
        ):
            assert change(worked, name, *topics)[1] == code
        assert change(worked, "st_" + "0" * 24, f"job:{job_id}")[1] == "NOT_FOUND"
    deadline = time.monotonic() + ANSWER_SECONDS
    while change(worked, name, "jobs")[1] != "NOT_FOUND":  # It is closed, and the server learns that in a moment.
        assert time.monotonic() < deadline


def test_actions_of_operators_are_told_to_those_who_may_read_them(worked: Served) -> None:
    with stream(worked, "audit") as told:
        next(told)
        body = json.dumps({"name": "for a test", "scopes": ["jobs:read"]}).encode()
        made = worked.ask("POST", "/v1/keys", body=body)
        assert made.status == 201, made.body
        event, event_id, data = until(told, "operated")[-1]
        assert (event, data["outcome_code"], data["action"]) == ("operated", "OK", "key.create"), data
        assert event_id is not None
        key = made.json["secret"]
    assert worked.get("/v1/events?topics=audit", token=key).code == "FORBIDDEN"
    assert worked.get("/v1/events?topics=queue", token=key).code == "FORBIDDEN"
    assert worked.get("/v1/events?topics=runs", token=key).code == "FORBIDDEN"
