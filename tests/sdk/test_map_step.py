"""`ordered_map` inside a flow is a step of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.contract import ContractInvalid
from detent.errors import InvalidInput
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_crash, detent_home
from tests.sdk.ordered_functions import as_task, picky, square

__all__ = ["detent_clock", "detent_crash", "detent_home"]


@detent.task
def numbers(n: int) -> list[int]:
    return list(range(n))


@detent.task
def succeeded(summary: Any) -> int:
    return int(summary["succeeded"])


@detent.flow
def squared(n: int, file: str) -> Any:
    return succeeded(detent.ordered_map(numbers(n), square, f"jsonl:{file}", window=4, chunk=2))


def the_map(**options: Any) -> dict[str, Any]:
    """What the contract of a flow with one map says of it."""

    @detent.flow
    def flow() -> Any:
        return detent.ordered_map([1, 2], **{"compute": square, "commit": "jsonl:out", **options})

    contract = flow.contract()
    binding = contract.bindings[contract.steps[0].step_id]
    return {"key": contract.keys[contract.steps[0].step_id], "version": binding.version, **binding.target}


def test_a_flow_runs_it_as_a_step(detent_home: TemporaryHome, tmp_path: Path) -> None:
    file = tmp_path / "squared.jsonl"
    run = detent.run(squared.contract(7, str(file)), home=detent_home.path, workers=2)
    assert run.result() == 7
    assert file.read_text().split() == [str(x * x) for x in range(7)]


def test_the_step_says_what_the_call_said() -> None:
    assert the_map() == {
        "key": "square",
        "version": None,
        "items": [1, 2],
        "compute": "tests.sdk.ordered_functions:square",
        "commit": "jsonl:out",
    }
    said = the_map(name="twice", on_error="continue", chunk=3, commit=picky, compute=as_task.options(version="7"))
    assert said["key"] == "twice"
    assert (said["on_error"], said["chunk"], said["retries"], said["version"]) == ("continue", 3, 2, "7")
    assert said["commit"] == "tests.sdk.ordered_functions:picky"


def test_the_time_of_an_item_is_what_the_call_says_or_else_the_task() -> None:
    assert the_map(item_timeout="90s")["item_timeout"] == "90s"
    assert the_map(item_timeout=timedelta(minutes=2))["item_timeout"] == 120.0
    limited = detent.task(timeout="5s")(square)
    assert the_map(compute=limited)["item_timeout"] == "5s"
    assert the_map(compute=limited, item_timeout="9s")["item_timeout"] == "9s"
    with pytest.raises(InvalidInput, match=r"item_timeout='1ms' is not allowed: it must be at least 100 ms"):
        the_map(item_timeout="1ms")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"commit": None}, "needs a destination"),
        ({"commit": object()}, "cannot take an object"),
        ({"workers": 2}, "workers belongs to the run"),
        ({"key": "a"}, "key belongs to the run"),
        ({"item_timeout": True}, "item_timeout=True is not allowed"),
    ],
)
def test_what_a_step_cannot_be_is_refused_where_it_is_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        the_map(**options)


def test_the_contract_refuses_a_bad_destination() -> None:
    with pytest.raises(ContractInvalid, match="is of a kind that is not known"):
        the_map(commit="s3:there")
