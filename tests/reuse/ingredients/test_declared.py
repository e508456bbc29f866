"""Declared inputs and outputs: what a path, a directory and a glob stand for, and what is missing or changed."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from detent.errors import InvalidInput
from detent.reuse.ingredients import (
    FileDigests,
    FileUnreadable,
    OutputFault,
    inputs_digests,
    outputs_digests,
    outputs_match,
)
from detent.reuse.ingredients import files as declared
from tests.reuse.ingredients.projects import write


def text(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def inputs(base: Path, *patterns: str) -> dict[str, str | None]:
    return inputs_digests(patterns, str(base), FileDigests())


def test_inputs_count_by_path_and_content_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    """X-175: change load.sql"""
    write(tmp_path, {"load.sql": "select 1", "data/b.csv": "2", "data/a.csv": "1", "data/.hidden": "3", "other": "4"})
    found = inputs(tmp_path, "load.sql", "data/*.csv", "absent.txt", "*.nothing")
    assert list(found.items()) == [
        ("*.nothing", None),
        ("absent.txt", None),
        ("data/a.csv", text(b"1")),
        ("data/b.csv", text(b"2")),
        ("load.sql", text(b"select 1")),
    ]
    write(tmp_path, {"load.sql": "select 2"})
    assert inputs(tmp_path, "load.sql")["load.sql"] == text(b"select 2")


def test_a_directory_stands_for_all_files_below_it(tmp_path: Path) -> None:
    write(tmp_path, {"data/.hidden": "1", "data/deep/er/a": "2", "out/side": "3"})
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "out")
    (tmp_path / "data" / "dangling").symlink_to("nowhere")
    (tmp_path / "data" / "a").symlink_to("deep/er/a")
    found = inputs(tmp_path, "data")
    assert list(found) == ["data/.hidden", "data/a", "data/dangling", "data/deep/er/a", "data/linked"]
    assert found["data/a"] == text(b"2")
    write(tmp_path, {"out/side": "4"})
    assert inputs(tmp_path, "data") == found
    (tmp_path / "data" / "linked").unlink()
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "data" / "deep")
    assert inputs(tmp_path, "data") != found


def test_many_files_of_one_pattern_count_as_one_list(tmp_path: Path) -> None:
    write(tmp_path, {f"data/{index}": str(index) for index in range(declared.LISTED_MAX + 1)})
    first = inputs(tmp_path, "data/*")
    assert list(first) == ["data/*"]
    write(tmp_path, {"data/7": "changed"})
    second = inputs(tmp_path, "data/*")
    (tmp_path / "data" / "7").rename(tmp_path / "data" / "new")
    assert len({first["data/*"], second["data/*"], inputs(tmp_path, "data/*")["data/*"]}) == 3


def test_names_that_are_no_text_are_written_with_escapes(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff")).write_bytes(b"1")
    (tmp_path / "ä").write_bytes(b"2")
    (tmp_path / "[x]").write_bytes(b"3")
    assert inputs(tmp_path, "a*", "ä", "[x]") == {"a\\xff": text(b"1"), "ä": text(b"2"), "[x]": text(b"3")}


def test_a_pattern_that_is_no_path_or_stands_for_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"data/a": "", "data/b": "", "data/c": ""})
    os.mkfifo(tmp_path / "pipe")
    for bad in ("", "a\0b"):
        with pytest.raises(InvalidInput, match="is not a path"):
            inputs(tmp_path, bad)
    with pytest.raises(FileUnreadable, match="a pipe"):
        inputs(tmp_path, "*")
    monkeypatch.setattr(declared, "FILES_MAX", 2)
    with pytest.raises(InvalidInput, match="more than 2 files"):
        inputs(tmp_path, "data")


def test_an_output_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    """X-175: a missing or changed output is a miss; delete out.db"""
    write(tmp_path, {"out.db": "1", "pages/a.html": "2", "pages/b.html": "3"})
    outputs = {"db": "out.db", "pages": "pages/*.html", "log": "run.log"}
    files = FileDigests()
    recorded = outputs_digests(outputs, str(tmp_path), files)
    assert recorded == {
        "db": {"out.db": text(b"1")},
        "pages": {"pages/a.html": text(b"2"), "pages/b.html": text(b"3")},
        "log": {},
    }
    kept = {"db": "out.db", "pages": "pages/*.html"}

    def faults() -> list[OutputFault]:
        return outputs_match({name: recorded[name] for name in kept}, kept, str(tmp_path), files)

    assert faults() == []
    assert outputs_match(recorded, outputs, str(tmp_path), files) == [OutputFault("log", "run.log", "missing")]
    write(tmp_path, {"pages/a.html": "changed", "pages/c.html": "new"})
    (tmp_path / "out.db").unlink()
    assert faults() == [
        OutputFault("db", "out.db", "missing"),
        OutputFault("pages", "pages/a.html", "changed"),
        OutputFault("pages", "pages/c.html", "changed"),
    ]
    write(tmp_path, {"out.db": "1"})
    assert [fault.name for fault in faults()] == ["pages", "pages"]
