"""A server that was stopped for longer than a lease and goes on: workers that were alive meanwhile are heard before leases run out."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.kernel import Grant
from tests.serve.elsewhere import HandWorker, ended, remote_worker, task
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import Served, start

REMOTE_MS = 12_000
LEASES = f"""
[leases.default]
ttl_ms = 600
heartbeat_ms = 600

[leases.remote]
ttl_ms = {REMOTE_MS}
heartbeat_ms = {REMOTE_MS}
"""


@pytest.fixture
def laboured(tmp_path: Path) -> Laboured:
    (tmp_path / "server").mkdir()
    made = project(tmp_path / "server")
    settings = made.home.path / "config.toml"
    before, _, after = settings.read_text().partition("[leases.default]\n")
    rest = after.partition("\n[")
    settings.write_text(f"{before}{LEASES}{rest[1]}{rest[2]}")
    return made


@pytest.fixture
def served(laboured: Laboured) -> Iterator[Served]:
    server = start(laboured.home.path, laboured.environment, "--project", str(laboured.directory))
    yield server
    server.stop()


@pytest.mark.door("setting: [leases.remote]")
def test_a_server_that_was_stopped_hears_workers_before_it_ends_their_leases(
    served: Served, laboured: Laboured, tmp_path: Path
) -> None:
    """X-180: a result that waited at its worker counts, and so does a worker that pauses between two tries."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tasks.py").write_text((laboured.directory / "tasks.py").read_text())
    hand = HandWorker(served, tmp_path / "hand")
    with remote_worker(served, elsewhere, "--slots", "1") as worker:
        finished = task(served, "tasks:wait", "finished", str(laboured.directory))
        eventually(lambda: laboured.begun() == ["finished"], "the job runs")
        running = task(served, "tasks:note", "running", str(laboured.directory))
        (told,) = hand.turn(wanted=1, wait_ms=20_000).grants
        grant = Grant(*told.grant)
        assert (grant.job_id, told.lease_ms) == (running, REMOTE_MS)
        served.process.send_signal(signal.SIGSTOP)
        over_at = time.monotonic() + REMOTE_MS / 1_000
        laboured.go()
        eventually(lambda: laboured.done() == ["finished"] and time.monotonic() > over_at, "both leases are over")
        served.process.send_signal(signal.SIGCONT)
        time.sleep(1)  # Longer than the default lease, and a fraction of the one in question.
        answer = hand.turn(beats=[(running, grant.lease_id)])
        assert answer.revoked == ()
        assert dict(hand.turn(reports=(hand.report(grant),)).results) == {grant.lease_id: "OK"}
        for job_id in (finished, running):
            found = ended(served, job_id)
            assert (found["status"], found["attempt"]) == ("succeeded", 1)
        assert laboured.begun() == ["finished"]
        assert worker.end() == 0
    hand.http.close()
