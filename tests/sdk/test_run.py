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
from detent.canon import parse_digest
from detent.errors import InvalidInput
from detent.inspect.replay import replay_home
from detent.runs import runtime
from detent.runs.erase import collect
from detent.sdk.run import RunFailed
from detent.testing import InlineLane, TemporaryHome
from detent.testing.plugin import detent_home
from tests.runs.rig import environment
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
    monkeypatch.setattr(runtime, "Runtime", partial(runtime.Runtime, executors=made.executors))
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


def test_a_script_that_lacks_its_guard_ends_and_says_so(home: TemporaryHome) -> None:
    """A worker imports the script to find its tasks; without a word against it the run would wait for itself, for ever."""
    script = home.directory / "unguarded.py"
    script.write_text(TWELVE.lstrip().replace('if __name__ == "__main__":\n    ', ""))
    done = subprocess.run(
        [sys.executable, str(script)], env=environment(home), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert "unguarded.py:11 starts a run whenever" in done.stderr
    assert 'put that line under `if __name__ == "__main__":`' in done.stderr


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
    assert (run.result(), run.ok, run.status, run.name, run.home) == (25, True, "succeeded", "params", home.path)
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


def test_a_failed_run_names_the_line_that_failed(home: TemporaryHome) -> None:
    """The traceback shows where the result was asked for; what people look for is where it went wrong."""
    script = home.directory / "failing.py"
    script.write_text(TWELVE.lstrip().replace("return x * x", "return x / 0"))
    done = subprocess.run(
        [sys.executable, str(script)], env=environment(home), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert "\nat failing.py:5 in square: return x / 0\nhint: `detent show " in done.stderr


def test_force_new_salt_and_workers_reach_the_run(home: TemporaryHome, lane: InlineLane) -> None:
    path = write(home, 'name: n\nsteps: [{id: a, run: {python: "tests.sdk.work_functions:square", args: [3]}}]')
    assert detent.run(path, workers=1).steps[0].state == "succeeded"
    assert detent.run(path).steps[0].state == "reused"
    assert detent.run(path, force=True, new=True, max_parallel=1).steps[0].state == "succeeded"
    assert detent.run(path, salt="s").steps[0].state == "succeeded"


def test_what_cannot_be_run_is_refused_by_name(home: TemporaryHome) -> None:
    @detent.flow
    def needs(_n: int) -> None: ...

    with pytest.raises(InvalidInput, match="which needs its arguments"):
        detent.run(needs)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="an int cannot be run"):
        detent.run(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="cannot be read"):
        detent.run("nothing.yaml")
    with pytest.raises(InvalidInput, match="workers must be from 1 to"):
        detent.run(write(home, 'name: n\nsteps: [{id: a, run: {python: "m:f"}}]'), workers=0)


@pytest.mark.usefixtures("lane")
def test_a_file_is_an_argument_of_a_task_inside_a_flow(home: TemporaryHome) -> None:
    """X-170: named by digest in the contract, its bytes in the content store before anything runs; a change is noticed."""
    path = home.directory / "text.txt"
    path.write_text("so far so good")
    first = functions.counted.run(str(path))
    result = first.result()
    assert (result["one"], result["each"], result["file"].read_bytes()) == (4, [2, 4], b"so far so good")
    assert {step.state for step in functions.counted.run(str(path)).steps} == {"reused"}
    path.write_text("so far")
    again = functions.counted.run(str(path))
    assert (again.result()["one"], again.result()["each"]) == (2, [2, 2])
    assert [(step.key, step.cached) for step in again.steps] == [("words_of", 0), ("words_of-2", 2)]


def test_a_file_that_changes_between_recording_and_running_is_noticed(home: TemporaryHome, lane: InlineLane) -> None:
    path = home.directory / "text.txt"
    path.write_text("so far so good")
    contract = functions.counted.contract(str(path))
    path.write_text("so far")
    with pytest.raises(detent.DetentError, match=r"text\.txt was written to") as caught:
        detent.run(contract)
    assert caught.value.code == "DEPENDENCY_MISMATCH"
    path.write_text("so far so good")
    assert detent.run(contract).ok


@pytest.mark.usefixtures("lane")
def test_garbage_collection_keeps_a_file_that_only_the_contract_of_a_run_names(home: TemporaryHome) -> None:
    path = home.directory / "text.txt"
    path.write_text("so far so good")
    digest = detent.File(path).named()["$file"]
    assert functions.carried.run(str(path)).ok
    assert collect(home.home, grace_ms=0).garbage == ()
    assert home.home.content_files().has(parse_digest(digest))
