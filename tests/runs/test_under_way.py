"""What counts as under way while a run is watched: what a worker has begun, and not what waits for one."""

from __future__ import annotations

import os
from functools import partial

from detent.runs.handle import RunHandle, step_view
from tests.runs.rig import Rig, eventually, in_thread

SOURCE = """
def held(n):
    with open(f"release-{n}") as file:
        file.read()
    return n
"""
TEXT = 'name: held\nsteps: [{id: a, map: {n: [0, 1, 2, 3, 4, 5]}, run: {python: "held:held"}}]\nresult: {$from: a}'


def test_a_job_that_was_leased_ahead_is_not_under_way_before_its_worker_begins_it(rig: Rig) -> None:
    rig.write(SOURCE, "held.py")
    for number in range(6):
        os.mkfifo(rig.project / f"release-{number}")
    work = rig.pool(workers=1)
    handle = rig.handle(work, TEXT)
    handle.open()
    ended = in_thread(handle.run)
    for number in range(6):
        eventually(partial(_stands, handle, number, 1), "nothing was begun")
        assert handle.view().steps[0].total == 6
        (rig.project / f"release-{number}").write_text("go on")
    assert ended().value == [0, 1, 2, 3, 4, 5]
    assert _stands(handle, 6, 0)


def _stands(handle: RunHandle, done: int, running: int) -> bool:
    (step,) = handle.view().steps
    assert step.running <= 1
    return (step.done, step.running) == (done, running)


def test_what_is_tried_again_waits_until_a_worker_has_begun_it(rig: Rig) -> None:
    rig.lane.held = {"steps:one"}
    work = rig.work()
    handle = rig.handle(work, 'name: again\nsteps: [{id: a, run: {python: "steps:one"}}]')
    handle.open()
    ended = in_thread(handle.run)
    eventually(lambda: rig.lane.waiting("steps:one") == 1, "it did not begin")
    assert handle._driver is not None
    (step,) = handle._driver.progress.steps
    (element,) = step.elements
    element.attempts = 1
    shown = [step_view(step, begun, 0) for begun in ({}, {element.job_id: 0})]
    assert [(view.running, view.retrying) for view in shown] == [(0, 1), (1, 0)]
    rig.lane.release()
    assert ended().ok
