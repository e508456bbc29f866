"""Deliver one event to a webhook: the function that delivery jobs call, in a worker process.

A delivery is a job of the workspace like any other: it is retried, shown and explained like one. It runs in a worker beside the server, so
a receiver that is slow or hostile costs a worker some seconds and the server nothing. The name is resolved once, and the connection goes
to an address that was judged (`access.destinations`); redirects are not followed, the answer is read up to a limit and thrown away.

The signature is made at the moment of the delivery, because receivers refuse old ones. The key lies in the home, readable by the home's
user alone.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final

from detent.access.destinations import Destination, address_fault, read_destination, read_networks
from detent.access.webhooks import ED25519, SECRET_BYTES, signed_headers
from detent.canon import SigningKey
from detent.errors import DetentError, RequestRefused
from detent.store.files import read_no_follow, replace_no_follow
from detent.version import __version__

SECONDS_MAX: Final = 10.0
"""For everything: resolving excepted, which has a limit of the system's own."""
ANSWER_BYTES_MAX: Final = 64 * 1024
KEYS: Final = "webhooks"
"""The directory of keys and secrets, below the server's own in a home."""
GONE: Final = 410


class DeliveryFailed(DetentError):
    """The receiver did not take the event; it is tried again."""

    code = "WEBHOOK_FAILED"


def key_file(home: Path, name: str) -> Path:
    """Where the webhook key of a workspace or the secret of a hook lies."""
    return home / "serve" / KEYS / f"{name}.key"


def key_or_new(home: Path, name: str) -> bytes:
    """The key of a workspace or the secret of a hook, made when it is first needed: mode 0600, in a directory of mode 0700."""
    path = key_file(home, name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return read_no_follow(path)
    except FileNotFoundError:
        seed = secrets.token_bytes(SECRET_BYTES)
        replace_no_follow(path, seed)
        return seed


def deliver(
    home: str, hook: Mapping[str, Any], event: Mapping[str, Any], allowed: Sequence[str] = ()
) -> dict[str, Any]:
    """Send an event to a hook; says which status answered. Raises `DeliveryFailed` unless it is a 2xx.

    A receiver that answers 410 wants nothing more: that is a result, and the server switches the hook off.
    """
    where = read_destination(hook["url"])
    body = json.dumps(dict(event), separators=(",", ":"), sort_keys=True).encode()
    seed = read_no_follow(key_file(Path(home), hook["key"]))
    if len(seed) != SECRET_BYTES:
        raise DeliveryFailed(f"the webhook key {hook['key']} cannot be used", hint="delete the hook and make a new one")
    signer = SigningKey(seed) if hook["signature"] == ED25519 else seed
    headers = {
        "content-type": "application/json",
        "host": where.authority,
        "user-agent": f"detent/{__version__}",
        **signed_headers(event["id"], int(time.time()), body, signer),
    }
    status = _posted(where, body, headers, [str(network) for network in read_networks(allowed)])
    if status == GONE or 200 <= status < 300:
        return {"status": status, "bytes": len(body)}
    raise DeliveryFailed(f"{where.host} answered {status}", hint="the receiver's own log says why")


def _posted(where: Destination, body: bytes, headers: Mapping[str, str], allowed: Sequence[str]) -> int:
    """Send a request to a judged address; the status of the answer."""
    deadline = time.monotonic() + SECONDS_MAX
    try:
        with _connected(where, judged_addresses(where, allowed), deadline) as connection:
            request = HTTPSConnection(where.host, where.port)
            request.sock = connection
            request.request("POST", where.target, body=body, headers=dict(headers))
            answer = request.getresponse()
            _read_away(answer, connection, deadline)
            return answer.status
    except (OSError, HTTPException) as exc:
        raise DeliveryFailed(f"{where.host}:{where.port} cannot be reached: {exc}") from exc


def judged_addresses(where: Destination, allowed: Sequence[str] = ()) -> list[str]:
    """The addresses that a name stands for, all of them judged: one that is refused refuses the name."""
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise DeliveryFailed(f"{where.host} cannot be resolved: {exc}") from exc
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    networks = read_networks(allowed)
    for address in addresses:
        if fault := address_fault(address, networks):
            raise RequestRefused(
                f"{where.host} cannot be used for a webhook: {fault}",
                code="URL_REFUSED",
                hint="an operator can allow a network: `allow` under [webhooks] in the home's config.toml",
            )
    return addresses


def _connected(where: Destination, addresses: Sequence[str], deadline: float) -> ssl.SSLSocket:
    """A TLS connection to the first address that answers; the certificate is checked against the name."""
    fault: OSError | None = None
    for address in addresses:
        try:
            plain = socket.create_connection((address, where.port), max(0.1, deadline - time.monotonic()))
        except OSError as exc:
            fault = exc
            continue
        try:
            plain.settimeout(max(0.1, deadline - time.monotonic()))
            return ssl.create_default_context().wrap_socket(plain, server_hostname=where.host)
        except BaseException:
            plain.close()
            raise
    raise fault or OSError("it has no address")


def _read_away(answer: HTTPResponse, connection: ssl.SSLSocket, deadline: float) -> None:
    """Read an answer up to its limits, so that the receiver sees it taken."""
    read = 0
    while read < ANSWER_BYTES_MAX and time.monotonic() < deadline:
        connection.settimeout(max(0.1, deadline - time.monotonic()))
        piece = answer.read1(ANSWER_BYTES_MAX - read)
        if not piece:
            return
        read += len(piece)
