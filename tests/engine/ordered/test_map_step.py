"""An ordered run as a step of a workflow: one job of the workflow, a run of its own, and its summary as the step's result."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from detent.contract.params import ParamsInvalid, bind
from detent.engine.cancel import Canceller
from detent.engine.content import Content
from detent.engine.foresee import foresee
from detent.engine.ordered_runtime.chunk import TARGET as CHUNK
from detent.engine.ordered_runtime.notes import notes_of
from detent.engine.ordered_runtime.recorded import recorded_ordered
from detent.kernel import Job, Run
from tests.engine.ordered.rig import OrderedRig, lines
from tests.engine.run.rig import Child, eventually, in_thread, states
from tests.homes import retry_at_once

SQUARES = """
    name: flow
    params: {n: 20}
    steps:
      - {id: numbers, run: {python: 'steps.py:numbers', with: {n: {$param: n}}}}
      - id: squares
        run:
          map: {items: {$from: numbers}, compute: 'steps.py:square', commit: 'jsonl:squares.jsonl', window: 8, chunk: 2}
      - {id: count, run: {python: 'steps.py:told', with: {summary: {$from: squares}}}}
    result: {$from: count}
    """
MORE = """
def numbers(n): return list(range(n))
def fails_at_two(x):
    if x == 2: raise ValueError("two")
    return x
def told(summary): return [summary["succeeded"], summary["skipped"], summary["digest"][:7]]
"""


@pytest.fixture
def project(rig: OrderedRig) -> OrderedRig:
    add(rig, MORE)
    return rig


def add(rig: OrderedRig, source: str) -> None:
    path = rig.project / "steps.py"
    path.write_text(path.read_text() + source)


def one(settings: str, before: str = "") -> str:
    """A contract with one map step."""
    return (
        f"name: flow\nsteps:\n  - id: squares\n{before}    run: {{map: {{{settings}}}}}\nresult: {{$from: squares}}\n"
    )


def listed(values: list[Any], commit: str = "jsonl:squares.jsonl", compute: str = "square", more: str = "") -> str:
    """A contract with one map step over a list."""
    return one(f"items: {json.dumps(values)}, compute: 'steps.py:{compute}', commit: '{commit}'{more}")


def ordered_runs(rig: OrderedRig) -> list[tuple[str, str]]:
    """Name and status of the ordered runs, oldest first."""
    return [(row.name, row.status) for row in rig.runs() if "/" in row.name]


def test_a_step_maps_over_what_another_returned_and_gives_its_summary_to_the_next(project: OrderedRig) -> None:
    result = project.run(SQUARES)
    assert (result.status, result.value) == ("completed", [20, 0, "sha256:"])
    assert lines(project.project / "squares.jsonl") == [x * x for x in range(20)]
    assert ordered_runs(project) == [("flow/squares", "completed")]


def test_the_steps_job_names_its_ordered_run_and_the_chunks_are_jobs_of_that_run(project: OrderedRig) -> None:
    result = project.run(SQUARES)
    (ordered,) = [row for row in project.runs() if row.name == "flow/squares"]
    step = next(job for job in project.jobs(result.run_id) if order(project, job.job_id).step == "squares")
    with project.work() as work:
        report = project.report(work, step.job_id)
    assert report.stdout.data.decode() == f"ordered run {ordered.run_id}: 20 committed, of 20 items\n"
    assert {Job.decode(job.body).job_kind for job in project.jobs(ordered.run_id)} == {"seq"}
    assert len([job for job in project.jobs(ordered.run_id) if "commit" not in job.job_id]) >= 10


def order(rig: OrderedRig, job_id: str) -> Any:
    with rig.work() as work:
        return work.desk.order(rig.job(job_id).payload_digest)


def message(rig: OrderedRig, text: str, **params: Any) -> str:
    """Why the one step of a contract failed."""
    result = rig.run(text, params)
    assert result.status == "failed"
    return result.failed[0].message


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


def test_a_parameter_may_be_the_list(project: OrderedRig) -> None:
    settings = "items: {$param: xs}, compute: 'steps.py:square', commit: 'jsonl:out.jsonl'"
    text = one(settings).replace("steps:\n", "params: {xs: {type: any, default: [1]}}\nsteps:\n", 1)
    assert project.run(text, {"xs": [3, 4]}).status == "completed"
    assert lines(project.project / "out.jsonl") == [9, 16]
    with pytest.raises(
        ParamsInvalid, match=r"flow\.yaml:5:24: items needs a list to go through, not 7; items is parameter 'xs'"
    ):
        project.run(text, {"xs": 7})


def test_a_result_that_is_no_list_fails_the_step(project: OrderedRig) -> None:
    text = SQUARES.replace("steps.py:numbers", "steps.py:square").replace("with: {n:", "with: {x:")
    assert (
        message(project, text)
        == "InvalidInput: what step 'squares' goes through is no list; items needs a list of values"
    )


PARAMS = """
    name: flow
    params: {out: 'jsonl:a.jsonl', ahead: 8, pieces: 2, after: stop, tries: 0}
    steps:
      - id: squares
        run:
          map:
            items: [1, 2, 3]
            compute: steps.py:square
            commit: {$param: out}
            window: {$param: ahead}
            chunk: {$param: pieces}
            on_error: {$param: after}
            retries: {$param: tries}
    result: {$from: squares}
    """


def test_settings_may_be_parameters_and_come_to_what_they_would_come_to_written_out(project: OrderedRig) -> None:
    given = {"out": "jsonl+seq:b.jsonl", "ahead": 4, "pieces": 1, "after": "continue", "tries": 1}
    result = project.run(PARAMS.replace("steps.py:square", "steps.py:fails_at_two"), given)
    assert (result.status, result.value["failed"], result.value["destination"]) == ("completed", 1, "jsonl+seq:b.jsonl")
    assert lines(project.project / "b.jsonl") == [{"seq": 0, "value": 1}, {"seq": 2, "value": 3}]
    assert not (project.project / "a.jsonl").exists()
    (step,) = [job.job_id for job in project.jobs(result.run_id)]
    assert order(project, step).target == {
        "compute": "steps.py:fails_at_two",
        "commit": "jsonl+seq:b.jsonl",
        "window": 4,
        "chunk": 1,
        "on_error": "continue",
        "retries": 1,
    }
    (ordered,) = [row for row in project.runs() if row.name == "flow/squares"]
    chunk = next(
        job for job in project.jobs(ordered.run_id) if "commit" not in job.job_id and "begin" not in job.job_id
    )
    assert order(project, chunk.job_id).arguments[0]["retries"] == 1


def test_the_value_of_a_parameter_decides_about_reuse_as_if_it_were_written_there(project: OrderedRig) -> None:
    def verdict(**params: Any) -> tuple[str, str]:
        contract = project.contract(PARAMS)
        step = foresee(project.home.home, contract, bind(contract, params)).steps["squares"]
        return step.verdict, step.why

    project.run(PARAMS)
    assert states(project.run(PARAMS, {"ahead": 5})) == {"squares": "cached"}, (
        "how far is computed ahead does not count"
    )
    assert verdict(out="jsonl:b.jsonl") == (
        "run",
        "destination jsonl:a.jsonl -> jsonl:b.jsonl; output destination a.jsonl -> b.jsonl",
    )
    written = PARAMS.replace("{$param: out}", "'jsonl:a.jsonl'")
    assert states(project.run(written)) == {"squares": "cached"}, "written out it is the same work"
    assert states(project.run(PARAMS, {"out": "jsonl:b.jsonl"})) == {"squares": "succeeded"}
    (project.project / "a.jsonl").unlink()
    assert verdict() == ("run", "its output a.jsonl is missing")


FOUND = one("files: {$param: texts}, compute: 'steps.py:length', commit: 'jsonl:out.jsonl'").replace(
    "steps:\n", "params: {texts: '*.txt'}\nsteps:\n", 1
)


@pytest.mark.parametrize(
    ("written", "given"),
    [("{$param: texts}", "a.*"), ("{$param: texts}", ["a.*", "b.txt"]), ("['b.txt', {$param: texts}]", "a.*")],
)
def test_the_files_may_be_a_parameter_and_their_content_counts(
    project: OrderedRig, written: str, given: str | list[str]
) -> None:
    text = FOUND.replace("files: {$param: texts}", f"files: {written}").replace(
        "{texts: '*.txt'}", "{texts: {type: any}}"
    )
    for name in ("a.txt", "b.txt", "c.txt"):
        (project.project / name).write_text(name)
    project.run(text, {"texts": given})
    expected = ["'a.txt'"] if written[0] == "{" and given == "a.*" else ["'a.txt'", "'b.txt'"]
    assert [name for name, _ in lines(project.project / "out.jsonl")] == expected
    assert states(project.run(text, {"texts": given})) == {"squares": "cached"}
    (project.project / "a.txt").write_text("changed")
    assert states(project.run(text, {"texts": given})) == {"squares": "succeeded"}
    assert states(project.run(text, {"texts": "c.*"})) == {"squares": "succeeded"}


def test_a_file_of_rows_that_a_parameter_names_counts_by_its_content(project: OrderedRig) -> None:
    settings = "items: {$param: rows}, compute: 'steps.py:square', commit: 'jsonl:out.jsonl'"
    text = one(settings).replace("steps:\n", "params: {rows: rows.jsonl}\nsteps:\n", 1)
    (project.project / "rows.jsonl").write_text("1\n2\n")
    project.run(text)
    assert states(project.run(text)) == {"squares": "cached"}
    (project.project / "rows.jsonl").write_text("3\n")
    assert states(project.run(text)) == {"squares": "succeeded"}
    assert lines(project.project / "out.jsonl") == [9]


def test_a_map_that_reads_a_file_which_a_step_before_it_may_write_is_not_told_beforehand(project: OrderedRig) -> None:
    text = """
    name: flow
    params: {rows: rows.jsonl}
    steps:
      - {id: first, run: {python: 'steps.py:numbers', with: {n: 1}}}
      - id: squares
        needs: [first]
        run: {map: {items: {$param: rows}, compute: 'steps.py:square', commit: 'jsonl:out.jsonl'}}
    """
    (project.project / "rows.jsonl").write_text("1\n")
    contract = project.contract(text)
    told = foresee(project.home.home, contract, bind(contract, {})).steps["squares"]
    assert (told.verdict, told.why) == ("depends", "depends on first")


def test_runs_with_other_values_keep_what_the_ones_before_them_left(project: OrderedRig) -> None:
    """A run that was left goes on where it stood, also after another one of the workflow has gone elsewhere."""
    text = PARAMS.replace("[1, 2, 3]", str(list(range(40)))).replace("jsonl:a.jsonl", "jsonl:squares.jsonl")
    run_id = left(project, text, 5)
    assert project.run(text, {"out": "jsonl:b.jsonl"}).status == "completed"
    assert project.run(text).run_id == run_id
    for name in ("squares.jsonl", "b.jsonl"):
        assert lines(project.project / name) == [x * x for x in range(40)]
    assert ordered_runs(project) == [("flow/squares", "completed"), ("flow/squares", "completed")]


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


def destinations(rig: OrderedRig) -> dict[str, str]:
    """The status of the ordered runs, by where they go."""
    files = rig.home.home.content_files()
    with rig.reader() as reader:
        rows = [(row.status, Run.decode(row.body)) for row in reader.runs() if row.name == "flow/squares"]
        found = [(recorded_ordered(reader, Content(reader, files), run), status) for status, run in rows]
    return {str(recorded.inputs.spec.commit): status for recorded, status in found if recorded is not None}


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
        error = project.report(work, result.failed[0].job_id).error
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


def test_what_such_a_step_left_is_cancelled_too_when_it_goes_elsewhere_and_nobody_will_go_on_with_it(
    project: OrderedRig,
) -> None:
    (project.project / "squares.jsonl").mkdir()
    message(project, listed([1, 2]))
    assert project.run(listed([1, 2], commit="jsonl:other.jsonl")).status == "completed"
    assert ordered_runs(project) == [("flow/squares", "cancelled"), ("flow/squares", "completed")]


# -- reuse ---------------------------------------------------------------------------------------------------------------


def test_a_finished_step_is_not_done_again(project: OrderedRig) -> None:
    project.run(SQUARES)
    again = project.run(SQUARES)
    assert states(again) == dict.fromkeys(["numbers", "squares", "count"], "cached")
    assert ordered_runs(project) == [("flow/squares", "completed")]


def test_how_far_and_in_which_pieces_it_is_computed_does_not_matter_for_reuse(project: OrderedRig) -> None:
    project.run(listed([1, 2]))
    assert states(project.run(listed([1, 2], more=", window: 7, chunk: 1, retries: 2"))) == {"squares": "cached"}


@pytest.mark.parametrize("kind", ["append", "jsonl", "jsonl+seq"])
def test_a_destination_that_is_gone_is_filled_again(project: OrderedRig, kind: str) -> None:
    text = listed([1, 2], commit=f"{kind}:squares.jsonl", compute="line")
    project.run(text)
    before = (project.project / "squares.jsonl").read_bytes()
    (project.project / "squares.jsonl").unlink()
    assert states(project.run(text)) == {"squares": "succeeded"}
    assert (project.project / "squares.jsonl").read_bytes() == before


def test_why_it_runs_again_is_told_beforehand(project: OrderedRig) -> None:
    def verdict(text: str) -> tuple[str, str]:
        step = foresee(project.home.home, project.contract(text), {}).steps["squares"]
        return step.verdict, step.why

    project.run(listed([1, 2]))
    assert verdict(listed([1, 2]))[0] == "reuse"
    assert verdict(listed([1, 3])) == ("run", "argument items changed: [1, 2] -> [1, 3]")
    assert verdict(listed([1, 2], commit="jsonl:other.jsonl"))[1].startswith(
        "destination jsonl:squares.jsonl -> jsonl:other"
    )
    (project.project / "squares.jsonl").write_text("mine\n")
    assert verdict(listed([1, 2])) == ("run", "its output squares.jsonl is changed")


def test_what_a_step_left_is_replaced_when_its_items_change(project: OrderedRig) -> None:
    project.run(listed([1, 2, 3]))
    project.run(listed([5, 6]))
    assert lines(project.project / "squares.jsonl") == [25, 36]
    assert sorted(path.name for path in project.project.glob("squares*")) == ["squares.jsonl"]


def test_bytes_that_no_run_of_the_step_left_are_set_aside(project: OrderedRig) -> None:
    (project.project / "squares.jsonl").write_text("somebody's\n")
    project.run(listed([1]))
    assert lines(project.project / "squares.jsonl") == [1]
    assert (project.project / "squares.jsonl.cut-0").read_text() == "somebody's\n"


def cube(project: OrderedRig) -> None:
    """Change the function. Work in this process would still have the old one: only new workers read the file again."""
    path = project.project / "steps.py"
    path.write_text(path.read_text().replace("def square(x): return x * x", "def square(x): return x ** 3"))


def test_changed_code_runs_the_step_again(project: OrderedRig) -> None:
    project.run(listed([3]))
    cube(project)
    with project.pool() as work:
        assert states(project.handle(work, listed([3])).run()) == {"squares": "succeeded"}
    assert lines(project.project / "squares.jsonl") == [27]


def test_a_changed_file_runs_the_step_again(project: OrderedRig) -> None:
    text = one("files: '*.txt', compute: 'steps.py:length', commit: 'jsonl:out.jsonl'")
    (project.project / "a.txt").write_text("a")
    project.run(text)
    assert states(project.run(text)) == {"squares": "cached"}
    (project.project / "a.txt").write_text("ab")
    assert states(project.run(text)) == {"squares": "succeeded"}
    assert lines(project.project / "out.jsonl") == [["'a.txt'", 2]]


def test_another_filter_runs_the_step_again_also_where_a_version_stands_for_the_code(project: OrderedRig) -> None:
    text = listed([1, 2, 3, 4], more=", filter: 'steps.py:is_even'").replace("}}\nresult", "}, version: '1'}\nresult")
    assert project.run(text).value["skipped"] == 2
    assert states(project.run(text)) == {"squares": "cached"}
    assert project.run(text.replace(", filter: 'steps.py:is_even'", "")).value["skipped"] == 0
    path = project.project / "steps.py"
    path.write_text(path.read_text().replace("def is_even(x): return x % 2 == 0", "def is_even(x): return True"))
    assert states(project.run(text)) == {"squares": "succeeded"}, "its file was replaced meanwhile"
    assert states(project.run(text)) == {"squares": "cached"}


def test_a_declared_input_of_the_function_counts_too(project: OrderedRig) -> None:
    (project.project / "model.bin").write_text("1")
    text = listed([1]).replace("    run:", "    inputs: model.bin\n    run:")
    project.run(text)
    assert states(project.run(text)) == {"squares": "cached"}
    (project.project / "model.bin").write_text("22")
    assert states(project.run(text)) == {"squares": "succeeded"}


def test_two_map_steps_run_beside_one_another(project: OrderedRig) -> None:
    steps = "".join(
        f"  - id: s{number}\n    run: {{map: {{items: [1, 2, 3], compute: 'steps.py:square', commit: 'jsonl:o{number}'}}}}\n"
        for number in range(6)
    )
    assert project.run(f"name: flow\nsteps:\n{steps}").status == "completed"
    assert [lines(project.project / f"o{number}") for number in range(6)] == [[1, 4, 9]] * 6


def rows(project: OrderedRig) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(project.project / "out.db")) as database:
        return database.execute("SELECT seq, value FROM squares ORDER BY seq").fetchall()


def test_a_table_is_filled_anew_and_looked_at_before_it_is_reused(project: OrderedRig) -> None:
    commit = "sqlite:out.db#squares"
    project.run(listed([1, 2, 3], commit=commit))
    assert states(project.run(listed([1, 2, 3], commit=commit))) == {"squares": "cached"}
    project.run(listed([4, 5], commit=commit))
    assert rows(project) == [(0, "16"), (1, "25")]
    assert states(project.run(listed([1, 2, 3], commit=commit))) == {"squares": "succeeded"}
    with closing(sqlite3.connect(project.project / "out.db")) as database:
        database.execute("DELETE FROM squares WHERE seq = 1")
        database.commit()
    assert states(project.run(listed([1, 2, 3], commit=commit))) == {"squares": "succeeded"}
    assert rows(project) == [(0, "1"), (1, "4"), (2, "9")]
    (project.project / "out.db").unlink()
    assert states(project.run(listed([1, 2, 3], commit=commit))) == {"squares": "succeeded"}


def test_rows_of_another_run_in_the_table_are_not_taken_away(project: OrderedRig) -> None:
    with project.work() as work:
        project.ordered(work, [7], "square", project.target("sqlite:out.db#squares", work)).run()
    assert "UNIQUE" in message(project, listed([1], commit="sqlite:out.db#squares"))
    assert rows(project) == [(0, "49")]


def test_a_function_may_be_the_destination(project: OrderedRig) -> None:
    text = listed([2, 3], commit="steps.py:keep")
    assert project.run(text).value.get("file") is None
    assert (project.project / "kept").read_text() == "0 4\n1 9\n"
    assert states(project.run(text)) == {"squares": "cached"}
    path = project.project / "steps.py"
    path.write_text(path.read_text().replace('"kept", "a"', '"kept2", "a"'))
    assert states(project.run(text)) == {"squares": "succeeded"}


# -- left, killed, cancelled ---------------------------------------------------------------------------------------------

LONG = listed(list(range(40)), more=", window: 8, chunk: 1")


def until(rig: OrderedRig, committed: int, then: Callable[[], None]) -> None:
    """Let one chunk be computed at a time, and do something once so many items are in the file."""
    rig.lane.held = {CHUNK}
    path = rig.project / "squares.jsonl"

    def idle() -> None:
        if path.exists() and len(lines(path)) >= committed:
            then()
        elif rig.lane.waiting(CHUNK):
            rig.lane.run_one(CHUNK)

    rig.lane.on_idle = idle


def left(rig: OrderedRig, text: str, committed: int) -> str:
    """Begin a run and leave it when so many items are committed; its id."""
    work = rig.work()
    handle = rig.handle(work, text)
    until(rig, committed, handle.stop)
    assert handle.run().status == "stopped"
    work.close()
    return rig.runs()[0].run_id


def test_a_run_that_was_left_goes_on_with_the_same_ordered_run(project: OrderedRig) -> None:
    run_id = left(project, LONG, 11)
    committed = len(lines(project.project / "squares.jsonl"))
    (ordered,) = [row.run_id for row in project.runs() if row.name == "flow/squares"]
    result = project.run(LONG)
    assert (result.run_id, result.status) == (run_id, "completed")
    assert [row.run_id for row in project.runs() if row.name == "flow/squares"] == [ordered]
    assert min(one.order.index or 0 for one in project.lane.began if one.order.target == CHUNK) >= committed >= 11
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


def test_cancelling_a_run_that_nobody_drives_ends_its_ordered_run_too(project: OrderedRig) -> None:
    run_id = left(project, LONG, 5)
    session = project.home.session()
    with project.reader() as reader:
        assert Canceller(project.home.home, session, reader).run(run_id).status == "cancelled"
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
    tell = work.crew._reporter.report

    def report(grant: Any, finished: Any, **more: Any) -> Any:
        if work.desk.order(grant.payload_digest).kind == "map":
            raise RuntimeError("killed")
        return tell(grant, finished, **more)

    monkeypatch.setattr(work.crew._reporter, "report", report)
    with pytest.raises(RuntimeError, match="killed"):
        handle.run()
    work.close()
    assert ordered_runs(project) == [("flow/squares", "completed")]
    result = project.run(LONG)
    assert result.status == "completed"
    assert ordered_runs(project) == [("flow/squares", "completed")]
    assert [one.order.target for one in project.lane.began if one.order.target == CHUNK] == []
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
