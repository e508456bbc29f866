"""The words of a contract: names, durations, and how large it may be.

The grammar of the names that people give (steps, parameters, variables, targets), and how values are shown to them.

Durations as people write them: ``500ms``, ``90s``, ``5m``, ``1h30m``, or a plain number of seconds.

Arithmetic is exact; a part of a millisecond counts as a whole one.

How large a contract may be. Each limit is checked while the file is read, before the rest of it is looked at.
"""

from __future__ import annotations

from fractions import Fraction
from keyword import iskeyword
from math import ceil, isfinite
from typing import Any, Final

from detent.canon.late import pattern
from detent.canon.show import show
from detent.canon.strict_json import JSON_DEPTH_MAX
from detent.workflow.vocabulary import TIMEOUT_MS_MIN

KEY: Final = pattern(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
KEY_HINT: Final = "begin with a letter or _, then up to 99 letters, digits, _, . or -"
UUID_TEXT: Final = pattern(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
ENVIRONMENT_NAME: Final = pattern(r"[A-Za-z_][A-Za-z0-9_]*")

_OBEYED_PREFIXES: Final = (
    *("LD_", "DYLD_", "MALLOC_", "PYTHON", "PERL", "RUBY", "NODE_", "BASH_", "OPENSSL_", "SSL_CERT_"),
    "DETENT_",
)
_OBEYED: Final = frozenset(
    # The C library and its loader.
    "GLIBC_TUNABLES GCONV_PATH GETCONF_DIR LOCPATH NLSPATH HOSTALIASES LOCALDOMAIN RES_OPTIONS RESOLV_HOST_CONF TZDIR NIS_PATH "
    # Shells and interpreters.
    "ENV IFS CDPATH GLOBIGNORE SHELLOPTS BASHOPTS PS1 PS2 PS4 PROMPT_COMMAND JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS "
    "CLASSPATH LUA_INIT LUA_PATH LUA_CPATH PHPRC R_PROFILE R_ENVIRON "
    # What the sandbox itself sets.
    "PATH HOME TMPDIR USER LOGNAME".split()
)


def is_obeyed(variable: str) -> bool:
    """Whether a loader, the C library, a shell or an interpreter changes what it loads or runs because of this variable, or the
    sandbox sets it. Untrusted code is given none of these.
    """
    name = variable.upper()
    return name in _OBEYED or name.startswith(_OBEYED_PREFIXES)


def shown(value: Any) -> str:
    """A value in a message, cut short; the words of YAML for the three that Python calls otherwise."""
    if value is None:
        return "null"
    return str(value).lower() if type(value) is bool else show(value)


def is_python_name(text: str, *, dotted: bool = False) -> bool:
    """Whether Python could use the text as a name; ``dotted``: or as several, joined by dots."""
    parts = text.split(".") if dotted else [text]
    return all(part.isidentifier() and not iskeyword(part) for part in parts)


def python_target_fault(target: str) -> str | None:
    """What is wrong with ``module:function`` or ``path/file.py:function``; None: nothing. Nothing is imported."""
    where, colon, function = target.rpartition(":")
    if not colon:
        return "names no function"
    if not is_python_name(function, dotted=True):
        return f"names {function!r:.80}, which is not a Python name"
    if where.endswith(".py"):
        stem = where.removesuffix(".py").rpartition("/")[2]
        return None if stem and where.isprintable() else "names no file"
    return (
        None if is_python_name(where, dotted=True) else f"names {where!r:.80}, which is neither a module nor a .py file"
    )


UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_AMOUNT: Final = r"(?:([0-9]{1,17}(?:\.[0-9]{1,9})?)%s)?"
_DURATION: Final = pattern("".join(_AMOUNT % unit for unit in UNITS_MS))
HOW_TO_WRITE: Final = "write it as 500ms, 90s, 5m, 2h, 1d or 1h30m, or as a number of seconds"


class BadDuration(Exception):
    """Not a duration, or one that is too short or too long. Carries what is wrong and what to do."""

    def __init__(self, message: str, hint: str = HOW_TO_WRITE) -> None:
        super().__init__(message)
        self.hint = hint


def parse_duration(value: Any, *, least_ms: int = TIMEOUT_MS_MIN) -> int:
    """Milliseconds of a written duration. Raises ``BadDuration``; the message completes "a timeout ..."."""
    exact: int | Fraction
    if type(value) is str:
        match = _DURATION.fullmatch(value)
        if match is None or not value:
            raise BadDuration(f"cannot be {shown(value)}")
        exact = sum(
            (Fraction(amount) if "." in amount else int(amount)) * unit
            for amount, unit in zip(match.groups(), UNITS_MS.values(), strict=True)
            if amount
        )
    elif type(value) is int or (type(value) is float and isfinite(value)):
        exact = (value if type(value) is int else Fraction(repr(value))) * 1_000
    else:
        raise BadDuration(f"cannot be {shown(value)}")
    if exact < least_ms:
        raise BadDuration(f"must be at least {least_ms} ms, got {shown(value)}", "leave it out for no limit")
    if exact > DURATION_MS_MAX:
        raise BadDuration(f"of {shown(value)} is longer than {DURATION_MS_MAX} ms", "leave it out for no limit")
    return ceil(exact)


def format_duration(duration_ms: int) -> str:
    """The shortest text that reads back as the same duration."""
    parts = []
    for unit, size_ms in UNITS_MS.items():
        amount, duration_ms = divmod(duration_ms, size_ms)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0ms"


BYTES_MAX: Final = 16 * 1024 * 1024
NODES_MAX: Final = 2_000_000
"""Keys, values, lists and mappings together."""
DEPTH_MAX: Final = JSON_DEPTH_MAX
"""Lists and mappings inside one another, counted from the top of the file."""
VALUE_DEPTH_MAX: Final = 48
"""The same inside one value (an argument, a default, a payload), so that every value fits the long form as well."""
STEPS_MAX: Final = 100_000
SOURCE_BYTES_MAX: Final = 256 * 1024
"""Size of the Python source in one ``code:``."""
DURATION_MS_MAX: Final = 2**53
"""285,000 years; every JSON reader can hold it exactly."""
LONG_FORM_BYTES_MAX: Final = 64 * BYTES_MAX
"""The long form of a file that keeps the other limits cannot come near this."""
