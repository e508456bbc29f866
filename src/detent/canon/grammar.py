"""Small grammars that the command line, contracts, settings and Python share: amounts, destinations, priorities, names.

Amounts of countable things by name, ``{"cpu": 2}``: one grammar for contracts, settings and tasks.

Where the results of an ordered run go, as people write it: ``append:FILE``, ``jsonl:FILE``, ``sqlite:FILE#TABLE``, ``module:function``.

One grammar for the command line, for Python and for contracts. Nothing is opened, made or imported.

One scale of priorities for all that people write: tasks, steps of contracts, clients and platform jobs (X-010).

The kernel's classes are the scale: the integers 1 to 10, ten first, five where nothing is said. Three of them have names.

When two names are one to a reader or to another file system: equal but for case, for form, or for letters that look alike.

Names of the policies that a job is decided by, ``{"quota": "small"}``: one grammar for contracts, settings, tasks and orders.

A home defines policies under ``[quotas.NAME]``, ``[leases.NAME]`` and ``[backoffs.NAME]``; a job names at most one of each kind.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from detent.canon.late import NamedTuple, pattern

RESOURCE: Final = pattern(r"[a-z][a-z0-9_]{0,39}")
RESOURCE_HINT: Final = "a small letter, then up to 39 small letters, digits or _"
RESOURCES_MAX: Final = 16
"""Kinds that one piece of work takes."""
AMOUNT_MAX: Final = 2**31 - 1
CHUNK_MAX: Final = 1_000
"""Elements of a list that may share one job."""
CHUNK_HINT: Final = f"how many elements share one job: 1 to {CHUNK_MAX:,}; leave it out to have their durations decide"
SANDBOX_MEMORY_MB_MIN: Final = 16
"""The least memory that a job in the sandbox may be limited to: with less, its jail itself may not come to stand."""
LABEL: Final = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LABEL_HINT: Final = "letters, digits, dots, dashes and underscores, at most 100, a letter or digit first"
LABELS_MAX: Final = 32
"""Labels that one piece of work asks of its worker."""
CPU: Final = "cpu"
"""The one resource that there always is: the workers of a process. Work that says nothing takes one of them."""


def name_fault(name: object) -> str | None:
    """Say that this cannot name a resource, or nothing."""
    if type(name) is str and RESOURCE.fullmatch(name) is not None:
        return None
    return f"{name!r:.80} cannot name a resource"


def amount_fault(name: str, amount: Any) -> str | None:
    """Say why this is not an amount of a resource, or nothing."""
    if type(amount) is int and 1 <= amount <= AMOUNT_MAX:
        return None
    return f"{name} must be a whole number from 1 to {AMOUNT_MAX:,}, not {amount!r:.40}"


def label_fault(what: str, name: object) -> str | None:
    """Say that this cannot name a pool or a label of workers, or nothing."""
    if type(name) is str and LABEL.fullmatch(name) is not None:
        return None
    return f"{name!r:.80} cannot name a {what}"


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


PRIORITY_MIN, PRIORITY_MAX = 1, 10
PRIORITY_NAMES: Final[Mapping[str, int]] = MappingProxyType({"low": 1, "normal": 5, "high": 10})
PRIORITY_DEFAULT: Final = PRIORITY_NAMES["normal"]
PRIORITY_HINT: Final = (
    f"a whole number from {PRIORITY_MIN} to {PRIORITY_MAX}, more is sooner; "
    f"or {', '.join(f'{name} ({number})' for name, number in PRIORITY_NAMES.items())}"
)


def priority_class(given: object) -> int | None:
    """The class that a number or a name stands for; None for anything else (`True` and ``"5"`` are none)."""
    if type(given) is str:
        return PRIORITY_NAMES.get(given)
    return given if type(given) is int and PRIORITY_MIN <= given <= PRIORITY_MAX else None


_HIDDEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_LATIN: Final = str.maketrans(
    # Cyrillic, Greek, Armenian and phonetic letters, as case folding leaves them, and the Latin ones that they look like.
    "\u0430\u0432\u0441\u0501\u0435\u04bb\u0456\u0458\u043a\u04cf\u043c\u043d\u043e\u0440\u0442"
    "\u0455\u0445\u0443\u0475\u051b\u051d\u03b1\u03b2\u03b3\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4"
    "\u03c5\u03c7\u03f2\u03f3\u0585\u057d\u0570\u0578\u0581\u0566\u0561\u0251\u0261\u0131",
    "abcdehijklmhoptsxyvqwabyikvoptuxcjouhngqwagi",
)


def look(name: str) -> str:
    """What two names have in common that a reader cannot tell apart, or that some file systems take for one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).translate(_LATIN)


def has_hidden(name: str) -> bool:
    """Whether a character cannot be seen: controls, marks of direction, joiners, line ends, code points without a character."""
    return any(unicodedata.category(character) in _HIDDEN for character in name)


def first_alike(names: Iterable[str]) -> tuple[str, str] | None:
    """The first name that looks like an earlier one, after that one."""
    seen: dict[str, str] = {}
    for name in names:
        earlier = seen.setdefault(look(name), name)
        if earlier != name:
            return earlier, name
    return None


POLICY: Final = pattern(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}")
POLICY_HINT: Final = "1 to 100 letters, digits or ._:/- characters, the first a letter or digit"
POLICY_SECTIONS: Final[Mapping[str, str]] = {"quota": "quotas", "lease": "leases", "backoff": "backoffs"}
"""The kinds of policies that a job may name, each with the section of the settings that defines them."""
POLICY_DEFAULT: Final = "default"
"""The policy of each kind that holds for a job which names none."""


class UnknownPolicy(NamedTuple):
    """A name that the settings do not define: what is wrong, and what to do about it."""

    kind: str
    message: str
    hint: str


def policy_name_fault(kind: str, name: object) -> str | None:
    """Say that this cannot name a policy, or nothing."""
    if type(name) is str and POLICY.fullmatch(name) is not None:
        return None
    return f"{kind} cannot be {name!r:.80}"


def policies_named(given: Mapping[str, str | None]) -> dict[str, str]:
    """The policies that are named among several, in the order of their kinds."""
    return {kind: name for kind in POLICY_SECTIONS if (name := given.get(kind)) is not None}


def unknown_policies(names: Mapping[str, str], known: Mapping[str, Sequence[str]]) -> list[UnknownPolicy]:
    """The names that settings do not define; ``known`` has those of each kind that they do."""
    return [_unknown(kind, name, known[kind]) for kind, name in names.items() if name not in known[kind]]


def _unknown(kind: str, name: str, known: Sequence[str]) -> UnknownPolicy:
    from difflib import get_close_matches  # noqa: PLC0415 - only for a mistake

    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    meant = f"did you mean {close[0]!r}? " if close else ""
    section = POLICY_SECTIONS[kind]
    hint = f"{meant}known: {', '.join(known)}; [{section}.{name}] in config.toml would define it"
    return UnknownPolicy(kind, f"{kind} {name!r:.80} is not configured", hint)
