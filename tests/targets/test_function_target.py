"""A function as a destination: how it is called, what its failures mean, which entries come again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from detent.errors import InvalidInput, StoreUnavailable
from detent.targets import NOTHING, CommitFailed, CommitToken, FunctionTarget, Mark, function_target

RUN = "run-1"


def opened(function: Callable[..., Any], recorded: Mark | None = None) -> FunctionTarget:
    target = FunctionTarget("here:function", lambda: function)
    target.open(RUN, recorded)
    return target


def test_a_function_gets_each_value_with_a_token_that_names_run_and_seq() -> None:
    """ORD-034"""
    seen: list[object] = []
    target = opened(lambda value, token: seen.append((value, token, str(token))))
    assert target.write(0, ["a", NOTHING, {"$$b": 1}]) == Mark(3)
    assert seen == [
        ("a", CommitToken("run-1", 0), "run-1/0"),
        ({"$b": 1}, CommitToken("run-1", 2), "run-1/2"),
    ]


def test_a_function_with_one_parameter_gets_the_value_alone() -> None:
    seen: list[object] = []
    opened(seen.append).write(0, ["a", "b"])
    opened(partial(lambda place, value: place.append(value), seen)).write(0, ["c"])
    assert seen == ["a", "b", "c"]


def test_a_function_of_values_gets_a_batch_at_once() -> None:
    seen: list[object] = []

    def many(values: list[Any], tokens: list[CommitToken]) -> None:
        seen.append((values, [token.seq for token in tokens]))

    def many_alone(values: list[Any]) -> None:
        seen.append(values)

    target = opened(many)
    target.write(0, ["a", NOTHING, "c"])
    target.write(3, [NOTHING])
    opened(many_alone).write(0, ["d"])
    assert seen == [(["a", "c"], [0, 2]), ["d"]]


def test_a_function_that_says_nothing_about_its_parameters_gets_both() -> None:
    seen: list[object] = []

    def anything(*arguments: object) -> None:
        seen.append(arguments)

    opened(anything).write(0, ["a"])
    assert seen == [("a", CommitToken(RUN, 0))]
    table: dict[object, object] = {}
    opened(table.setdefault).write(0, ["key"])
    assert table == {"key": CommitToken(RUN, 0)}


def test_an_entry_that_was_taken_is_not_handed_over_again_when_a_later_one_fails() -> None:
    """ORD-034, X-076"""
    seen: list[object] = []

    def picky(value: str, token: CommitToken) -> None:
        seen.append(value)
        if seen.count("b") == 1 and value == "b":
            raise ConnectionError("the line is down")

    target = opened(picky)
    with pytest.raises(
        CommitFailed, match="here:function failed at seq 1: ConnectionError: the line is down"
    ) as caught:
        target.write(0, ["a", "b", "c"])
    error = caught.value
    assert (error.seq, error.retryable, error.details["error"]) == (1, True, "ConnectionError")
    assert str(error.details["place"]).startswith(__file__)
    assert target.begin() == Mark(1)
    assert target.write(0, ["a", "b", "c"]) == Mark(3)
    assert seen == ["a", "b", "b", "c"]


def test_a_batch_that_fails_comes_again_whole() -> None:
    seen: list[object] = []

    def flaky(values: list[str]) -> None:
        seen.append(values)
        if len(seen) == 1:
            raise TimeoutError

    target = opened(flaky)
    with pytest.raises(CommitFailed):
        target.write(0, ["a", "b"])
    target.write(0, ["a", "b"])
    assert seen == [["a", "b"], ["a", "b"]]


@pytest.mark.parametrize(("error", "retryable"), [(InvalidInput("no"), False), (StoreUnavailable("later"), True)])
def test_an_error_of_ours_says_itself_whether_time_may_help(error: Exception, retryable: bool) -> None:
    def fail(value: object) -> None:
        raise error

    with pytest.raises(CommitFailed) as caught:
        opened(fail).write(0, ["a"])
    assert caught.value.retryable is retryable


def test_an_interrupt_is_not_a_failure_of_the_destination() -> None:
    def interrupt(value: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened(interrupt).write(0, ["a"])


def test_a_resumed_run_goes_on_at_the_mark() -> None:
    seen: list[object] = []
    target = opened(seen.append, Mark(2))
    target.write(0, ["a", "b", "c"])
    assert seen == ["c"]


async def later(value: object) -> None: ...


def test_what_cannot_be_called_with_a_value_is_refused_before_the_run() -> None:
    for function, word in ((later, "coroutine"), (lambda: None, "no argument")):
        with pytest.raises(CommitFailed, match=word) as caught:
            opened(function)
        assert caught.value.retryable is False


def test_a_function_is_found_by_name_as_tasks_are(tmp_path: Path) -> None:
    (tmp_path / "places.py").write_text("def keep(value, token):\n    open('kept', 'a').write(f'{token}={value};')\n")
    script = (
        "import sys; from detent.targets import function_target\n"
        f"for spec in ('places:keep', 'places.py:keep'):\n"
        f"    target = function_target(spec, {str(tmp_path)!r}); target.open('r', None); target.write(0, ['v'])\n"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "kept").read_text() == "r/0=v;r/0=v;"


@pytest.mark.parametrize("spec", ["no_such_module_anywhere:f", "json:no_such_function", "json:decoder"])
def test_a_name_that_leads_nowhere_is_said_when_the_run_opens(spec: str) -> None:
    with pytest.raises(CommitFailed) as caught:
        function_target(spec).open(RUN, None)
    assert (caught.value.retryable, caught.value.spec) == (False, spec)
    assert "append:FILE" in (caught.value.hint or "")
