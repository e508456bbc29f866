"""A map step that was left, killed or cancelled: its ordered run goes on, or ends with the run that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from detent.executor.own_targets import COMPUTE_CHUNK as CHUNK
from detent.kernel import Run
from detent.owner.backend import Reported
from detent.owner.content import Content
from detent.runs.cancel import Canceller
from detent.runs.map_step import outdated
from detent.runs.ordered.notes import Notes, notes_of, taken_name
from detent.runs.ordered.recorded import ordered_inputs
from detent.workers.reports import Attempt
from tests.runs.ordered.map_steps import (
    LONG,
    PARAMS,
    cube,
    destinations,
    left,
    listed,
    message,
    ordered_runs,
    rows,
    until,
)
from tests.runs.ordered.rig import OrderedRig, lines
from tests.runs.rig import Child, eventually, in_thread


def test_cancelling_a_run_leaves_the_ordered_run_of_another_one_alone(project: OrderedRig) -> None:
    text = PARAMS.replace("[1, 2, 3]", str(list(range(40))))
    left(project, text.replace("jsonl:a.jsonl", "jsonl:squares.jsonl"), 5)
    work = project.work()
    handle = project.handle(work, text, {"out": "jsonl:b.jsonl"})
    project.lane.held = {CHUNK}
    project.lane.on_idle = lambda: handle.cancel("enough") if "jsonl:b.jsonl" in destinations(project) else None
    assert handle.run().status == "cancelled"
    work.close()
    assert destinations(project) == {"jsonl:squares.jsonl": "running", "jsonl:b.jsonl": "cancelled"}


def test_a_run_that_was_left_goes_on_with_the_same_ordered_run(project: OrderedRig) -> None:
    run_id = left(project, LONG, 11)
    committed = len(lines(project.project / "squares.jsonl"))
    (ordered,) = [row.run_id for row in project.runs() if row.name == "flow/squares"]
    result = project.run(LONG)
    assert (result.run_id, result.status) == (run_id, "completed")
    assert [row.run_id for row in project.runs() if row.name == "flow/squares"] == [ordered]
    assert (
        min(one.order.origin.index or 0 for one in project.lane.began if one.order.call.target == CHUNK)
        >= committed
        >= 11
    )
    assert lines(project.project / "squares.jsonl") == [x * x for x in range(40)]


def test_if_the_function_changed_meanwhile_the_old_ordered_run_ends_and_a_new_one_fills_the_file(
    project: OrderedRig,
) -> None:
    left(project, LONG, 11)
    cube(project)
    with project.pool() as work:
        assert project.handle(work, LONG).run().status == "completed"
    assert ordered_runs(project) == [("flow/squares", "cancelled"), ("flow/squares", "completed")]
    assert lines(project.project / "squares.jsonl") == [x**3 for x in range(40)]


def test_cancelling_the_run_cancels_the_ordered_one_where_its_destination_stands(project: OrderedRig) -> None:
    work = project.work()
    handle = project.handle(work, LONG)
    until(project, 11, lambda: handle.cancel("enough"))
    assert handle.run().status == "cancelled"
    work.close()
    assert ordered_runs(project) == [("flow/squares", "cancelled")]
    (ordered,) = [row.run_id for row in project.runs() if row.name == "flow/squares"]
    with project.reader() as reader:
        boundaries = [name.first for name in notes_of(reader, ordered) if name.kind == "cancel"]
    assert boundaries == [len(lines(project.project / "squares.jsonl"))]
    assert boundaries[0] >= 11
    assert {row.state for row in project.jobs(ordered)} == {"SUCCEEDED", "CANCELED"}


def test_cancelling_an_interrupted_run_ends_its_ordered_run_too(project: OrderedRig) -> None:
    cancelled(project, left(project, LONG, 5))
    assert ordered_runs(project) == [("flow/squares", "cancelled")]


def cancelled(project: OrderedRig, run_id: str) -> None:
    """Cancel a run without a driver."""
    with project.reader() as reader:
        assert Canceller(project.home.home, project.home.session(), reader).run(run_id).status == "cancelled"


def two_left(project: OrderedRig) -> tuple[str, str]:
    """Two runs of one workflow, to a destination each, that were left with their ordered runs open."""
    text = PARAMS.replace("[1, 2, 3]", str(list(range(40)))).replace("jsonl:a.jsonl", "jsonl:squares.jsonl")
    first = left(project, text, 5)
    work = project.work()
    handle = project.handle(work, text, {"out": "jsonl:b.jsonl"})
    project.lane.held = {CHUNK}
    project.lane.on_idle = lambda: handle.stop() if "jsonl:b.jsonl" in destinations(project) else None
    second = handle.run()
    assert second.status == "stopped"
    work.close()
    return first, second.run_id


def test_cancelling_an_interrupted_run_leaves_the_ordered_run_of_another_one_alone(project: OrderedRig) -> None:
    first, second = two_left(project)
    assert destinations(project) == {"jsonl:squares.jsonl": "running", "jsonl:b.jsonl": "running"}
    cancelled(project, first)
    assert destinations(project) == {"jsonl:squares.jsonl": "cancelled", "jsonl:b.jsonl": "running"}
    cancelled(project, second)
    assert destinations(project) == {"jsonl:squares.jsonl": "cancelled", "jsonl:b.jsonl": "cancelled"}


def test_what_another_open_run_needs_is_not_ended_for_a_step_that_goes_elsewhere(project: OrderedRig) -> None:
    _, second = two_left(project)
    *_, own = [Run.decode(row.body) for row in project.runs() if row.name == "flow/squares"]
    (step,) = [row.job_id for row in project.jobs(second)]
    with project.work() as work:
        inputs = ordered_inputs(Content(work.backend.reader, work.backend.files), own)
        assert inputs is not None
        assert outdated(work.backend, work.backend.order(project.job(step).payload_digest), inputs) == []


def test_an_ordered_run_that_two_runs_need_ends_with_the_last_of_them(project: OrderedRig) -> None:
    first, second = two_left(project)
    shared = next(row.run_id for row in project.runs() if row.name == "flow/squares")
    with project.work() as work:
        notes = Notes(work.backend, shared, worker=work.supervisor.identity, label="flow/squares", env_version="1")
        notes.write(taken_name(second), {"step_of": second})
    cancelled(project, first)
    assert destinations(project) == {"jsonl:squares.jsonl": "running", "jsonl:b.jsonl": "running"}
    cancelled(project, second)
    assert destinations(project) == {"jsonl:squares.jsonl": "cancelled", "jsonl:b.jsonl": "cancelled"}


def test_cancelling_a_run_ends_the_ordered_run_that_it_has_taken_over_from_one_that_failed(project: OrderedRig) -> None:
    (project.project / "squares.jsonl").mkdir()
    message(project, LONG)
    (project.project / "squares.jsonl").rmdir()
    second = left(project, LONG, 5)
    assert ordered_runs(project) == [("flow/squares", "running")]
    (ordered,) = [row.run_id for row in project.runs() if row.name == "flow/squares"]
    with project.reader() as reader:
        assert [name.kind for name in notes_of(reader, ordered)].count("taken") == 1
    cancelled(project, second)
    assert ordered_runs(project) == [("flow/squares", "cancelled")]


def test_a_step_that_takes_too_long_ends_and_the_next_run_goes_on(project: OrderedRig) -> None:
    text = LONG.replace("    run:", "    timeout: 100ms\n    run:")
    work = project.work()
    project.lane.held = {CHUNK}
    result = project.handle(work, text).run()
    work.close()
    assert "LIMIT_WALL" in result.failed[0].message
    assert ordered_runs(project) == [("flow/squares", "running")]
    project.run(LONG)
    assert ordered_runs(project) == [("flow/squares", "completed")]
    assert lines(project.project / "squares.jsonl") == [x * x for x in range(40)]


def test_a_run_that_ended_before_its_step_could_say_so_is_not_done_again(
    project: OrderedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is killed between the end of the ordered run and the report of the step."""
    work = project.work()
    handle = project.handle(work, LONG)
    tell = work.supervisor._home.reporter.report

    def report(attempts: Sequence[Attempt]) -> list[Reported]:
        if any(work.backend.order(grant.payload_digest).call.kind == "map" for grant, *_ in attempts):
            raise RuntimeError("killed")
        return tell(attempts)

    monkeypatch.setattr(work.supervisor._home.reporter, "report", report)
    with pytest.raises(RuntimeError, match="killed"):
        handle.run()
    work.close()
    assert ordered_runs(project) == [("flow/squares", "completed")]
    result = project.run(LONG)
    assert result.status == "completed"
    assert ordered_runs(project) == [("flow/squares", "completed")]
    assert [one.order.call.target for one in project.lane.began if one.order.call.target == CHUNK] == []
    assert result.value["succeeded"] == 40


def test_progress_is_told_in_items_while_the_step_runs(project: OrderedRig) -> None:
    work = project.work()
    handle = project.handle(work, LONG)
    project.lane.held = {CHUNK}
    ended = in_thread(handle.run)
    eventually(lambda: any(step.total == 40 for step in handle.view().steps), "nothing was told")
    (step,) = handle.view().steps
    assert (step.done, step.total, step.running) == (0, 40, 1)
    project.lane.release()
    assert ended().ok
    assert (handle.view().steps[0].done, handle.view().steps[0].total) == (1, 1)


KILLS = [("appended", 8), ("sealed", 10), ("committed", 12), ("appended", 9), ("sealed", 14), ("committed", 7)]


def test_killed_again_and_again_it_goes_on_and_commits_each_item_once(project: OrderedRig) -> None:
    """X-183: kills of the whole command at any moment; the destination has every item once."""
    said: dict[str, Any] = {}
    kills = 0
    for point, times in [*KILLS, ("decided", 1_000_000)]:
        child = Child(project, LONG, point=point, times=times)
        child.line()
        said = child.line()
        child.end()
        if said:
            break
        kills += 1
    assert kills >= 4
    assert said["status"] == "completed"
    assert lines(project.project / "squares.jsonl") == [x * x for x in range(40)]
    assert ordered_runs(project) == [("flow/squares", "completed")]
    assert len([row for row in project.runs() if row.name == "flow"]) == 1


def test_with_real_workers_a_killed_command_goes_on_too(project: OrderedRig) -> None:
    text = listed(list(range(200)), commit="sqlite:out.db#squares", more=", window: 16, chunk: 4")
    child = Child(project, text, pool=True, point="appended", times=25)
    child.line()
    assert child.line() == {}
    child.end()
    child = Child(project, text, pool=True)
    child.line()
    assert child.line()["status"] == "completed"
    child.end()
    assert rows(project) == [(x, str(x * x)) for x in range(200)]
    assert ordered_runs(project) == [("flow/squares", "completed")]
