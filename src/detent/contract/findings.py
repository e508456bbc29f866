"""What is wrong with a contract, all of it at once, and where in the file.

Checks speak of *paths*: keys and positions from the top of the document. The line of a path is looked up for
findings only, so that a good file never pays for the bookkeeping. A document that came from Python has
paths and no lines.

The order is the contract's (WF-106): syntax alone; then structure, in the order of the document; then references and
dependencies, in the order the steps are declared; then cycles.

Where things are in a file that turned out to be bad: the second reading that a good file is spared.

Both functions walk the events of a text that has been read to its end before, so neither meets a syntax error, and the
limits on depth and nodes have already held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum, auto
from typing import Any, Final, TypeAlias

from detent.canon.late import dataclass
from detent.canon.show import step as path_step
from detent.contract.yaml_events import LINE_BREAK, Events
from detent.workflow.vocabulary import ModelOnexError

FINDINGS_MAX: Final = 100
"""Findings that are written out; the rest are counted."""
FAULTS_MAX: Final = 1_000
"""Faults that are kept to be put in order; the rest are counted."""
COMPARISONS_MAX: Final = 20_000
"""Names compared in search of the nearest one, over the whole contract: a hint is not worth a hang."""
ELSEWHERE: Final = "\0"
"""Placeholder in a message for the place of a related path. No quoted text can hold it: it would be written escaped."""

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of something in its file; lines and columns count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, where it stands, and what to do about it. ``line`` 0: the document has no lines."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""
    code: str = "VALIDATION_ERROR"
    path: str = ""
    """The same place as keys and positions: ``steps[3].run.python``."""

    def __str__(self) -> str:
        if self.line:
            return f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{self.file}: {self.path}: {self.message}" if self.path else f"{self.file}: {self.message}"


class ContractInvalid(ModelOnexError):
    """A contract cannot be loaded. ``findings`` holds every reason, in order; ``more`` counts those left out."""

    def __init__(self, findings: Sequence[Finding], more: int = 0) -> None:
        lines = [str(finding) for finding in findings]
        if more:
            lines.append(f"and {more} more")
        alone = findings[0].hint if len(findings) == 1 and findings[0].hint else None
        super().__init__("\n".join(lines), context={"errors": lines}, hint=alone)
        self.findings = tuple(findings)
        self.more = more


class Stage(IntEnum):
    """The groups in which findings are listed."""

    STRUCTURE = 0
    REFERENCES = 1
    CYCLES = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding whose line is not known yet."""

    path: Path
    message: str
    hint: str = ""
    stage: Stage = Stage.STRUCTURE
    at_key: bool = False
    """The key is meant, not its value."""
    related: tuple[Path, ...] = ()
    """Paths whose places the message names, one for each ``ELSEWHERE`` in it."""
    inner: tuple[int, int] | None = None
    """Line and column inside the text at ``path``, counted from 1."""


class Report:
    """Gathers faults, and names that lie near a wrong one."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.count = 0
        self._comparisons_left = COMPARISONS_MAX

    def add(self, fault: Fault) -> None:
        self.count += 1
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(fault)

    def nearest(self, word: object, known: Mapping[str, object] | Sequence[str]) -> str:
        """A hint that names the known word nearest to ``word``; empty when none is near, or when hints are used up."""
        self._comparisons_left -= len(known)
        if type(word) is not str or len(word) > 100 or self._comparisons_left < 0 or self.count > FINDINGS_MAX:
            return ""
        from difflib import get_close_matches  # noqa: PLC0415 - only for a contract that is wrong

        close = get_close_matches(word, list(known), n=1, cutoff=0.6)
        return f"did you mean {close[0]!r}?" if close else ""


class Spot:
    """A place in the document that a check looks at, and where it says what is wrong there."""

    __slots__ = ("path", "report")

    def __init__(self, report: Report, path: Path = ()) -> None:
        self.report = report
        self.path = path

    def at(self, *keys: str | int) -> Spot:
        """A place further in."""
        return Spot(self.report, (*self.path, *keys))

    def fault(
        self,
        message: str,
        hint: str = "",
        *,
        stage: Stage = Stage.STRUCTURE,
        at_key: bool = False,
        related: tuple[Path, ...] = (),
        inner: tuple[int, int] | None = None,
    ) -> None:
        """Say what is wrong here and what to do about it."""
        self.report.add(Fault(self.path, message, hint, stage, at_key, related, inner))


Locate: TypeAlias = Callable[[Sequence[Fault]], tuple[list[Place], list[list[Place]]]]
"""From faults to the place of each, and of each path related to it."""


def invalid(report: Report, name: str, locate: Locate | None) -> ContractInvalid:
    """The error that holds every finding, in the demanded order; ``locate`` finds lines, None: there are none."""
    faults = report.faults
    if locate is None:
        places = [Place(0, 0)] * len(faults)
        related = [[Place(0, 0)] * len(fault.related) for fault in faults]
    else:
        places, related = locate(faults)
    # A stable sort: without lines, what was found first stays first.
    order = sorted(
        range(len(faults)),
        key=lambda index: (
            faults[index].stage,
            *((places[index].line, places[index].column) if faults[index].stage is Stage.STRUCTURE else (0, 0)),
        ),
    )
    findings = [_finding(faults[index], places[index], related[index], name) for index in order[:FINDINGS_MAX]]
    return ContractInvalid(findings, report.count - len(findings))


def path_text(path: Path) -> str:
    """A path as people write it: ``steps[3].run``."""
    return "".join(path_step(key) for key in path).removeprefix(".")


def _finding(fault: Fault, place: Place, related: Sequence[Place], name: str) -> Finding:
    message = fault.message
    for path, other in zip(fault.related, related, strict=True):
        where = f"line {other.line}" if other.line else path_text(path)
        message = message.replace(ELSEWHERE, where, 1)
    return Finding(name, place.line, place.column, message, fault.hint, path=path_text(fault.path))


def doubled_keys(text: str, *, pure_python: bool = False) -> Iterator[tuple[Place, str, int]]:
    """Every key that is written again in its mapping: where, the key, and the line where it was written first."""
    seen: list[dict[_Slot, int]] = []
    for role, event, key in _walk(text, pure_python=pure_python):
        if role is _Role.ENTER:
            seen.append({})
        elif role is _Role.LEAVE:
            seen.pop()
        elif role is _Role.KEY:
            if key in seen[-1]:
                yield _place(event), str(key), seen[-1][key]
            else:
                seen[-1][key] = event.start_mark.line + 1


def locate(text: str, faults: Sequence[Fault]) -> tuple[list[Place], list[list[Place]]]:
    """The place of each fault, and of each path that its message names."""
    wanted = _Wanted()
    for fault in faults:
        for path in (fault.path, *fault.related):
            wanted.want(path)
    _fill(wanted, text)
    places = [_place_of(wanted.get(fault.path), fault, text) for fault in faults]
    return places, [[wanted.get(path).value or Place(1, 1) for path in fault.related] for fault in faults]


class _Wanted:
    """A path whose place is asked for, or the beginning of one; a tree, so that one walk answers for all of them."""

    __slots__ = ("children", "key", "style", "value")

    def __init__(self) -> None:
        self.children: dict[str | int, _Wanted] = {}
        self.key: Place | None = None
        self.value: Place | None = None
        self.style: str | None = None

    def want(self, path: Path) -> None:
        node = self
        for step in path:
            node = node.children.setdefault(step, _Wanted())

    def get(self, path: Path) -> _Wanted:
        """The node of a path. What the file does not hold (a missing key) stands where its mapping begins."""
        node = self
        for step in path:
            child = node.children[step]
            if child.value is None:
                child.value, child.key = node.value, node.value
            node = child
        return node


def _fill(wanted: _Wanted, text: str) -> None:
    inside: list[_Wanted | None] = []
    here: _Wanted | None = wanted
    for role, event, slot in _walk(text):
        if role is _Role.LEAVE:
            inside.pop()
        elif role is _Role.ENTER:
            inside.append(here)
        else:
            above = inside[-1] if inside else None
            here = wanted if not inside else above.children.get(slot) if above is not None else None
            if here is not None and role is _Role.KEY:
                here.key = _place(event)
            elif here is not None:
                here.value, here.style = _place(event), getattr(event, "style", None)


def _place_of(node: _Wanted, fault: Fault, text: str) -> Place:
    place = (node.key if fault.at_key else node.value) or Place(1, 1)
    if fault.inner is None or node.style != "|":
        return place
    # A literal block keeps its lines: the text's first line is the one after the "|".
    line, column = fault.inner
    lines = LINE_BREAK.split(text)
    written = lines[place.line + line - 1] if place.line + line <= len(lines) else ""
    first = next((row for row in lines[place.line :] if row.strip()), "")
    indent = len(first) - len(first.lstrip(" "))
    return Place(place.line + line, min(indent + column, len(written) + 1))


class _Role(Enum):
    """What an event is in the tree that it belongs to."""

    KEY = auto()
    VALUE = auto()
    ENTER = auto()
    LEAVE = auto()


_Slot: TypeAlias = str | int


def _walk(text: str, *, pure_python: bool = False) -> Iterator[tuple[_Role, Any, _Slot]]:
    """Every node of the document with its key or position; after a list or mapping its inside, between two marks."""
    from yaml import (  # noqa: PLC0415
        DocumentEndEvent,
        MappingEndEvent,
        MappingStartEvent,
        SequenceEndEvent,
        SequenceStartEvent,
    )

    events = Events(text, pure_python=pure_python)
    slots: list[_Slot | None] = []
    with events.syntax():
        events.next()
        events.next()
        while type(event := events.next()) is not DocumentEndEvent:
            if isinstance(event, MappingEndEvent | SequenceEndEvent):
                slots.pop()
                yield _Role.LEAVE, event, 0
                continue
            slot = slots[-1] if slots else 0
            if slot is None:
                slots[-1] = key = getattr(event, "value", "*")  # an alias has been refused, and has no value
                yield _Role.KEY, event, key
                continue
            yield _Role.VALUE, event, slot
            if slots:
                slots[-1] = slot + 1 if type(slot) is int else None
            if isinstance(event, MappingStartEvent | SequenceStartEvent):
                slots.append(None if isinstance(event, MappingStartEvent) else 0)
                yield _Role.ENTER, event, slot


def _place(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)
