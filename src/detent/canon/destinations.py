"""Where the results of an ordered run go, as people write it: ``append:FILE``, ``jsonl:FILE``, ``sqlite:FILE#TABLE``, ``module:function``.

One grammar for the command line, for Python and for contracts. Nothing is opened, made or imported.
"""

from __future__ import annotations

from typing import Final

FORMS: Final = "append:FILE, jsonl:FILE, jsonl+seq:FILE, sqlite:FILE#TABLE or module:function"
FILE_KINDS: Final = ("append", "jsonl", "jsonl+seq")
SQLITE: Final = "sqlite"
TABLE_CHARS_MAX: Final = 128
_NOT_YET: Final = frozenset(
    "csv file ftp gs http https json mysql ndjson parquet postgres postgresql redis s3 stdout text txt".split()
)
"""First words that people try. Some are also names of modules, which are not meant."""


def destination_fault(written: str) -> str | None:
    """What keeps a text from naming a destination; None: nothing."""
    kind, colon, rest = written.partition(":")
    if not colon or not kind:
        return "has no kind before a colon"
    if not rest:
        return f"says nothing after {kind}:"
    if "\0" in written:
        return "has a zero byte"
    if kind in FILE_KINDS:
        return None
    if kind == SQLITE:
        return _table_fault(rest)
    where, _, name = written.rpartition(":")
    is_place = where.endswith(".py") or all(part.isidentifier() for part in where.split("."))
    if kind.lower() in _NOT_YET or not is_place or not all(part.isidentifier() for part in name.split(".")):
        return f"is of a kind that is not known ({kind})"
    return None


def file_of(written: str) -> str | None:
    """The file that a destination fills; None for a database or a function, which no digest of a file describes."""
    kind, _, rest = written.partition(":")
    return rest if kind in FILE_KINDS else None


def function_of(written: str) -> str | None:
    """The function that a destination is; None for any other."""
    kind = written.partition(":")[0]
    return None if kind in FILE_KINDS or kind == SQLITE else written


def _table_fault(rest: str) -> str | None:
    name, mark, table = rest.rpartition("#")
    if not mark or not table:
        return "names no table: sqlite:FILE#TABLE"
    if not name:
        return "names no file: sqlite:FILE#TABLE"
    if len(table) > TABLE_CHARS_MAX:
        return f"names a table with more than {TABLE_CHARS_MAX} characters"
    if table.lower().startswith("sqlite_") or table.lower() == "detent_commits":
        return f"names the table {table}, which belongs to SQLite or to detent"
    return None
