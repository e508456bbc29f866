"""The parts that decide without a process: how an end is read, where text is cut, what is harmless to say."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.executor.plain import telling, verdict, wire
from detent.executor.plain.capture import cut
from detent.jobs.status import ErrorCategory, code_fault
from detent.jobs.work import CANCELLED
from tests.executor.plain.rig import assignment

TASK = assignment(7, "m:f", wall_ms=5)


@pytest.mark.parametrize(
    ("status", "code", "lost"),
    [
        (signal.SIGKILL, "WORKER_LOST", True),
        (signal.SIGTERM, "WORKER_LOST", True),
        (signal.SIGSEGV | 0x80, "PROCESS_CRASHED", False),
        (signal.SIGSYS, "PROCESS_CRASHED", False),
        (0, "PROCESS_EXITED", False),
        (9 << 8, "PROCESS_EXITED", False),
    ],
)
def test_an_end_is_read_from_the_wait_status(status: int, code: str, lost: bool) -> None:
    """X-163"""
    done = verdict.ended(TASK, verdict.Ended(status=status), "w", over_time=False)
    assert done.failure is not None
    assert (done.failure.code, done.lost, done.ok) == (code, lost, False)
    assert code_fault(done.failure.code, ErrorCategory(done.failure.category)) is None


def test_an_end_of_our_own_doing_is_the_limit_or_the_cancellation() -> None:
    end = verdict.Ended(status=signal.SIGKILL, stopped=True, started_us=1_000_000, ended_us=3_000_000)
    over = verdict.ended(TASK, end, "w", over_time=True)
    assert over.failure is not None
    assert (over.failure.category, over.failure.code, over.usage.wall_ms) == ("RESOURCE_LIMIT", "LIMIT_WALL", 2000)
    ended = verdict.cancelled(verdict.ended(TASK, end, "w", over_time=False))
    assert (ended.status, ended.failure, ended.lost) == (CANCELLED, None, False)


def test_a_worker_that_is_killed_while_it_is_told_to_stop_is_cancelled() -> None:
    done = verdict.cancelled(verdict.ended(TASK, verdict.Ended(status=signal.SIGKILL), "w", over_time=False))
    assert (done.status, done.failure, done.lost) == (CANCELLED, None, False)


def test_an_own_failure_stands_beside_the_cancellation() -> None:
    done = verdict.cancelled(verdict.ended(TASK, verdict.Ended(status=9 << 8), "w", over_time=False))
    assert done.failure is not None
    assert (done.status, done.failure.code) == ("FAILED", "PROCESS_EXITED")


@given(st.text(min_size=1), st.integers(0, 12))
def test_text_is_cut_between_characters(text: str, size: int) -> None:
    """X-147"""
    data = text.encode("utf-8", "replace")
    kept = cut(data[:size])
    assert data.startswith(kept)
    assert len(data[:size]) - len(kept) < 4
    kept.decode()


@given(st.text(), st.integers(3, 30))
def test_a_bounded_text_keeps_to_its_bytes(text: str, size: int) -> None:
    assert len(telling.bounded(text, size).encode()) <= size


def test_only_messages_that_run_no_user_code_are_quick() -> None:
    class Evil(ValueError):
        def __str__(self) -> str:
            raise AssertionError

    class Argument:
        def __repr__(self) -> str:
            raise AssertionError

        __str__ = __repr__

    assert telling.quick_message(ValueError("a")) == "a"
    assert telling.quick_message(KeyError("a")) == "'a'"
    assert telling.quick_message(ValueError(1 << 20_000)) == telling.NO_MESSAGE
    for exc in (Evil("a"), ValueError(Argument()), OSError(2, "x", Argument()), ExceptionGroup("g", [Evil()])):
        assert telling.quick_message(exc) is None


@given(
    st.integers(0, 2**63 - 1),
    st.binary(max_size=50),
    st.lists(st.tuples(st.text(max_size=5), st.just(False), st.binary()), max_size=4),
)
def test_a_task_is_read_as_it_was_written(number: int, data: bytes, values: list[tuple[str, bool, bytes]]) -> None:
    values = [(digest.encode("utf-8", "replace").decode(), is_path, value) for digest, is_path, value in values]
    message = wire.write_task(number, b"8 bytes.", 3, data, data[::-1], b"[]", values)
    read = wire.read_task(message)
    assert (read.number, read.wall_ms, read.spec, read.context, read.arguments) == (number, 3, data, data[::-1], b"[]")
    assert read.token == b"8 bytes."
    assert wire.SHORT.unpack_from(message) == (wire.TASK, number)
    assert wire.read_values(read.values) == {digest: value for digest, _, value in values}


@given(st.lists(st.integers(0, 2**63), min_size=8, max_size=8), st.lists(st.binary(max_size=9), min_size=5, max_size=5))
def test_what_is_done_is_read_as_it_was_written(numbers: list[int], parts: list[bytes]) -> None:
    numbers[1] %= 256
    message = wire.write_done(tuple(numbers), tuple(parts))  # type: ignore[arg-type]
    assert tuple(wire.read_done(message)) == (*numbers, *parts)
