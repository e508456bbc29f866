"""What a running task says of itself: seen while it runs, by anyone who looks at the run, and gone when it has ended."""

from __future__ import annotations

import os

from tests.runs.rig import Rig, eventually, in_thread

SOURCE = """
import detent

def half():
    detent.context().progress(0.5, "half of it")
    with open("release") as file:
        file.read()
    return 1
"""


def test_how_far_a_task_says_it_is_stands_in_the_view_of_its_step(rig: Rig) -> None:
    rig.write(SOURCE, "half.py")
    os.mkfifo(rig.project / "release")
    work = rig.pool(workers=1)
    handle = rig.handle(work, 'name: far\nsteps: [{id: a, run: {python: "half:half"}}]\nresult: {$from: a}')
    handle.open()
    ended = in_thread(handle.run)
    eventually(lambda: handle.view().steps[0].fraction is not None, "nothing was told")
    (step,) = handle.view().steps
    assert (step.state, step.fraction, step.message) == ("running", 0.5, "half of it")
    (rig.project / "release").write_text("go on")
    assert ended().value == 1
    (step,) = handle.view().steps
    assert (step.state, step.fraction, step.message) == ("succeeded", None, "")
    assert work.told == {}
