"""Where a server may send requests of its own: webhooks name an address, and that address must not be inside.

A workspace chooses the address, so the address is an attacker's word (SSRF). Only https is taken, without credentials in the URL. The
name is resolved once, every address that it resolves to is judged here, and the connection goes to one of those and nowhere else.
An address that carries another one (mapped, 6to4, Teredo, NAT64) is judged by what it carries. Operators may allow networks of
their own by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from detent.errors import InvalidInput

Network: TypeAlias = IPv4Network | IPv6Network

URL_CHARS_MAX: Final = 2_000
PORT: Final = 443
_URL: Final = re.compile(
    r"https://(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>/[!$&-;=?-Z_a-z~%]*)?"
)
_SPECIAL: Final = tuple(
    ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "100::/64", "2001::/23", "3fff::/20", "5f00::/16", "fec0::/10")
)
"""Networks of the IANA registries that the tables of older interpreters call global."""
_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a request goes: a host as it is named, a port, and the path with its query."""

    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The host and port as a ``Host`` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORT else f"{host}:{self.port}"


def read_destination(url: str) -> Destination:
    """The parts of a URL that a server may send requests to; `InvalidInput` (``URL_REFUSED``) for any other."""
    found = _URL.fullmatch(url) if len(url) <= URL_CHARS_MAX else None
    port = int(found["port"] or PORT) if found else 0
    if found is None or not 1 <= port <= 65_535:
        raise InvalidInput(
            f"the URL is not of the form https://HOST[:PORT]/PATH with at most {URL_CHARS_MAX:,} characters",
            code="URL_REFUSED",
            hint="use https, and leave out user names, passwords and fragments",
        )
    return Destination(found["host"].strip("[]").lower(), port, found["target"] or "/")


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks that an operator allows, such as ``10.1.0.0/16``; `InvalidInput` names the one that is not a network."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text))
        except ValueError as exc:
            raise InvalidInput(f"{text!r:.100} is not a network: {exc}", hint="write it as 10.1.0.0/16") from exc
    return tuple(found)


def address_fault(text: str, allowed: Iterable[Network] = ()) -> str | None:
    """Why a server may not connect to an address, or None."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return f"{text!r:.60} is not an address"
    inner = _carried(address)
    if any(inner.version == network.version and inner in network for network in allowed):
        return None
    special = any(inner.version == network.version and inner in network for network in _SPECIAL)
    if "%" in text or special or not inner.is_global or inner.is_multicast or inner.is_reserved:
        return f"{text} is not an address of the public internet"
    return None


def _carried(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The address that traffic ends at."""
    if isinstance(address, IPv4Address):
        return address
    if any(address in network for network in _NAT64):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    teredo = address.teredo
    inner = address.ipv4_mapped or address.sixtofour or (None if teredo is None else teredo[1])
    if inner is None and int(address) >> 32 == 0 and int(address) > 1:
        inner = IPv4Address(int(address))  # The old form of a mapped address, ::127.0.0.1.
    return inner or address
