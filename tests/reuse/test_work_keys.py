"""What a piece of work is made of: every ingredient counts, and a difference is said by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.canon import decode, sha256
from detent.errors import InvariantBroken
from detent.jobs.order import Call
from detent.reuse.ingredients import around, env_version
from detent.reuse.work_keys import Found, Miss, Options, WorkKey, no_results
from tests.runs.rig import Rig

SHELL = Call(kind="shell", target="cat a.txt", inputs=("a.txt",), outputs={"out": "b.txt"}, env={"X": "1"}, cwd=".")
PYTHON = Call(kind="python", target="steps:add", arguments=(1,), keywords={"b": 2})
CODE = Call(kind="code", target="def main(x):\n    return x\n", keywords={"x": 1})


def work_key(rig: Rig, call: Call, **more: Any) -> WorkKey:
    work = rig.work(idle=True)
    try:
        return work.work_keys.of(replace(call, base=str(rig.project)), no_results, **more)
    finally:
        work.close()


@pytest.mark.parametrize(
    ("call", "change", "said"),
    [
        (PYTHON, {"arguments": (2,)}, "argument"),
        (PYTHON, {"keywords": {"b": 3}}, "argument b"),
        (PYTHON, {"keywords": {"a": 2}}, "argument"),
        (PYTHON, {"target": "steps:double"}, "function"),
        (PYTHON, {"version": "2"}, "version"),
        (PYTHON, {"env": {"Y": "1"}}, "environment variable Y"),
        (SHELL, {"env": {"X": "2"}}, "environment variable X"),
        (SHELL, {"cwd": "./"}, "working directory"),
        (SHELL, {"target": "cat  a.txt"}, "command"),
        (SHELL, {"inputs": ("a.txt", "c.txt")}, "input c.txt"),
        (SHELL, {"outputs": {"out": "c.txt"}}, "output out"),
        (CODE, {"target": "def main(x):\n    return x + 1\n"}, ""),
        (CODE, {"entrypoint": "other"}, "entrypoint"),
    ],
)
def test_every_ingredient_counts_and_is_named(rig: Rig, call: Call, change: dict[str, Any], said: str) -> None:
    """JOB-023, JOB-025, X-176, X-175: another key, and `explain` can say why."""
    rig.write("a\n", "a.txt")
    rig.write("c\n", "c.txt")
    first, second = work_key(rig, call), work_key(rig, replace(call, **change))
    assert first.key is not None
    assert second.key is not None
    assert first.key != second.key
    work = rig.work()
    assert said in work.work_keys.difference(first.ingredients, second.ingredients)
    assert work_key(rig, call).key == first.key


def test_a_salt_is_an_ingredient(rig: Rig) -> None:
    """Issue 6.3."""
    assert work_key(rig, PYTHON, salt="a").key != work_key(rig, PYTHON).key


def test_comments_in_code_of_a_contract_change_nothing(rig: Rig) -> None:
    """X-176: what counts is what it does."""
    commented = replace(CODE, target="# says x\ndef main(x):\n\n    return x  # x\n")
    assert work_key(rig, commented).key == work_key(rig, CODE).key


def test_the_environment_is_part_of_the_key(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """JOB-024: another interpreter, another key."""
    before = work_key(rig, PYTHON).key
    around.cache_clear()
    monkeypatch.setattr("detent.reuse.ingredients.job.env_version", lambda packages: env_version(packages) + "+other")
    try:
        assert work_key(rig, PYTHON).key != before
    finally:
        around.cache_clear()


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (replace(SHELL, inputs=None), "declares no inputs"),
        (replace(SHELL, outputs={}), "declares no outputs"),
        (replace(PYTHON, cache=False), "cache is turned off"),
        (replace(PYTHON, target="nowhere:f"), "nowhere"),
    ],
)
def test_what_has_no_key_says_why(rig: Rig, call: Call, why: str) -> None:
    """X-175, X-176: done every time, and the reason is kept."""
    rig.write("a\n", "a.txt")
    found = work_key(rig, call)
    assert found.key is None
    assert why in found.why
    work = rig.work()
    assert work.work_keys.find(found, Options(), since_ms=0) == Miss(found.why)


def test_of_several_successes_the_first_answers(rig: Rig) -> None:
    """X-149: a later caller gets the same result."""
    text = 'name: several\nsteps: [{id: a, run: {python: "steps:one"}}]'
    first = rig.run(text)
    assert rig.run(text, force=True).ok
    third = rig.run(text)
    with rig.reader() as reader:
        reused = decode(next(r for r in reader.records_of_run(third.run_id) if r.kind == "run_reused").body)
    assert isinstance(reused, dict)
    assert reused["reused_run_id"] == first.run_id


def test_another_workspace_s_results_are_not_ours(rig: Rig) -> None:
    """X-148, JOB-085."""
    rig.run('name: mine\nsteps: [{id: a, run: {python: "steps:one"}}]')
    work = rig.work()
    found = work.work_keys.of(Call(kind="python", target="steps:one", base=str(rig.project)), no_results)
    assert isinstance(work.work_keys.find(found, Options(), since_ms=0), Found)
    work.backend.tenant = "other"
    assert isinstance(work.work_keys.find(found, Options(), since_ms=0), Miss)


def test_a_file_inside_a_large_value_belongs_to_the_result(rig: Rig) -> None:
    """Issue 6.3: also where the value itself lies beside the report."""
    rig.write(
        """
        import detent
        def many(): return [detent.File.from_bytes(b'x' * 20_000, name='a'), 'y' * 20_000]
        """
    )
    text = 'name: f\nsteps: [{id: a, run: {python: "steps:many"}}]\nresult: {$from: a}'
    value = rig.run(text).value
    assert rig.run(text).view.steps[0].state == "reused"
    digest = bytes.fromhex(value[0]["$file"].removeprefix("sha256:"))
    assert digest == sha256(b"x" * 20_000)
    rig.home.home.content_files().path(digest).unlink()
    assert rig.run(text).view.steps[0].state == "succeeded"


def test_results_that_no_job_made_are_a_bug_of_ours(rig: Rig) -> None:
    with pytest.raises(InvariantBroken):
        no_results("sha256:0")
