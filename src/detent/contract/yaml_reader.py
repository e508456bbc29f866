"""Strict YAML: bytes in, one JSON value out, or every reason why not.

Read are UTF-8 with or without a byte order mark, one document, mappings, lists and scalars. Not read are anchors,
aliases, tags, merge keys, directives, keys that are not text, a key written twice, and characters that end a line for some readers
(`detent.contract.yaml_events`): each lets two readers of the file see two different contracts. What stands where is not kept, but for the beginnings of the uppermost mappings, which are
the steps: a line is looked up again when it is needed (`detent.contract.findings`), and only a bad file needs one.

libyaml's own limits apply: a key has at most 1,024 characters, and tabs do not indent.

What one YAML scalar means: a JSON value, and nothing that JSON has no word for.

A plain ``null``, ``~`` or nothing at all is null; ``true`` and ``false`` are booleans; what is written as JSON writes
numbers is a number. Everything else is text: ``NO``, ``on``, ``010``, ``0x1f``, ``1_000``, ``.inf``, ``2024-01-01``,
``True``. Text in quotes or in a block is text.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from math import isfinite
from typing import Any, Final, NoReturn

from detent.canon.late import dataclass, pattern
from detent.canon.strict_json import INTEGER_BITS_MAX, INTEGER_DIGITS_MAX
from detent.contract.findings import FINDINGS_MAX, ContractInvalid, Finding, Place, doubled_keys
from detent.contract.words import BYTES_MAX, DEPTH_MAX, NODES_MAX
from detent.contract.yaml_events import NO_CHARACTER, BadSyntax, Events, doubts, is_doubtful, place

# Said by what is not allowed, in two small sets: the allowed ones in one set take 15 ms to compile.
_UNREADABLE: Final = pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|[\ufffe\uffff]")
_FIRST_CONTENT: Final = pattern(r"^[ \t]*[^#\s]", re.MULTILINE)
_SURROGATE_PAIR: Final = pattern(r"\\\\|\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_STEP_DEPTH_MAX: Final = 4
"""Depth of a step: the document, `workflow_coordination`, `steps`, the step; in the short form one less."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One document: its value, its text, and where its uppermost mappings begin, by ``id()``."""

    value: Any
    text: str
    begins: dict[int, Place] = field(default_factory=dict)


def read(data: bytes, *, name: str = "contract", pure_python: bool = False) -> Tree:
    """Read one document. Raises ``ContractInvalid`` with all that is wrong, or with the first thing that ends reading."""
    text = _text(data, name)
    faults = _Faults(name)
    if is_doubtful(text):
        _refuse_doubts(text, faults, pure_python=pure_python)
    builder = _Builder(text, faults, pure_python=pure_python)
    try:
        value = builder.document()
    except BadSyntax as exc:
        faults.add(exc.line, exc.column, exc.message, exc.hint)
        faults.end()
    if builder.doubled:
        for place, key, first in doubled_keys(text, pure_python=pure_python):
            faults.add(
                place.line, place.column, f"key {key!r:.80} is written twice, first on line {first}", "keep one of them"
            )
    if faults.count:
        faults.end()
    return Tree(value, text, builder.begins)


def _refuse_doubts(text: str, faults: _Faults, *, pure_python: bool) -> None:
    """Refuse what another reader would read differently; a syntax error after it is reported as well."""
    try:
        for index, message, hint in doubts(text, Events(text, pure_python=pure_python)):
            # Only what will be shown needs its place: a file may be made of nothing else.
            faults.add(*(place(text, index) if faults.count < FINDINGS_MAX else (0, 0)), message, hint)
    except BadSyntax as exc:
        faults.add(exc.line, exc.column, exc.message, exc.hint)
    if faults.count:
        faults.end()


class _Faults:
    """What reading found, in the order of the file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[Finding] = []
        self.count = 0

    def add(self, line: int, column: int, message: str, hint: str = "") -> None:
        self.count += 1
        if len(self.found) < FINDINGS_MAX:
            self.found.append(Finding(self.name, line, column, message, hint))

    def end(self) -> NoReturn:
        ordered = sorted(self.found, key=lambda finding: (finding.line, finding.column))
        raise ContractInvalid(ordered, self.count - len(ordered))


def _text(data: bytes, name: str) -> str:
    """The text of a file, or the one reason why it is none."""
    if type(data) is not bytes:
        raise ContractInvalid(
            [Finding(name, 1, 1, f"expected bytes, got {type(data).__name__}", "read the file in binary mode")]
        )
    if len(data) > BYTES_MAX:
        message = f"the file has {len(data):,} bytes, {BYTES_MAX:,} are allowed"
        raise ContractInvalid(
            [Finding(name, 1, 1, message, "keep data in files of its own and name them in the contract")]
        )
    if data.startswith(_UTF16):
        raise ContractInvalid([Finding(name, 1, 1, "the file is UTF-16", "save it as UTF-8")])
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode(errors="replace")
        message = f"byte 0x{data[exc.start]:02x} is not UTF-8"
        raise ContractInvalid([Finding(name, *place(before, len(before)), message, "save the file as UTF-8")]) from exc
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        message = f"control character U+{ord(unreadable[0]):04X} is not allowed in a contract"
        hint = 'remove it, or write it as an escape in double quotes, such as "\\u0007"'
        raise ContractInvalid([Finding(name, *place(text, unreadable.start()), message, hint)])
    first = _FIRST_CONTENT.search(text)
    if first is not None and first[0] == "%":
        message = "directives (%YAML, %TAG) are not read here"
        raise ContractInvalid([Finding(name, *place(text, first.start()), message, "remove the line")])
    return _without_surrogates(text)


def _without_surrogates(text: str) -> str:
    r"""JSON may write one character as two escapes (``\ud83d\ude00``), YAML may not: put the character itself there."""
    if "\\ud" not in text and "\\uD" not in text:
        return text
    try:
        # Only in text that is JSON does every such pair stand inside double quotes.
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _SURROGATE_PAIR.sub(_joined, text)


def _joined(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    return chr(0x10000 + ((int(match[1], 16) & 0x3FF) << 10) + (int(match[2], 16) & 0x3FF))


_NO_KEY: Final = object()


class _Builder:
    """Turns events into one JSON value. One loop and a stack of its own: depth is a limit here, not an accident."""

    def __init__(self, text: str, faults: _Faults, *, pure_python: bool) -> None:
        self.faults = faults
        self.events = Events(text, pure_python=pure_python)
        self.doubled = False
        self.begins: dict[int, Place] = {}

    def document(self) -> Any:
        """The only document's value. Raises ``BadSyntax`` where reading cannot go on."""
        from yaml import StreamEndEvent  # noqa: PLC0415

        next_event = self.events.next
        with self.events.syntax():
            next_event()
            if type(next_event()) is StreamEndEvent:
                raise BadSyntax(1, 1, "the file is empty", "a contract has at least `name:` and `steps:`")
            value = self._node()
            next_event()
            event = next_event()
        if type(event) is not StreamEndEvent:
            self._stop(event, "a second document begins here", "keep one in each file")
        return value

    def _node(self) -> Any:
        from yaml import MappingStartEvent, ScalarEvent, SequenceStartEvent  # noqa: PLC0415

        next_event = self.events.next
        stack: list[tuple[Any, Any]] = []
        current: Any = None
        key: Any = _NO_KEY
        nodes_left = NODES_MAX
        while True:
            event: Any = next_event()
            kind = type(event)
            if kind is ScalarEvent:
                nodes_left -= 1
                if event.style or event.anchor or event.tag:
                    value = self._scalar(event)
                else:
                    value = event.value
                    if value in CONSTANTS:
                        value = CONSTANTS[value]
                    elif value[0] in NUMBER_STARTS:
                        value = self._number(event)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                nodes_left -= 1
                if type(current) is dict and key is _NO_KEY:
                    self._stop(event, "a key must be text, not a list or mapping", "put it in quotes")
                stack.append((current, key))
                current, key = self._container(event, kind is MappingStartEvent, len(stack)), _NO_KEY
                continue
            elif event.start_mark is not None and hasattr(event, "anchor"):
                self._fault(
                    event,
                    "aliases (*name) are not read here",
                    "write the value out where it is used, and text that begins with * in quotes",
                )
                value = "*"
            else:
                value = current
                current, key = stack.pop()
            if nodes_left < 0:
                hint = "split the contract, or move data to a file"
                self._stop(event, f"more than {NODES_MAX:,} keys and values", hint)
            if type(current) is dict:
                if key is _NO_KEY:
                    key = value if type(value) is str else self._no_text(event)
                    if key == "<<" and not event.style:
                        self._fault(event, "merge keys (<<) are not read here", "write the keys out")
                    if key in current:
                        self.doubled = True
                else:
                    current[key] = value
                    key = _NO_KEY
            elif current is None:
                return value
            else:
                current.append(value)

    def _container(self, event: Any, is_mapping: bool, depth: int) -> dict[str, Any] | list[Any]:
        if event.anchor or event.tag:
            self._refuse_extras(event)
        if depth > DEPTH_MAX:
            self._stop(event, f"nested deeper than {DEPTH_MAX} lists and mappings", "move the inner data to a file")
        if not is_mapping:
            return []
        made: dict[str, Any] = {}
        if depth <= _STEP_DEPTH_MAX:
            self.begins[id(made)] = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        return made

    def _number(self, event: Any) -> int | float | str:
        try:
            return number_or_text(event.value)
        except OutOfRange as exc:
            self._fault(event, f"this number {exc}", "put it in quotes to keep it as text")
            return 0

    def _scalar(self, event: Any) -> Any:
        if event.anchor or event.tag:
            self._refuse_extras(event)
            return event.value
        text: str = event.value
        if event.style == '"' and not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            # Only the parser in Python lets these through; libyaml refuses the escape.
            self._stop(event, *NO_CHARACTER)
        return text

    def _refuse_extras(self, event: Any) -> None:
        if event.anchor:
            self._fault(event, "anchors (&name) are not read here", "write the value out where it is used")
        if event.tag:
            self._fault(
                event, "tags (!name) are not read here", "leave the tag out: types follow from how a value is written"
            )

    def _no_text(self, event: Any) -> str:
        self._fault(event, f"the key {event.value or 'null'} is not text", "put it in quotes")
        return str(event.value)

    def _fault(self, event: Any, message: str, hint: str) -> None:
        mark = event.start_mark
        self.faults.add(mark.line + 1, mark.column + 1, message, hint)

    def _stop(self, event: Any, message: str, hint: str) -> NoReturn:
        raise BadSyntax(event.start_mark.line + 1, event.start_mark.column + 1, message, hint)


CONSTANTS: Final[dict[str, Any]] = {"": None, "~": None, "null": None, "true": True, "false": False}
NUMBER_STARTS: Final = frozenset("-0123456789")
_NUMBER: Final = pattern(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class OutOfRange(Exception):
    """A number that strict JSON cannot hold; the message completes "this number ..."."""


def number_or_text(text: str) -> int | float | str:
    """The number that a plain scalar writes, or else the scalar itself. Raises ``OutOfRange``."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    if match[1] is None and match[2] is None:
        if len(text) > INTEGER_DIGITS_MAX + 1:
            raise OutOfRange(f"has more than {INTEGER_DIGITS_MAX} digits")
        integer = int(text)
        if integer.bit_length() > INTEGER_BITS_MAX:
            raise OutOfRange(f"has more than {INTEGER_BITS_MAX} bits")
        return integer
    number = float(text)
    if not isfinite(number):
        raise OutOfRange("is larger than a binary64 can hold")
    return number
