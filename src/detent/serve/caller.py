"""Where a request comes from, behind proxies or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from detent.access.forwarded import Networks, caller_of, is_proxy, scheme_of


@dataclass(slots=True, eq=False)  # Nothing changes it; one is made for each request.
class Caller:
    """Where a request comes from, and what it says in its fields."""

    address: str
    method: str
    target: str
    """The address with its query, as it was sent."""
    scheme: str
    header: Callable[[bytes], str | None]
    proxied: bool = False
    """Whether a proxy that the operator trusts handed it on."""

    @property
    def secure(self) -> bool:
        """Whether it came over TLS, to this server or to the proxy in front."""
        return self.scheme == "https"

    @property
    def local(self) -> bool:
        """Whether it comes from this machine, whose programs share an address."""
        return self.address == "::1" or self.address.startswith("127.")


class Request(Protocol):
    """A request as it came over its connection."""

    method: str

    @property
    def peer(self) -> str: ...

    @property
    def scheme(self) -> str: ...

    @property
    def target(self) -> str: ...

    def header(self, name: bytes, /) -> str | None: ...


def caller_in(request: Request, proxies: Networks) -> Caller:
    """The caller of a request. What a proxy says counts only if the connection comes from one that the operator named."""
    scheme = request.scheme
    peer = address = request.peer
    proxied = is_proxy(peer, proxies)
    if proxied:
        address = caller_of(peer, request.header(b"x-forwarded-for"), proxies)
        scheme = scheme_of(request.header(b"x-forwarded-proto"), scheme)
    return Caller(address, request.method, request.target, scheme, request.header, proxied)
