"""A flow named on a command line: found, or refused with what there is instead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.errors import InvalidInput
from detent.sdk.flow_file import arguments_of, is_flow_name, load_flow

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
        ("ff_a.py", ONE, "ff_b.py", "is no file"),
        ("ff_c.py", ONE, "ff_missing:f", "no module 'ff_missing'"),
        ("ff_d.py", ONE, "ff_missing.deep:f", "no module 'ff_missing.deep'"),
        ("ff_e.py", ONE, "pipeline.yaml:f", "no module|no name"),
        ("ff_f.py", ONE, ":f", "is no name of a module"),
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
    [(["rows=1"], "needs day"), (["day"], "is no assignment"), (["day=1", "no=2"], "has no parameter 'no'")],
)
def test_arguments_that_do_not_fit_are_refused(project: Path, given: list[str], message: str) -> None:
    project.joinpath("ff_fit.py").write_text(ONE)
    with pytest.raises(InvalidInput, match=message):
        arguments_of(load_flow("ff_fit.py"), given)
