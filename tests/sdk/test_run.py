"""`detent.run` and `Flow.run`: what Python gets back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

import detent
from detent.engine import work
from detent.engine.replay import replay_home
from detent.errors import InvalidInput
from detent.sdk.run import RunFailed
from detent.testing import InlineLane, TemporaryHome
from detent.testing.plugin import detent_home
from tests.engine.run.rig import environment
from tests.sdk import work_functions as functions

__all__ = ["detent_home"]

TWELVE = """
import detent

@detent.task
def square(x: int) -> int:
    return x * x

@detent.flow
def sums(n: int):
    return detent.task(sum)([square(i) for i in range(n)])

if __name__ == "__main__":
    print(sums.run(10).result())
"""


@pytest.fixture
def home(detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[TemporaryHome]:
    monkeypatch.chdir(detent_home.directory)
    yield detent_home
    assert detent_home.verify().ok
    assert replay_home(detent_home.home).ok


@pytest.fixture
def lane(home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> InlineLane:
    made = InlineLane(content=home.path / "content")
    monkeypatch.setattr(work, "Work", partial(work.Work, lanes=lambda _desk: ({"python": made}, made)))
    return made


def write(home: TemporaryHome, text: str) -> Path:
    path = home.directory / "flow.yaml"
    path.write_text(dedent(text))
    return path


def test_the_twelve_lines_work_as_printed(home: TemporaryHome) -> None:
    """Issue 6: twelve lines of Python, no services; and again, with everything done already."""
    script = home.directory / "twelve.py"
    script.write_text(TWELVE.lstrip())
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(script)],
            env=environment(home),
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert done.stdout == "285\n"


def test_a_contract_file_is_run_with_its_parameters(home: TemporaryHome, lane: InlineLane) -> None:
    path = write(
        home,
        """
        name: params
        params: {x: {type: integer, default: 2}}
        steps: [{id: a, run: {python: "tests.sdk.work_functions:square", with: {x: {$param: x}}}}]
        result: {$from: a}
        """,
    )
    run = detent.run(path, {"x": 5}, home=home.path)
    assert (run.result(), run.ok, run.status, run.name, run.home) == (25, True, "completed", "params", home.path)
    assert [step.state for step in run.steps] == ["succeeded"]
    assert run.run_id in repr(run)
    assert detent.run(str(path)).result() == 4


def test_a_flow_gives_what_it_returned_with_files_in_it(home: TemporaryHome, lane: InlineLane) -> None:
    """X-170: files of a run's result can be read."""

    @detent.flow
    def loud() -> object:
        return {"file": detent.task(functions.shout)(detent.task(functions.whisper)()), "n": 1}

    value = loud.run().result()
    assert value["n"] == 1
    assert value["file"].read_bytes() == b"WHISPER"


def test_a_failed_run_says_which_step_and_why(home: TemporaryHome, lane: InlineLane) -> None:
    """The first three reasons, and where to read on."""
    steps = "\n".join(
        f'  - {{id: s{n}, error_action: continue, run: {{python: "tests.sdk.work_functions:boom", args: ["b{n}"]}}}}'
        for n in range(5)
    )
    run = detent.run(write(home, f"name: bad\nsteps:\n{steps}\n"))
    assert not run.ok
    with pytest.raises(RunFailed, match="s0: ValueError: b0; s1: ValueError: b1; s2: ValueError: b2") as raised:
        run.result()
    assert "(and 2 more)" in str(raised.value)
    assert raised.value.details["status"] == "failed"
    failed = raised.value.details["failed"]
    assert isinstance(failed, list)
    assert len(failed) == 5
    assert failed[0] in str(raised.value.hint)


def test_force_new_salt_and_workers_reach_the_run(home: TemporaryHome, lane: InlineLane) -> None:
    path = write(home, 'name: n\nsteps: [{id: a, run: {python: "tests.sdk.work_functions:square", args: [3]}}]')
    assert detent.run(path, workers=1).steps[0].state == "succeeded"
    assert detent.run(path).steps[0].state == "cached"
    assert detent.run(path, force=True, new=True, max_parallel=1).steps[0].state == "succeeded"
    assert detent.run(path, salt="s").steps[0].state == "succeeded"


def test_what_cannot_be_run_is_refused_by_name(home: TemporaryHome) -> None:
    @detent.flow
    def needs(_n: int) -> None: ...

    with pytest.raises(InvalidInput, match="which needs its arguments"):
        detent.run(needs)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a int cannot be run"):
        detent.run(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="cannot be read"):
        detent.run("nothing.yaml")
    with pytest.raises(InvalidInput, match="workers must be from 1 to"):
        detent.run(write(home, 'name: n\nsteps: [{id: a, run: {python: "m:f"}}]'), workers=0)
