"""Every kind of value through a run and a client: converted where it has one obvious JSON form, refused by its place where not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.errors import InvalidInput
from detent.sdk.client import Client
from detent.sdk.flow import Flow
from detent.sdk.run import Run, RunFailed
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home
from tests.sdk import value_kinds as kinds

__all__ = ["detent_home"]

EXPECTED = [form for _, form in kinds.CONVERTED.values()]


@pytest.fixture
def home(detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[TemporaryHome]:
    monkeypatch.chdir(detent_home.directory)
    yield detent_home
    assert detent_home.verify().ok


def run(home: TemporaryHome, flow: Flow[..., Any]) -> Run:
    return detent.run(flow.contract(), home=home.path, workers=1)


def same(found: Any, expected: Any) -> bool:
    """Equal with equal types all the way down: 1, 1.0 and True are three values."""
    if type(found) is not type(expected):
        return False
    if type(found) is dict:
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in found)
    if type(found) is list:
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


def test_a_flow_passes_on_every_kind_that_has_one_obvious_json_form(home: TemporaryHome) -> None:
    """X-170: what arrives is JSON, the same for the next task and for the caller."""
    found = run(home, kinds.all_kinds).result()
    for kind, each, expected in zip(kinds.CONVERTED, found, EXPECTED, strict=True):
        assert same(each, expected), kind


def test_a_client_passes_on_every_kind_in_both_directions(home: TemporaryHome) -> None:
    """X-170: results and arguments have one table."""
    with Client(home.path, workers=1) as client:
        results = [
            handle.result(60) for handle in client.submit_many(kinds.make, [(kind,) for kind in kinds.CONVERTED])
        ]
        arguments = [made() for made, _ in kinds.CONVERTED.values()]
        shown = [handle.result(60) for handle in client.submit_many(kinds.show, [(value,) for value in arguments])]
    for kind, result, argument, expected in zip(kinds.CONVERTED, results, shown, EXPECTED, strict=True):
        assert same(result, expected), kind
        assert same(argument, expected), kind


def test_arguments_in_a_flow_have_the_same_table_and_the_same_key_each_time(home: TemporaryHome) -> None:
    """X-170, X-176: a set counts by its elements, not by the order in which Python holds them."""
    first = run(home, kinds.given_kinds)
    assert all(map(same, first.result(), EXPECTED))
    again = run(home, kinds.given_kinds)
    assert {step.state for step in again.steps} == {"reused"}


def test_a_run_names_the_place_in_a_result_without_a_json_form(home: TemporaryHome) -> None:
    """X-139, X-170: and what to return instead."""
    with pytest.raises(RunFailed) as caught:
        run(home, kinds.refused_kinds).result()
    told = str(caught.value)
    assert "RESULT_NOT_JSON" in told
    assert "result is nan, which JSON cannot hold; return None in its place" in told


def test_a_client_names_the_place_in_every_kind_without_a_json_form(home: TemporaryHome) -> None:
    """X-139, X-170"""
    with Client(home.path, workers=1) as client:
        handles = client.submit_many(kinds.make, [(kind,) for kind in kinds.REFUSED])
        for (kind, (made, place, instead)), handle in zip(kinds.REFUSED.items(), handles, strict=True):
            failure = handle.exception(60)
            assert failure is not None, kind
            assert failure.details["code"] == "RESULT_NOT_JSON", kind
            assert f"result{place}" in str(failure), kind
            assert "; return " in str(failure)
            assert instead in str(failure), kind
            with pytest.raises(InvalidInput) as refused:
                client.submit(kinds.show, made())
            assert f"show(values=...){place}" in str(refused.value), kind
            assert instead in str(refused.value.hint), kind


def test_a_result_of_an_ordered_run_is_converted_by_the_same_table(home: TemporaryHome) -> None:
    """X-170, ORD-031"""
    target = Path("made.jsonl")
    names = ["dataclass", "set of texts", "numpy array", "date"]
    detent.ordered_map(names, kinds.make, f"jsonl:{target}", home=home.path, workers=1)
    expected = '{"name":"a","score":0.5,"when":"2026-01-31"}\n["a","b","c"]\n{"rows":[[1,2],[3,4]]}\n"2026-01-31"\n'
    assert target.read_text() == expected


SANDBOXED = """\
name: sandboxed
result: {$from: made}
steps:
  - id: made
    run:
      code: |
        import datetime
        def main():
            return {"days": {datetime.date(2026, 1, 31)}, 1: RESULT}
"""


def test_a_result_from_the_sandbox_is_converted_by_the_same_table(home: TemporaryHome) -> None:
    """X-139, X-170: the code there finds nothing of ours, and its results have the same forms and the same refusals."""
    file = home.directory / "sandboxed.yaml"
    file.write_text(SANDBOXED.replace("RESULT", "(1, 2)"))
    assert detent.run(file, home=home.path, workers=1).result() == {"days": ["2026-01-31"], "1": [1, 2]}
    file.write_text(SANDBOXED.replace("RESULT", "[b'']"))
    with pytest.raises(RunFailed, match=r"result\[1\]\[0\] is a bytes, which has no JSON form; return detent.File"):
        detent.run(file, home=home.path, workers=1).result()
