"""Events: what happens is told as it happens, and a stream resumes exactly, also after the server was killed."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from detent.serve.events import LATE_MAX
from tests.homes import RUN
from tests.serve.served import ANSWER_SECONDS, Served, serving, start
from tests.serve.worked import Worked, project

Event = tuple[str, str | None, Any]
"""Its name, its id, its data."""


@contextmanager
def stream(served: Served, topics: str = "jobs,runs", last: str | None = None) -> Iterator[Iterator[Event]]:
    """The events of a stream, one after the other, until the server ends it."""
    connection = HTTPConnection("127.0.0.1", served.port, timeout=ANSWER_SECONDS)
    headers = {"Authorization": f"Bearer {served.token}", **({"Last-Event-ID": last} if last else {})}
    try:
        connection.request("GET", f"/v1/events?topics={topics}", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Content-Type")) == (200, "text/event-stream")
        yield events(answer)
    finally:
        connection.close()


def events(answer: HTTPResponse) -> Iterator[Event]:
    fields: dict[str, str] = {}
    try:
        while line := answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(":")
            if line == b"\n":
                if "event" in fields:
                    yield fields["event"], fields.get("id"), json.loads(fields["data"])
                fields = {}
            elif name:
                fields[name] = value.removeprefix(" ")
    except (ConnectionError, OSError, ValueError):
        return  # It was killed.


def until(told: Iterator[Event], event: str, **data: Any) -> list[Event]:
    """Events up to and with the first one that says this."""
    found: list[Event] = []
    for one in told:
        found.append(one)
        if one[0] == event and data.items() <= one[2].items():
            return found
    raise AssertionError(f"the stream ended before {event} {data}: {found}")


@pytest.fixture
def place(tmp_path: Path) -> Worked:
    return project(tmp_path)


def test_a_run_is_told_while_it_goes_on_and_each_event_once(place: Worked) -> None:
    with serving(place.played) as served, stream(served) as told:
        assert next(told)[0] == "hello"
        running = threading.Thread(target=place.run, args=("good.yaml",))
        running.start()
        found = until(told, "run", status="succeeded")
        running.join()
        ids = [event_id for _, event_id, _ in found]
        assert None not in ids
        assert len(set(ids)) == len(ids)
        assert ids == sorted(ids, key=lambda one: int(str(one).partition(":")[2]))
        assert [data["status"] for event, _, data in found if event == "run"] == ["running", "succeeded"]
        ended = [data["job_id"] for _, _, data in found if data.get("job_id") and data["status"] == "succeeded"]
        assert len(ended) == len(set(ended)) == 4
        with stream(served, last="0:0") as again:
            assert next(again)[0] == "hello"
            assert until(again, "run", status="succeeded") == found, "a stream from the beginning tells the same"


def test_a_stream_resumes_exactly_after_the_server_was_killed(place: Worked) -> None:
    served = start(place.played.home.path, place.environment)
    with stream(served) as told:
        next(told)
        running = threading.Thread(target=place.run, args=("good.yaml",))
        running.start()
        seen = until(told, "job", status="running")
        served.kill()
        seen += list(told)
    running.join()  # The run goes on: its own process owns the home now.
    with serving(place.played) as again:
        with stream(again, last=seen[-1][1]) as told:
            assert next(told)[2]["resumed"] is True
            seen += until(told, "run", status="succeeded")
        with stream(again, last="0:0") as told:
            next(told)
            assert until(told, "run", status="succeeded") == seen, "nothing is missing and nothing is there twice"


def test_a_stream_tells_only_its_topics_and_its_own_workspace(place: Worked) -> None:
    assert place.run("good.yaml") == 0
    with serving(place.played) as served:
        runs = [run["run_id"] for run in served.json("/v1/runs")["items"]]
        with stream(served, "runs", last="0:0") as told:
            next(told)
            assert {data["run_id"] for _, _, data in until(told, "run", status="succeeded")} == set(runs)
        (job,) = (job for job in served.json("/v1/jobs")["items"][:1])
        with stream(served, f"job:{job['job_id']}", last="0:0") as told:
            next(told)
            found = until(told, "job", status="succeeded")
        assert [data["status"] for _, _, data in found] == ["queued", "running", "succeeded"]
        assert found[-1][2]["transition_seq"] == job["transition_seq"]
        for topics, code in (
            ("job:done", "UNKNOWN_JOB"),
            (f"run:{RUN}", "UNKNOWN_RUN"),
            ("everything", "VALIDATION_ERROR"),
            ("job:", "VALIDATION_ERROR"),
            (",".join(f"job:{n}" for n in range(51)), "VALIDATION_ERROR"),
        ):
            assert served.get(f"/v1/events?topics={topics}").code == code
        assert served.get("/v1/events").code == "VALIDATION_ERROR"
        assert served.get("/v1/events?topics=jobs", token=None).code == "UNAUTHENTICATED"


@pytest.mark.parametrize("last", ["x", "0", "0:x", "0:1,", "-1:5", "0:1;1:2", "0:" + "9" * 13])
def test_an_id_that_no_event_has_is_refused(served: Served, last: str) -> None:
    assert served.get("/v1/events?topics=jobs", headers={"Last-Event-ID": last}).code == "VALIDATION_ERROR"


def test_a_position_that_the_ledger_has_not_reached_is_told_as_a_reset(served: Served) -> None:
    with stream(served, last="0:99999999") as told:
        assert next(told)[2]["resumed"] is False
        assert next(told)[0] == "reset"


def test_a_stream_is_told_to_come_back_when_the_server_stops(place: Worked) -> None:
    with serving(place.played) as served, stream(served) as told:
        next(told)
        served.process.send_signal(signal.SIGTERM)
        assert [event for event, _, _ in told] == ["bye"]
        assert served.process.wait(ANSWER_SECONDS) == 0
        served.process.communicate()


def test_a_credential_has_a_bounded_number_of_streams(served: Served) -> None:
    open_ones = []
    try:
        for _ in range(20):
            context = stream(served)
            next(context.__enter__())
            open_ones.append(context)
        assert served.get("/v1/events?topics=jobs").code == "STREAMS_FULL"
    finally:
        for context in open_ones:
            context.__exit__(None, None, None)


def test_a_request_waits_for_the_end_of_a_run(place: Worked) -> None:
    with serving(place.played) as served, stream(served, "runs") as told:
        next(told)
        running = threading.Thread(target=place.run, args=("bad.yaml",))
        running.start()
        (started,) = until(told, "run", status="running")
        answered = served.json(f"/v1/runs/{started[2]['run_id']}?wait=60")
        running.join()
        assert answered["status"] == "failed"
        assert served.json("/v1/counts")["runs"] == {"failed": 1}


def test_a_reader_that_keeps_up_is_told_of_much_that_is_committed_at_once(place: Worked) -> None:
    items = [
        {"task": {"target": "sums.py:add", "arguments": [number, 1], "priority": priority}}
        for priority in ("normal", "high")
        for number in range(200)
    ]
    with serving(place.played) as served, stream(served) as told:
        assert next(told)[0] == "hello"
        made = served.ask("POST", "/v1/jobs:batch", body=json.dumps({"items": items}).encode())
        jobs = {one["job_id"] for one in made.json["items"]}
        assert len(jobs) == len(items) > LATE_MAX
        seen = [next(told) for _ in items]
        assert {data["job_id"] for event, _, data in seen if event == "job"} == jobs
