"""What two readers of one file would read differently, and how it is kept from both of our parsers.

YAML 1.1 takes U+0085, U+2028 and U+2029 for line breaks; YAML 1.2, JSON and the eye do not. So a comment could end where no
line ends, and hide or show a step. U+FEFF inside a document is text to one of our parsers and nothing to the other. Both
parsers follow YAML 1.1, so neither is shown these characters: each stands for the time of parsing behind a character that the
text does not use. Inside quotes it is put back as it was; anywhere else the file is refused.

``[?x]`` is a list with one text in YAML 1.2, and with one mapping in YAML 1.1: a ``?`` that is not followed by a blank is refused
where our parsers take it for the mark of a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from detent.contract.yaml_events import MASKED, BadSyntax, Events, has_masked

_KEY_MARK: Final = re.compile(r"(?<![^\s\[\]{},:?])\?\S")
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
