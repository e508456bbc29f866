"""What a browser may send: cookies of sessions, and the marks by which a request of a foreign page is told from one of our own.

A browser sends the cookie of a session with requests that other pages make: by forms and images always, by scripts of pages on another
port of the same host, too. So a cookie alone allows nothing that changes something or stays open. Unsafe requests need a
token that only our own pages can read, and no request may come from another origin.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from detent.canon import digest

COOKIE: Final = "detent"
SECURE_COOKIE: Final = "__Host-detent"
IDLE_MS: Final = 12 * 3_600_000
LIFE_MS: Final = 7 * 24 * 3_600_000
SECRET_BYTES: Final = 32
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PORT: Final = re.compile(r":([0-9]{1,5})$")
_VALUE: Final = re.compile(r"[0-9a-f]{64}")
_SESSION: Final = b"detent/session/v1\0"
_CSRF: Final = b"detent/csrf/v1\0"
_ID: Final = b"detent/session-id/v1\0"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request by a browser says about itself."""

    method: str
    origin: str | None
    fetch_site: str | None
    csrf: str | None
    streams: bool


def cookie_name(host: str | None, *, secure: bool) -> str:
    """The name of the cookie at the address of a ``Host`` field, with its port: browsers share cookies between all ports of a host.

    The prefix makes browsers insist on TLS, on this host and on the whole of it.
    """
    port = _PORT.search(host or "")
    return f"{SECURE_COOKIE if secure else COOKIE}{'' if port is None else f'-{port[1]}'}"


def cookie_value(header: str | None, host: str | None, *, secure: bool) -> str | None:
    """The session's secret in a ``Cookie`` header; None where there is none, or more than one."""
    wanted = cookie_name(host, secure=secure)
    found = [
        value.strip()
        for name, _, value in (part.partition("=") for part in (header or "").split(";"))
        if name.strip() == wanted
    ]
    return found[0] if len(found) == 1 and _VALUE.fullmatch(found[0]) else None


def set_cookie(value: str, host: str | None, *, secure: bool) -> str:
    """The ``Set-Cookie`` of a new session; an empty value ends it."""
    age = LIFE_MS // 1_000 if value else 0
    parts = [f"{cookie_name(host, secure=secure)}={value}", "Path=/", "HttpOnly", "SameSite=Lax", f"Max-Age={age}"]
    return "; ".join([*parts, *(["Secure"] if secure else [])])


def stored(value: str) -> bytes:
    """What is kept of a session's secret."""
    return digest(_SESSION, value.encode())


def session_id(value: str) -> str:
    """The public name of a session."""
    return f"s_{digest(_ID, value.encode()).hex()[:24]}"


def csrf_token(secret: str) -> str:
    """What unsafe requests of a session have to say beside its cookie. It tells nothing about the cookie."""
    return digest(_CSRF, secret.encode()).hex()


def foreign(asked: Asked, origins: Iterable[str], token: str) -> str | None:
    """Why a request may come from a foreign page, or None."""
    if asked.origin is not None and asked.origin not in origins:
        return "its Origin is not one of this server"
    if asked.fetch_site is not None and asked.fetch_site not in {"same-origin", "none"}:
        return f"it was made by a page of another origin (Sec-Fetch-Site: {asked.fetch_site[:20]})"
    told = asked.origin is not None or asked.fetch_site == "same-origin"
    if asked.streams and not told:
        return "a stream needs Sec-Fetch-Site: same-origin or an Origin of this server"
    if asked.method in SAFE:
        return None
    if not told:
        return "it needs Sec-Fetch-Site: same-origin or an Origin of this server"
    if not hmac.compare_digest((asked.csrf or "").encode(), token.encode()):
        return "it lacks the header Detent-CSRF with the token that GET /v1/me tells"
    return None
