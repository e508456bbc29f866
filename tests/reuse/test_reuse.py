"""Reuse by content: what was done before is not done again, and what has changed is, and only that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest

from detent.canon import digest_text
from detent.reuse.work_keys import WorkKey, WorkKeys
from detent.runs.erase import erase_job
from detent.runs.handle import RunResult
from detent.runs.steps import reuse_notes
from detent.store.api import JobRow, WorkRow
from detent.store.sqlite.reader import SqliteReader
from tests.runs.rig import Rig, states

PIPE = """
name: pipe
params: {n: {type: integer, default: 3}}
steps:
  - {id: made, run: {python: "steps:numbers", with: {n: {$param: n}}}}
  - {id: each, map: {x: {$from: made}}, run: {python: "steps:double"}}
  - {id: sum, run: {python: "steps:total", with: {xs: {$from: each}}}}
  - {id: apart, run: {python: "steps:one"}}
result: {$from: sum}
"""
ALL = ["made", "each", "sum", "apart"]


def ran(result: RunResult) -> list[str]:
    """The steps with any work done."""
    return [step.key for step in result.view.steps if step.state == "succeeded"]


def test_the_same_again_does_nothing_and_gives_the_same(rig: Rig) -> None:
    """JOB-005, JOB-026, X-174: a new run, with a `run_reused` record that names the run whose jobs it did not need again."""
    first = rig.run(PIPE)
    second = rig.run(PIPE)
    assert second.run_id != first.run_id
    assert (second.status, second.value) == ("completed", first.value)
    assert rig.calls() == []
    assert states(second) == dict.fromkeys(ALL, "reused")
    assert [step.cached for step in second.view.steps] == [step.total for step in first.view.steps]
    assert {step.cached for step in first.view.steps} == {0}
    assert rig.jobs(second.run_id) == []
    assert rig.kinds(second.run_id) == ["run_started", "run_reused", "run_ended"]


def test_another_workflow_with_the_same_work_reuses_it(rig: Rig) -> None:
    """X-148, X-186: equal keys are equal work, whatever the steps are called."""
    rig.run(PIPE)
    other = rig.run(PIPE.replace("name: pipe", "name: other").replace("apart", "alone"))
    assert other.ok
    assert rig.calls() == []


def test_a_changed_function_runs_again_with_what_follows_from_it(rig: Rig) -> None:
    """X-176: a comment, another function or the layout change nothing."""
    rig.run(PIPE)
    source = rig.project.joinpath("steps.py").read_text()
    rig.write(source.replace("def double(x): return 2 * x", "# doubles\ndef double(x):\n    return 2 * x"))
    assert ran(rig.run(PIPE)) == []
    rig.write(source.replace("def double(x): return 2 * x", "def double(x): return 3 * x"))
    result = rig.run(PIPE)
    assert set(ran(result)) == {"each", "sum"}
    assert result.value == 9


def test_a_changed_helper_runs_its_users_again(rig: Rig) -> None:
    """X-176."""
    rig.write("def helper(x): return x\ndef double(x): return helper(x)\ndef one(): return 1\n")
    text = 'name: h\nsteps: [{id: a, run: {python: "steps:double", args: [2]}}, {id: b, run: {python: "steps:one"}}]'
    rig.run(text)
    rig.write("def helper(x): return x + 1\ndef double(x): return helper(x)\ndef one(): return 1\n")
    assert ran(rig.run(text)) == ["a"]


def test_a_changed_parameter_runs_what_depends_on_it(rig: Rig) -> None:
    """JOB-023: elements that stayed the same are not done again."""
    rig.run(PIPE, {"n": 3})
    result = rig.run(PIPE, {"n": 4})
    assert sorted(rig.calls()) == ["each", "made", "sum"]
    assert result.value == 12
    each = next(step for step in result.view.steps if step.key == "each")
    assert (each.done, each.cached) == (4, 3)


def test_a_result_that_comes_out_the_same_stops_the_wave(rig: Rig) -> None:
    """X-170, JOB-023: a result counts by what it is, not by which job made it."""
    rig.run(PIPE)
    source = rig.project.joinpath("steps.py").read_text()
    rig.write(source.replace("return list(range(n))", "return [i for i in range(n)]"))
    result = rig.run(PIPE)
    assert ran(result) == ["made"]


def test_declared_inputs_count_by_content(rig: Rig) -> None:
    """JOB-023: touched is not changed."""
    data = rig.write("1\n", "data.txt")
    rig.write("import pathlib\ndef read(): return pathlib.Path(__file__).with_name('data.txt').read_text()\n")
    text = 'name: i\nsteps: [{id: a, run: {python: "steps:read"}, inputs: data.txt}]\nresult: {$from: a}'
    assert rig.run(text).value == "1\n"
    data.write_text("1\n")
    assert ran(rig.run(text)) == []
    data.write_text("22\n")
    assert rig.run(text).value == "22\n"


@pytest.mark.parametrize("outputs", ["", ", outputs: out.txt"])
def test_a_step_whose_declared_input_is_not_there_fails_before_it_begins(rig: Rig, outputs: str) -> None:
    text = f"name: i\nsteps: [{{id: a, run: {{shell: touch out.txt}}, inputs: [steps.py, nofile.csv]{outputs}}}]"
    rig.write("1\n", "nofile.csv")
    assert rig.handle(rig.pool(), text).run().status == "completed"
    for name in ("nofile.csv", "out.txt"):
        (rig.project / name).unlink()
    result = rig.handle(rig.pool(), text).run()
    assert (result.status, result.view.steps[0].message) == (
        "failed",
        f"DEPENDENCY_MISSING: its input nofile.csv is not there: {rig.project}/nofile.csv",
    )
    report = rig.report(rig.pool(), result.failed[0].job_id)
    assert report.result.failure is not None
    assert (report.result.failure.category, report.result.failure.code) == ("DEPENDENCY_ERROR", "DEPENDENCY_MISSING")
    assert not (rig.project / "out.txt").exists()


def test_inputs_that_an_earlier_step_makes_and_patterns_that_fit_nothing_are_no_failure(rig: Rig) -> None:
    (rig.project / "empty").mkdir()
    text = """
    name: i
    steps:
      - {id: make, run: {shell: "echo 1 > made.csv"}}
      - {id: use, needs: [make], run: {shell: cat made.csv}, inputs: [made.csv, "*.parquet", empty]}
    """
    assert rig.handle(rig.pool(), text).run().status == "completed"


def test_a_version_stands_for_the_code(rig: Rig) -> None:
    """X-176."""
    text = 'name: v\nsteps: [{{id: a, run: {{python: "steps:one", version: "{version}"}}}}]\nresult: {{$from: a}}'
    rig.run(text.format(version=1))
    rig.write("def one(): return 2\n")
    assert rig.run(text.format(version=1)).value == 1
    assert rig.run(text.format(version=2)).value == 2


def test_what_cannot_be_read_off_the_source_runs_every_time(rig: Rig) -> None:
    """X-176: and the run says why."""
    rig.write("one = eval('lambda: 1')\n")
    text = 'name: e\nsteps: [{id: a, run: {python: "steps:one"}}]'
    rig.run(text)
    work = rig.work(executors=rig.lane.executors)
    handle = rig.handle(work, text)
    assert ran(handle.run()) == ["a"]


def test_a_step_with_its_cache_off_runs_every_time(rig: Rig) -> None:
    """X-175."""
    text = 'name: c\nsteps: [{id: a, cache: false, run: {python: "steps:one"}}]'
    assert ran(rig.run(text)) == ["a"]
    assert ran(rig.run(text)) == ["a"]


def test_force_runs_everything_and_its_results_count_afterwards(rig: Rig) -> None:
    """Issue 6.3: `--force`; equal work inside the run is still done once."""
    rig.run(PIPE)
    assert set(ran(rig.run(PIPE, force=True))) == set(ALL)
    assert rig.calls().count("each") == 3
    assert ran(rig.run(PIPE)) == []


def test_a_salt_disowns_what_was_done_without_it(rig: Rig) -> None:
    """Issue 6.3."""
    rig.run(PIPE)
    assert set(ran(rig.run(PIPE, salt="poisoned"))) == set(ALL)
    assert ran(rig.run(PIPE, salt="poisoned")) == []
    assert ran(rig.run(PIPE)) == []


def test_a_failure_is_reused_only_when_asked_for(rig: Rig) -> None:
    """JOB-027, X-149: then it is a failure, and nothing runs."""
    text = 'name: f\nsteps: [{id: a, run: {python: "steps:boom"}}, {id: b, run: {python: "steps:same", args: [{$from: a}]}}]'
    first = rig.run(text)
    assert first.status == "failed"
    again = rig.run(text)
    assert (again.status, rig.calls()) == ("failed", ["a"])
    told = rig.run(text, reuse_failed=True)
    assert rig.calls() == []
    assert told.status == "failed"
    assert states(told) == {"a": "failed", "b": "skipped"}
    assert [(failed.job_id, failed.message) for failed in told.failed] == [
        (first.failed[0].job_id, "ValueError: boom"),
    ]


def test_cancelled_and_timed_out_work_is_never_reused(rig: Rig, detent_clock: object) -> None:
    """JOB-028, X-149: a deadline says nothing about the next try, whatever was asked for."""
    text = 'name: t\nsteps: [{id: a, timeout: 1s, run: {python: "steps:one"}}]'
    rig.new_lane()
    rig.lane.functions["steps:one"] = lambda: rig.clock.jump(2000)
    work = rig.work()
    assert rig.handle(work, text).run().status == "failed"
    work.close()
    assert rig.run(text, reuse_failed=True).ok
    assert rig.calls() == ["a"]


def test_a_result_whose_file_is_gone_is_a_miss_that_says_so(rig: Rig) -> None:
    """Issue 6.3, JOB-026."""
    rig.write("import detent\ndef picture(): return detent.File.from_bytes(b'x' * 100_000, name='a.bin')\n")
    text = 'name: f\nsteps: [{id: a, run: {python: "steps:picture"}}]\nresult: {$from: a}'
    first = rig.run(text)
    digest = first.value["$file"]
    files = rig.home.home.content_files()
    files.path(bytes.fromhex(digest.removeprefix("sha256:"))).unlink()
    rig.new_lane()
    work = rig.work()
    handle = rig.handle(work, text)
    assert ran(handle.run()) == ["a"]
    assert list(handle._driver.progress.reasons.values()) == ["a part of its result is gone"]  # type: ignore[union-attr]
    assert digest_text(bytes.fromhex(digest.removeprefix("sha256:"))) == digest


def test_an_erased_job_is_no_answer(rig: Rig) -> None:
    """X-171: erasing takes the row out of the index; the work is done again."""
    rig.run(PIPE)
    apart = next(one.job_id for one in rig.lane.began if one.order.origin.step == "apart")
    erase_job(rig.home.home, apart, environment=rig.home.environment)
    assert rig.run(PIPE).ok
    assert rig.calls() == ["apart"]


def test_a_miss_says_which_ingredient_changed(rig: Rig) -> None:
    """X-176: `explain` and the run name what is not as it was."""
    rig.run(PIPE)
    source = rig.project.joinpath("steps.py").read_text()
    rig.write(source.replace("def one(): return 1", "def one(): return 11"))
    rig.new_lane()
    work = rig.work()
    handle = rig.handle(work, PIPE)
    handle.run()
    assert list(handle._driver.progress.reasons.values()) == ["function steps:one changed"]  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["delete", "change"])
def test_a_shell_step_is_reused_while_its_outputs_are_what_it_left(rig: Rig, how: str) -> None:
    """X-175: a missing or changed output is a miss; a shell step's value names its outputs by digest."""
    rig.write("select 1;\n", "load.sql")
    text = """
    name: shell
    steps:
      - {id: load, run: {shell: "cat load.sql > out.db; echo done"}, inputs: load.sql, outputs: {db: out.db}}
      - {id: free, run: {shell: "echo free"}}
    result: {$from: load}
    """

    def run() -> RunResult:
        work = rig.pool()
        try:
            return rig.handle(work, text).run()
        finally:
            work.close()

    first = run()
    assert (first.value["exit"], first.value["stdout"]) == (0, "done\n")
    assert first.value["outputs"]["db"]
    assert states(run()) == {"load": "reused", "free": "succeeded"}
    out = rig.project / "out.db"
    out.unlink() if how == "delete" else out.write_text("other")
    assert states(run())["load"] == "succeeded"
    assert out.read_text() == "select 1;\n"
    rig.write("select 2;\n", "load.sql")
    assert states(run())["load"] == "succeeded"


def wide(count: int) -> str:
    """So many steps that need nothing, each its own work."""
    steps = "\n".join(f'  - {{id: s{n}, run: {{python: "steps:double", args: [{n}]}}}}' for n in range(count))
    return f"name: wide\nsteps:\n{steps}\n"


def test_what_was_done_before_is_looked_for_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-174: however many steps there are, in as few reads."""
    first = rig.run(wide(30))
    asked: list[int] = []
    real = SqliteReader.work_of_keys

    def counted(self: SqliteReader, workspace: str, keys: Sequence[bytes]) -> Iterator[tuple[WorkRow, JobRow]]:
        asked.append(len(keys))
        return real(self, workspace, keys)

    monkeypatch.setattr(SqliteReader, "work_of_keys", counted)
    result = rig.run(wide(40))
    cached = [step.key for step in result.view.steps if step.state == "reused"]
    assert cached == [step.key for step in first.view.steps]
    assert asked == [40]


def test_no_more_is_looked_at_than_may_begin(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-138: what waits for room is looked at when its turn comes, and once."""
    asked: list[int] = []
    real = WorkKeys.look

    def counted(self: WorkKeys, work_keys: Iterable[WorkKey]) -> None:
        listed = list(work_keys)
        asked.append(len(listed))
        real(self, listed)

    monkeypatch.setattr(WorkKeys, "look", counted)
    assert rig.run(wide(12), max_parallel=3).ok
    assert sum(asked) == 12
    assert max(asked) == 3


def test_equal_work_in_one_look_is_done_once(rig: Rig) -> None:
    """X-186: the second one joins the first, and after it was done both take it."""
    same = "\n".join(f'  - {{id: s{n}, run: {{python: "steps:double", args: [7]}}}}' for n in range(5))
    text = f"name: same\nsteps:\n{same}\n"
    assert sorted(states(rig.run(text)).values()) == [*["reused"] * 4, "succeeded"]
    assert rig.calls() == ["s0"]
    assert set(states(rig.run(text)).values()) == {"reused"}
    assert rig.calls() == []


def test_many_reuses_are_recorded_in_few_commits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded by their number and by what their ingredients take."""
    rig.run(wide(12))
    other = wide(12).replace("name: wide", "name: other")
    assert reuse_batches(rig, rig.run(other)) == [12]
    monkeypatch.setattr(reuse_notes, "REUSES_MAX", 5)
    assert reuse_batches(rig, rig.run(other)) == [5, 5, 2]
    monkeypatch.setattr(reuse_notes, "REUSE_BYTES_MAX", 1)
    assert reuse_batches(rig, rig.run(other)) == [1] * 12


def reuse_batches(rig: Rig, result: RunResult) -> list[int]:
    """How many reuses of a run are in each commit."""
    with rig.reader() as reader:
        records = [one for one in reader.records_of_run(result.run_id) if one.kind == "step_reused"]
    return list(Counter(one.batch_no for one in records).values())
