"""Where a request comes from, behind proxies or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

from detent.access.forwarded import Networks, caller_of, is_proxy, scheme_of


@dataclass(frozen=True, slots=True)
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


def caller_in(scope: Scope, header: Callable[[bytes], str | None], proxies: Networks) -> Caller:
    """The caller of a request. What a proxy says counts only if the connection comes from one that the operator named."""
    peer = (scope["client"] or ("unknown", 0))[0]
    proxied = is_proxy(peer, proxies)
    scheme, address = scope["scheme"], peer
    if proxied:
        address = caller_of(peer, header(b"x-forwarded-for"), proxies)
        scheme = scheme_of(header(b"x-forwarded-proto"), scheme)
    query = scope["query_string"].decode("latin-1")
    target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
    return Caller(address, scope["method"], target, scheme, header, proxied)
