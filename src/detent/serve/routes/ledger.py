"""The ledger's own proofs, so that anyone with a key can keep heads and check that the history only grows.

Heads and their consistency are for every valid key: a history that only few can hold a server to is held to by few. They tell how many
batches there are and nothing about what is in them, as the ids of events do.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Final

from pydantic import Field

from detent.access.headers import weak_tag
from detent.access.scopes import ANY
from detent.canon import digest_text
from detent.errors import InvalidInput
from detent.serve.call import Answer, Call, Shape
from detent.serve.table import READING, Route

Partition = Annotated[int, Field(ge=0, le=65535)]
Size = Annotated[int, Field(ge=1, le=1 << 40)]


class Head(Shape):
    """Where the ledger stands."""

    partition: int
    epoch: int
    size: int
    """Batches so far."""
    records: int
    note: str | None
    """The newest signed tree head, a C2SP note; it may cover fewer batches than there are. Null where none is signed yet."""


class HeadQuery(Shape):
    """Which partition."""

    partition: Partition = 0


class Proof(Shape):
    """That a batch is in the tree over the first `size` batches (RFC 6962)."""

    partition: int
    batch: int
    size: int
    root: str
    leaf: str
    path: list[str]
    """Hashes from the leaf to the root, in base64."""


class ProofQuery(Shape):
    """In which tree: by default that of the newest signed head."""

    partition: Partition = 0
    size: Size | None = None


class ConsistencyProof(Shape):
    """That the tree over the first `to` batches goes on from the tree over the first `from` (RFC 6962)."""

    partition: int
    from_size: int
    to_size: int
    from_root: str
    to_root: str
    path: list[str]
    """Hashes, in base64."""


class ConsistencyQuery(Shape):
    """Between which sizes."""

    partition: Partition = 0
    from_size: Size
    to_size: Size


async def _head(call: Call) -> Answer:
    query: HeadQuery = call.query
    head, note = await call.read(lambda reader: reader.ledger_head(call.workspace, query.partition))
    shown = Head(partition=query.partition, epoch=head.epoch, size=head.size, records=head.next_position, note=note)
    return Answer(shown, tag=weak_tag(head, note))


async def _proof(call: Call) -> Answer:
    query: ProofQuery = call.query
    written = call.path["batch"]
    if not written.isascii() or not written.isdecimal() or len(written) > 18:
        raise InvalidInput("a batch is a number", code="NOT_FOUND")
    batch = int(written)
    found = await call.read(lambda reader: reader.inclusion(call.workspace, query.partition, batch, query.size))
    shown = Proof(
        partition=query.partition,
        batch=batch,
        size=found.size,
        root=digest_text(found.root),
        leaf=digest_text(found.leaf),
        path=hashes(found.path),
    )
    return Answer(shown, tag=weak_tag(shown))


async def _consistency(call: Call) -> Answer:
    query: ConsistencyQuery = call.query
    found = await call.read(
        lambda reader: reader.consistency(call.workspace, query.partition, query.from_size, query.to_size)
    )
    shown = ConsistencyProof(
        partition=query.partition,
        from_size=query.from_size,
        to_size=query.to_size,
        from_root=digest_text(found.first_root),
        to_root=digest_text(found.second_root),
        path=hashes(found.path),
    )
    return Answer(shown, tag=weak_tag(shown))


def hashes(path: list[bytes]) -> list[str]:
    """The hashes of a proof as they are sent."""
    return [b64encode(one).decode() for one in path]


_OWN: Final = ("NOT_FOUND", *READING)
ROUTES: Final = (
    Route(
        "GET",
        "/v1/ledger/head",
        _head,
        "Read where the ledger stands, with its newest signed tree head.",
        ANY,
        _OWN,
        {200: Head},
        query=HeadQuery,
        etag=True,
    ),
    Route(
        "GET",
        "/v1/ledger/proof/{batch}",
        _proof,
        "Prove that a batch is in a tree.",
        "ledger:read",
        _OWN,
        {200: Proof},
        query=ProofQuery,
        etag=True,
    ),
    Route(
        "GET",
        "/v1/ledger/consistency",
        _consistency,
        "Prove that the ledger has only grown between two sizes.",
        ANY,
        _OWN,
        {200: ConsistencyProof},
        query=ConsistencyQuery,
        etag=True,
    ),
)
