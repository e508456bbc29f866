"""What is told of the causes and the members of an exception: their messages too, unless that would run user code."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from detent.executor.plain.telling import CAUSES_MAX, story

ACTED: list[str] = []
"""What was asked of those that act."""


class Inherits(ValueError):
    """Says its message as its base does."""


class Acts(ValueError):
    """Acts when it is asked for its message."""

    def __str__(self) -> str:
        ACTED.append("message")
        return ""


class Argument:
    """Acts when it is shown."""

    def __repr__(self) -> str:
        ACTED.append("argument")
        return ""


class Disguised(ValueError):
    """Acts when it is asked what it is."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        ACTED.append("class")
        return ValueError


def told(cause: BaseException | None = None, raised: BaseException | None = None) -> str:
    """The traceback of an exception that has this cause."""

    def rise() -> NoReturn:
        raise raised or RuntimeError("second") from cause

    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever was given
        rise()
    text: str = story(caught.value, None)["traceback"]
    return text


def named_oddly() -> OSError:
    odd = OSError(2, "no such file")
    odd.filename = Argument()
    return odd


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (lambda: KeyError("first"), "KeyError: 'first'"),
        (lambda: Inherits("mine", 3), "Inherits: ('mine', 3)"),
        (lambda: FileNotFoundError(2, "No such file or directory", "a.csv"), "No such file or directory: 'a.csv'"),
        (lambda: ConnectionRefusedError("no answer"), "ConnectionRefusedError: no answer"),
        (lambda: Acts("mine"), "Acts"),
        (lambda: Inherits(Argument()), "Inherits"),
        (lambda: Disguised("mine"), "Disguised: mine"),
        (named_oddly, "FileNotFoundError"),
        (ValueError, "ValueError"),
        (lambda: ValueError(10**5_000), "ValueError: <no message: it could not be formatted>"),
    ],
    ids=["plain", "inherited", "file", "connection", "acts", "argument", "disguised", "file name", "empty", "long"],
)
def test_a_cause_is_reported_with_its_message_where_that_runs_no_user_code(
    cause: Callable[[], BaseException], said: str
) -> None:
    first, _, _ = told(cause()).partition("\n\nwhich led to:\n")
    assert first.endswith(said)
    assert ACTED == []


def test_a_group_is_told_with_what_it_holds() -> None:
    inner = ExceptionGroup("inner", [TypeError("b"), Acts("c")])
    text = told(raised=ExceptionGroup("outer", [ValueError("a"), inner]))
    assert text.startswith("ValueError: a\n\nand:\n\nTypeError: b\n\nand:\n\nActs\n\nwhich led to:\n\nTraceback")
    as_cause = told(ExceptionGroup("outer", [ValueError("a")]))
    assert as_cause.startswith("ValueError: a\n\nwhich led to:\n\nExceptionGroup\n\nwhich led to:\n\nTraceback")


def test_of_a_large_group_the_first_few_are_told() -> None:
    text = told(raised=ExceptionGroup("many", [ValueError(str(number)) for number in range(CAUSES_MAX + 4)]))
    assert text.count("ValueError: ") == CAUSES_MAX
