"""The grammar of the names that people give (steps, parameters, variables, targets), and how values are shown to them."""

from __future__ import annotations

import re
from keyword import iskeyword
from typing import Any, Final

from detent.canon.show import show

KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
KEY_HINT: Final = "begin with a letter or _, then up to 99 letters, digits, _, . or -"
UUID_TEXT: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

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
