"""``shell:`` of a step or of a whole contract: the words that stand before a command line when a `shell` step runs (X-189).

A shell that goes on after a failed command turns a failure into an empty file and a success. So the shells that people name
without options are run strictly; a user who wants something else writes the options out. Which shell is the default is
decided where the step is run, because it depends on what is installed there.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, Final

from detent.contract.findings import Spot
from detent.contract.shapes import BAD, named
from detent.contract.words import shown

WORDS_MAX: Final = 32
BASH: Final = ("bash", "-euo", "pipefail", "-c")
"""The default: ends at the first failure, at an unset variable, and with the failure of any command of a pipe."""
SH: Final = ("sh", "-eu", "-c")
"""The default where there is no bash; of a pipe, it sees only whether the last command failed."""
HINT: Final = "write for example `shell: sh -eu`, `shell: zsh -e`, or every word of it: `shell: [bash, -c]`"
_COMMAND: Final = "-c"
_PIPEFAIL: Final = frozenset({"bash", "zsh", "ksh", "mksh"})
_POSIX: Final = frozenset({"sh", "dash", "ash"})
_QUOTED_OR_PIPE: Final = re.compile(
    r"\\.|'[^']*'|(?P<quoted>\"(?:\\.|[^\"\\])*\")|(?<![^\s;&|()])#[^\n]*|\|\||>\||(?P<pipe>\|&?)", re.DOTALL
)


def shell(value: Any, spot: Spot) -> Any:
    """The words of a shell: a list as it is written; a text split into words, with ``-c`` behind them."""
    if type(value) is list:
        return tuple(value) if _is_words(value, spot) else BAD
    if type(value) is not str:
        spot.fault(f"{named(spot)} must be text or a list of words, not {shown(value)}", HINT)
        return BAD
    try:
        words = shlex.split(value)
    except ValueError as exc:
        spot.fault(f"{named(spot)} cannot be {shown(value)}: {str(exc).lower()}", HINT)
        return BAD
    return _completed(words) if _is_words(words, spot) else BAD


def has_pipe(command: str) -> bool:
    """Whether a command line has a pipe outside of quoted text and comments; ``||`` is none.

    Text in double quotes is looked into where it runs a command of its own.
    """
    for found in _QUOTED_OR_PIPE.finditer(command):
        quoted = found["quoted"] or ""
        if found["pipe"] or (("$(" in quoted or "`" in quoted) and has_pipe(quoted[1:-1])):
            return True
    return False


def _is_words(words: list[Any], spot: Spot) -> bool:
    if not words or not all(type(word) is str and word.strip() and "\0" not in word for word in words):
        spot.fault(f"{named(spot)} must name a program and its options, not {shown(words)}", HINT)
        return False
    if len(words) > WORDS_MAX:
        spot.fault(f"{named(spot)} has {len(words)} words, {WORDS_MAX} are allowed", HINT)
        return False
    return True


def _completed(words: list[str]) -> tuple[str, ...]:
    program = words[0].rpartition("/")[2]
    if len(words) == 1 and program in _PIPEFAIL:
        return (words[0], *BASH[1:])
    if len(words) == 1 and program in _POSIX:
        return (words[0], *SH[1:])
    return tuple(words) if words[-1] == _COMMAND else (*words, _COMMAND)
