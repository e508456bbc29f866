"""`Client.submit(flow)` begins a run of that flow: recorded at once, driven here, taken up after a crash."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import detent
from detent.errors import InvalidInput
from detent.sdk.client import Client
from detent.sdk.outcomes import Left
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_home
from tests.runs.rig import eventually
from tests.sdk import work_functions as functions

__all__ = ["detent_clock", "detent_home"]

SCRIPT = """
import sys, time
from pathlib import Path
import detent

here = Path(__file__).parent

@detent.task
def first(x):
    with (here / "begun").open("a") as begun:
        begun.write("first\\n")
    return x + 1

@detent.task
def second(x):
    with (here / "begun").open("a") as begun:
        begun.write("second\\n")
    while not (here / "gate").exists():
        time.sleep(0.01)
    return x * 10

@detent.flow
def both(x):
    return second(first(x))

if __name__ == "__main__":
    with detent.Client(here / "home", workers=1) as client:
        run = client.submit(both, 4)
        print(run.run_id, run.status, flush=True)
        print(run.result(60), run.status, run.deduplicated, flush=True)
"""


def shown(home: Path, run_id: str) -> dict[str, object]:
    command = [sys.executable, "-m", "detent", "show", run_id, "--home", str(home), "-o", "json"]
    found: dict[str, object] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def test_a_flow_that_is_submitted_is_a_run(detent_home: TemporaryHome) -> None:
    """X-190: `submit` knows a flow from a function, and its run is one like any other."""
    with Client(detent_home.path, workers=2) as client:
        handle = client.submit(functions.counted_numbers, 3)
        assert handle.result(60) == [0, 1, 4]
        assert (handle.status, handle.done(), handle.exception(), handle.deduplicated) == (
            "succeeded",
            True,
            None,
            False,
        )
        assert not handle.cancel()
        again = client.submit(functions.counted_numbers, 3)
        assert again.result(60) == [0, 1, 4]
        assert {step.state for step in again.run().steps} == {"reused"}, "flows reuse"
    assert shown(detent_home.path, handle.run_id)["status"] == "succeeded"
    assert detent_home.verify().ok


def test_the_same_submission_takes_up_a_run_that_was_killed(tmp_path: Path) -> None:
    """X-174: durable when `submit` returns; what was done is not done again."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    killed = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    run_id, status = killed.stdout.readline().split()
    assert status == "running"
    begun = tmp_path / "begun"
    eventually(lambda: begun.exists() and "second" in begun.read_text(), "the second step did not begin")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    (tmp_path / "gate").touch()
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{run_id} running\n50 succeeded True\n", "")
    assert begun.read_text().split() == ["first", "second", "second"]


def test_a_run_can_be_cancelled(detent_home: TemporaryHome, tmp_path: Path) -> None:
    with Client(detent_home.path, workers=1) as client:
        handle = client.submit(functions.waiting_flow, str(tmp_path / "gate"))
        with pytest.raises(TimeoutError, match=handle.run_id):
            handle.result(0)
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
            handle.result("10ms")
        assert handle.cancel()
        assert isinstance(handle.exception(60), detent.RunFailed)
        assert handle.status == "cancelled"


def test_a_failed_step_is_told(detent_home: TemporaryHome) -> None:
    with Client(detent_home.path, workers=1) as client:
        handle = client.submit(functions.failing_flow)
        with pytest.raises(detent.RunFailed, match="ValueError: no luck"):
            handle.result(60)


def test_closing_leaves_an_unfinished_run_to_be_taken_up(detent_home: TemporaryHome, tmp_path: Path) -> None:
    """Left as it stands, not cancelled; the same submission goes on with it."""
    gate = tmp_path / "gate"
    client = Client(detent_home.path, workers=1)
    handle = client.submit(functions.waiting_flow, str(gate))
    left = client.close(timeout=0)
    assert left.runs == (handle.run_id,)
    assert handle.status == "stopped"
    gate.touch()
    with Client(detent_home.path, workers=1) as other:
        again = other.submit(functions.waiting_flow, str(gate))
        assert (again.run_id, again.deduplicated) == (handle.run_id, True)
        assert again.result(60) == str(gate)
        assert other.close() == Left()


def test_a_client_without_workers_drives_a_run_that_others_work_on(detent_home: TemporaryHome) -> None:
    with Client(detent_home.path, workers=0) as client, Client(detent_home.path, workers=1):
        assert client.submit(functions.counted_numbers, 2).result(60) == [0, 1]


def test_options_for_functions_are_refused_for_a_flow(detent_home: TemporaryHome) -> None:
    with Client(detent_home.path, workers=0) as client, pytest.raises(InvalidInput, match="is a flow"):
        client.submit(functions.counted_numbers, 2, reuse=True)
