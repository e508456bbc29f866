"""Requests that a proxy hands on: who really asks, and over which scheme.

The fields count only where the peer of the connection is a proxy that the operator named. Of `X-Forwarded-For` the last address that is
not such a proxy counts: everything before it was written by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

HOPS_MAX: Final = 32
Networks = Sequence[IPv4Network | IPv6Network]


def is_proxy(peer: str, networks: Networks) -> bool:
    """Whether an address is one of the proxies."""
    if not networks:
        return False
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return any(mapped in network for network in networks if network.version == mapped.version)


def caller_of(peer: str, forwarded_for: str | None, networks: Networks) -> str:
    """The address that asks, as far as trusted proxies say it."""
    caller = peer
    for hop in reversed((forwarded_for or "").split(",")[-HOPS_MAX:]):
        if not is_proxy(caller, networks):
            break
        try:
            caller = str(ip_address(hop.strip()))
        except ValueError:
            break
    return caller


def scheme_of(forwarded_proto: str | None, own: str) -> str:
    """The scheme that the caller used; the connection's own where the proxy does not say one of the two."""
    said = (forwarded_proto or "").split(",")[-1].strip().lower()
    return said if said in {"http", "https"} else own
