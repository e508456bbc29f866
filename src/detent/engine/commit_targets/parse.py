"""A destination as it is written on the command line: ``append:FILE``, ``jsonl:FILE``, ``sqlite:FILE#TABLE``, ``module:function``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from detent.canon.strict_json import JsonValue
from detent.engine.commit_targets.api import CommitTarget
from detent.engine.commit_targets.file_targets import append_target, json_lines_target
from detent.engine.commit_targets.function_target import function_target
from detent.engine.commit_targets.render import unescaped
from detent.errors import InvalidInput
from detent.store.content import ContentFiles

FORMS: Final = "append:FILE, jsonl:FILE, jsonl+seq:FILE, sqlite:FILE#TABLE or module:function"
_NOT_YET: Final = frozenset(
    "csv file ftp gs http https json mysql ndjson parquet postgres postgresql redis s3 stdout text txt".split()
)
"""First words that people try. Some are also modules; nobody means those."""
_TABLE_CHARS_MAX: Final = 128


def parse_target(
    text: str,
    *,
    base: Path | None = None,
    content: ContentFiles | None = None,
    restore: Callable[[JsonValue], Any] = unescaped,
) -> CommitTarget:
    """The destination that a text names. Nothing is opened, made or imported yet.

    Names of files are relative to ``base``; ``content`` holds the bytes of files that are committed; ``restore`` makes stored
    values into what a function sees. Raises `InvalidInput` for what names no destination.
    """
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme:
        raise _unknown(text, "has no kind before a colon")
    if not rest:
        raise _unknown(text, f"says nothing after {scheme}:")
    if "\0" in text:
        raise _unknown(text, "has a zero byte")
    match scheme:
        case "append":
            return append_target(text, _path(rest, base), content)
        case "jsonl":
            return json_lines_target(text, _path(rest, base))
        case "jsonl+seq":
            return json_lines_target(text, _path(rest, base), numbered=True)
        case "sqlite":
            return _sqlite(text, rest, base)
    where, _, name = text.rpartition(":")
    is_name = all(part.isidentifier() for part in name.split("."))
    is_place = where.endswith(".py") or all(part.isidentifier() for part in where.split("."))
    if scheme.lower() in _NOT_YET or not is_name or not is_place:
        raise _unknown(text, f"is of a kind that is not known ({scheme})")
    return function_target(text, None if base is None else str(base), restore)


def _sqlite(text: str, rest: str, base: Path | None) -> CommitTarget:
    from detent.engine.commit_targets.sqlite_target import SqliteTarget  # noqa: PLC0415 - loads apsw

    name, mark, table = rest.rpartition("#")
    if not mark or not table:
        raise _unknown(text, "names no table: sqlite:FILE#TABLE")
    if not name:
        raise _unknown(text, "names no file: sqlite:FILE#TABLE")
    if len(table) > _TABLE_CHARS_MAX:
        raise _unknown(text, f"names a table with more than {_TABLE_CHARS_MAX} characters")
    if table.lower().startswith("sqlite_") or table.lower() == "detent_commits":
        raise _unknown(text, f"names the table {table}, which belongs to SQLite or to detent")
    return SqliteTarget(text, _path(name, base), table)


def _path(name: str, base: Path | None) -> Path:
    # A shell leaves the tilde behind a colon as it is.
    path = Path(name).expanduser() if name.startswith("~/") else Path(name)
    return path if base is None else base / path


def _unknown(text: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"the destination {text!r:.200} {what}", hint=f"a destination is {FORMS}", details={"target": text}
    )
