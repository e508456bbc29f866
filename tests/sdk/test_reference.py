"""A function is recorded by a name that leads back to it; what has none is refused when it is recorded, not before."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.errors import InvalidInput
from detent.sdk.reference import directory_of, refer, unwrapped


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@logged
@detent.task
@logged
def dressed(x: int) -> int:
    return x


@functools.cache
def remembered(x: int) -> int:
    return x


def taken() -> int:
    return 1


first_taken = taken


def taken() -> int:  # type: ignore[no-redef]
    return 2


class Group:
    class Inner:
        @staticmethod
        def deep(x: int) -> int:
            return x


def a_nested_function() -> Callable[..., Any]:
    def inside(x: int) -> int:
        return x

    return inside


def test_a_function_is_named_by_module_and_qualified_name() -> None:
    assert refer(unwrapped).target == "detent.sdk.reference:unwrapped"
    assert refer(Group.Inner.deep).target == f"{__name__}:Group.Inner.deep"
    assert refer(sum).target == "builtins:sum"


def test_decorators_below_and_above_a_task_lead_to_the_same_name() -> None:
    assert refer(dressed).target == f"{__name__}:dressed"
    assert refer(remembered).target == f"{__name__}:remembered"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x, "a lambda cannot be run by a worker"),
        (a_nested_function(), "'a_nested_function.inside' cannot be run by a worker: it is defined inside 'a_nested"),
        (first_taken, "is something else"),
        (str.upper, "it belongs to no module"),
    ],
)
def test_a_function_that_no_name_leads_to_is_refused_with_what_to_do(function: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        refer(function)
    assert caught.value.hint


def test_such_a_function_is_refused_only_when_it_is_recorded() -> None:
    inside = detent.task(a_nested_function())
    assert inside(3) == 3

    @detent.flow
    def flow() -> Any:
        return inside(3)

    assert flow() == 3
    with pytest.raises(InvalidInput, match="is defined inside"):
        flow.contract()


def test_a_module_is_imported_from_above_its_packages() -> None:
    assert directory_of(__name__) == str(Path(__file__).resolve().parents[2])
    assert directory_of("detent") == str(Path(detent.__file__).parents[1])
    assert directory_of("sys") is None


SCRIPT = """
import json, os, detent

@detent.task
def square(x):
    return x * x

class Tools:
    @staticmethod
    @detent.task
    def cube(x):
        return x ** 3

@detent.flow
def sums(n):
    return detent.task(sum)([square(i) for i in range(n)] + [Tools.cube(n)])

if __name__ == "__main__":
    os.chdir("/")
    recording = sums.record(2)
    print(json.dumps([sums(2), recording.base, [step["run"]["python"] for step in recording.steps]]))
"""


def ran(*arguments: str | Path, cwd: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, input=stdin, capture_output=True, text=True, check=False
    )


def test_functions_of_a_script_are_named_by_its_file_and_its_directory(tmp_path: Path) -> None:
    """X-179"""
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "pipeline.py").write_text(SCRIPT)
    done = ran(Path("proj") / "pipeline.py", cwd=tmp_path)
    steps = ["pipeline.py:square", "pipeline.py:square", "pipeline.py:Tools.cube", "builtins:sum"]
    assert done.stdout == f'[9, "{tmp_path}/proj", {steps!r}]\n'.replace("'", '"'), done.stderr


def test_a_module_that_is_run_with_m_is_named_as_a_module(tmp_path: Path) -> None:
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "pipeline.py").write_text(SCRIPT)
    done = ran("-m", "proj.pipeline", cwd=tmp_path)
    assert f'[9, "{tmp_path}", ["proj.pipeline:square"' in done.stdout, done.stderr


def test_a_scripts_directory_is_the_base_also_of_a_flow_from_elsewhere(tmp_path: Path) -> None:
    for name in ("lib", "proj"):
        (tmp_path / name).mkdir()
    (tmp_path / "lib" / "flows.py").write_text("import detent\n@detent.flow\ndef once(task): return task(1)\n")
    (tmp_path / "proj" / "main.py").write_text(
        "import sys, detent\nsys.path.append(sys.argv[1])\nfrom flows import once\n"
        "@detent.task\ndef mine(x): return x\nprint(once.record(mine).base, once.record(detent.task(abs)).base)"
    )
    done = ran(Path("proj") / "main.py", tmp_path / "lib", cwd=tmp_path)
    assert done.stdout == f"{tmp_path}/proj {tmp_path}/lib\n", done.stderr


@pytest.mark.parametrize("how", [("-c", SCRIPT), ("-",)])
def test_what_was_typed_at_a_prompt_runs_but_cannot_be_recorded(tmp_path: Path, how: tuple[str, ...]) -> None:
    done = ran(*how, cwd=tmp_path, stdin=SCRIPT)
    assert done.returncode == 1
    assert "'square' cannot be run by a worker: it was typed at a prompt or in a notebook" in done.stderr
