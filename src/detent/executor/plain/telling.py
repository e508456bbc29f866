"""Tells of an exception in two steps: first what needs no line of the user's code, then its message, which may need one.

``str(exception)`` runs the user's own method; it may raise, print, or never return. So type and places come first. The message
follows if it comes in time; one that is stuck in C is ended from outside. A message that is certain to be harmless comes along
at once; for causes and members of a group, no other message is reported.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

FRAMES_MAX = 60
CAUSES_MAX = 8
MESSAGE_BYTES_MAX = 4096
TRACEBACK_BYTES_MAX = 65_536
NAME_CHARS_MAX = 400
LINE_CHARS_MAX = 200
MESSAGE_SECONDS = 0.25
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120
_IMPORTLIB = os.path.dirname(os.__file__) + "/importlib/"  # noqa: PTH120
_SIMPLE = frozenset(
    {
        *(Exception, ArithmeticError, AssertionError, AttributeError, ImportError, IndexError, KeyError, LookupError),
        *(
            MemoryError,
            ModuleNotFoundError,
            NameError,
            NotImplementedError,
            OverflowError,
            RecursionError,
            RuntimeError,
        ),
        *(TypeError, UnboundLocalError, ValueError, ZeroDivisionError),
    }
)
_HARMLESS = frozenset({str, int, float, bool, type(None)})
_PLAIN_STR = (BaseException.__str__, KeyError.__str__, ImportError.__str__, OSError.__str__)
"""How an exception says its message when its class does not say it in a way of its own."""
_OS_PARTS = ("errno", "strerror", "filename", "filename2")
NO_MESSAGE = "<no message: it could not be formatted>"


def story(exc: BaseException, source: str | None) -> dict[str, Any]:
    """Type, traceback without the message, line and column; ``source`` is the file whose lines matter most."""
    text: list[str] = []
    chain = _chain(exc)
    for one in reversed(chain):
        for place, member in enumerate(_members(one)):
            text += [*(("and:", "") if place else ()), *_told(_frames(member)), _said(member), ""]
        if _members(one):
            text += ["which led to:", ""]
        if one is not exc:
            text += [*_told(_frames(one)), _said(one), "", "which led to:", ""]
    frames = _frames(exc)
    line, column = _syntax(exc, source) or _place(frames, source)
    text += _told(frames)
    return {"type": type_name(exc), "traceback": "\n".join(text), "line": line, "column": column}


def quick_message(exc: BaseException) -> str | None:
    """The message of an exception, if formatting it runs no user code; None for all others."""
    if type(exc) not in _SIMPLE or not all(type(argument) in _HARMLESS for argument in exc.args):
        return None
    try:
        return bounded(str(exc), MESSAGE_BYTES_MAX)
    except ValueError:  # An integer that is too long to be written.
        return NO_MESSAGE


def slow_message(exc: BaseException) -> str:
    """The message, if it comes in time. One that runs on in C is ended from outside."""

    def late(*_: object) -> None:
        raise TimeoutError

    before: Any = signal.SIG_DFL
    try:
        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, MESSAGE_SECONDS)
        return bounded(str.__str__(str(exc)), MESSAGE_BYTES_MAX)
    except BaseException:  # noqa: BLE001 - also what a handler or a message's own method raises
        return NO_MESSAGE
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def bounded(text: str, bytes_max: int) -> str:
    """Text that has at most so many bytes, and is valid Unicode."""
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode()
    return data[: bytes_max - 3].decode("utf-8", "ignore") + "..."


def type_name(exc: BaseException) -> str:
    """The name of an exception's type, even if its class claims another."""
    return str(type.__dict__["__name__"].__get__(type(exc)))[:NAME_CHARS_MAX]


def _said(exc: BaseException) -> str:
    """The type with the message, if formatting it runs no user code."""
    message = quick_message(exc) if type(exc) in _SIMPLE else _inherited_message(exc)
    return f"{type_name(exc)}: {message}" if message else type_name(exc)


def _inherited_message(exc: BaseException) -> str | None:
    """The message of an exception that says it as the built-in ones do, of parts that are harmless; None for all others."""
    kinds = _kinds(exc)
    own: Any = next((names["__str__"] for names in map(_names, kinds) if "__str__" in names), None)
    if all(own is not one for one in _PLAIN_STR):
        return None
    parts = list(_held(exc, "args"))
    if OSError in kinds:
        parts += [OSError.__dict__[name].__get__(exc) for name in _OS_PARTS]
    if not all(type(part) in _HARMLESS for part in parts):
        return None
    try:
        return bounded(own(exc), MESSAGE_BYTES_MAX)
    except Exception:  # noqa: BLE001 - such as an integer that is too long to be written
        return None


def _kinds(exc: BaseException) -> tuple[type, ...]:
    """The classes of an exception, even if they claim others."""
    kinds: tuple[type, ...] = type.__dict__["__mro__"].__get__(type(exc))
    return kinds


def _names(kind: type) -> Any:
    return type.__dict__["__dict__"].__get__(kind)


def _members(exc: BaseException) -> list[BaseException]:
    """What a group of exceptions holds, groups inside it opened; nothing for any other exception."""
    if BaseExceptionGroup not in _kinds(exc):
        return []
    found: list[BaseException] = []
    waiting = [exc]
    while waiting and len(found) < CAUSES_MAX:
        one = waiting.pop()
        if BaseExceptionGroup in _kinds(one):
            waiting += reversed(BaseExceptionGroup.__dict__["exceptions"].__get__(one))
        else:
            found.append(one)
    return found


def _chain(exc: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    one: BaseException | None = exc
    while one is not None and all(one is not known for known in found) and len(found) < CAUSES_MAX:
        found.append(one)
        cause = _held(one, "__cause__")
        if cause is None and not _held(one, "__suppress_context__"):
            cause = _held(one, "__context__")
        one = cause
    return found


def _held(exc: BaseException, name: str) -> Any:
    """An attribute as the exception itself holds it, not as a subclass may answer for it."""
    return BaseException.__dict__[name].__get__(exc)


def _frames(exc: BaseException) -> list[tuple[str, int, int, str]]:
    """Where it was raised, outermost first: file, line, column (0 when unknown), name. The middle may be left out."""
    found: list[tuple[str, int, int, str]] = []
    place = _held(exc, "__traceback__")
    while place is not None:
        code = place.tb_frame.f_code
        if not code.co_filename.startswith((_OURS, "<frozen importlib", _IMPORTLIB)):
            found.append((code.co_filename, place.tb_lineno or 0, _column(code, place.tb_lasti), code.co_qualname))
            if len(found) > 2 * FRAMES_MAX:
                del found[FRAMES_MAX // 2]
        place = place.tb_next
    if len(found) > FRAMES_MAX:
        found[FRAMES_MAX // 2 : len(found) - FRAMES_MAX // 2] = [("", 0, 0, "")]
    return found


def _column(code: Any, instruction: int) -> int:
    for index, (_, _, start, _) in enumerate(code.co_positions()):
        if index == instruction // 2:
            return 0 if start is None else start + 1
    return 0


def _told(frames: list[tuple[str, int, int, str]]) -> list[str]:
    if not frames:
        return []
    text = ["Traceback (most recent call last):"]
    for file, line, _, name in frames:
        if not file:
            text.append("  ...")
            continue
        text.append(f'  File "{file[-NAME_CHARS_MAX:]}", line {line}, in {name[:NAME_CHARS_MAX]}')
        if source := _source_line(file, line).strip():
            text.append("    " + source[:LINE_CHARS_MAX])
    return text


def _source_line(file: str, line: int) -> str:
    import linecache  # noqa: PLC0415 - only where something failed

    return linecache.getline(file, line)


def _place(frames: list[tuple[str, int, int, str]], source: str | None) -> tuple[int | None, int | None]:
    """The innermost place in the function's own file; failing that, in any file outside a library."""
    for suits in (lambda file: file == source, lambda file: bool(file) and not is_library(file)):
        for file, line, column, _ in reversed(frames):
            if line > 0 and suits(file):
                return line, _characters(_source_line(file, line), column)
    return None, None


def _characters(line: str, column: int) -> int | None:
    """A column counted in bytes of UTF-8, as the interpreter does, counted in characters."""
    if column <= 0:
        return None
    return len(line.encode("utf-8", "surrogatepass")[: column - 1].decode("utf-8", "ignore")) + 1


def _syntax(exc: BaseException, source: str | None) -> tuple[int, int | None] | None:
    if type(exc) not in (SyntaxError, IndentationError, TabError):
        return None
    file, line, column = exc.filename, exc.lineno, exc.offset  # type: ignore[attr-defined]
    if type(file) is not str or (source is not None and file != source and is_library(file)) or type(line) is not int:
        return None
    return line, column if type(column) is int and column > 0 else None


def is_library(file: str) -> bool:
    """Whether a file belongs to Python or to an installed distribution rather than to the user's project."""
    return file.startswith(_LIBRARY) or "/site-packages/" in file or "/dist-packages/" in file or file[:1] == "<"


_LIBRARY = (os.path.dirname(os.__file__) + os.sep, _OURS[: -len("executor/plain/")], sys.base_prefix + "/lib/python")  # noqa: PTH120
