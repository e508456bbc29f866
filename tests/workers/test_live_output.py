"""`detent logs -f` on steps in the sandbox: what they print is there while they run, and gone when they are."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from detent.executor.sandbox import Profile, probe, profile_of
from detent.executor.sandbox.classify import NOT_INSIDE
from detent.inspect.logs import Follower, job_log
from detent.owner.content import Content
from detent.store.sqlite import SqliteStore
from detent.workers.live_output import LIVE_DIRECTORY, live_jobs
from tests.executor.runners.rig import execute
from tests.runs.rig import Rig, eventually, in_thread

pytestmark = pytest.mark.skipif(
    profile_of(probe()).strength < Profile.FULL_ROOTLESS.strength, reason="no sandbox on this machine"
)

CELL = """
    name: cells
    steps:
      - id: cell
        run:
          code: |
            def main():
                print("hello")
                while %s:
                    pass
                print("bye")
                return 1
"""


def test_output_is_shown_while_a_sandboxed_step_runs(rig: Rig) -> None:
    work = rig.pool()
    handle = rig.handle(work, CELL % "True")
    run_id = handle.open()
    ended = in_thread(handle.run)
    eventually(lambda: bool(live_jobs(rig.home.path)), "it has not begun")
    with closing(SqliteStore.open_reader(rig.home.home.ledger_file)) as reader:
        follower = Follower(reader, Content(reader, rig.home.home.content_files()), rig.home.path, [], run_id=run_id)
        shown: list[tuple[str | None, bytes]] = []

        def hello() -> bool:
            shown.extend((piece.stream, piece.data) for piece in follower.poll())
            return ("stdout", b"hello\n") in shown

        eventually(hello, "nothing is shown")
        (job_id,) = live_jobs(rig.home.path)
        log = job_log(reader, Content(reader, rig.home.home.content_files()), job_id, live_jobs(rig.home.path)[job_id])
        assert log is not None
        assert (log.attempts[-1].running, log.attempts[-1].stdout.data) == (True, b"hello\n")
    handle.cancel()
    assert ended().status == "cancelled"
    eventually(lambda: live_jobs(rig.home.path) == {}, "it is still shown")
    work.close()
    assert list((rig.home.path / LIVE_DIRECTORY).iterdir()) == []


def test_nothing_is_shown_twice_when_the_report_comes(rig: Rig) -> None:
    work = rig.pool(workers=1)
    result = rig.handle(work, CELL % "False").run()
    with closing(SqliteStore.open_reader(rig.home.home.ledger_file)) as reader:
        content = Content(reader, rig.home.home.content_files())
        follower = Follower(reader, content, rig.home.path, [], run_id=result.run_id)
        assert [piece.data for piece in follower.poll() if piece.data] == [b"hello\nbye\n"]
        assert follower.poll() == []
        # The next job of the same worker begins with nothing of the one before.
        again = rig.handle(work, CELL % "False and 1").run()
        assert again.status == "completed"
        eventually(lambda: live_jobs(rig.home.path) == {}, "it is still shown")


def test_a_platform_job_is_shown_too(rig: Rig) -> None:
    work = rig.pool()
    payload = execute("def main():\n    print('hello')\n    while True: pass\n")
    contract = {"name": "cells", "steps": [{"id": "cell", "run": {"job": payload}}]}
    handle = rig.handle(work, json.dumps(contract))
    ended = in_thread(handle.run)
    eventually(
        lambda: [live.read("stdout") for live in live_jobs(rig.home.path).values()] == [b"hello\n"],
        "nothing is shown",
    )
    handle.cancel()
    assert ended().status == "cancelled"


def test_closing_ends_what_runs_and_begins_nothing_of_what_waits(rig: Rig) -> None:
    """X-163: more endless cells than there are workers; those that wait would otherwise begin while everything ends."""
    work = rig.pool(workers=1)
    cells = [{"id": f"cell-{number}", "run": {"code": f"def main():\n    while True: {number}"}} for number in range(4)]
    handle = rig.handle(work, json.dumps({"name": "cells", "steps": cells}))
    ended = in_thread(handle.run)
    eventually(lambda: bool(live_jobs(rig.home.path)) and work.supervisor.busy > 1, "nothing waits")
    handle.stop()
    work.close()
    assert ended().status == "stopped"
    assert list((rig.home.path / LIVE_DIRECTORY).iterdir()) == []


def test_a_package_that_a_cell_does_not_have_is_told_to_be_outside(rig: Rig) -> None:
    work = rig.pool()
    result = rig.handle(work, (CELL % "False").replace('print("hello")', "import pytest")).run()
    assert (result.status, result.view.steps[0].message) == (
        "failed",
        f"ModuleNotFoundError: No module named 'pytest' ({NOT_INSIDE})",
    )
