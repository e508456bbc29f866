"""The driver: one job for each action, made when its needs have succeeded, and a run that ends as its steps did."""

from __future__ import annotations

from uuid import UUID

import pytest

from detent.canon import decode
from detent.errors import InvalidInput, RequestRefused
from detent.jobs.status import JobStatus, project_job
from detent.runs.record.inputs import RunIdentity, RunInputs
from detent.runs.steps.driver import Driver
from detent.runs.steps.plan import steps_of
from tests.runs.rig import Rig, states

CHAIN = """
name: chain
steps:
  - {id: first, run: {python: "steps:one"}}
  - {id: second, run: {python: "steps:double", with: {x: {$from: first}}}}
  - {id: third, run: {python: "steps:double", with: {x: {$from: second}}}}
result: {$from: third}
"""

LONG = """
workflow_coordination:
    workflow_definition:
      version: {{major: 1, minor: 0, patch: 0}}
      workflow_metadata:
        version: {{major: 1, minor: 0, patch: 0}}
        workflow_name: long
        workflow_version: {{major: 1, minor: 0, patch: 0}}
        description: in the long form
        execution_mode: parallel
      execution_graph: {{version: {{major: 1, minor: 0, patch: 0}}}}
      coordination_rules: {{version: {{major: 1, minor: 0, patch: 0}}}}
    steps: {steps}
"""


def test_a_chain_runs_in_order_and_gives_its_result(rig: Rig) -> None:
    """WF-281, WF-282, X-023."""
    result = rig.run(CHAIN)
    assert (result.status, result.value) == ("completed", 4)
    assert rig.calls() == ["first", "second", "third"]
    assert states(result) == dict.fromkeys(["first", "second", "third"], "succeeded")


def test_each_action_is_one_job_and_the_run_binds_them(rig: Rig) -> None:
    """WF-281, X-167: the run's records name its jobs; the contract's short form gives one action for each step."""
    result = rig.run(CHAIN)
    jobs = rig.jobs(result.run_id)
    assert len(jobs) == 3
    assert {row.state for row in jobs} == {"SUCCEEDED"}
    assert rig.kinds(result.run_id) == ["run_started", "submitted", "submitted", "submitted", "run_ended"]
    assert [run.status for run in rig.runs()] == ["completed"]
    assert {rig.job(row.job_id).job_kind for row in jobs} == {"action"}


def test_a_job_carries_its_action_s_retries_limit_and_priority(rig: Rig) -> None:
    """WF-281, X-010: `retry_count`, `timeout_ms` and `priority` of a step reach the job."""
    result = rig.run(
        """
        name: limits
        steps:
          - {id: a, priority: 3, timeout: 5s, retry: 4, run: {python: "steps:one"}}
        """
    )
    job = rig.job(rig.jobs(result.run_id)[0].job_id)
    assert (job.max_retries, job.priority) == (4, 3)
    assert rig.lane.began[0].order.limits.wall_ms == 5000


def test_a_diamond_waits_for_both_sides(rig: Rig) -> None:
    """WF-282."""
    result = rig.run(
        """
        name: diamond
        steps:
          - {id: join, run: {python: "steps:add", with: {a: {$from: left}, b: {$from: right}}}}
          - {id: left, run: {python: "steps:double", with: {x: {$from: top}}}}
          - {id: right, run: {python: "steps:add", with: {a: {$from: top}, b: 10}}}
          - {id: top, run: {python: "steps:one"}}
        result: {answer: {$from: join}, "$$from": top}
        """
    )
    assert result.value == {"answer": 13, "$from": "top"}
    assert rig.calls()[0] == "top"
    assert rig.calls()[-1] == "join"


def test_a_job_is_made_only_when_all_it_needs_has_succeeded(rig: Rig) -> None:
    """WF-282: with the first step held, the second one has no job."""
    rig.lane.held = {"steps:one"}
    work = rig.work()
    handle = rig.handle(work, CHAIN)
    seen: list[int] = []

    def idle() -> None:
        if rig.lane.waiting("steps:one"):
            seen.append(len(rig.jobs(handle.open())))
            rig.lane.release()

    rig.lane.on_idle = idle
    assert handle.run().ok
    assert seen == [1]


def test_a_step_counts_every_step_that_it_needs(rig: Rig) -> None:
    """WF-282: and those know who waits for them; a disabled one is not waited for."""
    text = LONG.format(
        steps="""
      - {id: a, step_name: a, step_type: compute, run: {python: "steps:one"}}
      - {id: b, step_name: b, step_type: compute, run: {python: "steps:one"}}
      - {id: off, step_name: off, step_type: compute, enabled: false, run: {python: "steps:one"}}
      - id: c
        step_name: c
        step_type: compute
        run: {python: "steps:same", with: {value: [{$from: a}, {$from: b}, {$from: off}]}}"""
    )
    steps = steps_of(RunInputs(rig.contract(text), {}), RunIdentity("r", UUID(int=1)), 1)
    assert {step.key: step.unmet for step in steps} == {"a": 0, "b": 0, "off": 0, "c": 2}
    waited_for = {step.key: [one.key for one in step.dependents] for step in steps}
    assert waited_for == {"a": ["c"], "b": ["c"], "off": [], "c": []}


def test_a_step_without_anything_to_run_is_refused_before_the_run_begins(rig: Rig) -> None:
    """WF-284: what a step runs comes from its binding."""
    with pytest.raises(InvalidInput, match="'a' says nothing to run"):
        rig.run(LONG.format(steps="[{id: a, step_name: a, step_type: compute}]"))
    assert rig.runs() == []
    assert list((rig.home.path / "runs").iterdir()) == []


def test_a_disabled_step_is_skipped_and_its_dependents_run(rig: Rig) -> None:
    """A.9 line 1: a disabled need counts as met, and gives nothing."""
    result = rig.run(
        LONG.format(
            steps="""
      - {id: off, step_name: off, step_type: compute, enabled: false, run: {python: "steps:boom"}}
      - {id: bare, step_name: bare, step_type: compute, enabled: false}
      - id: after
        step_name: after
        step_type: compute
        run: {python: "steps:same", with: {value: [{$from: off}, {$from: bare}]}}
    result: {$from: after}"""
        )
    )
    assert result.status == "completed"
    assert states(result)["off"] == "skipped"
    assert result.value == [None, None]


def test_a_failure_stops_what_comes_after_it_and_blocks_what_needs_it(rig: Rig) -> None:
    """A.9 lines 3, 5 and 6, WF-282: nothing that needs the failed step is ever made."""
    result = rig.run(
        """
        name: stop
        steps:
          - {id: bad, run: {python: "steps:boom"}}
          - {id: needs_bad, run: {python: "steps:double", with: {x: {$from: bad}}}}
          - {id: waits, needs: [slow], run: {python: "steps:one"}}
          - {id: slow, needs: [ok], run: {python: "steps:nothing"}}
          - {id: ok, run: {python: "steps:one"}}
        """
    )
    assert result.status == "failed"
    assert result.value is None
    assert states(result)["bad"] == "failed"
    assert states(result)["needs_bad"] in {"blocked", "skipped"}
    assert "needs_bad" not in rig.calls()
    assert [failed.step for failed in result.failed] == ["bad"]
    assert result.failed[0].message == "ValueError: boom"


def test_a_ready_step_that_has_not_been_submitted_is_not_begun_after_a_stop(rig: Rig) -> None:
    """A.9 line 3: `stop` means that nothing further is begun, room or no room."""
    result = rig.run(
        """
        name: stop
        steps:
          - {id: bad, run: {python: "steps:boom"}}
          - {id: other, run: {python: "steps:one"}}
        """,
        max_parallel=1,
    )
    assert result.status == "failed"
    assert rig.calls() == ["bad"]
    assert states(result) == {"bad": "failed", "other": "skipped"}
    assert len(rig.jobs()) == 1


def test_a_failure_that_may_pass_leaves_the_rest_alone(rig: Rig) -> None:
    """A.9 lines 5, 6 and 7: `continue` blocks the needs alone, `skip_on_failure` skips by itself."""
    result = rig.run(
        """
        name: continue
        steps:
          - {id: bad, error_action: continue, run: {python: "steps:boom"}}
          - {id: needs_bad, run: {python: "steps:double", with: {x: {$from: bad}}}}
          - {id: gate, run: {python: "steps:one"}}
          - {id: shy, needs: [gate], skip_on_failure: true, run: {python: "steps:one"}}
          - {id: bold, needs: [gate], run: {python: "steps:nothing"}}
        """,
        max_parallel=1,
    )
    assert result.status == "failed"
    assert states(result) == {
        "bad": "failed",
        "needs_bad": "blocked",
        "gate": "succeeded",
        "shy": "skipped",
        "bold": "succeeded",
    }
    assert sorted(rig.calls()) == ["bad", "bold", "gate"]


def test_max_parallel_is_never_exceeded(rig: Rig) -> None:
    """WF-283, X-138: counted in jobs that have been submitted and have not ended."""
    most: list[int] = []

    def count() -> None:
        most.append(sum(row.state not in {"SUCCEEDED", "FAILED", "CANCELED"} for row in rig.jobs()))

    rig.new_lane()
    rig.lane.functions["steps:one"] = count
    steps = "\n".join(f'  - {{id: s{n}, run: {{python: "steps:one", version: "{n}"}}}}' for n in range(9))
    work = rig.work()
    result = rig.handle(work, f"name: wide\nsteps:\n{steps}\n", max_parallel=3).run()
    assert result.ok
    assert len(most) == 9
    assert max(most) == 3


def test_higher_priorities_are_claimed_first(rig: Rig) -> None:
    """X-010: the class of a job is its action's priority, and 10 goes first."""
    result = rig.run(
        """
        name: priorities
        steps:
          - {id: low, priority: 1, run: {python: "steps:one", version: a}}
          - {id: high, priority: 9, run: {python: "steps:one", version: b}}
          - {id: middle, priority: 5, run: {python: "steps:one", version: c}}
        """,
        slots=1,
    )
    assert result.ok
    assert rig.calls() == ["high", "middle", "low"]


def test_values_pass_through_unchanged_whatever_keys_they_have(rig: Rig) -> None:
    """X-177: a result, a parameter and a literal with `$` keys are data, not references."""
    strange = {"$from": "x", "$$": [1], "$result": "sha256:no", "$file": {"a": None}, "plain": {"from": 1}}
    rig.write(f"def strange(): return {strange!r}\ndef same(value): return value\n")
    result = rig.run(
        """
        name: dollars
        params: {given: {type: any}}
        steps:
          - {id: made, run: {python: "steps:strange"}}
          - {id: same, run: {python: "steps:same", with: {value: {r: {$from: made}, p: {$param: given}, l: {"$$x": 1}}}}}
        result: {$from: same}
        """,
        {"given": strange},
    )
    assert result.value == {"r": strange, "p": strange, "l": {"$x": 1}}


def test_a_repeated_operation_with_other_inputs_is_refused(rig: Rig) -> None:
    """X-145: the same run and operation is the same answer; with other inputs it is refused."""
    work = rig.work()
    first = rig.handle(work, CHAIN)
    result = first.run()
    with rig.reader() as reader:
        body = decode(next(r for r in reader.records_of_run(result.run_id) if r.kind == "run_started").body)
    assert isinstance(body, dict)
    identity = RunIdentity(result.run_id, UUID(str(body["operation_id"])))
    other = RunInputs(rig.contract(CHAIN.replace("double", "same").replace("x:", "value:")), {})
    driver = Driver(work.backend, other, identity, work.work_keys, supervisor=work.supervisor)
    with pytest.raises(RequestRefused, match="exists with other inputs") as refused:
        driver.run()
    assert refused.value.code == "CONFLICT"


def test_a_result_that_is_no_json_fails_its_step_by_name(rig: Rig) -> None:
    """X-170."""
    rig.write("def one(): return {'a': [1, b'raw']}\n")
    result = rig.run('name: odd\nsteps: [{id: a, run: {python: "steps:one"}}]')
    assert result.status == "failed"
    assert "['a'][1] is a bytes" in result.failed[0].message
    job = rig.job(result.failed[0].job_id)
    assert project_job(job).status is JobStatus.FAILED
    assert job.failures == 0
