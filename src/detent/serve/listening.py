"""Where a server listens, who protects what is sent, and under which names it answers."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from detent.errors import DetentError, InvalidInput, RequestRefused
from detent.owner.owner_address import Address, parse_address

BACKLOG: Final = 512
DESCRIPTORS_WANTED: Final = 65_536
_FIELD: Final = re.compile(r"[A-Za-z0-9-]{1,60}")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens and under which names it answers."""

    host: str = "127.0.0.1"
    port: int = 7733
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    behind_proxy: str | None = None
    insecure_http: bool = False
    names: tuple[str, ...] = ()
    """Further hosts that it answers for."""
    proxy_header: str | None = None
    """The header in which the proxy in front names the user."""
    drain_seconds: float = 10.0
    public_url: str | None = None
    """How clients reach it, where that is not where it listens: the base of signed URLs."""
    advertise: str | None = None
    """How the other servers of the ledger reach this one, as HOST or HOST:PORT, where that is not where it listens."""
    link_port: int = 0
    """Where the server that leads connects to this one, if both share the partitions of a ledger; any free port for 0."""
    link_advertise: str | None = None
    """How the other servers reach that port, as HOST or HOST:PORT, where that is not the host of ``advertise`` and the port itself."""

    @property
    def scheme(self) -> str:
        """What the server itself speaks."""
        return "https" if self.tls_certificate is not None else "http"


def insist_on_protection(listening: Listening) -> None:
    """Refuse an address that others can reach, unless something protects what is sent to it."""
    try:
        loopback = ipaddress.ip_address(listening.host).is_loopback
    except ValueError:
        raise InvalidInput(f"{listening.host!r:.100} is not an address", hint="write it as 127.0.0.1 or ::1") from None
    if (listening.tls_certificate is None) != (listening.tls_key is None):
        raise InvalidInput("TLS needs a certificate and its key", hint="give both --tls-cert and --tls-key")
    if listening.behind_proxy is not None:
        try:
            ipaddress.ip_network(listening.behind_proxy)
        except ValueError:
            raise InvalidInput(
                f"--behind-proxy {listening.behind_proxy!r:.80} is not a network", hint="write it as 10.0.0.0/8"
            ) from None
    if listening.proxy_header is not None and listening.behind_proxy is None:
        raise InvalidInput(
            "--trust-proxy-header needs --behind-proxy: any caller could send the header otherwise",
            hint="give the network of the proxy, such as --behind-proxy 127.0.0.1/32",
        )
    if listening.proxy_header is not None and not _FIELD.fullmatch(listening.proxy_header):
        raise InvalidInput(f"{listening.proxy_header!r:.80} is not the name of a header", hint="such as Remote-User")
    protected = listening.tls_certificate or listening.behind_proxy or listening.insecure_http
    if not protected and not loopback:
        raise RequestRefused(
            f"{listening.host} can be reached from other machines, and keys would cross the network in the clear",
            code="ADDRESS_EXPOSED",
            hint="give --tls-cert and --tls-key, or --behind-proxy NETWORK if a proxy in front speaks TLS",
        )


def bound(listening: Listening) -> contextlib.AbstractContextManager[socket.socket]:
    """A socket that listens for requests."""
    _raise_descriptors()
    return bound_to(listening.host, listening.port, "another program may use the port; --port 0 takes a free one")


@contextlib.contextmanager
def bound_to(host: str, port: int, hint: str) -> Iterator[socket.socket]:
    """A socket that listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: only then does asyncio send the pieces of an answer at once, instead of waiting 40 ms for the reader's receipt.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as exc:
        listener.close()
        raise DetentError(
            f"cannot listen on {bracketed(host)}:{port}: {exc.strerror}", code="ADDRESS_UNUSABLE", hint=hint
        ) from exc
    try:
        yield listener
    finally:
        listener.close()


def _raise_descriptors() -> None:
    """Every connection is a descriptor, and the usual limit is below the number of connections that are served."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def hosts_of(listening: Listening, port: int) -> frozenset[str]:
    """The hosts that a request may name."""
    named = {f"{bracketed(listening.host)}:{port}", *listening.names}
    named |= {urlsplit(listening.public_url).netloc} if listening.public_url is not None else set()
    if ipaddress.ip_address(listening.host).is_loopback:
        named |= {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    return frozenset(named)


def advertised(listening: Listening, port: int) -> str:
    """Where servers that stand by pass requests on to: the address that was given, or where this one listens, by its name if that is everywhere."""
    if listening.advertise is not None:
        return _given("--advertise", listening.advertise, port)
    everywhere = ipaddress.ip_address(listening.host).is_unspecified
    return f"{socket.gethostname() if everywhere else bracketed(listening.host)}:{port}"


def link_advertised(listening: Listening, own: Address, port: int) -> str:
    """Where the server that leads connects to this one, whose own address is known."""
    if listening.link_advertise is not None:
        return _given("--link-advertise", listening.link_advertise, port)
    return str(Address(own.host, port))


def _given(option: str, value: str, port: int) -> str:
    """The address that an option gives, with this port where it names none."""
    for given in (value, f"{bracketed(value)}:{port}"):
        if parse_address(given) is not None:
            return given
    raise InvalidInput(f"{option} {value!r:.80} is not an address", hint="write it as HOST:PORT")


def origins_of(listening: Listening, hosts: frozenset[str]) -> frozenset[str]:
    """The origins of this server's own pages, as browsers write them: without the port that the scheme has by itself."""
    schemes = {listening.scheme, *(["https"] if listening.behind_proxy is not None else [])}
    found = {f"{scheme}://{host}" for scheme in schemes for host in hosts}
    return frozenset(one.removesuffix(":443" if one.startswith("https") else ":80").lower() for one in found)


def bracketed(host: str) -> str:
    """A host as it is written in a URL."""
    return f"[{host}]" if ":" in host else host
