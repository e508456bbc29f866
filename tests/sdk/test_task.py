"""A task stays the function it is; what can never be a step is refused where it is decorated."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

import detent
from detent.errors import InvalidInput
from detent.sdk.recording import Recording, recording_of
from detent.sdk.task import Task, task


@detent.task
def scale(x: int, factor: int = 2) -> int:
    """Multiply."""
    return x * factor


@detent.task(retries=3, timeout="5m", version="7")
def careful(x: Any) -> Any:
    return x


@detent.task
async def fetch(name: str) -> str:
    return f"<{name}>"


def plain_helper(x: int) -> int:
    return x + 1


ANYTHING: list[Any] = [classmethod(cast("Any", plain_helper)), 3, iter(())]


class Box:
    @staticmethod
    @detent.task
    def outside(x: int) -> int:
        return -x

    @detent.task
    @staticmethod
    def inside(x: int) -> int:
        return x

    @detent.task
    def method(self, x: int) -> int:
        return x

    def bound(self) -> None: ...


@detent.task
def by_position(a: int, b: int, /, c: int = 0, *rest: int, d: int = 0, **more: int) -> int:
    return a + b + c + sum(rest) + d + sum(more.values())


def recorded(call: Callable[[], object]) -> dict[str, Any]:
    """The one step that a call records."""
    recording = Recording("test")
    with recording_of(recording):
        call()
    (step,) = recording.steps
    return step


def test_outside_a_flow_a_task_is_the_plain_function() -> None:
    assert scale(3) == 6
    assert scale(3, factor=5) == 15
    assert (scale.__name__, scale.__doc__, scale.__wrapped__(4)) == ("scale", "Multiply.", 8)
    assert str(inspect.signature(scale)) == "(x: 'int', factor: 'int' = 2) -> 'int'"
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        scale()  # type: ignore[call-arg]


def test_an_async_function_stays_one() -> None:
    assert asyncio.run(fetch("a")) == "<a>"
    if sys.version_info >= (3, 12):
        assert inspect.iscoroutinefunction(fetch)


def test_a_task_is_pickled_by_name_as_functions_are() -> None:
    assert pickle.loads(pickle.dumps(scale)) is scale


def test_builtins_and_plain_functions_of_any_module_can_be_tasks() -> None:
    total: Task[..., Any] = detent.task(sum)
    assert total([1, 2, 3]) == 6
    assert detent.task(math.sqrt)(9.0) == 3.0
    assert recorded(lambda: total([1, 2])) == {"id": "sum", "run": {"python": "builtins:sum", "args": [[1, 2]]}}
    assert recorded(lambda: detent.task(plain_helper)(1))["run"] == {
        "python": f"{__name__}:plain_helper",
        "with": {"x": 1},
    }
    # The signature of `max` is told by no Python: its arguments stay as they were given.
    assert recorded(lambda: detent.task(max)(1, 2))["run"] == {"python": "builtins:max", "args": [1, 2]}


def test_static_functions_are_tasks_in_either_order_and_methods_are_not() -> None:
    assert (Box.outside(2), Box().outside(2), Box().inside(2)) == (-2, -2, 2)
    assert recorded(lambda: Box().outside(2))["run"]["python"] == f"{__name__}:Box.outside"
    assert recorded(lambda: Box.inside(2))["run"]["python"] == f"{__name__}:Box.inside"
    with pytest.raises(InvalidInput, match=r"'Box.method' is a method") as caught:
        Box().method(2)  # type: ignore[arg-type, call-arg]
    assert "@staticmethod" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: task(int), "is a class"),
        (lambda: task(functools.partial(plain_helper, 1)), "functools.partial"),
        (lambda: task(Box().bound), "is a method of an object"),
        (lambda: task([].append), "is a method of an object"),
        (lambda: task(ANYTHING[0]), "a classmethod cannot be a task"),
        (lambda: task(ANYTHING[1]), "3 cannot be called"),
        (lambda: task(scale), "is a task already"),
        (lambda: task(ANYTHING[2]), "cannot be called"),
        (lambda: task(_generator), "is a generator"),
        (lambda: task(_async_generator), "is a generator"),
        (lambda: task(plain_helper, retries=1), "a function or options, not both"),  # type: ignore[call-overload]
    ],
)
def test_what_can_never_be_a_step_is_refused_with_what_to_do(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        make()
    assert caught.value.hint


def _generator() -> Any:
    yield 1


async def _async_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retries": -1}, "retries=-1"),
        ({"retries": 11}, "retries=11"),
        ({"retries": True}, "retries=True"),
        ({"retry_on": "USER_CODE_ERROR"}, "not how often"),
        ({"timeout": True}, "timeout=True"),
        ({"timeout": [1]}, "timeout="),
        ({"timeout": "abc"}, "timeout='abc' is not allowed"),
        ({"timeout": ""}, "timeout='' is not allowed"),
        ({"timeout": 0}, "timeout=0 .*at least 100 ms"),
        ({"timeout": timedelta(milliseconds=1)}, "at least 100 ms"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"retries": 1, "retry_on": "SOMETHING"}, "retry_on='SOMETHING'"),
        ({"retries": 1, "retry_on": []}, "retry_on="),
        ({"retries": 1, "retry_on": 5}, "retry_on=5"),
        ({"cache": 1}, "cache=1"),
        ({"version": 3}, "version=3"),
        ({"priority": "urgent"}, "priority='urgent'"),
        ({"on_error": "panic"}, "on_error='panic'"),
        ({"name": "two words"}, "name='two words'"),
        ({"name": ""}, "name=''"),
        ({"retires": 3}, "no option 'retires'"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_written(options: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        task(**options)
    assert caught.value.hint
    with pytest.raises(InvalidInput, match=said):
        scale.options(**options)


def test_an_unknown_option_names_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidInput) as caught:
        task(retires=3)  # type: ignore[call-overload]
    assert caught.value.hint == "did you mean retries=?"


def test_options_are_written_into_the_step() -> None:
    """X-162, X-164, X-175"""
    assert recorded(lambda: careful(1)) == {
        "id": "careful",
        "run": {"python": f"{__name__}:careful", "with": {"x": 1}, "version": "7"},
        "retry": 3,
        "timeout": "5m",
    }
    changed = careful.options(
        name="other",
        retries=2,
        retry_on=["USER_CODE_ERROR", "RESOURCE_LIMIT"],
        timeout=timedelta(minutes=2),
        cache=False,
        inputs="data/*.csv",
        outputs={"report": "out/report.txt"},
        env={"MODE": "fast"},
        cwd="work",
        priority=7,
        on_error="continue",
        skip_on_failure=True,
    )
    assert recorded(lambda: changed(1)) == {
        "id": "other",
        "run": {"python": f"{__name__}:careful", "with": {"x": 1}, "version": "7"},
        "retry": {"max": 2, "on": ["USER_CODE_ERROR", "RESOURCE_LIMIT"]},
        "timeout": 120.0,
        "cache": False,
        "inputs": "data/*.csv",
        "outputs": {"report": "out/report.txt"},
        "env": {"MODE": "fast"},
        "cwd": "work",
        "priority": 7,
        "on_error": "continue",
        "skip_on_failure": True,
    }
    assert changed(5) == 5
    assert "retry" not in recorded(lambda: scale(1))


def test_arguments_are_recorded_by_name_wherever_python_allows() -> None:
    """The same call is the same step however it is spelled."""
    assert recorded(lambda: scale(1, 3)) == recorded(lambda: scale(factor=3, x=1))
    run = recorded(lambda: by_position(1, 2, 3, d=4, e=5))["run"]
    assert (run["args"], run["with"]) == ([1, 2], {"c": 3, "d": 4, "e": 5})
    run = recorded(lambda: by_position(1, 2, 3, 9, d=4))["run"]
    assert (run["args"], run["with"]) == ([1, 2, 3, 9], {"d": 4})
    assert "with" not in recorded(lambda: by_position(1, 2))["run"]


def test_a_wrong_call_is_found_while_recording() -> None:
    with pytest.raises(InvalidInput, match=r"scale\(\) is called wrongly: missing a required argument: 'x'") as caught:
        recorded(lambda: scale(factor=1))  # type: ignore[call-arg]
    assert caught.value.hint == "it is scale(x: 'int', factor: 'int' = 2) -> 'int'"


def test_map_outside_a_flow_is_a_list_of_calls() -> None:
    """X-185"""
    assert scale.map([1, 2, 3]) == [2, 4, 6]
    assert scale.map(range(3), factor=10) == [0, 10, 20]
    assert scale.map((1, 2), x=5) == [5, 10]
    assert asyncio.run(cast("Any", fetch.map(["a", "b"]))) == ["<a>", "<b>"]


def test_map_in_a_flow_is_one_step_over_a_list() -> None:
    """X-185"""
    assert recorded(lambda: scale.map([1, 2], factor=3)) == {
        "id": "scale",
        "run": {"python": f"{__name__}:scale", "with": {"factor": 3}},
        "map": {"x": [1, 2]},
    }
    assert recorded(lambda: scale.map((i for i in range(2)), x=1))["map"] == {"factor": [0, 1]}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: scale.map("abc"), "takes a list or a step, not a str"),
        (lambda: scale.map({1, 2}), "not a set"),
        (lambda: scale.map(ANYTHING[1]), "not an int"),
        (lambda: scale.map([1], [2]), "goes through one list, and 2 were given"),
        (lambda: scale.map([1], nope=3), "there is no parameter 'nope'"),
        (lambda: scale.map([1], x=1, factor=2), "no parameter left"),
        (lambda: task(abs).map([1]), "no parameter left"),
        (lambda: task(max).map([1]), "parameters are not known"),
        (lambda: scale.map(iter(int, 1)), "at most 100,000 elements"),
    ],
)
def test_a_map_that_cannot_be_is_refused_in_and_outside_of_flows(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        call()
    assert caught.value.hint
    with pytest.raises(InvalidInput, match=said):
        recorded(call)


def test_the_decorator_alone_loads_neither_models_nor_keys_nor_a_loop() -> None:
    script = (
        "import sys, detent\n@detent.task\ndef f(): ...\n@detent.flow\ndef g(): ...\n"
        "heavy = {'pydantic', 'yaml', 'nacl', 'libipld', 'asyncio', 'detent.contract', 'detent.workflow'}\n"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": ":".join(sys.path)}, check=False)
    assert done.returncode == 0


def test_a_task_shows_where_it_comes_from() -> None:
    assert repr(scale) == f"<task {__name__}:scale>"
    assert isinstance(scale, Task)


def test_resources_stand_in_the_step_as_they_were_said() -> None:
    """Issue 6: `@task(resources=)`; what is no amount of something countable is refused where it is written."""
    assert recorded(lambda: scale.options(resources={"cpu": 2, "gpu": 1})(3))["resources"] == {"cpu": 2, "gpu": 1}
    assert "resources" not in recorded(lambda: scale.options(resources=None)(3))
    with recording_of(Recording("test")) as recording:
        scale.options(resources={"cpu": 2})(3)
    (binding,) = recording.contract().bindings.values()
    assert binding.resources == {"cpu": 2}


def test_pool_and_labels_stand_in_the_step_as_they_were_said() -> None:
    said = recorded(lambda: scale.options(pool="gpu", labels=("cuda", "a100"))(3))
    assert (said["pool"], said["labels"]) == ("gpu", ["cuda", "a100"])
    with recording_of(Recording("test")) as recording:
        scale.options(labels="a100")(3)
    (binding,) = recording.contract().bindings.values()
    assert (binding.pool, binding.labels) == (None, ("a100",))
    for wrong in ({"pool": "two words"}, {"pool": 3}, {"labels": ["pool:gpu"]}, {"labels": 3}, {"labels": ["a"] * 33}):
        with pytest.raises(InvalidInput, match="is not allowed"):
            task(**wrong)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cpu": 0}, "cpu must be a whole number from 1"),
        ({"cpu": 1.5}, "cpu must be a whole number from 1"),
        ({"cpu": True}, "cpu must be a whole number from 1"),
        ({"GPU": 1}, "'GPU' cannot name a resource"),
        ({3: 1}, "3 cannot name a resource"),
        (2, "resources=2 is not allowed"),
    ],
)
def test_what_is_no_amount_of_anything_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        task(resources=given)
