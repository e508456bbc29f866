"""A handle may be passed on and nothing else: every other use says what to do instead."""

from __future__ import annotations

import copy
import json
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from detent.errors import DetentError, InvalidInput
from detent.sdk.recording import NoSuchAttribute, NotAValue, Recording, Step


@pytest.fixture
def step() -> Any:
    return Step("load", Recording("nightly"))


def looped(step: Any) -> None:
    for _ in step:
        pass


def increased(step: Any) -> None:
    step += 1


def entered(step: Any) -> None:
    with step:
        pass


MISUSES: dict[str, Callable[[Any], object]] = {
    "if": lambda step: 1 if step else 2,
    "not": operator.not_,
    "and": lambda step: step and 1,
    "for": looped,
    "list": list,
    "unpack": lambda step: [*step],
    "len": len,
    "index": lambda step: step[0],
    "slice": lambda step: step[1:2],
    "assign": lambda step: operator.setitem(step, 0, 1),
    "delete": lambda step: operator.delitem(step, 0),
    "in": lambda step: 3 in step,
    "format": lambda step: f"{step}",
    "percent": lambda step: "%s" % step,  # noqa: UP031
    "str": str,
    "join": lambda step: "a" + step,
    "print": print,
    "int": int,
    "float": float,
    "as index": lambda step: [1, 2][step],
    "range": range,
    "round": round,
    "floor": math.floor,
    "plus": lambda step: step + 1,
    "right plus": lambda step: 1 + step,
    "in place": increased,
    "both": lambda step: step * step,
    "power": lambda step: step**2,
    "negative": operator.neg,
    "abs": abs,
    "or": lambda step: step | {},
    "sum": lambda step: sum([step, step]),
    "less": lambda step: step < 3,
    "more": lambda step: 3 < step,  # noqa: SIM300
    "sorted": lambda step: sorted([step, step]),
    "equal": lambda step: step == 3,
    "unequal": lambda step: step != "x",
    "equal none": lambda step: step == None,  # noqa: E711
    "call": lambda step: step(),
    "with": entered,
    "attribute": lambda step: step.shape,
    "method": lambda step: step.append(1),
    "pickle": pickle.dumps,
    "bytes": bytes,
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_step_is_no_value_and_says_so(step: Any, misuse: str) -> None:
    with pytest.raises(NotAValue, match=r"^step 'load' has no result yet, so a flow cannot ") as caught:
        MISUSES[misuse](step)
    assert caught.value.hint
    assert isinstance(caught.value, DetentError)
    assert caught.value.code == "INVALID_PARAMS"


@pytest.mark.parametrize(
    ("misuse", "what", "hint"),
    [
        ("if", "use it as a condition", "decide inside a task"),
        ("for", "loop over it", "other_task.map(step)"),
        ("plus", "calculate with it", "inside a task"),
        ("format", "make text of it", "inside a task"),
        ("index", "index it", "inside a task"),
        ("attribute", "read its attribute 'shape'", "inside a task"),
    ],
)
def test_the_message_names_the_use_and_the_way_out(step: Any, misuse: str, what: str, hint: str) -> None:
    with pytest.raises(NotAValue, match=what) as caught:
        MISUSES[misuse](step)
    assert hint in str(caught.value.hint)


def test_what_python_itself_asks_gets_an_ordinary_no(step: Any) -> None:
    assert not hasattr(step, "__array__")
    assert not hasattr(step, "shape")
    with pytest.raises(NoSuchAttribute):
        step.shape  # noqa: B018
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(step)


def test_handles_may_be_kept_in_containers_and_copied(step: Any) -> None:
    other = Step("save", step.recording)
    assert step == step  # noqa: PLR0124
    assert step != other
    assert {step: 1, other: 2}[other] == 2
    assert [step, other].index(other) == 1
    assert copy.deepcopy({"a": [step]})["a"][0] is step
    assert copy.copy(step) is step
    assert repr(step) == "<step 'load' of 'nightly'>"


def test_only_async_steps_are_awaited(step: Any) -> None:
    with pytest.raises(InvalidInput, match="await it") as caught:
        next(step.__await__())
    assert "leave `await` out" in str(caught.value.hint)
    waiting = Step("fetch", step.recording, is_async=True)
    with pytest.raises(StopIteration) as stopped:
        next(waiting.__await__())
    assert stopped.value.value is waiting
