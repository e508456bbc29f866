"""`detent.context()`: inside a task it tells of it, outside there is none."""

from __future__ import annotations

import socket

import pytest

import detent
from detent.errors import InvalidInput
from detent.executor.plain import current, wire


def test_outside_a_task_there_is_no_context() -> None:
    with pytest.raises(InvalidInput, match="outside a task") as caught:
        detent.context()
    assert caught.value.hint is not None


def test_inside_a_task_it_names_the_work_and_reports_progress() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shared = memoryview(bytearray(wire.SHARED_BYTES)).cast("Q")
    current.begin(
        current.Running(7, wire.context_bytes("job", None, 2, "token", "step", 0, "00-a-b-01"), theirs, shared)
    )
    try:
        now = detent.context()
        assert (now.job_id, now.run_id, now.attempt, now.idempotency_token) == ("job", None, 2, "token")
        assert (now.step, now.index, now.traceparent, now.cancelled) == ("step", 0, "00-a-b-01", False)
        now.progress(0.5, "half")
        assert wire.read_progress(ours.recv(1000)) == (7, 0.5, "half")
        for wrong in (-0.1, 1.1, float("nan"), "1", True):
            with pytest.raises(InvalidInput, match="from 0 to 1"):
                now.progress(wrong)  # type: ignore[arg-type]
        shared[wire.CANCEL] = 8
        assert now.cancelled
    finally:
        current.end()
        ours.close()
        theirs.close()


def test_progress_never_waits_for_a_reader() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    running = current.Running(1, b"", theirs, memoryview(bytearray(8)).cast("Q"))
    for _ in range(5000):
        running.progress(1, "x" * 400)
    ours.close()
    running.progress(1, "to nobody")
    theirs.close()
