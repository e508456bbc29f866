"""Opening and closing clients: reading takes no work, closing waits for it and says what is left."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from detent.errors import InvalidInput
from detent.kernel import Cancel, Claim, Grant, Job
from detent.sdk.client import Client
from detent.sdk.outcomes import Left, TaskCancelled
from detent.sdk.run import run as run_contract
from detent.store.sqlite import SqliteStore
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_home
from detent.workers import work_loop
from tests.runs.rig import eventually
from tests.sdk import work_functions as functions

__all__ = ["detent_clock", "detent_home"]

WORKS = """
import sys, time
from pathlib import Path
import detent

here = Path(__file__).parent

def job(number):
    with (here / "begun").open("a") as begun:
        begun.write(f"{number}\\n")
    while not (here / "gate").exists():
        time.sleep(0.01)
    return number

if __name__ == "__main__":
    with detent.Client(here / "home", workers=1) as client:
        handles = [client.submit(job, number) for number in range(5)]
        print(*(handle.job_id for handle in handles), flush=True)
        print([handle.result(60) for handle in handles], flush=True)
"""
READS = """
import sys
from pathlib import Path
import detent

with detent.Client(Path(__file__).parent / "home"{workers}) as client:
    for job_id in sys.argv[1:]:
        handle = client.handle(job_id)
        print(handle.status.value, handle.done())
    print(bool(client.close()))
"""


def interruptions(home: Path) -> list[int]:
    reader = SqliteStore.open_reader(home / "ledger.db")
    try:
        return [Job.decode(row.body).interruptions for row in reader.jobs()]
    finally:
        reader.close()


@pytest.mark.parametrize("workers", ["", ", workers=0"])
def test_a_script_that_reads_leaves_the_work_of_another_alone(tmp_path: Path, workers: str) -> None:
    """One script works, a second one looks at its jobs and closes: each job is begun once and none is interrupted.

    The one worker has one job; the others stay in the queue, where a process that has workers to spare finds them.
    """
    (tmp_path / "works.py").write_text(WORKS)
    (tmp_path / "reads.py").write_text(READS.format(workers=workers))
    working = subprocess.Popen([sys.executable, str(tmp_path / "works.py")], stdout=subprocess.PIPE, text=True)
    assert working.stdout is not None
    try:
        ids = working.stdout.readline().split()
        eventually((tmp_path / "begun").exists, "no job began")
        for _ in range(3):
            read = subprocess.run(
                [sys.executable, str(tmp_path / "reads.py"), *ids], capture_output=True, text=True, check=False
            )
            assert (read.stdout, read.stderr) == ("RUNNING False\n" + "QUEUED False\n" * 4 + "False\n", "")
        (tmp_path / "gate").touch()
        assert working.stdout.read() == "[0, 1, 2, 3, 4]\n"
        assert working.wait(60) == 0
    finally:
        working.kill()
        working.stdout.close()
    assert (tmp_path / "begun").read_text().split() == ["0", "1", "2", "3", "4"]
    assert interruptions(tmp_path / "home") == [0] * 5


@pytest.mark.parametrize("workers", [None, 0])
def test_a_client_that_reads_takes_no_leftover_work(detent_home: TemporaryHome, workers: int | None) -> None:
    """What a process left in the queue waits for one that has work to do, and needs no workers to be looked at."""
    with Client(detent_home.path, workers=0) as client:
        job_id = client.submit(functions.square, 3).job_id
    with Client(detent_home.path, workers=workers) as client:
        handle = client.handle(job_id)
        assert (handle.status.value, handle.done()) == ("QUEUED", False)
        assert client._work._pool is None
        with pytest.raises(TimeoutError):
            handle.result(0)
        assert (client._work._pool is None) is (workers == 0), "a caller waiting for a result takes part in the work"


def test_a_client_without_workers_leaves_its_work_to_others(detent_home: TemporaryHome) -> None:
    """`workers=0` submits and reads; results come from wherever there are workers."""
    with Client(detent_home.path, workers=0) as client:
        handle = client.submit(functions.square, 5)
        with pytest.raises(TimeoutError):
            handle.result(0.1)
        with Client(detent_home.path, workers=1):
            assert handle.result(60) == 25
        waiting = client.submit(functions.square, 6)
        assert client.close() == Left(queued=(waiting.job_id,))


@pytest.mark.parametrize("workers", [-1, 1025, True, "2"])
def test_a_number_of_workers_that_cannot_be_is_refused(detent_home: TemporaryHome, workers: int) -> None:
    with pytest.raises(InvalidInput, match="workers must be from 0 to 1024"):
        Client(detent_home.path, workers=workers)


def test_a_run_needs_workers(detent_home: TemporaryHome) -> None:
    """A run that nothing works on would never end."""
    with pytest.raises(InvalidInput, match="workers must be from 1 to 1024"):
        run_contract(functions.waiting_flow.contract("gate"), home=detent_home.path, workers=0)


def test_closing_waits_for_what_was_submitted(detent_home: TemporaryHome, tmp_path: Path) -> None:
    """Leaving the block is not the end of what runs, nor of what still waits for a worker."""
    marks = str(tmp_path / "marks")
    with Client(detent_home.path, workers=1) as client:
        handles = client.submit_many(functions.marked_slowly, [(marks,)] * 4)
    assert Path(marks).read_text() == "xxxx"
    assert [handle.done() for handle in handles] == [True] * 4
    assert interruptions(detent_home.path) == [0] * 4


def test_closing_has_an_end_and_says_what_it_left(
    detent_home: TemporaryHome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bounded: what runs is interrupted, and stays in the queue with what waits (X-163)."""
    marker = tmp_path / "pid"
    client = Client(detent_home.path, workers=1)
    running = client.submit(functions.forever, str(marker))
    eventually(lambda: marker.exists() and bool(marker.read_text()), "it did not begin")
    waiting = client.submit(functions.square, 3)
    with caplog.at_level(logging.WARNING, logger="detent.client"):
        left = client.close(timeout=0.1)
    assert left == Left(interrupted=(running.job_id,), queued=(waiting.job_id,))
    (said,) = caplog.messages
    assert f"1 interrupted job ({running.job_id}), 1 job in the queue ({waiting.job_id})" in said
    assert client.close() == Left(), "closing again does nothing"
    with Client(detent_home.path, workers=0) as other:
        assert not any(other.handle(one.job_id).done() for one in (running, waiting))
        assert other.handle(running.job_id).cancel()


@pytest.mark.parametrize("how", ["now", "exception"])
def test_closing_now_waits_for_nothing(
    detent_home: TemporaryHome, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`close(now=True)`, which is also how an exception leaves the block."""
    marker = tmp_path / "pid"
    client = Client(detent_home.path, workers=1)
    handle = client.submit(functions.forever, str(marker))
    eventually(lambda: marker.exists() and bool(marker.read_text()), "it did not begin")
    if how == "now":
        assert client.close(now=True) == Left(interrupted=(handle.job_id,))
    else:
        with pytest.raises(ZeroDivisionError), client:
            raise ZeroDivisionError
    assert not caplog.messages
    assert interruptions(detent_home.path) == [1]


def test_an_interrupt_while_closing_closes_at_once(
    detent_home: TemporaryHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C does not have to be pressed for a minute, and leaves no worker behind."""
    before = set(threading.enumerate())
    marker = tmp_path / "pid"
    client = Client(detent_home.path, workers=1)
    client.submit(functions.forever, str(marker))
    eventually(lambda: marker.exists() and bool(marker.read_text()), "it did not begin")

    def interrupted(_deadline: float | None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(client._tasks, "drain", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    assert set(threading.enumerate()) <= before


def test_a_job_that_ends_elsewhere_while_its_client_closes_does_not_disturb_it(
    detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first such end starts a thread that looks it up; closing at that very moment waits for it."""
    raised: list[BaseException] = []

    def close() -> None:
        try:
            client._tasks.close()
        except BaseException as exc:  # noqa: BLE001 - looked at below
            raised.append(exc)

    closing = threading.Thread(target=close)

    class Late(threading.Thread):
        def start(self) -> None:
            if self.name == "detent-tasks":
                closing.start()
                eventually(lambda: not closing.is_alive() or client._tasks._lock.locked(), "it did not close")
            super().start()

    with Client(detent_home.path, workers=0) as client:
        handle = client.submit(functions.square, 3)
        monkeypatch.setattr(threading, "Thread", Late)
        assert handle.cancel()
        closing.join()
    assert raised == []


def test_a_job_that_is_cancelled_on_its_way_to_a_worker_does_not_hold_the_client(
    detent_home: TemporaryHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-157: the cancellation is heard of between the lease and the beginning, long before any heartbeat is due."""
    config = detent_home.path / "config.toml"
    text = config.read_text()
    assert "ttl_ms = 30000" in text
    config.write_text(text.replace("ttl_ms = 30000", "ttl_ms = 30000000"))
    # After its first look the supervisor claims nothing by itself: what is submitted is leased by its submission.
    monkeypatch.setattr(work_loop, "LOOK_SECONDS", 3600.0)
    with Client(detent_home.path, workers=1) as client:
        claim_ahead = client._work.supervisor.claim_ahead
        hand_over = claim_ahead._hand_over

        def late(claim: Claim, grants: Sequence[Grant] | None) -> None:
            for grant in grants or ():
                client._work.session.ask([Cancel(0, "local", grant.job_id)])
            hand_over(claim, grants)

        monkeypatch.setattr(claim_ahead, "_hand_over", late)
        eventually(lambda: claim_ahead._vacant > 0, "no worker is free")
        handle = client.submit(functions.forever, str(tmp_path / "pid"))
        with pytest.raises(TaskCancelled):
            handle.result(60)
        assert not client.close(timeout=None)
