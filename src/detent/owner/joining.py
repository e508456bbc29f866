"""A home on another machine for a ledger that is there already: with keys of its own, and without the root key.

The new machine makes its keys, and writes their public halves into a request, ``join.json``. The operator takes it to the home that has the
root key, whose `detent keys admit` puts them on the ledger: no key can announce itself. From then on a server on the new home may own the ledger.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detent.canon import digest_text
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput, TrustError
from detent.ledger.trust_config import ENROLL, LOG, MANIFEST, RESULT, TRANSITION
from detent.owner.home import Home, new_keys, put_home, write_settings
from detent.owner.ledgers import open_ledger
from detent.owner.wiring import announced_trust

if TYPE_CHECKING:
    from detent.store.postgres.address import PostgresAddress

JOIN_ROLES: Final = (MANIFEST, TRANSITION, RESULT, LOG, ENROLL)
"""What a server signs as. Who may sign is for the root key to say, which stays where it is."""
REQUEST_BYTES_MAX: Final = 16 * 1024
_HOST_CHARS_MAX: Final = 255
_FIELDS: Final = frozenset({"origin", "host", "keys"})


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The public keys of a server that wants to join a ledger."""

    origin: str
    host: str
    keys: Mapping[str, bytes]
    """By role."""

    def to_map(self) -> dict[str, object]:
        """The document in the file."""
        return {"origin": self.origin, "host": self.host, "keys": {role: key.hex() for role, key in self.keys.items()}}

    @classmethod
    def parse(cls, data: bytes, source: str) -> JoinRequest:
        """Read a request; refuses, with `InvalidInput`, one that is not whole. Whether a key is usable is seen when it is trusted."""
        try:
            document = json.loads(data) if len(data) <= REQUEST_BYTES_MAX else None
        except ValueError:
            document = None
        if not isinstance(document, dict) or document.keys() != _FIELDS:
            raise _no_request(source, f"it is not a JSON object with {', '.join(sorted(_FIELDS))}")
        origin, host, keys = document["origin"], document["host"], document["keys"]
        if not isinstance(origin, str) or not isinstance(host, str) or not 0 < len(host) <= _HOST_CHARS_MAX:
            raise _no_request(source, "origin and host are texts")
        if not isinstance(keys, dict) or set(keys) != set(JOIN_ROLES):
            raise _no_request(source, f"it needs one key for each of {', '.join(JOIN_ROLES)}")
        try:
            return cls(origin, host, {role: bytes.fromhex(keys[role]) for role in JOIN_ROLES})
        except (TypeError, ValueError):
            raise _no_request(source, "a public key is written as hexadecimal digits") from None


def join_ledger(
    path: Path, address: PostgresAddress, root: bytes, *, random: Callable[[int], bytes] = os.urandom
) -> tuple[Home, JoinRequest]:
    """Make a home for the ledger at an address, whose root must be the one given: what a database says of itself proves nothing."""
    reader = open_ledger(address)
    try:
        trust = announced_trust(reader)
    finally:
        reader.close()
    if trust.root_digest != root:
        raise TrustError(
            f"the ledger in {address} has the root {trust.root_text}, not {digest_text(root)}",
            hint="`detent keys` on the first home prints the root; if they differ, this is another ledger or a changed one",
        )
    made: list[JoinRequest] = []

    @contextmanager
    def build(home: Home) -> Iterator[Callable[[], None]]:
        keys = new_keys(home, JOIN_ROLES, random)
        write_settings(home, trust.origin, root, address)
        request = JoinRequest(trust.origin, socket.gethostname(), {role: key.public_key for role, key in keys.items()})
        home.join_request.write_text(json.dumps(request.to_map(), indent=2) + "\n")
        home.join_request.chmod(0o600)
        made.append(request)
        yield lambda: None

    home = put_home(path, build, random=random)
    return home, made[-1]


def _no_request(source: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"{show(source)} is not a request to join a ledger: {why}",
        hint="`detent init --store URL --join ROOT` on the other machine writes one to join.json in its home",
    )
