"""News of a server: they come by a stream that is resumed, and where none comes through that is known."""

from __future__ import annotations

import time
from collections.abc import Callable

from detent.remote.events import Events
from tests.remote.conftest import Connected
from tests.serve.toxic import Fault

TASK = {"task": {"target": "tasks:none"}}


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def calm(events: Events) -> None:
    """Have everything told that has happened so far."""
    until(lambda: events.is_live, "the stream is open")
    while events.wait(0.5):
        pass


def test_what_happens_wakes_a_caller_that_waits(connected: Connected) -> None:
    http = connected.http(patience=30)
    with Events(http, ["jobs"]) as events:
        calm(events)
        http.post("/v1/jobs", TASK)
        assert events.wait(120)


def test_a_stream_that_was_cut_is_resumed_where_it_ended(connected: Connected) -> None:
    http = connected.http(direct=True, patience=30)
    with Events(connected.http(patience=30), ["jobs"]) as events:
        calm(events)
        http.post("/v1/jobs", TASK)
        assert events.wait(120)
        calm(events)
        connected.proxy.refuses = True
        connected.proxy.cut_all()
        until(lambda: not events.is_live, "the cut is noticed")
        assert events.wait(120), "a caller that waits learns that the stream is gone"
        http.post("/v1/jobs", TASK)
        connected.proxy.refuses = False
        until(lambda: events.is_live, "it is open again")
        assert events.wait(120), "what happened meanwhile is told"


def test_a_stream_that_is_held_back_is_not_relied_on(connected: Connected) -> None:
    connected.proxy.fail(Fault.STALL, None)
    with Events(connected.http(), ["jobs"]) as events:
        assert not events.wait(1.0)
        assert not events.is_live


def test_a_server_that_refuses_a_stream_is_not_relied_on(connected: Connected) -> None:
    with Events(connected.http(), ["nonsense"]) as events:
        assert not events.wait(1.0)
        assert not events.is_live
