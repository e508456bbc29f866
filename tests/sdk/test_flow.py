"""A flow is recorded without running anything, the same way every time, and stays callable as it is."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import detent
from detent.canon import NotStrictJson
from detent.contract import contract_digest, load, long_form
from detent.contract.model import Kind, Retry
from detent.errors import InvalidInput
from detent.sdk.flow import Flow
from detent.sdk.recording import Recording, Step, recording_of
from tests.contract.resolved import resolved

RAN: list[Any] = []


@detent.task
def cut(rows: Any, chunk: int) -> Any:
    return rows[:chunk]


@detent.task
def square(x: Any) -> Any:
    RAN.append(x)
    return x * x


@detent.task
def keep(value: Any, also: Any = None) -> Any:
    return value


@detent.task
async def fetch(name: Any) -> Any:
    return f"<{name}>"


@detent.flow
def sums(n: int) -> Any:
    """Add the squares below n.

    More words.
    """
    return detent.task(sum)([square(i) for i in range(n)])


def keys(recording: Recording) -> list[str]:
    return [step["id"] for step in recording.steps]


def keeping(value: Any) -> Recording:
    """A recording whose one step is given this value."""

    @detent.flow
    def flow() -> Any:
        return keep(value)

    return flow.record()


def test_a_flow_called_outside_is_plain_python() -> None:
    assert sums(4) == 14
    assert (sums.__name__, sums.__wrapped__(3)) == ("sums", 5)


def test_recording_runs_nothing_and_gives_a_step_for_each_call() -> None:
    RAN.clear()
    recording = sums.record(3)
    assert RAN == []
    assert recording.document() == {
        "name": "sums",
        "description": "Add the squares below n.",
        "steps": [
            {"id": "square", "run": {"python": f"{__name__}:square", "with": {"x": 0}}},
            {"id": "square-2", "run": {"python": f"{__name__}:square", "with": {"x": 1}}},
            {"id": "square-3", "run": {"python": f"{__name__}:square", "with": {"x": 2}}},
            {
                "id": "sum",
                "run": {
                    "python": "builtins:sum",
                    "args": [[{"$from": "square"}, {"$from": "square-2"}, {"$from": "square-3"}]],
                },
            },
        ],
        "result": {"$from": "sum"},
    }
    assert recording.result == {"$from": "sum"}


def test_a_contract_has_the_steps_their_bindings_and_the_result() -> None:
    contract = sums.contract(2)
    assert contract.definition.workflow_metadata.workflow_name == "sums"
    assert [contract.keys[step.step_id] for step in contract.steps] == ["square", "square-2", "sum"]
    first, second, last = contract.steps
    assert last.depends_on == [first.step_id, second.step_id]
    binding = contract.bindings[last.step_id]
    assert (binding.kind, binding.target) == (Kind.PYTHON, "builtins:sum")
    assert binding.arguments == ([{"$from": "square"}, {"$from": "square-2"}],)
    assert contract.result == {"$from": "sum"}
    assert contract.base is not None


def test_the_same_call_gives_the_same_contract_and_another_call_another() -> None:
    """X-174"""
    assert sums.contract(3) == sums.contract(3)
    assert contract_digest(sums.contract(3)) == contract_digest(sums.contract(3))
    assert contract_digest(sums.contract(3)) != contract_digest(sums.contract(4))


def test_a_flow_and_its_file_are_the_same_contract() -> None:
    written = b"""
name: sums
description: Add the squares below n.
steps:
  - id: square
    run: {python: "%s:square", with: {x: 0}}
  - id: sum
    run: {python: "builtins:sum", args: [[{$from: square}]]}
result: {$from: sum}
""" % __name__.encode()
    assert load(written) == sums.contract(1)
    assert long_form(load(written)) == long_form(sums.contract(1))


def test_options_reach_the_binding() -> None:
    """X-162, X-164"""

    @detent.flow(name="nightly", mode="sequential", timeout="2h", version="1.2.3", description="Every night.")
    def flow() -> Any:
        return square.options(retries=3, retry_on="USER_CODE_ERROR", timeout=0.5, cache=False)(1)

    contract = flow.contract()
    metadata = contract.definition.workflow_metadata
    assert (metadata.workflow_name, metadata.execution_mode, metadata.timeout_ms) == (
        "nightly",
        "sequential",
        7_200_000,
    )
    assert (metadata.workflow_version.major, metadata.description) == (1, "Every night.")
    binding = contract.bindings[contract.steps[0].step_id]
    assert (binding.retry, binding.timeout_ms, binding.cache) == (Retry(3, ("USER_CODE_ERROR",)), 500, False)


def test_what_only_the_contract_can_judge_is_said_by_it() -> None:
    @detent.flow
    def flow() -> Any:
        return square.options(env={"A B": "x"})(1)

    with pytest.raises(detent.DetentError, match="'A B' cannot name a variable"):
        flow.contract()


# -- values --------------------------------------------------------------------------------------------------------------


def test_handles_may_stand_anywhere_inside_lists_tuples_and_dicts() -> None:
    """X-177"""

    @detent.flow
    def flow() -> Any:
        a, b = square(1), square(2)
        return {"kept": keep([a, (b, {"deep": [a]})], also={"b": b}), "n": 3}

    recording = flow.record()
    ref_a, ref_b = {"$from": "square"}, {"$from": "square-2"}
    assert recording.steps[2]["run"]["with"] == {"value": [ref_a, [ref_b, {"deep": [ref_a]}]], "also": {"b": ref_b}}
    assert recording.result == {"kept": {"$from": "keep"}, "n": 3}
    last = flow.contract()
    assert last.steps[2].depends_on == [last.steps[0].step_id, last.steps[1].step_id]


def test_a_users_own_dollar_keys_pass_unchanged() -> None:
    """X-177"""
    value = {"$from": "x", "$param": 1, "$$odd": {"$": 2}, "from": "y", "plain$": 3}
    (step,) = keeping(value).steps
    assert step["run"]["with"]["value"] == {"$$from": "x", "$$param": 1, "$$$odd": {"$$": 2}, "from": "y", "plain$": 3}
    assert resolved(step["run"]["with"]["value"], {}, {}) == value


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("$from"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_JSON)
def test_every_json_value_reaches_the_task_as_it_is(value: Any) -> None:
    """X-170, X-177"""
    document = keeping(value).steps[0]["run"]["with"]["value"]
    assert resolved(document, {}, {}) == value


Point = namedtuple("Point", "x y")  # noqa: PYI024


class Colour(StrEnum):
    RED = "red"


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, r"keep\(value=\.\.\.\) is nan"),
        ({"a": [1, math.inf]}, r"keep\(value=\.\.\.\).*a.*1.* is inf"),
        ({"deep": [object()]}, r"keep\(value=\.\.\.\)\['deep'\]\[0\] is an object"),
        (b"bytes", "is a bytes"),
        ({(1, 2): 2}, r"has the key \(1, 2\), and a tuple cannot be a key"),
        (Decimal("NaN"), "is NaN"),
        (timedelta(1), "is a timedelta"),
        ("\ud800", "lone surrogate"),
        (2**5000, "more than 2048 bits"),
        ((number for number in [1]), "is a generator"),
        (CIRCLE, "is nested deeper than"),
        (square, "is a Task"),
    ],
)
def test_what_is_no_json_value_is_refused_by_the_name_of_the_argument(value: Any, said: str) -> None:
    """X-170"""
    with pytest.raises(NotStrictJson, match=said):
        keeping(value)


def test_the_hint_says_what_to_write_instead() -> None:
    for value, hint in (
        ({1j}, "pass [z.real, z.imag]"),
        (b"", "pass detent.File.from_bytes("),
        (iter([1]), "pass list(...) of it"),
        (math.nan, "pass None in its place"),
    ):
        with pytest.raises(NotStrictJson) as caught:
            keeping(value)
        assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({2, 1}, [1, 2]),
        (Decimal("1.50"), "1.50"),
        (Point(1, 2), {"x": 1, "y": 2}),
        (OrderedDict(a=1), {"a": 1}),
        (Colour.RED, "red"),
        ({1: 2}, {"1": 2}),
    ],
)
def test_an_argument_with_one_obvious_json_form_is_recorded_in_it(value: Any, form: Any) -> None:
    """X-170"""
    assert keeping(value).steps[0]["run"]["with"]["value"] == form


def test_positional_arguments_are_named_by_their_place() -> None:
    @detent.flow
    def flow() -> Any:
        return detent.task(len)(b"ab")

    with pytest.raises(NotStrictJson, match=r"len\(#1: \.\.\.\) is a bytes"):
        flow.record()


def test_what_a_flow_returns_must_be_data_too() -> None:
    @detent.flow
    def flow() -> Any:
        return {square(1)}

    with pytest.raises(NotStrictJson, match=r"what flow\(\) returns is a set of steps or files"):
        flow.record()


def test_a_flow_may_return_nothing_and_have_no_steps() -> None:
    @detent.flow
    def flow() -> None: ...

    assert flow.record().document() == {"name": "flow", "steps": []}
    contract = flow.contract()
    assert (contract.steps, contract.result) == ((), None)


# -- order ---------------------------------------------------------------------------------------------------------------


def test_after_orders_steps_that_exchange_nothing() -> None:
    @detent.flow
    def flow() -> Any:
        first, others = square(1), [square(2), square(3)]
        return keep.after(first, others).after(first)("x")

    assert flow.record().steps[-1]["needs"] == ["square", "square-2", "square-3"]
    contract = flow.contract()
    assert contract.steps[-1].depends_on == [step.step_id for step in contract.steps[:-1]]
    assert flow() == "x"


def test_after_takes_steps_alone() -> None:
    @detent.flow
    def flow() -> Any:
        return keep.after("square")(1)

    with pytest.raises(InvalidInput, match=r"keep\.after\(\) takes steps, not a str"):
        flow.record()


def test_a_map_over_a_step_is_one_step() -> None:
    """X-185"""

    @detent.flow
    def flow() -> Any:
        names = keep(["a", "b"])
        return square.map(square.map(names))

    recording = flow.record()
    assert [step.get("map") for step in recording.steps] == [None, {"x": {"$from": "keep"}}, {"x": {"$from": "square"}}]
    contract = flow.contract()
    assert contract.bindings[contract.steps[1].step_id].map == ("x", {"$from": "keep"})
    assert contract.steps[1].depends_on == [contract.steps[0].step_id]


def test_a_map_says_how_many_elements_share_a_job() -> None:
    """X-185: in the call or as an option of the task; a parameter of that name is the function's own."""

    @detent.flow
    def flow() -> Any:
        return [
            square.map([1, 2], chunk=5),
            square.options(chunk=1).map([1, 2]),
            square.map([1, 2]),
            cut.options(chunk=7).map([[1], [2]], chunk=3),
        ]

    steps = flow.record().steps
    assert [step.get("chunk") for step in steps] == [5, 1, None, 7]
    assert steps[3]["run"]["with"] == {"chunk": 3}
    with pytest.raises(InvalidInput, match="chunk=0 is not allowed"):
        square.map([1], chunk=0)


def test_keys_follow_the_order_of_calls_and_never_meet() -> None:
    @detent.flow
    def flow() -> Any:
        return [square.options(name=name)(1) for name in ("square", "square-2", "square", "square-2", "Ab.c_d")]

    assert keys(flow.record()) == ["square", "square-2", "square-3", "square-2-2", "Ab.c_d"]


def test_names_that_keys_cannot_hold_are_spelled_out() -> None:
    @detent.flow
    def größe(depth: int) -> Any:  # noqa: PLC2401 - Python allows it
        return square(depth)

    @detent.flow(name="2 words")
    def outer() -> Any:
        return größe(1)

    @detent.flow
    def over() -> Any:
        return outer()

    assert keys(over.record()) == ["_2_words.gr__e.square"]
    assert over.contract().steps[0].step_name == "_2_words.gr__e.square"


# -- flows in flows, threads, coroutines ---------------------------------------------------------------------------------


def test_a_flow_inside_a_flow_adds_its_steps_under_its_name() -> None:
    @detent.flow
    def outer() -> Any:
        first = sums(1)
        again = sums(2)
        return keep([first, again, square(9)])

    assert keys(outer.record()) == [
        "sums.square",
        "sums.sum",
        "sums-2.square",
        "sums-2.square-2",
        "sums-2.sum",
        "square",
        "keep",
    ]
    assert outer.contract().steps[1].depends_on == [outer.contract().steps[0].step_id]
    assert outer() == [0, 1, 81]


def test_a_flow_that_calls_itself_is_refused_before_python_gives_up() -> None:
    @detent.flow
    def again() -> Any:
        return again()

    with pytest.raises(InvalidInput, match="is called 8 flows deep"):
        again.record()


def test_an_inner_flows_timeout_is_not_dropped_silently() -> None:
    @detent.flow(timeout=60)
    def inner() -> Any:
        return square(1)

    @detent.flow
    def outer() -> Any:
        return inner()

    assert outer() == 1
    with pytest.raises(InvalidInput, match="flow 'inner' has a timeout"):
        outer.record()


def test_a_contract_made_inside_a_flow_is_its_own() -> None:
    @detent.flow
    def outer() -> Any:
        assert len(sums.contract(3).steps) == 4
        return square(1)

    assert keys(outer.record()) == ["square"]


def test_a_handle_of_another_recording_is_refused() -> None:
    leaked: list[Any] = []

    @detent.flow
    def leaking() -> Any:
        leaked.append(square(1))

    @detent.flow
    def using() -> Any:
        return keep(leaked[0])

    leaking.record()
    with pytest.raises(InvalidInput, match="step 'square' belongs to another recording, of flow 'leaking'"):
        using.record()
    assert isinstance(keep(leaked[0]), Step)


def test_an_error_in_the_flow_leaves_nothing_recording() -> None:
    @detent.flow
    def broken() -> Any:
        square(1)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        broken.record()
    assert square(3) == 9


def test_threads_record_apart_from_each_other() -> None:
    gate = threading.Barrier(4, timeout=30)

    @detent.flow
    def slow(n: int) -> Any:
        gate.wait()
        return [square(i) for i in range(n)]

    with ThreadPoolExecutor(4) as pool:
        recordings = list(pool.map(slow.record, (1, 2, 3, 4)))
    assert [len(recording.steps) for recording in recordings] == [1, 2, 3, 4]


def test_a_thread_beside_a_recording_runs_its_tasks() -> None:
    @detent.flow
    def flow() -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(square, 3).result()

    assert flow.record().result == 9


@detent.flow
async def both(names: list[str]) -> Any:
    first, second = await asyncio.gather(*[fetch(name) for name in names])
    return keep(await fetch([first, second]))


def test_an_async_flow_is_recorded_and_called_as_it_is() -> None:
    assert keys(both.record(["a", "b"])) == ["fetch", "fetch-2", "fetch-3", "keep"]
    assert asyncio.run(both(["a", "b"])) == "<['<a>', '<b>']>"


def test_an_async_flow_is_recorded_inside_a_running_loop_too() -> None:
    async def inside() -> list[str]:
        return keys(both.record(["a", "b"]))

    assert asyncio.run(inside()) == ["fetch", "fetch-2", "fetch-3", "keep"]


def test_async_flows_awaited_at_once_keep_their_own_names() -> None:
    @detent.flow
    async def inner(n: int) -> Any:
        first = await fetch(n)
        await asyncio.sleep(0)
        return await fetch(first)

    @detent.flow
    async def outer() -> Any:
        return await asyncio.gather(inner(1), inner(2))

    recording = outer.record()
    assert keys(recording) == ["inner.fetch", "inner-2.fetch", "inner.fetch-2", "inner-2.fetch-2"]
    assert recording.result == [{"$from": "inner.fetch-2"}, {"$from": "inner-2.fetch-2"}]


def test_forgetting_await_in_an_async_flow_is_said() -> None:
    @detent.flow
    async def inner() -> Any:
        return await fetch(1)

    @detent.flow
    async def outer() -> Any:
        left = inner()
        try:
            return keep(left)
        finally:
            left.close()

    with pytest.raises(NotStrictJson, match="is a coroutine") as caught:
        outer.record()
    assert "await it" in str(caught.value.hint)


# -- what is no flow -----------------------------------------------------------------------------------------------------


def _generator() -> Any:
    yield square(1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: detent.flow(3), "is not a function"),  # type: ignore[call-overload]
        (lambda: detent.flow(int), "is not a function"),
        (lambda: detent.flow(square), "is a task already"),
        (lambda: detent.flow(sums), "is a flow already"),
        (lambda: detent.flow(_generator), "is a generator"),
        (lambda: detent.flow(name=""), "name=''"),
        (lambda: detent.flow(mode="streaming"), "mode='streaming'"),
        (lambda: detent.flow(timeout=[1]), "timeout="),  # type: ignore[call-overload]
        (lambda: detent.flow(timeout="soon"), "timeout='soon'"),
        (lambda: detent.flow(timeout="999ms"), "timeout='999ms' .*at least 1000 ms"),
    ],
)
def test_what_is_no_flow_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        make()
    assert caught.value.hint


def test_a_flow_is_no_method() -> None:
    class Holder:
        flow = sums

    assert Holder.flow is sums
    with pytest.raises(InvalidInput, match="a flow must be a function"):
        Holder().flow  # noqa: B018
    assert isinstance(sums, Flow)
    assert repr(sums) == f"<flow {__name__}:sums>"


def test_a_contract_is_called_by_where_its_flow_stands_or_by_its_name_where_nothing_leads_to_it() -> None:
    @detent.flow
    def inside() -> Any:
        return keep(1)

    assert sums.contract(2).name == f"{__name__}:sums"
    assert inside.contract().name == "inside"


def test_a_long_flow_is_recorded_without_recursion() -> None:
    recording = Recording("chain")
    with recording_of(recording):
        value: Any = 0
        for _ in range(3_000):
            value = keep(value)
    assert recording.steps[-1]["id"] == "keep-3000"
    assert recording.steps[-1]["run"]["with"] == {"value": {"$from": "keep-2999"}}
