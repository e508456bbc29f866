"""Files made to break a reader: a finding, never a traceback, never a hang."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.contract import ContractInvalid, from_document
from detent.contract.words import SOURCE_BYTES_MAX
from tests.contract.contracts import FEWER, documents, findings, one_step, only, values

SHORT = b"""\
name: etl
mode: parallel
params: {rows: 10, path: data.csv}
steps:
  - id: extract
    run: {python: etl:extract, with: {rows: {$param: rows}}, args: [1, two]}
    timeout: 5m
  - id: load
    needs: [extract]
    run:
      code: |
        def main(rows):
            return len(rows)
      with: {rows: {$from: extract}}
    env: {A: 1}
    retry: {max: 2, on: [USER_CODE_ERROR]}
    outputs: {db: out.db}
"""


def loads_or_is_refused(data: bytes) -> None:
    for finding in findings(data):
        assert finding.line >= 1
        assert finding.column >= 1
        assert "\0" not in str(finding)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_by_name(data: bytes) -> None:
    loads_or_is_refused(data)


@given(st.data())
def test_a_damaged_contract_is_read_or_refused(data: st.DataObject) -> None:
    """Bytes changed, taken out, put in, and lines exchanged, at random"""
    text = bytearray(SHORT)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        cut = data.draw(st.integers(0, 6))
        text[at : at + cut] = data.draw(
            st.sampled_from([b"", b"\n", b": ", b"- ", b"{", b"]", b"'", b"$", b"5", b"null", b"\t", b"\xff", b"&"])
        )
    loads_or_is_refused(bytes(text))


@FEWER
@given(documents(), st.data())
def test_a_value_of_the_wrong_kind_anywhere_is_a_finding(document: dict[str, Any], data: st.DataObject) -> None:
    """WF-249: any node replaced by any other JSON value"""
    damaged = copy.deepcopy(document)
    places = list(_places(damaged))
    container, key = places[data.draw(st.integers(0, len(places) - 1))]
    container[key] = data.draw(values)
    loads_or_is_refused(json.dumps(damaged).encode())
    with suppress(ContractInvalid):
        from_document(damaged)


def _places(value: Any) -> Any:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", '{"a":['])
def test_five_thousand_levels_end_at_the_sixty_fifth(opening: str) -> None:
    assert only(opening * 5000).message == "nested deeper than 64 lists and mappings"


@pytest.mark.parametrize("opening", ["!x [", "&a [", "? "])
def test_five_thousand_levels_of_what_is_not_read_end_too(opening: str) -> None:
    assert findings(opening * 5000)[0].hint


def test_fifty_megabytes_are_refused_unread() -> None:
    assert only(b"#" * 50_000_000).message == "the file has 50,000,000 bytes, 16,777,216 are allowed"


def test_a_long_key_is_refused_with_its_limit() -> None:
    assert "at most 1024 characters" in only("{name: n, " + "k" * 1025 + ": 1}").hint


def test_a_long_line_and_a_long_text_are_no_trouble() -> None:
    text = f"name: n\ndescription: {'word ' * 100_000}\nsteps: []\n"
    assert findings(text) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("(" * 300 + ")" * 300, "the code is not valid Python: too many nested parentheses"),
        ("-" * 50_000 + "1", "the code cannot be parsed: it is nested too deeply"),
        ("a" + ".b" * 60_000, "the code cannot be parsed: it is nested too deeply"),
        ("1+" * 60_000 + "1", "the code cannot be parsed: it is nested too deeply"),
        ("x = " + "9" * 100_000, "the code is not valid Python: Exceeds the limit"),
        ("#" * (SOURCE_BYTES_MAX + 1), "code of more than 256 KiB"),
        ("\u2028".join(["x = 1"] * 3), "the code is not valid Python: invalid "),
    ],
    ids=["parentheses", "signs", "attributes", "sums", "digits", "size", "separators"],
)
def test_source_that_would_exhaust_a_parser_is_refused(source: str, message: str) -> None:
    finding = only(one_step(f"run: {{code: {json.dumps(source)}}}"))
    assert finding.message.startswith(message)


def test_source_with_odd_escapes_prints_no_warning() -> None:
    assert findings(one_step("""run: {code: 'def main(): return "\\d"'}""")) == []


@pytest.mark.parametrize(
    "text", ['name: "\\0"\nsteps: []', one_step('run: {shell: "a\\0b"}'), one_step('run: {code: "\\0"}')]
)
def test_a_written_nul_reaches_nothing(text: str) -> None:
    assert only(text).message.endswith("must not hold the character U+0000")


def test_five_thousand_steps_in_a_chain_load_without_recursion() -> None:
    rows = "".join(f"  - {{id: s{i}, needs: [s{i - 1}], run: {{shell: x}}}}\n" for i in range(1, 5_000))
    assert findings("name: n\nsteps:\n  - {id: s0, run: {shell: x}}\n" + rows) == []
