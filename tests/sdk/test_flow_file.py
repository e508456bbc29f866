"""A flow named on a command line: found, or refused with what there is instead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.cli.contract_file import is_flow_name
from detent.errors import InvalidInput
from detent.sdk.flow_file import arguments_of, load_flow, recorded
from detent.sdk.user_code import loading, refuse_while_loading

ONE = """
import detent

@detent.flow
def nightly(day: str, rows: int = 10, *, tag="x"):
    pass
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "is_flow"),
    [("a.py", True), ("a.py:f", True), ("pkg.mod:f", True), ("a.yaml", False), ("a", False), ("dir/a.yml", False)],
)
def test_a_flow_is_told_from_a_contract_file(text: str, is_flow: bool) -> None:
    assert is_flow_name(text) is is_flow


def test_a_file_with_a_colon_in_its_name_is_a_file(project: Path) -> None:
    project.joinpath("a:b").write_text("name: n\n")
    assert not is_flow_name("a:b")


def test_the_only_flow_of_a_file_is_meant(project: Path) -> None:
    project.joinpath("ff_only.py").write_text(ONE)
    assert load_flow("ff_only.py").name == "nightly"
    assert load_flow("ff_only.py:nightly").name == "nightly"
    assert load_flow("ff_only:nightly").name == "nightly"


def test_what_stands_under_main_does_not_run(project: Path) -> None:
    project.joinpath("ff_main.py").write_text(ONE + "\nif __name__ == '__main__':\n    raise SystemExit('ran')\n")
    load_flow("ff_main.py")


def test_a_file_whose_name_is_no_identifier_is_loaded_by_its_path(project: Path) -> None:
    project.joinpath("ff-dashed.py").write_text(ONE)
    assert load_flow("ff-dashed.py").name == "nightly"


@pytest.mark.parametrize(
    ("name", "source", "asked", "message"),
    [
        ("ff_none.py", "x = 1\n", "ff_none.py", "has no flow"),
        ("ff_two.py", ONE + ONE.replace("nightly", "daily"), "ff_two.py", "has the flows nightly, daily"),
        ("ff_other.py", ONE, "ff_other.py:weekly", "has no flow 'weekly'"),
        ("ff_a.py", ONE, "ff_b.py", "is not a file"),
        ("ff_c.py", ONE, "ff_missing:f", "no module 'ff_missing'"),
        ("ff_d.py", ONE, "ff_missing.deep:f", "no module 'ff_missing.deep'"),
        ("ff_e.py", ONE, "pipeline.yaml:f", "no module|no name"),
        ("ff_f.py", ONE, ":f", "is not a module name"),
        ("ff_syntax.py", "def broken(:\n", "ff_syntax.py", "cannot be imported: SyntaxError"),
        ("ff_raises.py", "x = 1\nraise ValueError('top')\n", "ff_raises.py", "cannot be imported: ValueError: top"),
        ("ff_imports.py", "import ff_nowhere\n", "ff_imports.py", "cannot be imported: ModuleNotFoundError"),
        ("ff-raises.py", "raise ValueError('top')\n", "ff-raises.py", "cannot be imported: ValueError: top"),
        ("json.py", ONE, "json.py", "name of another module"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(
    project: Path, name: str, source: str, asked: str, message: str
) -> None:
    """Every one of them is the user's to mend, so none of them is a traceback."""
    project.joinpath(name).write_text(source)
    with pytest.raises(InvalidInput, match=message) as refused:
        load_flow(asked)
    assert refused.value.hint


def test_the_hint_names_the_line_that_raised(project: Path) -> None:
    project.joinpath("ff_line.py").write_text("x = 1\n\nraise ValueError('here')\n")
    with pytest.raises(InvalidInput) as refused:
        load_flow("ff_line.py")
    assert "ff_line.py:3" in str(refused.value.hint)


def test_arguments_are_json_where_they_read_as_json(project: Path) -> None:
    project.joinpath("ff_args.py").write_text(ONE)
    flow = load_flow("ff_args.py")
    assert arguments_of(flow, ["day=2026", "rows=7", "tag=plain text"]) == {
        "day": "2026",
        "rows": 7,
        "tag": "plain text",
    }
    assert arguments_of(flow, ["day=", "tag=[1]"]) == {"day": "", "tag": [1]}


@pytest.mark.parametrize(
    ("given", "message"),
    [(["rows=1"], "needs day"), (["day"], "is not an assignment"), (["day=1", "no=2"], "has no parameter 'no'")],
)
def test_arguments_that_do_not_fit_are_refused(project: Path, given: list[str], message: str) -> None:
    project.joinpath("ff_fit.py").write_text(ONE)
    with pytest.raises(InvalidInput, match=message):
        arguments_of(load_flow("ff_fit.py"), given)


TYPED = """
import detent

@detent.flow
def typed(
    rate: float = 1.0, rows: int = 1, deep: bool = False, names: list[str] = [], more: dict | None = None,
    either: int | str = 0, free: object = None
):
    pass
"""


@pytest.fixture(params=["", "from __future__ import annotations\n"], ids=["as types", "as text"])
def typed(request: pytest.FixtureRequest, project: Path) -> object:
    """A flow that says what it takes."""
    project.joinpath("ff_typed.py").write_text(request.param + TYPED)
    return load_flow("ff_typed.py")


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("rate=fast", "'rate' of flow 'typed' is a number, not 'fast'", "-p rate=0.5"),
        ("rows=1.5", "'rows' of flow 'typed' is an integer, not '1.5'", "-p rows=10"),
        ("deep=True", "'deep' of flow 'typed' is true or false, not 'True'", "-p deep=true"),
        ("names=a,b", "'names' of flow 'typed' is a list, not 'a,b'", "-p names='[1, 2]'"),
        ("more=[1]", "'more' of flow 'typed' is a mapping, not '\\[1\\]'", "-p more='{"),
        ("rows=null", "'rows' of flow 'typed' is an integer, not 'null'", "-p rows=10"),
    ],
)
def test_a_value_that_an_annotation_rules_out_is_refused(typed: Any, given: str, message: str, hint: str) -> None:
    """`deep=False` as text would count as true, and `rate=fast` would multiply text."""
    with pytest.raises(InvalidInput, match=message) as refused:
        arguments_of(typed, [given])
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        *[("rate=2", 2.0), ("rate=0.5", 0.5), ("rows=3", 3), ("deep=true", True), ('names=["a"]', ["a"])],
        *[("more=null", None), ('more={"a": 1}', {"a": 1}), ("either=4", 4), ("either=four", "four")],
        *[("free=x", "x"), ("free=[1]", [1])],
    ],
)
def test_a_value_that_fits_its_annotation_is_taken(typed: Any, given: str, value: object) -> None:
    """`rate=2` is 2.0: 1 and 1.0 would be two values, and the step would run again."""
    (taken,) = arguments_of(typed, [given]).values()
    assert (taken, type(taken)) == (value, type(value))


BROKEN = """
import detent

@detent.task
def two(a, b):
    return a + b

@detent.flow
def raises():
    return {}["nothing"]

@detent.flow
def calls_wrongly():
    return two(1)
"""


def test_what_a_flow_itself_raises_is_told_with_its_line(project: Path) -> None:
    """It is neither a traceback nor called a bug of ours."""
    project.joinpath("ff_broken.py").write_text(BROKEN)
    with pytest.raises(InvalidInput, match="flow 'raises' cannot be recorded: KeyError: 'nothing'") as refused:
        recorded(load_flow("ff_broken.py:raises"), [])
    assert "ff_broken.py:10" in str(refused.value.hint)


def test_a_wrong_call_is_told_with_its_line(project: Path) -> None:
    project.joinpath("ff_wrong.py").write_text(BROKEN)
    with pytest.raises(InvalidInput, match="called wrongly") as refused:
        recorded(load_flow("ff_wrong.py:calls_wrongly"), [])
    assert refused.value.hint == "it is two(a, b); see ff_wrong.py:14"


def test_what_we_refuse_while_a_file_is_imported_points_at_that_file(project: Path) -> None:
    source = "import detent\n\n\n@detent.task\ndef gives():\n    yield 1\n"
    project.joinpath("ff_yields.py").write_text(source)
    with pytest.raises(InvalidInput, match="cannot be imported: 'gives' is a generator") as refused:
        load_flow("ff_yields.py")
    assert refused.value.hint == "return a list; see ff_yields.py:4"


@pytest.mark.parametrize(
    "line", ["nightly.run('today')", "detent.Client()", "detent.ordered_map([1], str, 'jsonl:out.jsonl')"]
)
def test_a_file_that_starts_work_when_it_is_imported_is_refused(project: Path, line: str) -> None:
    project.joinpath("ff_starts.py").write_text(f"{ONE}\n{line}\n")
    with pytest.raises(InvalidInput, match=r"ff_starts.py:8 .* under `if __name__ == \"__main__\":`"):
        load_flow("ff_starts.py")
    assert not project.joinpath(".detent").exists()


def test_lines_that_run_without_being_imported_may_start_work() -> None:
    """A program that is handed over as text, as a test runner's workers are, belongs to no module."""
    code = compile("refuse('starts a run')", "handed_over.py", "exec")
    with loading():
        exec(code, {"__name__": "handed over", "refuse": refuse_while_loading})
