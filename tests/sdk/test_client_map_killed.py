"""A process that is killed in the middle of a map: what it had submitted is finished by the next client, each element once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from detent.inspect.replay import replay_home
from detent.kernel import Job
from detent.kernel.table import TERMINAL
from detent.sdk.client import Client
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_home
from tests.runs.rig import eventually

__all__ = ["detent_clock", "detent_home"]

SCRIPT = """
import pathlib, sys, time
import detent

def mark(x):
    with open("marks", "a") as file:
        file.write(f"{x}\\n")
    time.sleep(0.01)
    return x * 10

if __name__ == "__main__":
    with detent.Client(sys.argv[1], workers=2) as client:
        for value in client.map(mark, range(200), chunk=int(sys.argv[2])):
            print(value, flush=True)
"""


@pytest.mark.parametrize("chunk", [5, 40])
def test_the_next_client_finishes_what_a_killed_one_had_submitted(
    detent_home: TemporaryHome, tmp_path: Path, chunk: int
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "killed.py").write_text(SCRIPT)
    home, marks = detent_home.path, project / "marks"
    with subprocess.Popen(
        [sys.executable, "killed.py", str(home), str(chunk)],
        cwd=project,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        eventually(lambda: marks.exists() and marks.read_text().count("\n") >= 60, "marks of 60 elements")
        os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        told = process.stdout.read().splitlines()
    assert told == [b"%d" % (x * 10) for x in range(len(told))]
    with Client(home, workers=2) as client:
        backend = client._work.backend
        eventually(lambda: all(row.state in TERMINAL for row in backend.reader.jobs()), "the end of all jobs")
        found: Counter[int] = Counter()
        for row in backend.reader.jobs():
            job = Job.decode(row.body)
            assert job.state == "SUCCEEDED"
            order = backend.submitted([job.job_id])[job.job_id].order
            _, report = backend.array_report(job.job_id) or (None, None)
            assert report is not None
            for place in range(len(order.elements)):
                own = report.of_element(place)
                assert own is not None
                given = order.of_element(place).call.keywords["x"]
                assert own.result.value == b"%d" % (given * 10)
                found[given] += 1
    assert found == Counter(range(200))
    # What was recorded is not computed again; what the workers had in hand is.
    called = Counter(map(int, marks.read_text().split()))
    assert called.keys() == set(range(200))
    assert [called[x] for x in range(len(told))] == [1] * len(told)
    assert max(called.values()) <= 2
    assert detent_home.verify().ok
    assert replay_home(detent_home.home).ok
