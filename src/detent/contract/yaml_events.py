"""Where YAML events come from, and what a syntax error says in plain words.

libyaml's parser is used where PyYAML was built with it; it is some 25 times faster. Without it the parser written in
Python does the same work: it is taught libyaml's rule for tabs, without which JSON indented by tabs could not be read.
It stays stricter in odd corners (``|#``, a tab inside plain text); what both read, they read alike.
Neither recurses, and both look ahead by at most one line and 1,024 characters, so the caller's limits on depth and nodes
hold while it reads.

What two readers of one file would read differently, and how it is kept from both of our parsers.

YAML 1.1 takes U+0085, U+2028 and U+2029 for line breaks; YAML 1.2, JSON and the eye do not. So a comment could end where no
line ends, and hide or show a step. U+FEFF inside a document is text to one of our parsers and nothing to the other. Both
parsers follow YAML 1.1, so neither is shown these characters: each stands for the time of parsing behind a character that the
text does not use. Inside quotes it is put back as it was; anywhere else the file is refused.

``[?x]`` is a list with one text in YAML 1.2, and with one mapping in YAML 1.1: a ``?`` that is not followed by a blank is refused
where our parsers take it for the mark of a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from detent.canon.late import pattern

if TYPE_CHECKING:
    from yaml import Event, MarkedYAMLError

LINE_BREAK: Final = pattern("\r\n|[\r\n]")
MASKED: Final = pattern("[\x85\u2028\u2029\ufeff]")
"""Characters that our parsers take for line breaks or for nothing, against YAML 1.2: they are shown others in their place."""
_STAND_INS: Final = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE), range(0xE000, 0xF900))
"""Private use: hardly any text has one of them, and none has all."""


class BadSyntax(Exception):
    """The text is not YAML from here on. Lines and columns count from 1."""

    def __init__(self, line: int, column: int, message: str, hint: str = "", *, index: int = 0) -> None:
        super().__init__(message)
        self.index = index
        """How many characters had been read before, without those of a quoted text that is not read to its end."""
        self.line = line
        self.column = column
        self.message = message
        self.hint = hint


class Events:
    """The events of one text. ``next`` gives the next one; call it inside ``syntax()``, which answers for its errors."""

    def __init__(self, text: str, *, pure_python: bool = False) -> None:
        self._text = text
        self._unmask: dict[int, str] = {}
        if has_masked(text):
            text, self._unmask = _masked(text)
        self._parser = _python_parser(text) if pure_python else _parser(text)
        self.next: Callable[[], Event] = self._unmasked if self._unmask else self._parser.get_event

    def _unmasked(self) -> Event:
        event: Event = self._parser.get_event()
        if getattr(event, "style", None) in ("'", '"'):
            event.value = event.value.translate(self._unmask)  # type: ignore[attr-defined]
        return event

    @contextmanager
    def syntax(self) -> Iterator[None]:
        """Turn every error of the parser inside into ``BadSyntax``. Around a loop, not in it: an event takes 1 us."""
        from yaml import YAMLError  # noqa: PLC0415 - 20 ms that only a reader of YAML should pay

        try:
            yield
        except YAMLError as exc:
            raise _in_plain_words(exc, self._text) from exc
        except (ValueError, OverflowError) as exc:
            # The parser in Python hands "\\UFFFFFFFF" to chr(), which answers for itself.
            mark = self._parser.get_mark()
            raise BadSyntax(*_inside(self._text, mark.line, mark.column), *NO_CHARACTER) from exc


def has_masked(text: str) -> bool:
    """Whether one of the characters that are masked is in a text."""
    return not text.isascii() and MASKED.search(text) is not None


def place(text: str, index: int) -> tuple[int, int]:
    """Line and column of a character."""
    breaks = text.count("\n", 0, index) + text.count("\r", 0, index) - text.count("\r\n", 0, index)
    return breaks + 1, index - max(text.rfind("\n", 0, index), text.rfind("\r", 0, index))


def _masked(text: str) -> tuple[str, dict[int, str]]:
    """The text as a parser may see it, of equal length, and what puts the characters back (`str.translate`)."""
    used = set(text)
    free = (chr(code) for code in chain(*_STAND_INS) if chr(code) not in used)
    # A text that uses every stand-in there is keeps what is left over, which some reader takes for something else.
    pairs = dict(zip(sorted(set(MASKED.findall(text))), free, strict=False))
    return text.translate(str.maketrans(pairs)), {ord(stand_in): character for character, stand_in in pairs.items()}


def _parser(text: str) -> Any:
    try:
        from yaml._yaml import CParser  # noqa: PLC0415
    except ImportError:
        return _python_parser(text)
    return CParser(text)


def _python_parser(text: str) -> Any:
    from yaml.parser import Parser  # noqa: PLC0415
    from yaml.reader import Reader  # noqa: PLC0415
    from yaml.scanner import Scanner  # noqa: PLC0415

    class PythonParser(Reader, Scanner, Parser):
        """PyYAML's own parser, with tabs between tokens wherever libyaml takes them."""

        def __init__(self, source: str) -> None:
            Reader.__init__(self, source)
            Scanner.__init__(self)
            Parser.__init__(self)

        def scan_to_next_token(self) -> None:
            while True:
                while self.peek() == " " or (self.peek() == "\t" and (self.flow_level or not self.allow_simple_key)):
                    self.forward()
                if self.peek() == "#":
                    while self.peek() not in "\0\r\n\x85\u2028\u2029":
                        self.forward()
                if not self.scan_line_break():  # type: ignore[no-untyped-call]
                    return
                if not self.flow_level:
                    self.allow_simple_key = True

    return PythonParser(text)


_QUOTES: Final = "look at the indentation and the quotes of this line and the one above"
NO_CHARACTER: Final = (
    "an escape in this text names no Unicode character",
    'write the character itself, or \\U and eight digits, such as "\\U0001F600"',
)

# What libyaml and PyYAML say (a part of it that both share), whether the place where the construct begins is meant
# rather than the place where the parser gave up, what it means, and what to do. The first row that fits decides;
# {begun} is the line where the construct begins.
_WORDS: Final = (
    ("document start", False, "there is text after the end of the document",
     "look for a closing bracket too many, or a line indented less than the ones above"),
    ("escape code", True, *NO_CHARACTER),
    ("hex", False, "this escape lacks digits", "\\x needs two hexadecimal digits, \\u four, \\U eight"),
    ("unknown escape", False, "unknown escape in text in double quotes", "write \\\\ for a backslash, or use single quotes"),
    ("quoted scalar: found unexpected end", True, "this text is never closed", "add the closing quote"),
    ("quoted scalar: found unexpected document", True, "this text is never closed", "add the closing quote"),
    ("mapping values are not allowed", False, "a ':' cannot stand here",
     "if it belongs to a text, put the text in quotes; else look at the indentation of this line and the one above"),
    ("',' or ']'", False, "the list opened by '[' on line {begun} is not continued here",
     "add the missing ',' or ']'"),
    ("',' or '}'", False, "the mapping opened by '{{' on line {begun} is not continued here",
     "add the missing ',' or '}'; text with a ': ' in it needs quotes, and a key has at most 1024 characters"),
    ("expected ':'", False, "the key that begins on line {begun} is not followed by ':'",
     "a key and its ':' stand on one line, at most 1024 characters apart"),
    ("block collection", False, "this line does not fit the list begun on line {begun}",
     "begin it with '- ', in the column of the items above"),
    ("block mapping", False, "this line does not fit the mapping begun on line {begun}",
     "begin it with 'key:', in the column of the keys above"),
    ("flow node", False, "a value is missing here", "a bracket or brace is not closed, or there is a comma too many"),
    ("block scalar", False, "this cannot follow '|' or '>'", "begin the text on the next line, indented by spaces"),
    ("anchor", False, "anchors (&name) are not read here", "write the value out where it is used"),
    ("alias", False, "aliases (*name) are not read here", "write the value out where it is used, and text that begins with * in quotes"),
    ("tag", False, "tags (!name) are not read here", "leave the tag out: types follow from how a value is written"),
    ("sequence entries are not allowed", False, "a list item cannot stand here", "begin the list on a line of its own"),
    ("mapping keys are not allowed", False, "a '? ' key cannot stand here", "write 'key: value' on a line of its own"),
    ("invalid indentation", False, "this line is indented less than the text it belongs to", "indent it by spaces"),
)  # fmt: skip


def _in_plain_words(exc: Exception, text: str) -> BadSyntax:
    problem_mark = getattr(exc, "problem_mark", None)
    if problem_mark is None:
        return BadSyntax(1, 1, f"this is not YAML: {exc}", _QUOTES)
    return _marked(exc, text)  # type: ignore[arg-type]


def _marked(exc: MarkedYAMLError, text: str) -> BadSyntax:
    assert exc.problem_mark is not None
    line, column = exc.problem_mark.line, exc.problem_mark.column
    is_quoted = "quoted scalar" in (exc.context or "") and exc.context_mark is not None
    index = (exc.context_mark if is_quoted else exc.problem_mark).index  # type: ignore[union-attr]
    begun = exc.context_mark or exc.problem_mark
    if "cannot start any token" in (exc.problem or ""):
        return BadSyntax(line + 1, column + 1, *_no_token(text, line, column), index=index)
    said = f"{exc.context or ''}: {exc.problem or ''}".replace("hexdecimal", "hexadecimal")
    for part, at_beginning, message, hint in _WORDS:
        if part in said:
            if at_beginning:
                line, column = begun.line, begun.column
            return BadSyntax(*_inside(text, line, column), message.format(begun=begun.line + 1), hint, index=index)
    return BadSyntax(
        *_inside(text, line, column), f"this is not YAML: {exc.problem or exc.context}", _QUOTES, index=index
    )


def _no_token(text: str, line: int, column: int) -> tuple[str, str]:
    lines = LINE_BREAK.split(text)
    character = lines[line][column : column + 1] if line < len(lines) else ""
    if character == "\t":
        return "a tab cannot indent a line", "indent by spaces"
    return f"a value cannot begin with {character!r}", "put the text in quotes"


def _inside(text: str, line: int, column: int) -> tuple[int, int]:
    """A place inside the text: libyaml puts the end of a last line without a line break on a line after it."""
    lines = LINE_BREAK.split(text)
    if line < len(lines):
        return line + 1, column + 1
    return len(lines), len(lines[-1]) + 1


_KEY_MARK: Final = pattern(r"(?<![^\s\[\]{},:?])\?\S")
HINT: Final = 'remove it, or write it inside quotes; in double quotes as an escape, such as "\\u2028"'
KEY_MARK_HINT: Final = "put the text in quotes, or write a blank behind the ? of a key"


def is_doubtful(text: str) -> bool:
    """Whether anything of the kind may be in a text, at the cost of a search."""
    return ("?" in text and _KEY_MARK.search(text) is not None) or has_masked(text)


def doubts(text: str, events: Events) -> Iterator[tuple[int, str, str]]:
    """Where a text would be read differently elsewhere: index, message, hint. ``events`` are those of this text.

    Raises ``BadSyntax`` like them, after everything that stands before the error.
    """
    characters = MASKED.finditer(text) if has_masked(text) else iter(())
    waiting = next(characters, None)
    try:
        for event in _nodes(events):
            begin, end = event.start_mark.index, event.end_mark.index
            while waiting is not None and waiting.start() < begin:
                yield _refused(waiting)
                waiting = next(characters, None)
            if begin and text[begin - 1] == "?":
                yield (
                    begin - 1,
                    "a ? that marks a key needs a blank behind it; without one, readers disagree",
                    KEY_MARK_HINT,
                )
            if getattr(event, "style", None) in ("'", '"'):
                while waiting is not None and waiting.start() < end:
                    waiting = next(characters, None)
    except BadSyntax as exc:
        while waiting is not None and waiting.start() <= exc.index:
            yield _refused(waiting)
            waiting = next(characters, None)
        raise
    while waiting is not None:
        yield _refused(waiting)
        waiting = next(characters, None)


def _nodes(events: Events) -> Iterator[Any]:
    """Scalars, lists and mappings, in the order of the text."""
    from yaml import MappingStartEvent, ScalarEvent, SequenceStartEvent, StreamEndEvent  # noqa: PLC0415

    with events.syntax():
        while type(event := events.next()) is not StreamEndEvent:
            if isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
                yield event


def _refused(found: re.Match[str]) -> tuple[int, str, str]:
    what = "byte order mark" if found[0] == "\ufeff" else "line separator"
    return found.start(), f"{what} U+{ord(found[0]):04X} cannot stand outside of quoted text", HINT
