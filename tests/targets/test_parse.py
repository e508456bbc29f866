"""Destinations as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.errors import InvalidInput
from detent.targets import FunctionTarget, parse_target
from detent.targets.file_targets import FileTarget
from detent.targets.sqlite_target import SqliteTarget
from tests.targets.destinations import RUN


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *(("append:out.txt", FileTarget), ("jsonl:a/b:c.jsonl", FileTarget), ("jsonl+seq:out", FileTarget)),
        *(("sqlite:out.db#items", SqliteTarget), ("sqlite:a#b.db#items", SqliteTarget)),
        *(("pkg:function", FunctionTarget), ("pkg.mod:Class.method", FunctionTarget)),
        *(("places/mine.py:keep", FunctionTarget), ("a:b.py:keep", FunctionTarget)),
    ],
)
def test_each_form_names_its_kind_and_keeps_its_text(text: str, kind: type[Any]) -> None:
    target = parse_target(text)
    assert type(target) is kind
    assert (target.spec, target.is_recorded) == (text, True)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        *(("", "no kind"), ("out.txt", "no kind"), (":x", "no kind"), ("append:", "nothing after append:")),
        *(("csv:out.csv", "not known"), ("s3://bucket/key", "not known"), ("postgresql://host/db", "not known")),
        *(
            ("appnd:out-1.txt", "not known"),
            ("pkg:a-b", "not known"),
            ("a b:f", "not known"),
            ("JSON:out.json", "not known"),
        ),
        *(("sqlite:out.db", "names no table"), ("sqlite:out.db#", "names no table"), ("sqlite:#t", "names no file")),
        *(("sqlite:a#sqlite_x", "belongs to"), ("sqlite:a#Detent_Commits", "belongs to"), ("append:a\0", "zero byte")),
        ("sqlite:a#" + "t" * 129, "128"),
    ],
)
def test_what_names_no_destination_is_refused_with_the_forms_there_are(text: str, word: str) -> None:
    with pytest.raises(InvalidInput, match=word) as caught:
        parse_target(text)
    assert "append:FILE, jsonl:FILE" in (caught.value.hint or "")


def test_names_of_files_are_relative_to_the_base(tmp_path: Path) -> None:
    for text in ("jsonl:out.jsonl", "sqlite:out.db#items"):
        target = parse_target(text, base=tmp_path)
        assert list(tmp_path.iterdir()) == [], "nothing is made before the run opens"
        target.open(RUN, None)
        target.begin()
        target.write(0, [1])
        target.close()
        for path in tmp_path.iterdir():
            path.unlink()
    assert parse_target(f"append:{tmp_path}/absolute", base=Path("/nowhere")).open(RUN, None) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["absolute"]


def test_a_tilde_is_the_users_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    target = parse_target("append:~/out.txt", base=Path("/nowhere"))
    target.open(RUN, None)
    target.close()
    assert (tmp_path / "out.txt").exists()


def test_a_function_sees_values_as_it_is_told_to() -> None:
    target = parse_target("copy:copy", restore=lambda value: pytest.fail(f"asked for {value}"))
    target.open(RUN, None)
    with pytest.raises(pytest.fail.Exception, match="asked for a"):
        target.write(0, ["a"])
