"""When two names are one to a reader or to another file system: equal but for case, for form, or for letters that look alike."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

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
