"""Whether a client does equal work again: each time, unless it is asked to reuse (X-190)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.errors import InvalidInput
from detent.sdk.client import Client
from detent.store.api import JobRow
from detent.store.sqlite import SqliteStore
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_home
from tests.runs.rig import eventually
from tests.sdk import work_functions as functions

__all__ = ["detent_clock", "detent_home"]

MAILER = """
import sys
from pathlib import Path
import detent

OUTBOX = Path(__file__).parent / "outbox"

@detent.task{options}
def send(to):
    with OUTBOX.open("a") as outbox:
        outbox.write(to + "\\n")
    return to

if __name__ == "__main__":
    with detent.Client(Path(__file__).parent / "home", workers=2) as client:
        for _ in range(3):
            print(client.submit(send, "ann@example.org"{how}).result(60))
"""


def sent(tmp_path: Path, options: str = "", how: str = "") -> int:
    """Mails that two runs of a script sent, which submits the same call three times each."""
    script = tmp_path / "mailer.py"
    script.write_text(MAILER.format(options=options, how=how))
    for _ in range(2):
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("ann@example.org\n" * 3, "")
    return len((tmp_path / "outbox").read_text().splitlines())


def test_a_function_runs_each_time_it_is_submitted(tmp_path: Path) -> None:
    """X-190: a side effect that is asked for six times happens six times."""
    assert sent(tmp_path) == 6


@pytest.mark.parametrize(
    ("options", "how", "times"),
    [
        ("", ", reuse=True", 1),
        ("(cache=True)", "", 1),
        ("(cache=True)", ", reuse=False", 6),
        ("(cache=False)", ", reuse=True", 6),
        ("", ', idempotency_key="mail-17"', 1),
    ],
)
def test_reuse_is_asked_for_by_the_call_or_by_the_task(tmp_path: Path, options: str, how: str, times: int) -> None:
    """X-190: `reuse=`, `cache=True` and an idempotency key; what the call says wins, and `cache=False` is never reused."""
    assert sent(tmp_path, options, how) == times


def test_map_and_submit_many_run_each_call_unless_they_are_to_reuse(detent_home: TemporaryHome, tmp_path: Path) -> None:
    """X-190."""
    marks = str(tmp_path / "marks")
    with Client(detent_home.path, workers=2) as client:
        assert list(client.map(functions.marked, [marks] * 3)) == [marks] * 3
        assert [one.result(60) for one in client.submit_many(functions.marked, [(marks,)] * 2)] == [marks] * 2
        assert Path(marks).read_text() == "x" * 5
        assert list(client.map(functions.marked, [marks] * 3, reuse=True)) == [marks] * 3
        assert client.submit_many(functions.marked, [(marks,)], reuse=True)[0].result(60) == marks
        assert Path(marks).read_text() == "x" * 5


def test_two_idempotency_keys_are_two_requests(detent_home: TemporaryHome, tmp_path: Path) -> None:
    """X-190, JOB-033: a key makes its own request safe to repeat; it does not swallow an equal one under another key."""
    marks = str(tmp_path / "marks")
    with Client(detent_home.path, workers=2) as client:
        for key in ("order-17", "order-18", "order-17"):
            assert client.submit(functions.marked, marks, idempotency_key=key).result(60) == marks
    assert Path(marks).read_text() == "xx"


@pytest.mark.parametrize("other", [{"timeout": "1h"}, {"retries": 7}, {"resources": {"cpu": 2}}], ids=str)
def test_work_under_way_with_other_limits_is_not_joined(
    detent_home: TemporaryHome, tmp_path: Path, other: dict[str, Any]
) -> None:
    """X-190: neither in this process nor in another one; with equal limits it is joined (X-186)."""
    gate = tmp_path / "gate"
    waiting = detent.task(functions.waits_for).options(inputs=())
    with Client(detent_home.path, workers=2) as client, Client(detent_home.path, workers=2) as elsewhere:
        first = client.submit(waiting, str(gate), reuse=True)
        eventually(lambda: first.status.value == "RUNNING", "it did not begin")
        for one in (client, elsewhere):
            assert one.submit(waiting, str(gate), reuse=True).job_id == first.job_id
            assert one.submit(waiting.options(**other), str(gate), reuse=True).job_id != first.job_id
        gate.touch()
        assert first.result(60) == str(gate)
        done = client.submit(waiting.options(**other), str(gate), reuse=True)
        assert (done.result(60), done.deduplicated) == (str(gate), True), "a success answers whatever its limits were"


def jobs(home: TemporaryHome) -> list[JobRow]:
    reader = SqliteStore.open_reader(home.home.ledger_file)
    try:
        return list(reader.jobs())
    finally:
        reader.close()


def test_a_step_of_a_flow_does_not_join_work_under_other_limits(detent_home: TemporaryHome, tmp_path: Path) -> None:
    """X-190: a client's job may end by a limit that the step does not have."""
    gate = tmp_path / "gate"
    with Client(detent_home.path, workers=2) as client:
        first = client.submit(detent.task(functions.waits_for).options(timeout="1h"), str(gate))
        eventually(lambda: first.status.value == "RUNNING", "it did not begin")
        run = client.submit(functions.waiting_flow, str(gate))
        eventually(lambda: len(jobs(detent_home)) == 2, "the step has no job of its own")
        gate.touch()
        assert (run.result(60), first.result(60)) == (str(gate), str(gate))


def test_an_option_that_is_also_a_parameter_is_refused(detent_home: TemporaryHome) -> None:
    """The call says which is meant."""
    with Client(detent_home.path, workers=0) as client:
        with pytest.raises(InvalidInput, match="reuse") as refused:
            client.submit(functions.takes_reuse, reuse=True)
        assert "submit_call" in str(refused.value.hint)


def test_explain_says_that_reuse_was_not_asked_for(detent_home: TemporaryHome) -> None:
    """X-190: the earlier success is named, and why it was not taken."""
    with Client(detent_home.path, workers=1) as client:
        assert client.submit(functions.square, 3).result(60) == 9
        second = client.submit(functions.square, 3)
        assert second.result(60) == 9
    told = subprocess.run(
        [sys.executable, "-m", "detent", "explain", second.job_id, "--home", str(detent_home.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "reuse was not asked for" in told.stdout, told.stderr
