"""Where the owner of a ledger takes requests over HTTP, said in the database and signed by the owner's key.

Servers that stand by pass requests on to that address. An attacker who can write to the database could name another one, and would be sent the
credentials of every client that speaks plain HTTP. So the key that signs the owner's batches also signs the address, with the ledger, the
partition and the epoch: an unsigned address, or one of an earlier epoch or another ledger, is not followed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from detent.canon import SigningKey, encode, verify
from detent.ledger import Trust
from detent.owner.ledgers import LedgerPlace
from detent.store.api import Store, StoreReader

if TYPE_CHECKING:
    from detent.store.postgres.reader import Holder, PostgresReader
    from detent.store.postgres.store import PostgresStore

ADDRESS_LABEL: Final = b"detent/owner-address/v1\0"
TRANSITION: Final = "transition"


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """An address as HOST:PORT; None for anything else."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return None
    return Address(host, int(port))


def sign_address(key: SigningKey, origin: str, partition: int, epoch: int, address: str) -> bytes:
    """The signature of an owner's address under its epoch."""
    return key.sign(_signed(origin, partition, epoch, address))


def is_signed_address(trust: Trust, position: int, partition: int, epoch: int, address: str, proof: bytes) -> bool:
    """Whether a key that may sign the partition's next batch has signed the address under this epoch."""
    message = _signed(trust.origin, partition, epoch, address)
    return any(verify(entry.public_key, message, proof) for entry in trust.keys(TRANSITION, position, partition))


def tell_address(store: Store, place: LedgerPlace, partition: int, address: str, proof: bytes) -> None:
    """Say in the database where the holder of a partition takes requests; a ledger in a file needs none."""
    if not isinstance(place, Path):
        shared: PostgresStore = store  # type: ignore[assignment]
        shared.set_address(partition, address, proof)


def holder_of(reader: StoreReader, partition: int) -> Holder | None:
    """The process that holds a partition of a ledger in PostgreSQL; None while none does."""
    shared: PostgresReader = reader  # type: ignore[assignment]
    return shared.holder(partition)


def _signed(origin: str, partition: int, epoch: int, address: str) -> bytes:
    return ADDRESS_LABEL + encode({"origin": origin, "partition": partition, "epoch": epoch, "address": address})
