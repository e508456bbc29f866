"""Quotas, leases and backoffs that Python names: on a task, on a submission, and what the ledger says of the job then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.canon import decode
from detent.errors import InvalidInput
from detent.inspect.replay import replay_home
from detent.kernel import Job, KernelConfig
from detent.owner.recovery import recover
from detent.scheduling import Scheduler
from detent.sdk.client import Client, Handle
from detent.sdk.outcomes import TaskFailed
from detent.store.sqlite import SqliteStore
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home
from tests.runs.rig import eventually
from tests.sdk import work_functions as functions

__all__ = ["detent_home"]

SETTINGS = """
[quotas.tiny]
cpu_time_budget_ms = 1
[quotas.patient]
cpu_time_budget_ms = 60000
[backoffs.slow]
delays_ms = [3600000]
[backoffs.now]
delays_ms = [0]
[leases.long]
ttl_ms = 7200000
heartbeat_ms = 600000
[leases.short]
ttl_ms = 600
heartbeat_ms = 300
"""


@pytest.fixture
def home(detent_home: TemporaryHome) -> Iterator[TemporaryHome]:
    """A home with policies, whose history is verified and replayed when the test is over."""
    path = detent_home.path / "config.toml"
    path.write_text(path.read_text() + SETTINGS)
    yield detent_home
    assert detent_home.verify().ok
    assert replay_home(detent_home.home).ok


@pytest.fixture
def client(home: TemporaryHome) -> Iterator[Client]:
    """A client with a real worker; what it left is left to the next."""
    with closing(Client(home.path, workers=1)) as made:
        yield made
        made.close(now=True)


def job_of(client: Client, handle: Handle) -> Job:
    """The job as the ledger has it now."""
    reader = SqliteStore.open_reader(client.home / "ledger.db")
    try:
        row = reader.job(handle.job_id)
    finally:
        reader.close()
    assert row is not None
    return Job.decode(row.body)


def lease_expiry(client: Client, handle: Handle) -> int:
    """The end of a job's lease, by its heartbeats: those leave no trace in its row."""
    reader = SqliteStore.open_reader(client.home / "ledger.db")
    try:
        with reader.snapshot() as snapshot:
            kernel = recover(snapshot, 0, KernelConfig(), make_queue=Scheduler).kernel
    finally:
        reader.close()
    return kernel.jobs[handle.job_id].lease_expiry or 0


def moved_at(client: Client, handle: Handle, to_state: str) -> int:
    """The tick at which a job last went into a state."""
    reader = SqliteStore.open_reader(client.home / "ledger.db")
    try:
        bodies: list[Any] = [decode(record.body) for record in reader.records_of_job(handle.job_id)]
    finally:
        reader.close()
    return int([body["tick"] for body in bodies if body.get("to_state") == to_state][-1])


def test_a_task_names_a_quota_that_ends_it(client: Client) -> None:
    """PIPE-099, PIPE-103"""
    with pytest.raises(TaskFailed) as caught:
        client.submit(functions.frugal, 230).result(timeout=60)
    assert caught.value.details["code"] == "QUOTA_CPU_TIME"
    assert caught.value.details["category"] == "RESOURCE_LIMIT"


def test_a_submission_names_another_quota_than_its_task(client: Client) -> None:
    """PIPE-099"""
    assert client.submit(functions.frugal, 230, quota="patient").result(timeout=60) == 230
    (handle,) = client.submit_many(functions.frugal, [(30,)], quota="patient")
    assert handle.result(timeout=60) == 30


def test_a_flow_takes_the_quota_of_its_tasks(home: TemporaryHome) -> None:
    """PIPE-099"""

    @detent.flow
    def careful() -> int:
        return functions.frugal(230)

    run = detent.run(careful.contract(), home=home.path, workers=1)
    (step,) = run.steps
    assert step.state == "failed"
    assert "it used more CPU time than its quota allows" in step.message


def test_the_named_backoff_says_how_long_a_retry_waits(client: Client) -> None:
    """PIPE-092, PIPE-093, PIPE-094, X-041: an hour, to the tick, and not the second that is the default."""
    handle = client.submit(functions.unlucky, backoff="slow")
    eventually(lambda: job_of(client, handle).state == "RETRYING", "it does not wait for its retry")
    job = job_of(client, handle)
    assert (job.backoff_schedule_id, job.ready_tick) == ("slow", moved_at(client, handle, "RETRYING") + 3_600_000)


def test_the_named_lease_says_how_long_a_worker_may_be_silent(client: Client, tmp_path: Path) -> None:
    """PIPE-086, PIPE-088: it ends so many ticks after the job began to run."""
    handle = client.submit(functions.forever, str(tmp_path / "running"), lease="long")
    eventually((tmp_path / "running").exists, "it does not run")
    job = job_of(client, handle)
    assert (job.lease_policy_id, job.lease_expiry) == ("long", moved_at(client, handle, "RUNNING") + 7_200_000)


def test_a_short_lease_is_kept_alive_by_its_own_heartbeats(client: Client, tmp_path: Path) -> None:
    """PIPE-073, PIPE-086: a heartbeat extends it by less than it lasts at first; no attempt is lost over that."""
    handle = client.submit(functions.forever, str(tmp_path / "running"), lease="short")
    eventually((tmp_path / "running").exists, "it does not run")
    begun = moved_at(client, handle, "RUNNING")
    eventually(lambda: lease_expiry(client, handle) > begun + 3 * 600, "its lease is not extended")
    assert job_of(client, handle).attempt_id == 0


@pytest.mark.parametrize("kind", ["quota", "lease", "backoff"])
def test_an_unknown_name_is_refused_when_it_is_submitted(client: Client, kind: str) -> None:
    """PIPE-086, PIPE-092, PIPE-099: with the settings' file and the names that there are."""
    with pytest.raises(InvalidInput, match=f"{kind} 'shrot' is not configured in {client.home}/config.toml") as caught:
        client.submit_call(functions.same, [1], **{kind: "shrot"})  # type: ignore[arg-type]
    assert caught.value.code == "POLICY_UNKNOWN"
    assert "known: default, " in str(caught.value.hint)


def test_what_cannot_name_a_policy_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidInput, match="quota='two words' is not allowed"):
        detent.task(quota="two words")(os.getpid)
    with pytest.raises(InvalidInput, match="has no option 'qouta'") as caught:
        detent.task(qouta="small")(os.getpid)  # type: ignore[call-overload]
    assert caught.value.hint == "did you mean quota=?"


def test_an_ordered_run_refuses_a_task_with_a_quota(home: TemporaryHome) -> None:
    with pytest.raises(InvalidInput, match="names a quota") as caught:
        list(detent.ordered_map([1, 2], functions.frugal, home=home.path))
    assert "[tenants.local]" in str(caught.value.hint)


def test_work_under_way_with_another_quota_is_not_joined(client: Client, tmp_path: Path) -> None:
    """PIPE-099: what may be used decides how it ends."""
    first = client.submit(functions.forever, str(tmp_path / "running"), reuse=True)
    second = client.submit(functions.forever, str(tmp_path / "running"), reuse=True, quota="patient")
    assert first.job_id != second.job_id


def positions(client: Client, handle: Handle) -> dict[str, list[int]]:
    """Where in the ledger a job went into each state."""
    reader = SqliteStore.open_reader(client.home / "ledger.db")
    found: dict[str, list[int]] = {}
    try:
        for record in reader.records_of_job(handle.job_id):
            body: Any = decode(record.body)
            found.setdefault(str(body.get("to_state")), []).append(record.position)
    finally:
        reader.close()
    return found


def test_a_retry_waits_for_room_in_a_full_queue_and_is_never_dropped(home: TemporaryHome, tmp_path: Path) -> None:
    """PIPE-096: its delay is over at once, and the one place in the queue is taken."""
    settings = home.path / "config.toml"
    settings.write_text(settings.read_text().replace("capacity_per_class = 256", "capacity_per_class = 1"))
    os.mkfifo(gate := tmp_path / "gate")
    with Client(home.path, workers=1) as client:
        first = client.submit(functions.stumble, str(tmp_path / "running"), str(gate))
        eventually((tmp_path / "running").exists, "it does not run")
        second = client.submit(functions.square, 3)
        gate.open("wb").close()
        assert (first.result(timeout=60), second.result(timeout=60)) == (2, 9)
        (queued,) = positions(client, first)["QUEUED"]
        assert positions(client, first)["RETRYING"][0] < positions(client, second)["RUNNING"][0] < queued


WORKER = """
import sys, detent

with detent.Client(sys.argv[1], workers=1) as client:
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_job_without_retries_fails_when_its_lease_runs_out(home: TemporaryHome, tmp_path: Path) -> None:
    """PIPE-089..PIPE-091: its worker stands still, and sends no heartbeat."""
    with Client(home.path, workers=0) as client:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(home.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **home.environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"open\n"
            task = detent.task(retries=0)(functions.forever)
            handle = client.submit(task, str(tmp_path / "running"), lease="short")
            eventually((tmp_path / "running").exists, "it does not run")
            os.kill(worker.pid, signal.SIGSTOP)
            failure = handle.exception(timeout=60)
            assert failure is not None
            assert failure.details["code"] == "LEASE_EXPIRED"
            assert job_of(client, handle).state == "FAILED"
        finally:
            worker.kill()
            worker.communicate()
