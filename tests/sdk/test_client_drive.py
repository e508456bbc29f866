"""Callers that wait take the supervisor's steps themselves; nothing is lost when they stop, fail or are interrupted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.sdk.client import Client
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_home
from detent.workers.bench import Attempted, Closing
from detent.workers.supervisor import Supervisor
from tests.runs.rig import WAIT_SECONDS, eventually
from tests.sdk import work_functions as functions
from tests.sdk.test_client_queue import small_queue

__all__ = ["detent_clock", "detent_home"]


@pytest.fixture
def idle_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor whose own thread takes no step: only callers do."""
    monkeypatch.setattr(Supervisor, "_run", lambda supervisor: supervisor._stopping.wait())


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own answer to SIGINT, which a test started in the background of a shell does not have."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def batches(client: Client) -> int:
    return client._work.backend.reader.head(0).size


def epoch(client: Client) -> int:
    return client._work.backend.reader.head(0).epoch


def on_close(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
    """Have something done within a step, after the commit of what has finished and before callers are told."""
    close = Supervisor._close

    def closed(supervisor: Supervisor, closing: Sequence[Closing], attempted: Sequence[Attempted | None]) -> None:
        before()
        close(supervisor, closing, attempted)

    monkeypatch.setattr(Supervisor, "_close", closed)


@pytest.mark.usefixtures("idle_thread")
def test_a_caller_that_waits_for_a_result_does_the_supervisors_work(detent_home: TemporaryHome) -> None:
    with Client(detent_home.path, workers=2) as client:
        assert client.submit(functions.square, 3).result(WAIT_SECONDS) == 9
        assert [client.submit(functions.square, x).result(WAIT_SECONDS) for x in range(20)] == [
            x * x for x in range(20)
        ]
        assert list(client.map(functions.square, range(300))) == [x * x for x in range(300)]
    assert detent_home.verify().ok


@pytest.mark.usefixtures("idle_thread")
def test_a_caller_that_waits_for_room_makes_it(detent_home: TemporaryHome) -> None:
    """X-187: with no other thread to empty it, a full queue of two must not keep `submit` and `map` waiting for ever."""
    small_queue(detent_home, "reject")
    with Client(detent_home.path, workers=1) as client:
        handles = [client.submit(functions.square, x) for x in range(30)]
        assert [handle.result(WAIT_SECONDS) for handle in handles] == [x * x for x in range(30)]
        assert list(client.map(functions.square, range(30))) == [x * x for x in range(30)]
    assert detent_home.verify().ok


@pytest.mark.usefixtures("idle_thread")
def test_closing_a_client_does_what_was_submitted(detent_home: TemporaryHome) -> None:
    with Client(detent_home.path, workers=2) as client:
        handles = client.submit_many(functions.square, [(x,) for x in range(50)])
        left = client.close()
    assert not left
    assert all(handle.done() for handle in handles)


@pytest.mark.usefixtures("idle_thread")
def test_a_run_does_the_supervisors_work_while_it_waits(detent_home: TemporaryHome) -> None:
    run = detent.run(functions.counted_numbers.contract(5), home=detent_home.path, workers=2)
    assert run.ok


def test_a_submission_carries_what_has_finished(detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred submissions in a row hardly one end of an earlier job has a commit of its own; else there were two for each."""
    with Client(detent_home.path, workers=2) as client:
        assert client.submit(functions.square, 1).result(WAIT_SECONDS) == 1
        with monkeypatch.context() as patched:
            patched.setattr("detent.workers.drive.LINGER_SECONDS", WAIT_SECONDS)  # The thread stays away for the test.
            client.submit(functions.square, 1).result(WAIT_SECONDS)
            before = batches(client)
            handles = [client.submit(functions.square, x) for x in range(100)]
            assert sum(handle.done() for handle in handles) > 50
            assert batches(client) <= before + 120
            assert [handle.result(WAIT_SECONDS) for handle in handles] == [x * x for x in range(100)]
    assert detent_home.verify().ok


@pytest.mark.usefixtures("idle_thread")
def test_the_ends_of_jobs_submitted_one_by_one_share_commits(
    detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result waits a moment for others while more is being submitted; with a long moment, one commit has nearly all of them."""
    with Client(detent_home.path, workers=2) as client:
        assert client.submit(functions.square, 1).result(WAIT_SECONDS) == 1
        monkeypatch.setattr("detent.workers.work_loop.GATHER_SECONDS", WAIT_SECONDS)
        handles = [client.submit(functions.square, x) for x in range(40)]
        assert not any(handle.done() for handle in handles)
        assert [handle.result(WAIT_SECONDS) for handle in handles] == [x * x for x in range(40)]
        ids = {handle.job_id for handle in handles}
        last = {
            row.job_id: row.batch_no
            for row in client._work.backend.reader.records(0)
            if row.job_id in ids and row.kind == "transition"
        }
        assert len(last) == 40
        assert len(set(last.values())) <= 4
    assert detent_home.verify().ok


@pytest.mark.usefixtures("idle_thread")
def test_a_caller_that_drives_comes_back_when_its_time_is_over(detent_home: TemporaryHome, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Client(detent_home.path, workers=1) as client:
        handle = client.submit(functions.waits_for, str(gate))
        for _ in range(3):
            with pytest.raises(TimeoutError):
                handle.result(0.05)
        gate.touch()
        handle.result(WAIT_SECONDS)


def test_work_goes_on_when_a_caller_stops_driving(detent_home: TemporaryHome, tmp_path: Path) -> None:
    """The supervisor's own thread comes back: no caller waits for the end of this job."""
    gate = tmp_path / "gate"
    with Client(detent_home.path, workers=1) as client:
        handle = client.submit(functions.waits_for, str(gate))
        with pytest.raises(TimeoutError):
            handle.result(0.05)
        gate.touch()
        eventually(handle.done, "no thread took the step that ends it")


@pytest.mark.usefixtures("idle_thread")
def test_leases_are_extended_by_a_caller_that_drives(
    detent_home: TemporaryHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it only submits: a lease must not run out because callers keep the supervisor's thread away."""
    gate = tmp_path / "gate"
    beats: list[int] = []
    beat = Supervisor._beat

    def counted(supervisor: Supervisor) -> None:
        beats.append(supervisor.busy)
        beat(supervisor)

    monkeypatch.setattr(Supervisor, "_beat", counted)
    with Client(detent_home.path, workers=2) as client:
        handle = client.submit(functions.waits_for, str(gate))
        with pytest.raises(TimeoutError):
            handle.result(0.01)
        for held in client._work.supervisor._held.values():
            held.beat_at = 0.0
        client._work.supervisor._next_beat = 0.0
        before = len(beats)
        client.submit(functions.square, 1)
        assert len(beats) == before + 1
        assert beats[-1] >= 1
        gate.touch()
        handle.result(WAIT_SECONDS)


@pytest.mark.usefixtures("idle_thread", "ctrl_c")
def test_ctrl_c_ends_the_wait_and_no_step(detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that the caller was in is finished first: the job has ended, and the owner has not."""
    pending = [signal.SIGINT]
    on_close(monkeypatch, lambda: signal.raise_signal(pending.pop()) if pending else None)
    with Client(detent_home.path, workers=1) as client:
        before = epoch(client)
        handle = client.submit(functions.square, 3)
        with pytest.raises(KeyboardInterrupt):
            handle.result(WAIT_SECONDS)
        assert handle.done()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert [client.submit(functions.square, x).result(WAIT_SECONDS) for x in range(5)] == [0, 1, 4, 9, 16]
        assert epoch(client) == before
    assert detent_home.verify().ok


@pytest.mark.usefixtures("idle_thread", "ctrl_c")
def test_ctrl_c_ends_the_sleep_of_a_caller_that_drives(detent_home: TemporaryHome, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Client(detent_home.path, workers=1) as client:
        handle = client.submit(functions.waits_for, str(gate))
        interrupt = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            handle.result(WAIT_SECONDS)
        interrupt.join()
        gate.touch()
        handle.result(WAIT_SECONDS)


def test_the_handlers_of_other_signals_wait_for_the_step_too(
    detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bool] = []
    pending = [signal.SIGUSR1]
    with Client(detent_home.path, workers=1) as client:
        handle = client.submit(functions.square, 3)
        on_close(monkeypatch, lambda: signal.raise_signal(pending.pop()) if pending and _is_main() else None)
        former = signal.signal(signal.SIGUSR1, lambda *_: heard.append(handle.done()))
        try:
            while pending:
                handle.result(WAIT_SECONDS)
                handle = client.submit(functions.square, 3)
            assert heard == [True]
        finally:
            signal.signal(signal.SIGUSR1, former)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def test_many_threads_may_wait_at_once(detent_home: TemporaryHome) -> None:
    results: dict[int, list[Any]] = {}

    def call(name: int) -> None:
        results[name] = [client.submit(functions.same, [name, x]).result(WAIT_SECONDS) for x in range(25)]

    with Client(detent_home.path, workers=2) as client:
        threads = [threading.Thread(target=call, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {name: [[name, x] for x in range(25)] for name in range(6)}
    assert detent_home.verify().ok


def test_a_step_that_fails_in_a_caller_ends_the_supervisor_for_all(
    detent_home: TemporaryHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(detent_home.path, workers=1) as client:
        handle = client.submit(functions.waits_for, str(tmp_path / "gate"))

        def broken(_supervisor: Supervisor) -> None:
            raise RuntimeError("the executor is gone")

        with monkeypatch.context() as patched:
            patched.setattr(Supervisor, "_gather", broken)
            for _ in range(2):
                with pytest.raises(RuntimeError, match="the executor is gone"):
                    handle.result(WAIT_SECONDS)
        client.close(now=True)


def test_a_forked_child_never_drives(detent_home: TemporaryHome, tmp_path: Path) -> None:
    """Its parent's workers are not its own, and the locks of the parent's threads stay as they were."""
    gate = tmp_path / "gate"
    with Client(detent_home.path, workers=1) as client:
        handle = client.submit(functions.waits_for, str(gate))
        child = os.fork()
        if not child:
            status = 1
            try:
                handle.result(0.05)
            except TimeoutError:
                status = 7
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        gate.touch()
        handle.result(WAIT_SECONDS)
