"""An ordered run as a step of a workflow: one job of the workflow, a run of its own, and its summary as the step's result."""

from __future__ import annotations

from detent.kernel import Job
from tests.homes import retry_at_once
from tests.runs.ordered.map_steps import SQUARES, listed, message, one, order, ordered_runs, rows
from tests.runs.ordered.rig import OrderedRig, lines
from tests.runs.rig import states


def test_a_step_maps_over_what_another_returned_and_gives_its_summary_to_the_next(project: OrderedRig) -> None:
    result = project.run(SQUARES)
    assert (result.status, result.value) == ("completed", [20, 0, "sha256:"])
    assert lines(project.project / "squares.jsonl") == [x * x for x in range(20)]
    assert ordered_runs(project) == [("flow/squares", "completed")]


def test_the_steps_job_names_its_ordered_run_and_the_chunks_are_jobs_of_that_run(project: OrderedRig) -> None:
    result = project.run(SQUARES)
    (ordered,) = [row for row in project.runs() if row.name == "flow/squares"]
    step = next(job for job in project.jobs(result.run_id) if order(project, job.job_id).origin.step == "squares")
    with project.work() as work:
        report = project.report(work, step.job_id)
    assert report.result.stdout.data.decode() == f"ordered run {ordered.run_id}: 20 committed, of 20 items\n"
    assert {Job.decode(job.body).job_kind for job in project.jobs(ordered.run_id)} == {"seq"}
    assert len([job for job in project.jobs(ordered.run_id) if "commit" not in job.job_id]) >= 10


# -- where items come from -----------------------------------------------------------------------------------------------


def test_files_come_in_the_order_of_their_names_and_as_paths(project: OrderedRig) -> None:
    for name in ("b.txt", "a.txt", "c.md"):
        (project.project / name).write_text(name * 2)
    result = project.run(one("files: ['*.txt', 'c.*'], compute: 'steps.py:length', commit: 'jsonl:out.jsonl'"))
    assert result.value["succeeded"] == 3
    assert [name for name, _ in lines(project.project / "out.jsonl")] == ["'a.txt'", "'b.txt'", "'c.md'"]


def test_rows_come_from_a_file_of_json_lines(project: OrderedRig) -> None:
    (project.project / "rows.jsonl").write_text("1\n2\n\n3\n")
    text = one("items: rows.jsonl, compute: 'steps.py:square', commit: 'append:out.txt'").replace("square", "line")
    assert project.run(text).status == "completed"
    assert (project.project / "out.txt").read_text() == "1\n4\n9\n"


def test_a_result_that_is_no_list_fails_the_step(project: OrderedRig) -> None:
    text = SQUARES.replace("steps.py:numbers", "steps.py:square").replace("with: {n:", "with: {x:")
    assert (
        message(project, text)
        == "InvalidInput: what step 'squares' goes through is not a list; items needs a list of values"
    )


def test_an_empty_list_is_done_at_once_and_leaves_an_empty_file(project: OrderedRig) -> None:
    result = project.run(listed([]))
    assert (result.status, result.value["total"]) == ("completed", 0)
    assert (project.project / "squares.jsonl").read_bytes() == b""


def test_the_result_names_the_file_by_its_content(project: OrderedRig) -> None:
    value = project.run(listed([2, 3])).value
    assert value["file"]["name"] == "squares.jsonl"
    assert value["destination"] == "jsonl:squares.jsonl"
    assert value["file"]["size"] == (project.project / "squares.jsonl").stat().st_size


# -- failures ------------------------------------------------------------------------------------------------------------


def test_a_failed_item_fails_the_step_with_its_reason(project: OrderedRig) -> None:
    text = listed(list(range(20)), compute="fails_at_five", more=", window: 4, chunk: 1")
    result = project.run(text)
    assert states(result) == {"squares": "failed"}
    assert result.failed[0].message == "ValueError: 1 of 20 items failed; item 5: ValueError: five"
    assert ordered_runs(project) == [("flow/squares", "failed")]
    with project.work() as work:
        error = project.report(work, result.failed[0].job_id).result.failure
    assert error is not None
    assert (error.category, error.code) == ("USER_CODE_ERROR", "ITEMS_FAILED")


def test_with_continue_the_step_succeeds_without_the_failed_item_and_is_not_reused(project: OrderedRig) -> None:
    text = listed([4, 5, 6], compute="fails_at_five", more=", on_error: continue")
    first = project.run(text)
    assert (first.status, first.value["failed"], first.value["succeeded"]) == ("completed", 1, 2)
    assert states(project.run(text)) == {"squares": "succeeded"}
    assert lines(project.project / "squares.jsonl") == [4, 6]


def test_an_item_is_tried_again_as_often_as_it_says(project: OrderedRig) -> None:
    retry_at_once(project.home.home)
    text = listed([1, 2], compute="once", more=", retries: 1")
    assert project.run(text).status == "completed"


def test_a_destination_that_cannot_be_written_fails_the_step_and_the_next_run_goes_on(project: OrderedRig) -> None:
    (project.project / "squares.jsonl").mkdir()
    assert "squares.jsonl" in message(project, listed([1, 2]))
    assert ordered_runs(project) == [("flow/squares", "running")]
    (project.project / "squares.jsonl").rmdir()
    assert project.run(listed([1, 2])).status == "completed"
    assert ordered_runs(project) == [("flow/squares", "completed")]
    assert lines(project.project / "squares.jsonl") == [1, 4]


def test_what_such_a_step_left_is_cancelled_when_other_items_come(project: OrderedRig) -> None:
    (project.project / "squares.jsonl").mkdir()
    message(project, listed([1, 2]))
    (project.project / "squares.jsonl").rmdir()
    assert project.run(listed([3])).status == "completed"
    assert ordered_runs(project) == [("flow/squares", "cancelled"), ("flow/squares", "completed")]
    assert lines(project.project / "squares.jsonl") == [9]


def test_what_such_a_step_left_is_cancelled_too_when_it_goes_elsewhere_and_cannot_be_continued(
    project: OrderedRig,
) -> None:
    (project.project / "squares.jsonl").mkdir()
    message(project, listed([1, 2]))
    assert project.run(listed([1, 2], commit="jsonl:other.jsonl")).status == "completed"
    assert ordered_runs(project) == [("flow/squares", "cancelled"), ("flow/squares", "completed")]


def test_bytes_that_no_run_of_the_step_left_are_set_aside(project: OrderedRig) -> None:
    (project.project / "squares.jsonl").write_text("somebody's\n")
    project.run(listed([1]))
    assert lines(project.project / "squares.jsonl") == [1]
    assert (project.project / "squares.jsonl.cut-0").read_text() == "somebody's\n"


def test_two_map_steps_run_beside_one_another(project: OrderedRig) -> None:
    steps = "".join(
        f"  - id: s{number}\n    run: {{map: {{items: [1, 2, 3], compute: 'steps.py:square', commit: 'jsonl:o{number}'}}}}\n"
        for number in range(6)
    )
    assert project.run(f"name: flow\nsteps:\n{steps}").status == "completed"
    assert [lines(project.project / f"o{number}") for number in range(6)] == [[1, 4, 9]] * 6


def test_rows_of_another_run_in_the_table_are_not_taken_away(project: OrderedRig) -> None:
    with project.work() as work:
        project.ordered(work, [7], "square", project.target("sqlite:out.db#squares", work)).run()
    assert "UNIQUE" in message(project, listed([1], commit="sqlite:out.db#squares"))
    assert rows(project) == [(0, "49")]


def test_a_function_may_be_the_destination(project: OrderedRig) -> None:
    text = listed([2, 3], commit="steps.py:keep")
    assert project.run(text).value.get("file") is None
    assert (project.project / "kept").read_text() == "0 4\n1 9\n"
    assert states(project.run(text)) == {"squares": "reused"}
    path = project.project / "steps.py"
    path.write_text(path.read_text().replace('"kept", "a"', '"kept2", "a"'))
    assert states(project.run(text)) == {"squares": "succeeded"}
