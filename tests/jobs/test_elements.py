"""Arrays: many calls in one order, and an outcome for each of them in one report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.canon import digest_text, json_digest
from detent.errors import InvalidInput
from detent.jobs.elements import ELEMENTS_MAX, FAILED, OPEN, SUCCEEDED, Elements, element_id, split_element_id
from detent.jobs.order import Call, ElementOrder, JobLimits, Order, Origin, read_order, unchunked
from detent.jobs.work import Failure, Result, WorkReport

CALL = Call(kind="python", target="m:f")
ARRAY = Order(
    replace(CALL, keywords={"scale": 2}),
    "m:f",
    origin=Origin(run_id="r", step="s", ingredients={"code": "c"}),
    elements=(
        ElementOrder((1,), ingredients={"argument:1": "x"}),
        ElementOrder((2,), {"scale": 3}, 0, again="it was erased"),
    ),
)
FAILURE: dict[str, Any] = {"category": "USER_CODE_ERROR", "code": "PYTHON_EXCEPTION", "message": "no"}
ELEMENTS = Elements(
    bytes([SUCCEEDED, FAILED, OPEN, SUCCEEDED]),
    [b"1", None, None, None],
    [5, 6, 0, 7],
    [1000, 200, 0, 3],
    contents={3: [b"c" * 32, b"v" * 32]},
    failures={1: FAILURE},
    streams={0: [[b"hi\n", None, False], [b"", None, False]]},
    attempts={0: 0},
)
REPORT = WorkReport(
    job_id="j",
    attempt_id=1,
    lease_id=b"l" * 32,
    manifest_hash=b"m" * 32,
    nonce=b"n" * 16,
    result=Result(status="FAILED", failure=Failure(**FAILURE), elements=ELEMENTS),
    elements_root=ELEMENTS.root(),
)


def test_an_array_order_reads_back_as_it_was_written() -> None:
    assert read_order(ARRAY.document()) == ARRAY
    assert "elements" not in Order(CALL, "m:f").document()


def test_the_order_of_an_element_is_that_of_a_job_of_its_own() -> None:
    assert ARRAY.of_element(0) == Order(
        replace(CALL, arguments=(1,), keywords={"scale": 2}),
        "m:f",
        origin=Origin(run_id="r", step="s", ingredients={"argument:1": "x", "code": "c"}),
    )
    assert ARRAY.of_element(1) == Order(
        replace(CALL, arguments=(2,), keywords={"scale": 3}),
        "m:f",
        origin=Origin(
            run_id="r",
            step="s",
            index=0,
            again="it was erased",
            ingredients={
                "argument:1": digest_text(json_digest(b"2")),
                "argument:scale": digest_text(json_digest(b"3")),
                "code": "c",
            },
        ),
    )


def test_an_argument_that_names_a_result_counts_by_what_the_order_says_of_it() -> None:
    own = ElementOrder(({"$result": "sha256:r"},), {"x": 1})
    order = Order(
        CALL,
        "f",
        origin=Origin(ingredients={"argument:1": "v"}),
        elements=(own, replace(own, ingredients={"argument:x": "w"})),
    )
    first, second = order.of_element(0).origin.ingredients, order.of_element(1).origin.ingredients
    assert first == {"argument:1": "v", "argument:x": digest_text(json_digest(b"1"))}
    assert second == {"argument:1": "v", "argument:x": "w"}


@pytest.mark.parametrize("elements", [[], "x", [[]], [[1]], [[[], {}, 0, {}, None, 1]], [[[1]]] * (ELEMENTS_MAX + 1)])
def test_elements_that_no_order_has_are_refused(elements: object) -> None:
    with pytest.raises(InvalidInput, match="element"):
        read_order({**Order(CALL, "m:f").document(), "elements": elements})


def test_results_and_files_in_elements_are_found() -> None:
    order = Order(CALL, "m:f", elements=(ElementOrder(({"$result": "r"}, [{"$file": "f"}])),))
    assert (list(order.results()), list(order.files())) == (["r"], ["f"])


def test_the_report_of_an_array_reads_back_and_gives_each_element_its_own() -> None:
    report = WorkReport.parse(REPORT.body())
    assert report == REPORT
    first, second, third, fourth = map(report.of_element, range(4))
    assert first is not None
    assert (first.result.value, first.result.stdout.data, first.attempt_id) == (b"1", b"hi\n", 0)
    assert (first.result.started_ms, first.result.finished_ms) == (5, 6)
    assert second is not None
    assert (second.result.failure, second.attempt_id) == (Failure(**FAILURE), 1)
    assert third is None
    assert fourth is not None
    assert (fourth.value_content, fourth.value_digest) == (b"c" * 32, b"v" * 32)
    assert list(report.contents()) == [b"c" * 32]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"codes": bytes([SUCCEEDED, FAILED, OPEN])}, "must have 3 entries"),
        ({"codes": bytes([SUCCEEDED, FAILED, OPEN, 9])}, "outcomes"),
        ({"values": [b"2", None, None, None]}, "elements_root is not the root"),
        ({"failures": {1: {**FAILURE, "message": "yes"}}}, "elements_root is not the root"),
        ({"failures": {1: {**FAILURE, "category": "FATE"}}}, "element 1: error.category"),
        ({"failures": {1: {"x": 1}}}, "element 1 does not fit"),
        ({"failures": {}}, "must say why it failed"),
        ({"failures": {1: FAILURE, 7: FAILURE}}, "an element that there is not"),
        ({"streams": {0: [[b"ho\n", None, False], [b"", None, False]]}}, "elements_root is not the root"),
        ({"streams": {0: [[1]]}}, "element 0 does not fit"),
        ({"contents": {3: [b"c"]}}, "two digests"),
        ({"values": [b"1", None, b"3", None]}, "exactly when it succeeded"),
        ({"wall_us": [1, 2, 3, -1]}, "times"),
    ],
)
def test_a_changed_element_is_found(change: dict[str, object], said: str) -> None:
    changed = replace(REPORT, result=replace(REPORT.result, elements=replace(ELEMENTS, **change)))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=said):
        WorkReport.parse(changed.body())


def test_a_root_without_elements_is_refused() -> None:
    with pytest.raises(InvalidInput, match="elements_root"):
        WorkReport.parse(replace(REPORT, result=replace(REPORT.result, elements=None)).body())


def test_the_next_attempt_computes_what_is_open_and_what_is_retried() -> None:
    assert ELEMENTS.again({"INTERNAL_ERROR"}) == [2]
    assert ELEMENTS.again({"USER_CODE_ERROR"}) == [1, 2]
    assert replace(ELEMENTS, codes=bytes([SUCCEEDED] * 4)).again({"USER_CODE_ERROR"}) == []


def test_an_element_is_named_by_its_job_and_its_place() -> None:
    assert split_element_id(element_id("a.b", 7)) == ("a.b", 7)
    assert [split_element_id(text) for text in ("a", "a.", ".3", "a.03", "a.x", "a.99999", "a.²")] == [None] * 7


def test_calls_with_limits_resources_or_files_of_their_own_are_not_chunked() -> None:
    assert unchunked(CALL, JobLimits()) == ""
    for call, limits in [
        (Call(kind="shell", target="ls"), JobLimits()),
        (CALL, JobLimits(wall_ms=5)),
        (CALL, JobLimits(memory_mb=5)),
        (CALL, JobLimits(resources={"cpu": 2})),
        (CALL, JobLimits(policies={"quota": "q"})),
        (replace(CALL, outputs={"a": "b"}), JobLimits()),
        (replace(CALL, inputs=("a",)), JobLimits()),
    ]:
        assert unchunked(call, limits)
