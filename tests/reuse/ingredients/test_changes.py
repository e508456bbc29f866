"""What changed, in the order and the words of people."""

from __future__ import annotations

from collections.abc import Mapping

from detent.reuse.ingredients import ABSENT, Change, changed, describe

OLD = {
    "code": "sha256:1",
    "function:helpers:clean": "sha256:1",
    "class:helpers:Cleaner": "sha256:1",
    "value:helpers:LIMIT": "sha256:1",
    "argument:rows": "sha256:1",
    "input:load.sql": "sha256:1",
    "env:TOTAL": "sha256:1",
    "package:numpy": "2.1",
    "package:gone": "1",
    "python": "3.11.7",
    "platform": "linux-x86_64",
    "salt": "secret",
    "other": 1,
}


def words(new: Mapping[str, object]) -> list[str]:
    return [describe(change) for change in changed(OLD, new)]


def test_equal_ingredients_have_no_change_whatever_their_order() -> None:
    assert changed(OLD, dict(reversed(OLD.items()))) == []


def test_changes_stand_in_one_order_with_old_and_new() -> None:
    new = {**OLD, "salt": "x", "python": "3.12.1", "argument:rows": "sha256:2", "function:helpers:clean": "sha256:2"}
    assert changed(OLD, new) == [
        Change("function:helpers:clean", "sha256:1", "sha256:2"),
        Change("argument:rows", "sha256:1", "sha256:2"),
        Change("python", "3.11.7", "3.12.1"),
        Change("salt", "secret", "x"),
    ]
    assert words(new) == [
        "function helpers:clean changed",
        "argument rows changed",
        "Python 3.11.7 -> 3.12.1",
        "salt changed",
    ]


def test_every_kind_has_its_words() -> None:
    new = {
        "code": "sha256:2",
        "class:helpers:Cleaner": "sha256:2",
        "value:helpers:LIMIT": "sha256:2",
        "function:helpers:wash": "sha256:1",
        "argument:rows": "sha256:1",
        "argument:more": "sha256:1",
        "input:load.sql": None,
        "env:TOTAL": "sha256:2",
        "package:numpy": "2.2",
        "python": "3.11.7",
        "platform": "linux-aarch64",
        "salt": "secret",
        "other": True,
    }
    assert words(new) == [
        "function helpers:clean is no longer used",
        "function helpers:wash is now used",
        "class helpers:Cleaner changed",
        "module-level name helpers:LIMIT changed",
        "argument more is new",
        "input load.sql is missing",
        "environment variable TOTAL changed",
        "package gone is gone",
        "package numpy 2.1 -> 2.2",
        "platform linux-x86_64 -> linux-aarch64",
        "other changed",
    ]


def test_the_whole_code_is_named_only_if_no_part_of_it_is() -> None:
    assert words({**OLD, "code": "sha256:2"}) == ["code changed"]
    assert words({**OLD, "code": None}) == ["code could not be read completely"]
    assert words({**OLD, "code": "sha256:2", "class:helpers:Cleaner": "sha256:3"}) == ["class helpers:Cleaner changed"]


def test_a_missing_ingredient_is_not_an_empty_one() -> None:
    assert changed({}, {"input:a": None}) == [Change("input:a", ABSENT, None)]
    assert describe(Change("input:a", ABSENT, None)) == "input a is new"
    assert describe(Change("input:a", None, ABSENT)) == "input a is gone"


def test_values_from_elsewhere_cannot_break_a_line() -> None:
    assert describe(Change("package:a", "1", "2\n\x1b[31m")) == "package a 1 -> '2\\n\\x1b[31m'"
    assert describe(Change("argument:a\nb", "1", "2")) == "argument 'a\\nb' changed"


def test_a_result_from_before_the_shell_counted_differs_by_the_shell() -> None:
    """X-189"""
    command = {"command": "sha256:1"}
    new = {**command, "shell": "bash -euo pipefail -c"}
    assert [describe(one) for one in changed(command, new)] == ["shell is now bash -euo pipefail -c"]
    assert [describe(one) for one in changed(new, {**command, "shell": "sh -eu -c"})] == [
        "shell bash -euo pipefail -c -> sh -eu -c"
    ]
