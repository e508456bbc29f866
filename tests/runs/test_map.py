"""Mapped steps: one job for each element, results in the order of the list, bounded."""

from __future__ import annotations

from uuid import UUID

import pytest

from detent.canon import encode, sha256
from detent.runs.record import step_run
from detent.runs.record.step_run import StepRun
from detent.workflow.identity import uuid8
from tests.runs.rig import Rig, states

OVER = """
name: over
params: {{xs: {{type: any, default: [1, 2, 3]}}}}
steps:
  - {{id: made, run: {{python: "steps:numbers", with: {{n: 4}}}}}}
  - {{id: each, map: {{x: {listed}}}, run: {{python: "steps:double"}}}}
  - {{id: sum, run: {{python: "steps:total", with: {{xs: {{$from: each}}}}}}}}
result: {{each: {{$from: each}}, sum: {{$from: sum}}}}
"""


@pytest.mark.parametrize(
    ("listed", "each"),
    [
        ("[1, 5]", [2, 10]),
        ("{$param: xs}", [2, 4, 6]),
        ("{$from: made}", [0, 2, 4, 6]),
        ("[{$from: made}, {$param: xs}]", [[0, 1, 2, 3, 0, 1, 2, 3], [1, 2, 3, 1, 2, 3]]),
        ("[]", []),
    ],
    ids=["list", "parameter", "result", "references", "empty"],
)
def test_a_step_goes_through_a_list_wherever_it_comes_from(rig: Rig, listed: str, each: list[object]) -> None:
    """X-185: one action, n jobs, ordered results; over nothing it succeeds with nothing."""
    nested = bool(each) and isinstance(each[0], list)
    text = OVER.format(listed=listed)
    if nested:
        text = text.replace('"steps:total", with: {xs: {$from: each}}', '"steps:one"')
    result = rig.run(text)
    assert result.status == "completed"
    assert result.value["each"] == each
    assert rig.calls().count("each") == len(each)
    assert next(step for step in result.view.steps if step.key == "each").total == len(each)


def test_a_step_goes_through_the_results_of_a_mapped_step(rig: Rig) -> None:
    """X-185: element by element, each by the digest of its own result."""
    result = rig.run(
        """
        name: twice
        steps:
          - {id: a, map: {x: [1, 2, 3]}, run: {python: "steps:double"}}
          - {id: b, map: {x: {$from: a}}, run: {python: "steps:double"}}
        result: {$from: b}
        """
    )
    assert result.value == [4, 8, 12]


def test_what_is_no_list_fails_the_step(rig: Rig) -> None:
    """X-185, A.9 line 5."""
    result = rig.run(
        """
        name: no_list
        steps:
          - {id: one, run: {python: "steps:one"}}
          - {id: each, map: {x: {$from: one}}, run: {python: "steps:double"}}
          - {id: after, run: {python: "steps:total", with: {xs: {$from: each}}}}
        """
    )
    assert result.status == "failed"
    assert states(result)["each"] == "failed"
    assert states(result)["after"] in {"blocked", "skipped"}
    assert "is not a list" in next(step.message for step in result.view.steps if step.key == "each")
    assert [(one.step, "is not a list" in one.message) for one in result.failed] == [("each", True)]


def test_more_elements_than_are_allowed_fail_the_step_before_any_runs(rig: Rig) -> None:
    """X-185: a bound that is checked where the list is known."""
    assert step_run.ELEMENTS_MAX == 100_000
    result = rig.run(
        """
        name: huge
        steps:
          - {id: made, run: {python: "steps:numbers", with: {n: 100001}}}
          - {id: each, map: {x: {$from: made}}, run: {python: "steps:double"}}
        """
    )
    assert result.status == "failed"
    assert rig.calls() == ["made"]
    assert "has 100,001 elements; 100,000 are allowed" in result.view.steps[1].message


def test_a_thousand_elements_pass_through_a_queue_of_256(rig: Rig) -> None:
    """X-031, X-187: a full queue holds the driver back; nothing is dropped or made twice."""
    result = rig.run(
        """
        name: wide
        steps:
          - {id: made, run: {python: "steps:numbers", with: {n: 1000}}}
          - {id: each, map: {x: {$from: made}}, run: {python: "steps:double"}, chunk: 1}
          - {id: sum, run: {python: "steps:total", with: {xs: {$from: each}}}}
        result: {$from: sum}
        """
    )
    assert result.value == 999_000
    assert len(rig.jobs()) == 1002
    assert len(rig.lane.began) == 1002
    with rig.reader() as reader:
        assert "QUEUE_FULL" in {row.code for row in reader.refusals()}


def test_short_elements_share_jobs_whatever_runs_them(rig: Rig) -> None:
    """X-185: the executor of tests runs arrays, too; every element is called once, and each has its own outcome."""
    result = rig.run(
        """
        name: wide
        steps:
          - {id: made, run: {python: "steps:numbers", with: {n: 300}}}
          - {id: each, map: {x: {$from: made}}, run: {python: "steps:double"}}
        result: {$from: each}
        """
    )
    assert result.value == [2 * number for number in range(300)]
    assert rig.calls().count("each") == 300
    assert len(rig.jobs()) < 100
    again = rig.run(
        """
        name: wide
        steps:
          - {id: made, run: {python: "steps:numbers", with: {n: 300}}}
          - {id: each, map: {x: {$from: made}}, run: {python: "steps:double"}}
        result: {$from: each}
        """
    )
    assert again.value == result.value
    assert rig.calls() == []


def test_an_element_s_job_is_named_by_its_action_and_its_place(rig: Rig) -> None:
    """X-185: UUIDv8 of (action id, index)."""
    rig.run('name: ids\nsteps: [{id: a, map: {x: [5, 6]}, run: {python: "steps:double"}}]')
    jobs = {one.job_id: one.order.origin.index for one in rig.lane.began}
    assert sorted(jobs.values()) == [0, 1]  # type: ignore[type-var]
    assert {UUID(job).version for job in jobs} == {8}
    # The action's own id is drawn from the operation, so here the formula is put to a known one.
    step = StepRun("k", None, None, UUID(int=7), 5)  # type: ignore[arg-type]
    assert step.job_id(3) == str(uuid8(sha256(encode(["element/v1", str(UUID(int=7)), 3]))))
    assert step.job_id(None) == str(UUID(int=7))


def test_an_element_that_fails_fails_the_step_and_leaves_the_others(rig: Rig) -> None:
    """A.9: what is under way is left to finish, what has not begun is dropped."""
    result = rig.run(
        """
        name: odd
        steps:
          - {id: each, map: {x: [0, 1, 2, 4]}, run: {python: "steps:odd"}}
          - {id: after, run: {python: "steps:total", with: {xs: {$from: each}}}}
        """
    )
    assert result.status == "failed"
    assert [(failed.step, failed.message) for failed in result.failed] == [("each", "ValueError: 1 is odd")]
    each = result.view.steps[0]
    assert (each.failed, each.state) == (1, "failed")
    assert {row.state for row in rig.jobs()} == {"SUCCEEDED", "FAILED"}


def test_equal_elements_are_done_once(rig: Rig) -> None:
    """X-186: identical work in progress is joined, also within one commit."""
    result = rig.run(
        """
        name: equal
        steps:
          - {id: each, map: {x: [7, 7, 7, 8, 7]}, run: {python: "steps:double"}}
        result: {$from: each}
        """
    )
    assert result.value == [14, 14, 14, 16, 14]
    assert len(rig.lane.began) == 2
    assert rig.kinds(result.run_id).count("step_reused") == 3
    assert (result.view.steps[0].cached, result.view.steps[0].done) == (3, 5)


def test_equal_elements_of_a_full_queue_are_done_once(rig: Rig) -> None:
    """X-031, X-186: what joined a job that found no room waits with it, however little room the run itself has."""
    rig.write("def numbers(n): return [i // 3 for i in range(n)]\ndef double(x): return 3 * x\n")
    result = rig.run(
        """
        name: equal
        steps:
          - {id: made, run: {python: "steps:numbers", with: {n: 1020}}}
          - {id: each, map: {x: {$from: made}}, run: {python: "steps:double"}, chunk: 1}
        result: {$from: each}
        """,
        max_parallel=300,
        slots=1,
    )
    assert result.value == [3 * (i // 3) for i in range(1020)]
    assert rig.calls().count("each") == 340
    with rig.reader() as reader:
        assert "QUEUE_FULL" in {row.code for row in reader.refusals()}


def test_elements_keep_their_ids_when_the_run_is_taken_up(rig: Rig) -> None:
    """X-185: the ids follow from the recorded operation."""
    text = 'name: ids\nsteps: [{id: a, map: {x: [5, 6, 7]}, run: {python: "steps:double"}}]'
    rig.new_lane()
    rig.lane.held = {"steps:double"}
    work = rig.work()
    handle = rig.handle(work, text)
    run_id = handle.open()
    rig.lane.on_idle = lambda: handle.stop() if rig.lane.waiting("steps:double") == 3 else None
    assert handle.run().status == "stopped"
    before = {row.job_id for row in rig.jobs(run_id)}
    work.close()
    result = rig.run(text)
    assert (result.run_id, result.status) == (run_id, "completed")
    assert len(before) == 3
    assert {row.job_id for row in rig.jobs()} == before
