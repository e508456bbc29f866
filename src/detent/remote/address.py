"""What a user says about a server: its URL, the key to show it, and the public key that it must have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from detent.access.tokens import API_KEY, read_token
from detent.errors import InvalidInput, RequestRefused

URL_VARIABLE: Final = "DETENT_URL"
KEY_VARIABLE: Final = "DETENT_KEY"
PIN_VARIABLE: Final = "DETENT_PIN"
URL_CHARS_MAX: Final = 2_048
_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?")
_PIN: Final = re.compile(r"sha256:([0-9a-f]{64})")
_EXAMPLE: Final = "write it as https://jobs.example.org or http://127.0.0.1:7733"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and how to know it and be known by it."""

    scheme: str
    host: str
    port: int
    prefix: str = ""
    """A path before every route, where a proxy has put the server below one."""
    key: str | None = field(default=None, repr=False)
    pin: bytes | None = None
    """SHA-256 of the public key that the server must show; then no certificate authority is asked."""

    @property
    def netloc(self) -> str:
        """Host and port as a `Host` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as text, without the key."""
        return f"{self.scheme}://{self.netloc}{self.prefix}"


def parse_address(url: str, *, key: str | None = None, pin: str | None = None) -> Address:
    """Read a URL, a key and a pin. Refuses plain HTTP to another machine, where keys and data would travel in the clear."""
    scheme, host, port, prefix = _parts(url)
    if scheme == "http" and not is_loopback(host):
        raise RequestRefused(
            f"{url!r:.200} would send the key and all data in the clear",
            code="ADDRESS_EXPOSED",
            hint="use https://; plain http:// is for servers on this machine",
        )
    if pin is not None and scheme != "https":
        raise InvalidInput("a pin is for https:// addresses", hint="leave it out, or use https://")
    return Address(scheme, host, port, prefix, _key(key), None if pin is None else _pin(pin))


def address_of(environment: Mapping[str, str], url: str | None = None, pin: str | None = None) -> Address | None:
    """The server that is meant: by an option, else by ``DETENT_URL``; None where neither names one."""
    chosen = url or environment.get(URL_VARIABLE) or None
    if chosen is None:
        return None
    key, kept = environment.get(KEY_VARIABLE) or None, environment.get(PIN_VARIABLE) or None
    return parse_address(chosen, key=key, pin=pin or kept)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine. Of names only `localhost` is: others may resolve to anything."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _parts(url: str) -> tuple[str, str, int, str]:
    try:
        split = urlsplit(url) if len(url) <= URL_CHARS_MAX else None
        port = None if split is None else split.port
    except ValueError:
        split = port = None
    host = (split.hostname if split is not None else None) or ""
    if split is None or split.scheme not in _PORTS or not _HOST.fullmatch(host) or not _PATH.fullmatch(split.path):
        raise InvalidInput(f"{url!r:.200} is not the address of a server", hint=_EXAMPLE)
    if split.username is not None or split.query or split.fragment:
        raise InvalidInput(
            "the address of a server has no user, query or fragment",
            hint=f"{_EXAMPLE}; the key goes into {KEY_VARIABLE}",
        )
    return split.scheme, host, port or _PORTS[split.scheme], split.path.rstrip("/")


def _key(text: str | None) -> str | None:
    """A key that can be one; a mistyped one is told without a request, and never printed."""
    if text is None:
        return None
    token = read_token(text.strip())
    if token is None or token.kind != API_KEY:
        raise InvalidInput(
            "the key is not an API key: its form or its checksum is wrong",
            code="UNAUTHENTICATED",
            hint=f"{KEY_VARIABLE} holds one whole, as it was shown when it was made: dtk_...",
        )
    return token.text


def _pin(text: str) -> bytes:
    found = _PIN.fullmatch(text)
    if found is None:
        raise InvalidInput(
            f"{text!r:.100} is not a pin",
            hint="write sha256: and 64 hex digits: the SHA-256 of the server's public key (SubjectPublicKeyInfo, DER)",
        )
    return bytes.fromhex(found[1])
