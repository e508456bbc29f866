"""Checks of single values in a contract: their shape, shells and Python source.

The small checks that the tables of keys are made of. Each takes a value and its place, and gives back what is meant.

A check that finds something wrong reports it and returns ``BAD``; its caller goes on with the rest.

``shell:`` of a step or of a whole contract: the words that stand before a command line when a `shell` step runs (X-189).

A shell that goes on after a failed command turns a failure into an empty file and a success. So the shells that people name
without options are run strictly; a user who wants something else writes the options out. Which shell is the default is
decided where the step is run, because it depends on what is installed there.

Python source inside a contract: parsed, never compiled to code, never run.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from detent.canon.grammar import POLICY_HINT, policy_name_fault
from detent.canon.late import pattern
from detent.contract.findings import Spot, path_text
from detent.contract.words import KEY, KEY_HINT, SOURCE_BYTES_MAX, BadDuration, parse_duration, shown
from detent.workflow.vocabulary import TIMEOUT_MS_MIN

BAD: Final[Any] = object()
MAPPING_HINT: Final = "write its keys below it, indented, or in braces: {key: value}"
FLAG_HINT: Final = "write true or false, without quotes"
Check: TypeAlias = Callable[[Any, Spot], Any]


# Keys that mean something in another place, or to another tool: the key that is meant, and how it is written. A spelling
# that is merely near would mislead.
_ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("python", "code", "job", "with", "args", "entrypoint"), ("run", "move it into `run:`")),
    **dict.fromkeys(("command", "cmd", "script"), ("run", "write `run: {shell: ...}`")),
    **dict.fromkeys(("depends_on", "after", "dependencies"), ("needs", "write `needs: [...]`")),
    "needs": ("depends_on", "the long form calls it `depends_on`"),
    "timeout_ms": ("timeout", "write `timeout:`, for example `timeout: 90s`"),
    "retry_count": ("retry", "write `retry: 3`"),
    "step_name": ("name", "write `name:`"),
    "step_type": ("type", "write `type:`"),
    "cron": ("schedule", "write `schedule: {cron: ...}`"),
    "every": ("schedule", "write `schedule: {every: ...}`"),
}


def check_keys(value: Mapping[str, Any], table: Mapping[str, Check], spot: Spot, what: str) -> dict[str, Any]:
    """What the checks of a table make of a mapping; unknown keys are reported, bad values left out."""
    result = {}
    for key, item in value.items():
        check = table.get(key)
        if check is None:
            unknown_key(key, table, spot, what)
            continue
        meant = check(item, spot.at(key))
        if meant is not BAD:
            result[key] = meant
    return result


def unknown_key(key: str, known: Mapping[str, object], spot: Spot, what: str) -> None:
    """Report a key that is not one of ``known``, with the nearest that is."""
    meant, hint = _ELSEWHERE.get(key, ("", ""))
    if meant not in known:
        hint = spot.report.nearest(key, known) or f"known keys: {', '.join(known)}"
    spot.at(key).fault(f"unknown key {shown(key)} in {what}", hint, at_key=True)


def keep(value: Any, spot: Spot) -> Any:
    """Accept any value: the model that it goes to checks it."""
    del spot
    return value


def named(spot: Spot) -> str:
    """The key under which a value stands, for the beginning of a message; ``inputs[1]`` in a list."""
    names = [at for at, key in enumerate(spot.path) if type(key) is str]
    return path_text(spot.path[names[-1] :]) if names else "the document"


def mapping(value: Any, spot: Spot) -> Any:
    """A mapping of any content."""
    if type(value) is dict:
        return value
    spot.fault(f"{named(spot)} must be a mapping (key: value), not {shown(value)}", MAPPING_HINT)
    return BAD


def text(value: Any, spot: Spot) -> Any:
    """Text that is not empty and that an operating system can be handed."""
    if type(value) is not str:
        hint = "write it as one text" if type(value) in (list, dict) else "put it in quotes"
        spot.fault(f"{named(spot)} must be text, not {shown(value)}", hint)
    elif not value.strip():
        spot.fault(f"{named(spot)} must not be empty", "write something, or leave the key out")
    elif "\0" in value:
        spot.fault(f"{named(spot)} must not hold the character U+0000", "remove it")
    else:
        return value
    return BAD


def flag(value: Any, spot: Spot) -> Any:
    """True or false."""
    if type(value) is bool:
        return value
    spot.fault(f"{named(spot)} must be true or false, not {shown(value)}", FLAG_HINT)
    return BAD


def key(value: Any, spot: Spot) -> Any:
    """The name of a step."""
    if type(value) is str and KEY.fullmatch(value):
        return value
    spot.fault(f"{named(spot)} cannot be {shown(value)}", KEY_HINT)
    return BAD


def policy(value: Any, spot: Spot) -> Any:
    """The name of a quota, lease or backoff. Which there are is the home's to say: see `step_limits.refuse_unknown_policies`."""
    if fault := policy_name_fault(str(spot.path[-1]), value):
        spot.fault(fault, f"write {POLICY_HINT}")
        return BAD
    return value


def texts(value: Any, spot: Spot) -> Any:
    """One text or a list of them, as a tuple."""
    if type(value) is not list:
        one = text(value, spot)
        return BAD if one is BAD else (one,)
    several = [text(item, spot.at(index)) for index, item in enumerate(value)]
    return BAD if any(item is BAD for item in several) else tuple(several)


def refuse_short_timeout(value: Any, spot: Spot) -> bool:
    """Report a timeout below the least one (WF-075), here because a model stops at it and would say nothing more."""
    if type(value) is not int or value >= TIMEOUT_MS_MIN:
        return False
    spot.fault(f"a timeout must be at least {TIMEOUT_MS_MIN} ms, got {shown(value)}", "leave it out for no limit")
    return True


def duration(value: Any, spot: Spot) -> Any:
    """A wall limit, in milliseconds."""
    try:
        return parse_duration(value)
    except BadDuration as exc:
        spot.fault(f"a timeout {exc}", exc.hint)
        return BAD


def choice(value: Any, spot: Spot, known: tuple[str, ...], what: str) -> Any:
    """One of a few words."""
    if type(value) is str and value in known:
        return value
    spot.fault(f"there is no {what} {shown(value)}", spot.report.nearest(value, known) or f"one of {', '.join(known)}")
    return BAD


WORDS_MAX: Final = 32
BASH: Final = ("bash", "-euo", "pipefail", "-c")
"""The default: ends at the first failure, at an unset variable, and with the failure of any command of a pipe."""
SH: Final = ("sh", "-eu", "-c")
"""The default where there is no bash; of a pipe, it sees only whether the last command failed."""
HINT: Final = "write for example `shell: sh -eu`, `shell: zsh -e`, or every word of it: `shell: [bash, -c]`"
_COMMAND: Final = "-c"
_PIPEFAIL: Final = frozenset({"bash", "zsh", "ksh", "mksh"})
_POSIX: Final = frozenset({"sh", "dash", "ash"})
_QUOTED_OR_PIPE: Final = pattern(
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


def check_source(source: str, entrypoint: str | None, spot: Spot) -> None:
    """Report source that is too large, that Python could not parse, or that does not define its entry point.

    ``entrypoint`` None: it is bad itself, which has been said.
    """
    if len(source.encode(errors="replace")) > SOURCE_BYTES_MAX:
        spot.fault(
            f"code of more than {SOURCE_BYTES_MAX // 1024} KiB",
            "keep it in a file and name that: `python: file.py:function`",
        )
        return
    try:
        with warnings.catch_warnings():
            # Python warns about an odd escape in a string when the code runs.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as exc:
        line = exc.lineno or 1
        message = f"the code is not valid Python: {exc.msg} (line {line} of the code)"
        spot.fault(
            message, "mind that the indentation of the block does not count", inner=(line, max(exc.offset or 1, 1))
        )
    except (ValueError, RecursionError, MemoryError) as exc:
        spot.fault(f"the code cannot be parsed: {_reason(exc)}", "keep it in a file, or make it simpler")
    else:
        if entrypoint is not None and entrypoint not in _defined(tree):
            names = [name for name in _defined(tree) if not name.startswith("_")]
            hint = spot.report.nearest(entrypoint, names) or (
                f"name one with `entrypoint: {names[0]}`" if names else f"define it: `def {entrypoint}(...):`"
            )
            spot.fault(f"the code defines no function {entrypoint!r:.80}", hint)


def _defined(tree: ast.Module) -> list[str]:
    """Names that calling the module's source would leave behind and that could be called."""
    names = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
    return names


def _reason(exc: BaseException) -> str:
    return str(exc) if isinstance(exc, ValueError) else "it is nested too deeply"
