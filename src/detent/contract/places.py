"""Where things are in a file that turned out to be bad: the second reading that a good file is spared.

Both functions walk the events of a text that has been read to its end before, so neither meets a syntax error, and the
limits on depth and nodes have already held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Any, TypeAlias

from detent.contract.findings import Fault, Path, Place
from detent.contract.yaml_events import LINE_BREAK, Events


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
