"""Parameters as settings of a map: what they turn into is held to what may be written there."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from detent.contract import Contract, ParamsInvalid, from_document, load, long_form, schema
from detent.contract.map_run import FUNCTIONS, MAP_KEYS, TYPES
from detent.contract.params import bind
from detent.contract.yaml_reader import read
from tests.contract.contracts import NAME, findings, marked, only

VALIDATOR = jsonschema.Draft202012Validator(schema())
USUAL = {"files": "a/*", "compute": "m:f", "commit": "jsonl:o"}


def written(setting: str, params: str = "{p: {type: any}}", **more: str) -> str:
    """A contract with a map in which this is written, in lines of their own."""
    key = setting.replace("➤", "").partition(":")[0]
    usual = {name: value for name, value in {**USUAL, **more}.items() if name != key}
    if key == "items":
        usual.pop("files")
    rest = "".join(f"        {name}: {value}\n" for name, value in usual.items())
    return f"name: one\nparams: {params}\nsteps:\n  - id: only\n    run:\n      map:\n        {setting}\n{rest}"


def given(setting: str, value: Any) -> Contract:
    """The contract, with a value that fits where the parameter stands; raises for another."""
    contract = load(marked(written(setting))[0].encode() if "➤" in setting else written(setting).encode(), name=NAME)
    bind(contract, {"p": value})
    return contract


SETTINGS = [
    ("files: {$param: p}", "a/*.txt"),
    ("files: {$param: p}", ["a", "b/**"]),
    ("files: [a, {$param: p}]", "b"),
    ("items: {$param: p}", [1, {"$from": "data, not a reference"}]),
    ("items: {$param: p}", "rows.jsonl"),
    ("commit: {$param: p}", "sqlite:o.db#t"),
    ("commit: {$param: p}", "append:o"),
    ("window: {$param: p}", 1_000_000),
    ("chunk: {$param: p}", 256),
    ("on_error: {$param: p}", "continue"),
    ("retries: {$param: p}", 0),
    ("item_timeout: {$param: p}", "90s"),
    ("item_timeout: {$param: p}", 0.5),
]


@pytest.mark.parametrize(("setting", "value"), SETTINGS, ids=[f"{row[0]} {row[1]!r:.20}" for row in SETTINGS])
def test_a_setting_may_be_a_parameter(setting: str, value: Any) -> None:
    """X-177: plain data, which an editor's schema knows and the long form keeps"""
    contract = given(setting, value)
    VALIDATOR.validate(read(written(setting).encode()).value)
    assert from_document(long_form(contract)) == contract


def test_every_setting_but_the_functions_may_be_a_parameter() -> None:
    """Which code runs is said by the contract: ``python:`` takes no parameter either."""
    assert TYPES.keys() == MAP_KEYS.keys() - FUNCTIONS


MISFITS = [
    ("files: ➤{$param: p}", 5, "files must be text, not 5; files is parameter 'p'"),
    ("files: ➤{$param: p}", "", "files must not be empty; files is parameter 'p'"),
    ("files: ➤{$param: p}", "a\0b", "files must not hold the character U+0000; files is parameter 'p'"),
    ("files: ➤{$param: p}", [], "files names no file; files is parameter 'p'"),
    ("files: ➤{$param: p}", ["a", 5], "files[1] must be text, not 5; files is parameter 'p'"),
    (
        "files: ➤{$param: p}",
        [{"$param": "p"}],
        "files must be text or a list of texts, not [{'$param': 'p'}]; files is parameter 'p'",
    ),
    ("files: [a, ➤{$param: p}]", ["b"], "files[1] must be text, not ['b']; files[1] is parameter 'p'"),
    ("files: [a, ➤{$param: p}]", {"$param": "p"}, "files[1] must be text, not {'$param': 'p'}; files[1] is parameter 'p'"),
    ("items: ➤{$param: p}", 5, "items needs a list to go through, not 5; items is parameter 'p'"),
    ("items: ➤{$param: p}", {"$from": "only"}, "items needs a list to go through, not {'$from': 'only'}; items is parameter 'p'"),
    ("items: ➤{$param: p}", " ", "items must not be empty; items is parameter 'p'"),
    ("commit: ➤{$param: p}", "out.txt", "the destination 'out.txt' has no kind before a colon; commit is parameter 'p'"),
    ("commit: ➤{$param: p}", "s3:b", "the destination 's3:b' is of a kind that is not known (s3); commit is parameter 'p'"),
    (
        "commit: ➤{$param: p}",
        "sqlite:a.db#sqlite_x",
        "the destination 'sqlite:a.db#sqlite_x' names the table sqlite_x, which belongs to SQLite or to detent; commit is parameter 'p'",
    ),
    (
        "commit: ➤{$param: p}",
        "os:system",
        "the destination 'os:system' is a function, which no parameter can name; commit is parameter 'p'",
    ),
    ("commit: ➤{$param: p}", ["jsonl:o"], "commit must be text, not ['jsonl:o']; commit is parameter 'p'"),
    ("window: ➤{$param: p}", 0, "window must be a whole number from 1 to 1,000,000, not 0; window is parameter 'p'"),
    ("window: ➤{$param: p}", "8", "window must be a whole number from 1 to 1,000,000, not '8'; window is parameter 'p'"),
    ("window: ➤{$param: p}", True, "window must be a whole number from 1 to 1,000,000, not true; window is parameter 'p'"),
    ("window: ➤{$param: p}", 2.0, "window must be a whole number from 1 to 1,000,000, not 2.0; window is parameter 'p'"),
    ("chunk: ➤{$param: p}", 257, "chunk must be a whole number from 1 to 256, not 257; chunk is parameter 'p'"),
    ("on_error: ➤{$param: p}", "skip", "there is no on_error 'skip'; on_error is parameter 'p'"),
    ("retries: ➤{$param: p}", 11, "retries must be a whole number from 0 to 10, not 11; retries is parameter 'p'"),
    ("item_timeout: ➤{$param: p}", "99ms", "item_timeout must be at least 100 ms, got '99ms'; item_timeout is parameter 'p'"),
    ("item_timeout: ➤{$param: p}", [1], "item_timeout cannot be [1]; item_timeout is parameter 'p'"),
    ("retries: ➤{$param: p}", None, "retries must be a whole number from 0 to 10, not null; retries is parameter 'p'"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "value", "message"), MISFITS, ids=[f"{row[0]} {row[1]!r:.20}" for row in MISFITS])
def test_a_value_that_could_not_be_written_there_is_refused_with_file_line_setting_and_parameter(
    setting: str, value: Any, message: str
) -> None:
    text, (line, column) = marked(written(setting))
    contract = load(text.encode(), name=NAME)
    with pytest.raises(ParamsInvalid) as caught:
        bind(contract, {"p": value})
    assert caught.value.details["errors"] == [f"{NAME}:{line}:{column}: {message}"]
    assert caught.value.hint


def test_a_contract_without_lines_names_the_place_by_its_path() -> None:
    contract = from_document(long_form(given("window: {$param: p}", 3)), name="run.json")
    with pytest.raises(ParamsInvalid) as caught:
        bind(contract, {"p": 0})
    place = "workflow_coordination.steps[0].run.map.window"
    assert str(caught.value).startswith(f"run.json: {place}: window must be a whole number")


LISTED = "name: one\nparams: {p: %s}\nsteps:\n  - id: only\n    map: {item: ➤{$param: p}}\n    run: {shell: ls}\n"


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("5", "map cannot go through parameter 'p', which is of type integer"),
        ("{type: string}", "map cannot go through parameter 'p', which is of type string"),
        (
            "{type: any, default: 5}",
            "map needs a list to go through, not 5; it is parameter 'p', by its default",
        ),
    ],
)
def test_a_step_goes_through_no_parameter_that_can_be_no_list(param: str, message: str) -> None:
    text, (line, column) = marked(LISTED % param)
    finding = only(text)
    assert (finding.line, finding.column, finding.message) == (line, column, message)
    assert finding.hint


def test_a_value_that_is_no_list_is_refused_where_a_step_goes_through_it() -> None:
    text, (line, column) = marked(LISTED % "{type: any}")
    contract = load(text.encode(), name=NAME)
    assert bind(contract, {"p": [1]}) == {"p": [1]}
    with pytest.raises(ParamsInvalid) as caught:
        bind(contract, {"p": 5})
    message = "map needs a list to go through, not 5; it is parameter 'p'"
    assert caught.value.details["errors"] == [f"{NAME}:{line}:{column}: {message}"]


def test_everything_that_does_not_fit_is_told_at_once() -> None:
    contract = load(
        written("window: {$param: w}", "{w: {type: any}, c: {type: any}}", chunk="{$param: c}").encode(), name=NAME
    )
    with pytest.raises(ParamsInvalid) as caught:
        bind(contract, {"w": 0, "c": 0})
    assert [line.partition(";")[2] for line in str(caught.value).splitlines()] == [
        " window is parameter 'w'",
        " chunk is parameter 'c'",
    ]


DECLARED = [
    (
        "window: ➤{$param: p}",
        "{p: eight}",
        "window cannot be parameter 'p', which is of type string",
        "declare it as integer",
    ),
    (
        "files: [a, ➤{$param: p}]",
        "{p: [b]}",
        "files[1] cannot be parameter 'p', which is of type list",
        "declare it as string",
    ),
    (
        "items: ➤{$param: p}",
        "{p: {type: object}}",
        "items cannot be parameter 'p', which is of type object",
        "declare it as list",
    ),
    (
        "commit: ➤{$param: p}",
        "{p: true}",
        "commit cannot be parameter 'p', which is of type boolean",
        "declare it as string",
    ),
    (
        "chunk: ➤{$param: p}",
        "{p: 300}",
        "chunk must be a whole number from 1 to 256, not 300; chunk is parameter 'p', by its default",
        "write for example `chunk: 16`",
    ),
    (
        "commit: ➤{$param: p}",
        "{p: out.txt}",
        "the destination 'out.txt' has no kind before a colon; commit is parameter 'p', by its default",
        "write append:FILE",
    ),
    ("window: {$param: ➤q}", "{p: 5}", "there is no parameter 'q'", "declare it"),
    ("window: {$param: ➤5}", "{p: 5}", "$param needs the name of a parameter, not 5", "write {$param: name}"),
    ("compute: ➤{$param: p}", "{p: 'm:f'}", "compute cannot be a parameter", "the contract must say which code runs"),
    ("filter: ➤{$param: p}", "{p: 'm:f'}", "filter cannot be a parameter", "the contract must say which code runs"),
    (
        "window: ➤{$from: other}",
        "{p: 5}",
        "window must be a whole number from 1 to 1,000,000, not {'$from': 'other'}",
        "write for example",
    ),
]


@pytest.mark.parametrize(("setting", "params", "message", "hint"), DECLARED, ids=[row[2][:50] for row in DECLARED])
def test_what_a_contract_says_itself_is_checked_when_it_is_loaded(
    setting: str, params: str, message: str, hint: str
) -> None:
    text, place = marked(written(setting, params))
    found = only(text)
    assert (found.line, found.column, found.message) == (*place, message)
    assert found.hint.startswith(hint)


def test_a_parameter_that_is_required_or_of_any_type_is_left_to_the_run() -> None:
    assert findings(written("window: {$param: p}", "{p: }")) == []
    assert findings(written("window: {$param: p}", "{p: {type: number}}")) == []


@pytest.mark.parametrize(
    "setting",
    ["compute: {$param: p}", "filter: {$param: p}", "window: {$from: s}", "files: []", "files: [{$from: s}]"],
)
def test_an_editor_marks_what_can_be_no_parameter(setting: str) -> None:
    """WF-107"""
    assert not VALIDATOR.is_valid(read(written(setting).encode()).value)
