"""The settings of a map step as parameters of its run: what they may be, and what they decide."""

from __future__ import annotations

from typing import Any

import pytest

from detent.contract.params import ParamsInvalid, bind
from detent.inspect.plan_preview import preview_plan
from tests.runs.ordered.map_steps import PARAMS, left, one, order, ordered_runs
from tests.runs.ordered.rig import OrderedRig, lines
from tests.runs.rig import states


def test_a_parameter_may_be_the_list(project: OrderedRig) -> None:
    settings = "items: {$param: xs}, compute: 'steps.py:square', commit: 'jsonl:out.jsonl'"
    text = one(settings).replace("steps:\n", "params: {xs: {type: any, default: [1]}}\nsteps:\n", 1)
    assert project.run(text, {"xs": [3, 4]}).status == "completed"
    assert lines(project.project / "out.jsonl") == [9, 16]
    with pytest.raises(
        ParamsInvalid, match=r"flow\.yaml:5:24: items needs a list to go through, not 7; items is parameter 'xs'"
    ):
        project.run(text, {"xs": 7})


def test_settings_may_be_parameters_and_come_to_what_they_would_come_to_written_out(project: OrderedRig) -> None:
    given = {"out": "jsonl+seq:b.jsonl", "ahead": 4, "pieces": 1, "after": "continue", "tries": 1}
    result = project.run(PARAMS.replace("steps.py:square", "steps.py:fails_at_two"), given)
    assert (result.status, result.value["failed"], result.value["destination"]) == ("completed", 1, "jsonl+seq:b.jsonl")
    assert lines(project.project / "b.jsonl") == [{"seq": 0, "value": 1}, {"seq": 2, "value": 3}]
    assert not (project.project / "a.jsonl").exists()
    (step,) = [job.job_id for job in project.jobs(result.run_id)]
    assert order(project, step).call.target == {
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
    assert order(project, chunk.job_id).call.arguments[0]["retries"] == 1


def test_the_value_of_a_parameter_decides_about_reuse_as_if_it_were_written_there(project: OrderedRig) -> None:
    def verdict(**params: Any) -> tuple[str, str]:
        contract = project.contract(PARAMS)
        step = preview_plan(project.home.home, contract, bind(contract, params)).steps["squares"]
        return step.verdict, step.why

    project.run(PARAMS)
    assert states(project.run(PARAMS, {"ahead": 5})) == {"squares": "reused"}, (
        "how far is computed ahead does not count"
    )
    assert verdict(out="jsonl:b.jsonl") == (
        "run",
        "destination jsonl:a.jsonl -> jsonl:b.jsonl; output destination a.jsonl -> b.jsonl",
    )
    written = PARAMS.replace("{$param: out}", "'jsonl:a.jsonl'")
    assert states(project.run(written)) == {"squares": "reused"}, "written out it is the same work"
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
    assert states(project.run(text, {"texts": given})) == {"squares": "reused"}
    (project.project / "a.txt").write_text("changed")
    assert states(project.run(text, {"texts": given})) == {"squares": "succeeded"}
    assert states(project.run(text, {"texts": "c.*"})) == {"squares": "succeeded"}


def test_a_file_of_rows_that_a_parameter_names_counts_by_its_content(project: OrderedRig) -> None:
    settings = "items: {$param: rows}, compute: 'steps.py:square', commit: 'jsonl:out.jsonl'"
    text = one(settings).replace("steps:\n", "params: {rows: rows.jsonl}\nsteps:\n", 1)
    (project.project / "rows.jsonl").write_text("1\n2\n")
    project.run(text)
    assert states(project.run(text)) == {"squares": "reused"}
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
    told = preview_plan(project.home.home, contract, bind(contract, {})).steps["squares"]
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
