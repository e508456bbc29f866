"""A destination as it is written on the command line: ``append:FILE``, ``jsonl:FILE``, ``sqlite:FILE#TABLE``, ``module:function``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.canon.grammar import FORMS, destination_fault
from detent.canon.strict_json import JsonValue
from detent.errors import InvalidInput
from detent.store.content import ContentFiles
from detent.targets.api import Anew
from detent.targets.file_targets import FileTarget, append_target, json_lines_target
from detent.targets.function_target import FunctionTarget, function_target
from detent.targets.render import unescaped

if TYPE_CHECKING:
    from detent.targets.sqlite_target import SqliteTarget


def parse_target(
    text: str,
    *,
    base: Path | None = None,
    content: ContentFiles | None = None,
    restore: Callable[[JsonValue], Any] = unescaped,
    anew: Anew | None = None,
    seqs: Sequence[int] | None = None,
) -> FileTarget | FunctionTarget | SqliteTarget:
    """The destination that a text names. Nothing is opened, made or imported yet; its `check` looks whether it can be.

    Names of files are relative to ``base``; ``content`` holds the bytes of files that are committed; ``restore`` makes stored
    values into what a function sees. With ``anew`` a new run does not simply add to what is there; without it, it does. ``seqs`` are
    those that the entries are known by, where they are not counted from 0.
    Raises `InvalidInput` for what names no destination.
    """
    if fault := destination_fault(text):
        raise InvalidInput(
            f"the destination {text!r:.200} {fault}", hint=f"a destination is {FORMS}", details={"target": text}
        )
    kind, _, rest = text.partition(":")
    match kind:
        case "append":
            return append_target(text, _path(rest, base), content, anew=anew)
        case "jsonl":
            return json_lines_target(text, _path(rest, base), anew=anew)
        case "jsonl+seq":
            return json_lines_target(text, _path(rest, base), numbered=True, anew=anew, seqs=seqs)
        case "sqlite":
            from detent.targets.sqlite_target import SqliteTarget  # noqa: PLC0415 - loads apsw

            name, _, table = rest.rpartition("#")
            return SqliteTarget(text, _path(name, base), table, anew=anew, seqs=seqs)
    return function_target(text, None if base is None else str(base), restore)


def _path(name: str, base: Path | None) -> Path:
    # A shell leaves the tilde behind a colon as it is.
    path = Path(name).expanduser() if name.startswith("~/") else Path(name)
    return path if base is None else base / path
