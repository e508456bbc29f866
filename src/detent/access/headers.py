"""What a request says about itself, judged before anything is routed: host, path, media types, entity tags."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from detent.canon import sha256

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::([0-9]{1,5}))?")
_UNFIT: Final = re.compile(rb"[^A-Za-z0-9._:~-]")
_PART: Final = re.compile(r"[A-Za-z0-9._:~/-]*")
_QUALITY: Final = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")
_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_RANGE: Final = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})", re.ASCII)
PATH_CHARS_MAX: Final = 2_048
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


def host_is_allowed(value: str, allowed: Iterable[str], scheme: str) -> bool:
    """Whether a ``Host`` header names one host, and one of those that the server answers for.

    A page that a browser loaded from elsewhere can point its own name at this server (DNS rebinding); the name gives it away.
    An allowed host without a port stands for the scheme's own port.
    """
    found = _HOST.fullmatch(value)
    if found is None:
        return False
    named = (found[1].lower().rstrip("."), found[2] or _DEFAULT_PORTS[scheme])
    return named in _hosts_named(frozenset(allowed), scheme)


@lru_cache(8)
def _hosts_named(allowed: frozenset[str], scheme: str) -> frozenset[tuple[str, str]]:
    known = (_HOST.fullmatch(one) for one in allowed)
    return frozenset((one[1].lower(), one[2] or _DEFAULT_PORTS[scheme]) for one in known if one is not None)


def path_fault(raw: str, decoded: str) -> str | None:
    """Why a path cannot name anything here, or None. Nothing is normalised: a path is taken as it is, or not at all."""
    if len(raw) > PATH_CHARS_MAX:
        return f"the path has more than {PATH_CHARS_MAX} characters"
    if not _PART.fullmatch(decoded):
        return "the path has a character that no id has: ids consist of letters, digits and . _ : -"
    return None


def path_part(name: str) -> str:
    """An id as one part of a path: the slash in the id of a job that an ordered run named does not divide the path."""
    return _UNFIT.sub(lambda found: b"%%%02X" % found[0][0], name.encode()).decode()


def quality(header: str | None, media_type: str) -> float:
    """How much an ``Accept`` header likes a media type, 0 for not at all; the most specific range that matches counts."""
    if header is None or not header.strip():
        return 1.0
    major = media_type.partition("/")[0]
    best: tuple[int, float] = (-1, 0.0)
    for part in header.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        ranks = {"*/*": 0, f"{major}/*": 1, media_type: 2}
        if kind in ranks and ranks[kind] >= best[0]:
            weights = [word[2:].strip() for word in parameters if word.startswith("q=")]
            valid = bool(weights) and _QUALITY.fullmatch(weights[0]) is not None
            best = (ranks[kind], 1.0 if not weights else float(weights[0]) if valid else 0.0)
    return best[1]


def is_media_type(header: str | None, wanted: str) -> bool:
    """Whether a ``Content-Type`` names a media type in UTF-8, without other parameters."""
    kind, *parameters = (word.strip().lower() for word in (header or "").split(";"))
    if not _TYPE.fullmatch(kind) or kind != wanted:
        return False
    return all(word.replace('"', "") == "charset=utf-8" for word in parameters)


_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.{0,200})?")


def weak_tag(*parts: object) -> str:
    """The entity tag of something that is the same as long as these are."""
    return f'W/"{sha256(repr(parts).encode()).hex()[:24]}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether the caller has what a tag names; a weak comparison, as for every GET."""
    if if_none_match is None:
        return False
    known = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return "*" in known or tag.removeprefix("W/") in known


def readable_traceparent(traceparent: str | None) -> str | None:
    """A `traceparent` as it was sent, if it can be read."""
    return traceparent if trace_id_of(traceparent) is not None else None


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace that a request belongs to, from its `traceparent` (W3C Trace Context); None for one that says none, or nothing readable."""
    found = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    if found is None or found[1] == "ff" or not (found[2].strip("0") and found[3].strip("0")):
        return None
    return found[2]


UNSATISFIABLE: Final = (0, 0)
"""The answer of `byte_range` for a range that the content does not have."""


def byte_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """The one range that a ``Range`` header asks for, as (first, stop); None for the whole.

    Several ranges, and what is not written as a range of bytes, mean the whole (RFC 9110, 14.2). A range that begins behind
    the end is `UNSATISFIABLE`.
    """
    found = _RANGE.fullmatch(header.strip()) if header is not None else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        length = min(int(found[2]), size_bytes)
        return (size_bytes - length, size_bytes) if length else UNSATISFIABLE
    first = int(found[1])
    last = int(found[2]) if found[2] else size_bytes - 1
    if found[2] and last < first:
        return None
    return (first, min(last + 1, size_bytes)) if first < size_bytes else UNSATISFIABLE
