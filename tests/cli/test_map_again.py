"""The same `detent map` typed again: done is done, --force begins anew, and a destination is never mixed with something else."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.map_project import MapProject, detent_home, eventually, project

__all__ = ["detent_home", "project"]

SQUARES = [x * x for x in range(100)]
OTHER = "DESTINATION_NOT_EMPTY"


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbered(path: Path) -> list[Any]:
    found = lines(path)
    assert [line["seq"] for line in found] == list(range(len(found)))
    return [line["value"] for line in found]


def rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return [json.loads(value) for (value,) in db.execute("SELECT value FROM squares ORDER BY seq")]


DESTINATIONS = pytest.mark.parametrize(
    ("commit", "name", "found"),
    [
        ("jsonl:out.jsonl", "out.jsonl", lines),
        ("jsonl+seq:out.jsonl", "out.jsonl", numbered),
        ("append:out.txt", "out.txt", lines),
        ("sqlite:out.db#squares", "out.db", rows),
    ],
    ids=["jsonl", "jsonl+seq", "append", "sqlite"],
)


def compute_of(commit: str) -> str:
    """Text for what holds text, numbers for everything else."""
    return "words.py:text" if commit.startswith("append:") else "words.py:square"


def with_text(project: MapProject) -> None:
    path = project.directory / "words.py"
    path.write_text(path.read_text() + "def text(x): return str(x * x)\n")


@DESTINATIONS
def test_the_same_line_typed_twice_leaves_each_item_once(
    project: MapProject, commit: str, name: str, found: Callable[[Path], list[Any]]
) -> None:
    """X-192: done already, exit 0, the destination untouched; it says which run did it and how to begin anew."""
    with_text(project)
    first = project.map(compute_of(commit), "--commit", commit, "-o", "json")
    assert (first.code, first.document["done_before"]) == (0, False), first.err
    before = (project.directory / name).stat()
    second = project.map(compute_of(commit), "--commit", commit, "-o", "json")
    assert (second.code, second.document["done_before"], second.document["status"]) == (0, True, "succeeded")
    for key in ("run_id", "items", "digest"):
        assert second.document[key] == first.document[key]
    told = project.map(compute_of(commit), "--commit", commit).out
    assert f"done already  run {first.document['run_id']}" in told
    assert "--force starts over" in told
    assert "ended   20" in told, "it says when"
    after = (project.directory / name).stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert found(project.directory / name) == SQUARES
    assert len(project.json("list")) == 1


@DESTINATIONS
def test_force_begins_anew_and_replaces_what_the_map_left(
    project: MapProject, commit: str, name: str, found: Callable[[Path], list[Any]]
) -> None:
    """X-192: a second run, and still each item once; also with other code."""
    with_text(project)
    line = (compute_of(commit), "--commit", commit)
    first = project.map(*line, "-o", "json").document
    second = project.map(*line, "--force", "-o", "json").document
    assert (second["done_before"], second["status"]) == (False, "succeeded")
    assert second["run_id"] != first["run_id"]
    assert found(project.directory / name) == SQUARES
    path = project.directory / "words.py"
    path.write_text(path.read_text().replace("x * x", "-x"))
    refused = project.map(*line)
    assert (refused.code, OTHER in refused.err, "--force (force=True) replaces it" in refused.err) == (2, True, True), (
        refused.err
    )
    assert found(project.directory / name) == SQUARES
    assert project.map(*line, "--force").code == 0
    assert found(project.directory / name) == [-x for x in range(100)]


@pytest.mark.parametrize("commit", ["jsonl:out.jsonl", "append:out.jsonl", "sqlite:out.db#squares"])
def test_a_destination_that_holds_something_else_is_refused_unless_it_is_added_to(
    project: MapProject, commit: str
) -> None:
    """X-192: refused before there is a run, with --force too; --append adds."""
    with_text(project)
    (project.directory / "out.jsonl").write_text('"mine"\n')
    with closing(sqlite3.connect(project.directory / "out.db")) as db:
        db.execute("CREATE TABLE squares (seq INTEGER, value TEXT)")
        db.execute("""INSERT INTO squares VALUES (-1, '"mine"')""")
        db.commit()
    line = (compute_of(commit), "--commit", commit)
    for more in ((), ("--force",), ("--new",)):
        refused = project.map(*line, *more)
        assert (refused.code, OTHER in refused.err) == (2, True), refused.err
        assert "--append (append=True) adds to it" in refused.err
    assert project.json("list") == []
    assert project.map(*line, "--append").code == 0
    found = rows(project.directory / "out.db") if "sqlite" in commit else lines(project.directory / "out.jsonl")
    assert found == ["mine", *SQUARES]
    again = project.map(*line, "--append", "-o", "json").document
    assert again["done_before"], "the same line again is done, also with --append"
    assert project.map(*line, "--append", "--force").code == 0
    found = rows(project.directory / "out.db") if "sqlite" in commit else lines(project.directory / "out.jsonl")
    assert sorted(map(str, found)) == sorted(map(str, ["mine", *SQUARES, *SQUARES])), "asked for in so many words"


def test_a_table_of_the_users_own_with_run_ids_is_replaced_run_by_run(project: MapProject) -> None:
    """X-192: rows of this map's runs go, and a row of anything else keeps all of them."""
    with closing(sqlite3.connect(project.directory / "out.db")) as db:
        db.execute("CREATE TABLE squares (Run_ID TEXT, seq INTEGER, value TEXT, PRIMARY KEY (run_id, seq))")
        db.commit()
    line = ("words.py:square", "--commit", "sqlite:out.db#squares")
    assert project.map(*line).code == 0
    assert project.map(*line, "--force").code == 0
    assert rows(project.directory / "out.db") == SQUARES
    with closing(sqlite3.connect(project.directory / "out.db")) as db:
        db.execute("INSERT INTO squares VALUES ('somebody', 0, '7')")
        db.commit()
    refused = project.map(*line, "--force")
    assert (refused.code, OTHER in refused.err) == (2, True)
    assert len(rows(project.directory / "out.db")) == 101


def test_a_table_made_for_one_run_takes_no_second_one_and_says_so(project: MapProject) -> None:
    assert project.map("words.py:square", "--commit", "sqlite:out.db#squares").code == 0
    refused = project.map("words.py:is_even", "--commit", "sqlite:out.db#squares", "--append")
    assert (refused.code, OTHER in refused.err) == (2, True)
    assert "columns run_id and seq" in refused.err
    assert rows(project.directory / "out.db") == SQUARES


def test_a_function_is_not_called_again_for_what_is_done(project: MapProject) -> None:
    """X-192: what a function did cannot be looked at; the finished run is the answer all the same."""
    (project.directory / "go").touch()
    (project.directory / "rows.jsonl").write_text("0\n1\n2\n")
    line = ("words.py:square", "--commit", "words.py:take")
    assert project.map(*line).code == 0
    assert project.map(*line, "-o", "json").document["done_before"]
    assert project.taken() == [0, 1, 4]
    assert project.map(*line, "--force").code == 0
    assert project.taken() == [0, 1, 4, 0, 1, 4]


def test_a_destination_that_is_gone_is_filled_again(project: MapProject) -> None:
    """X-192: done means that the destination has it."""
    line = ("words.py:square", "--commit", "jsonl:out.jsonl")
    assert project.map(*line).code == 0
    (project.directory / "out.jsonl").unlink()
    assert not project.map(*line, "-o", "json").document["done_before"]
    assert project.lines() == SQUARES
    (project.directory / "out.jsonl").write_text("1\n")
    assert project.map(*line).code == 2
    assert project.lines() == [1]


@pytest.mark.parametrize("changed", ["items", "function", "filter", "destination"])
def test_other_work_is_not_taken_for_done(project: MapProject, changed: str) -> None:
    """X-192: the same items, functions and destination."""
    line = ["words.py:square", "--filter", "words.py:is_even", "--commit", "jsonl:out.jsonl"]
    assert project.map(*line).code == 0
    words = project.directory / "words.py"
    if changed == "items":
        (project.directory / "rows.jsonl").write_text("4\n")
    elif changed == "function":
        words.write_text(words.read_text().replace("return x * x", "return x * x * x"))
    elif changed == "filter":
        words.write_text(words.read_text().replace("x % 2 == 0", "x % 2 == 1"))
    else:
        line[-1] = "jsonl:other.jsonl"
    again = project.map(*line, *(() if changed == "destination" else ("--force",)), "-o", "json").document
    assert (again["done_before"], again["status"]) == (False, "succeeded")
    if changed != "destination":
        words.write_text(words.read_text() + "\n# nothing that any of them calls\n")
        assert project.map(*line, "-o", "json").document["done_before"]


def test_a_run_that_did_a_part_is_retried_and_then_done(project: MapProject) -> None:
    """X-192, X-183: typed again it does nothing twice; `retry` typed twice neither."""
    line = ("words.py:picky", "--commit", "jsonl+seq:out.jsonl", "--on-error", "continue")
    first = project.map(*line, "-o", "json").document
    refused = project.map(*line)
    assert (refused.code, f"`detent retry {first['run_id']}` runs what is missing" in refused.err) == (2, True)
    words = project.directory / "words.py"
    fixed = words.read_text()
    words.write_text(fixed.replace('if x == 3: raise ValueError("three")', "pass"))
    assert project.json("retry", first["run_id"])["status"] == "succeeded"
    again = project.json("retry", first["run_id"])
    assert (again["done_before"], again["items"]["total"]) == (True, 1)
    told = project("retry", first["run_id"]).out
    assert f"this run completed run {first['run_id']}; the destination was left alone" in told
    assert "--force" not in told, "`detent retry` has no such option"
    found = project.lines()
    assert sorted(line["seq"] for line in found) == list(range(100)), "an item keeps its number when it is retried"
    assert found[-1] == {"seq": 3, "value": 3}
    words.write_text(fixed)
    assert project.map(*line, "-o", "json").document["done_before"], "the run and its retry have done all of it"


def test_a_retry_goes_into_the_table_of_the_run_it_retries(project: MapProject) -> None:
    """X-183: the rows of the retried items have the numbers that they had, also after two retries."""
    words = project.directory / "words.py"
    text = words.read_text()
    words.write_text(text + "def twice(x):\n    if x in (3, 7): raise ValueError(x)\n    return x\n")
    line = ("words.py:twice", "--commit", "sqlite:out.db#squares", "--on-error", "continue")
    first = project.map(*line, "-o", "json").document["run_id"]
    words.write_text(text + "def twice(x):\n    if x == 7: raise ValueError(x)\n    return x\n")
    second = project.json("retry", first, code=1)["run_id"]
    refused = project("retry", first)
    assert (refused.code, f"detent retry {second}" in refused.err) == (2, True), (
        "what is missing is known to the second"
    )
    words.write_text(text + "def twice(x): return x\n")
    assert project.json("retry", second)["status"] == "succeeded"
    with closing(sqlite3.connect(project.directory / "out.db")) as db:
        assert db.execute("SELECT seq, value FROM squares ORDER BY seq").fetchall() == [
            (number, str(number)) for number in range(100)
        ]


def test_force_closes_what_was_left_and_replaces_what_it_wrote(project: MapProject) -> None:
    """X-192: an unfinished run is not gone on with, and nothing of it stays, not even what it wrote and did not record."""
    os.mkfifo(project.directory / "gate")
    line = ("words.py:slow", "--commit", "jsonl:out.jsonl", "--window", "16", "--chunk", "4")
    process = project.start("map", "--items", "rows.jsonl", "--compute", *line, "-w", "2")
    project.appears("running")
    left = project.newest()
    eventually(lambda: project.json("show", left)["ordered"]["committed"] >= 16, "nothing is committed")
    assert project.map(*line, "--force").code == 1, "another process drives it"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    with (project.directory / "out.jsonl").open("a") as file:
        file.write("4711\n")
    words = project.directory / "words.py"
    words.write_text(words.read_text().replace("if x == 40:", "if False:"))
    refused = project.map(*line)
    assert (refused.code, "--force begins anew" in refused.err) == (2, True)
    begun = project.map(*line, "--force", "-o", "json").document
    assert (begun["status"], begun["items"]["succeeded"]) == ("succeeded", 100)
    assert project.lines() == list(range(100))
    states = {run["run_id"]: run["status"] for run in project.json("list")}
    assert states == {left: "cancelled", begun["run_id"]: "succeeded"}


@pytest.mark.parametrize("patterns", [("texts/*.txt",), ("rows.*", "texts/*.txt"), ("texts",)])
def test_a_pattern_that_matches_no_file_is_an_error(project: MapProject, patterns: tuple[str, ...]) -> None:
    """X-192: each pattern for itself; a directory is no file."""
    (project.directory / "texts").mkdir()
    more = [word for pattern in patterns for word in ("--files", pattern)]
    result = project("map", *more, "--compute", "words:count", "--commit", "jsonl:out.jsonl")
    assert (result.code, f"no file matches {patterns[-1]!r}" in result.err) == (2, True), result.err
    assert project.json("list") == []
    assert not (project.directory / "out.jsonl").exists()


def test_a_step_whose_pattern_matches_no_file_fails(project: MapProject) -> None:
    (project.directory / "flow.yaml").write_text(
        "name: flow\nsteps:\n  - id: all\n    run:\n"
        "      map: {files: 'texts/*.txt', compute: 'words:count', commit: 'jsonl:out.jsonl'}\n"
    )
    result = project("run", "flow.yaml", "-w", "1")
    assert (result.code, "no file matches 'texts/*.txt'" in result.out) == (1, True), result.out
