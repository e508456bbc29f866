"""When a map step is done again, and when what it came to is taken as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from detent.inspect.plan_preview import preview_plan
from tests.runs.ordered.map_steps import SQUARES, cube, listed, one, ordered_runs, rows
from tests.runs.ordered.rig import OrderedRig, lines
from tests.runs.rig import states


def test_a_finished_step_is_not_done_again(project: OrderedRig) -> None:
    project.run(SQUARES)
    again = project.run(SQUARES)
    assert states(again) == dict.fromkeys(["numbers", "squares", "count"], "reused")
    assert ordered_runs(project) == [("flow/squares", "completed")]


def test_how_far_and_in_which_pieces_it_is_computed_does_not_matter_for_reuse(project: OrderedRig) -> None:
    project.run(listed([1, 2]))
    assert states(project.run(listed([1, 2], more=", window: 7, chunk: 1, retries: 2"))) == {"squares": "reused"}


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
        step = preview_plan(project.home.home, project.contract(text), {}).steps["squares"]
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
    assert states(project.run(text)) == {"squares": "reused"}
    (project.project / "a.txt").write_text("ab")
    assert states(project.run(text)) == {"squares": "succeeded"}
    assert lines(project.project / "out.jsonl") == [["'a.txt'", 2]]


def test_another_filter_runs_the_step_again_also_where_a_version_stands_for_the_code(project: OrderedRig) -> None:
    text = listed([1, 2, 3, 4], more=", filter: 'steps.py:is_even'").replace("}}\nresult", "}, version: '1'}\nresult")
    assert project.run(text).value["skipped"] == 2
    assert states(project.run(text)) == {"squares": "reused"}
    assert project.run(text.replace(", filter: 'steps.py:is_even'", "")).value["skipped"] == 0
    path = project.project / "steps.py"
    path.write_text(path.read_text().replace("def is_even(x): return x % 2 == 0", "def is_even(x): return True"))
    assert states(project.run(text)) == {"squares": "succeeded"}, "its file was replaced meanwhile"
    assert states(project.run(text)) == {"squares": "reused"}


def test_a_declared_input_of_the_function_counts_too(project: OrderedRig) -> None:
    (project.project / "model.bin").write_text("1")
    text = listed([1]).replace("    run:", "    inputs: model.bin\n    run:")
    project.run(text)
    assert states(project.run(text)) == {"squares": "reused"}
    (project.project / "model.bin").write_text("22")
    assert states(project.run(text)) == {"squares": "succeeded"}


def test_a_table_is_filled_anew_and_looked_at_before_it_is_reused(project: OrderedRig) -> None:
    commit = "sqlite:out.db#squares"
    project.run(listed([1, 2, 3], commit=commit))
    assert states(project.run(listed([1, 2, 3], commit=commit))) == {"squares": "reused"}
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
