"""docs/reuse.md is true: its example behaves as its table says, and its words are the ones that are said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from detent.reuse.ingredients import Change, CodeReader, describe
from detent.reuse.ingredients import job as work_module
from tests.reuse.ingredients.projects import edit, look

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reuse.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
ROWS = [
    (file, old.replace("\\n", "\n"), new.replace("\\n", "\n"), runs)
    for file, old, new, runs in re.findall(r"^\| `(\w+\.py)` \| `(.*?)` \| `(.*?)` \| (\w+) \|$", PAGE, re.MULTILINE)
]
SAID = {
    "function helpers:clean changed": Change("function:helpers:clean", "a", "b"),
    "version 1 -> 2": Change("version", "1", "2"),
    "command changed": Change("command", "a", "b"),
    "payload changed": Change("payload", "a", "b"),
    "argument rows changed": Change("argument:rows", "a", "b"),
    "input load.sql changed": Change("input:load.sql", "a", "b"),
    "input load.sql is missing": Change("input:load.sql", "a", None),
    "output page old.html -> new.html": Change("output:page", "old.html", "new.html"),
    "environment variable TOTAL changed": Change("env:TOTAL", "a", "b"),
    "package numpy 2.1 -> 2.2": Change("package:numpy", "2.1", "2.2"),
    "Python 3.11.7 -> 3.12.1": Change("python", "3.11.7", "3.12.1"),
    "salt changed": Change("salt", "a", "b"),
}


def test_the_table_has_rows_for_something_and_for_nothing() -> None:
    assert len(ROWS) == 8
    assert {runs for *_, runs in ROWS} == {"total", "count", "nothing"}


@pytest.mark.parametrize(("file", "old", "new", "runs"), ROWS)
def test_an_edit_of_the_example_runs_what_the_page_says(
    file: str, old: str, new: str, runs: str, tmp_path: Path
) -> None:
    """X-176"""
    for name, code in FILES.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    steps = ("total", "count")

    def digests() -> list[bytes | None]:
        reader = CodeReader(tmp_path)
        return [reader.digest(f"pipeline:{step}").digest for step in steps]

    before = digests()
    assert None not in before
    edit(tmp_path, file, old, new)
    changed = [step for step, was, now in zip(steps, before, digests(), strict=True) if was != now]
    assert changed == ([] if runs == "nothing" else [runs])


@pytest.mark.parametrize("words", SAID)
def test_changes_are_said_in_the_words_of_the_page(words: str) -> None:
    assert f"`{words}`" in PAGE
    assert describe(SAID[words]) == words


def test_the_page_knows_how_many_parts_are_listed() -> None:
    assert f"more than {work_module.PARTS_MAX} parts" in PAGE


def test_the_example_that_cannot_be_told_is_one(tmp_path: Path) -> None:
    source = re.findall(r'```python\n(@detent.task\(version="2"\).*?)```', PAGE, re.DOTALL)[0]
    (tmp_path / "pipeline.py").write_text(f"import detent\n{source}", encoding="utf-8")
    assert [each.what for each in look(tmp_path, "pipeline:evaluate").unresolved] == ["eval"]
    assert CodeReader(tmp_path).digest("pipeline:evaluate", version="2").digest is not None
