"""Payloads, results and decision records by digest, wherever they lie.

Small content travels inside the commit of the record that names it; large content is synced to a file before that record
is written. Either way nothing on the ledger ever names bytes that a crash could still take away.

What may be guessed gets a nonce: payload and result envelopes carry random bytes, so that after an erasure the digest on
the ledger cannot be matched against likely values (X-171). The nonce is an argument, so a replay has the recorded one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from detent.access.schedules import inputs_named
from detent.canon import (
    DIGEST_BYTES,
    ITEM_BYTES_MAX,
    NotCanonical,
    decode,
    decode_trusted,
    encode,
    encode_trusted,
    json_decode,
    json_decode_trusted,
    json_encode,
    json_encode_trusted,
    sha256,
)
from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, StoreCorrupt
from detent.jobs.elements import large_values
from detent.jobs.order import Order, read_order
from detent.jobs.source_tree import place_below
from detent.kernel import Evidence, Job, Run
from detent.kernel.records import OPERATED
from detent.ledger.loose import named_digests, written_digests
from detent.store.api import CONTENT_INLINE_BYTES_MAX, Hashed, JobRow, RecordRow, StoreReader
from detent.store.content import ContentFiles

NONCE_BYTES = 16
ERASURES = 0
"""The partition that erasures are recorded in (decision 0009)."""
GC_GRACE_MS = 3_600_000
"""Files younger than this are left alone by garbage collection: their record may be on its way."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Content ready to be named by a record."""

    digest: bytes
    inline: tuple[tuple[bytes, bytes], ...]
    """What the commit has to carry; empty when the bytes are on disk already."""


def seal_value(value: object, nonce: bytes, *, name: str = "value") -> bytes:
    """A user's value as the bytes that are stored: strict JSON in an envelope with a nonce.

    A value that is not strict JSON is refused with an error that names the place in it.
    """
    if len(nonce) != NONCE_BYTES:
        raise InvalidInput(f"a nonce has {NONCE_BYTES} bytes")
    return encode({"json": json_encode(value, name=name), "nonce": nonce})


def seal_trusted(value: object, nonce: bytes) -> bytes:
    """The same for a value that this program put together out of checked parts."""
    return encode_trusted({"json": json_encode_trusted(value), "nonce": nonce})


def open_value(data: bytes) -> object:
    """The value in an envelope made by `seal_value`."""
    try:
        envelope = decode(data)
    except NotCanonical as exc:
        raise StoreCorrupt(f"stored content is not a value envelope: {exc}") from exc
    if (
        not isinstance(envelope, dict)
        or envelope.keys() != {"json", "nonce"}
        or not isinstance(envelope["json"], bytes)
    ):
        raise StoreCorrupt("stored content is not a value envelope")
    return json_decode(envelope["json"])


def open_trusted(data: bytes) -> object:
    """The same for content whose digest was checked and that is only compared with what this program made.

    Raises `ValueError` or `TypeError` for anything but an envelope.
    """
    envelope = decode_trusted(data)
    if not isinstance(envelope, dict) or type(envelope.get("json")) is not bytes:
        raise TypeError("stored content is not a value envelope")
    return json_decode_trusted(envelope["json"])


class Content:
    """Content of one home: the database's and the directory's as one."""

    def __init__(self, reader: StoreReader, files: ContentFiles) -> None:
        self._reader = reader
        self._files = files

    @property
    def reader(self) -> StoreReader:
        """The ledger this content belongs to."""
        return self._reader

    @property
    def trees(self) -> str:
        """Where the home of this content has source trees laid out, with the slash behind it."""
        return f"{self._files.trees}/"

    def stage(self, data: bytes) -> Staged:
        """Get bytes ready to be named: large ones are durable when this returns, small ones go with the commit."""
        staged = Hashed(data)
        digest, _ = staged
        if len(data) <= CONTENT_INLINE_BYTES_MAX:
            return Staged(digest, (staged,))
        self._files.put(data, digest=digest)
        return Staged(digest, ())

    def get(self, digest: bytes) -> bytes | None:
        """The bytes with this digest, checked; None when they were erased or never stored here."""
        data = self._reader.content(digest)
        if data is None:
            return self._files.get(digest)
        if sha256(data) != digest:
            raise StoreCorrupt(
                f"content sha256:{digest.hex()} has other bytes in the database",
                hint="run `detent verify`, then restore the ledger from a backup",
            )
        return data

    def has(self, digest: bytes) -> bool:
        """Whether bytes are stored under this digest; they are checked when they are read."""
        return self._reader.content(digest) is not None or self._files.has(digest)

    def digests(self) -> Iterator[tuple[bytes, str]]:
        """Every digest stored here and where: ``database`` or ``file``."""
        for digest, _size in self._reader.content_digests():
            yield digest, "database"
        for digest in self._files.digests():
            yield digest, "file"

    def sweep(self, kept: Callable[[], set[bytes]] = set) -> int:
        """Finish erasures that a crash interrupted: delete files that were erased and that nothing has named since.

        ``kept`` gives what was uploaded since: an erasure takes those away, so whatever is there came later.
        """
        here = {digest for digest in self._reader.erased_digests() if self._files.has(digest)}
        here -= kept() if here else set()
        try:
            left = here & self.erased_last() if here else here
        except StoreCorrupt:
            return 0  # Damaged content may have named any of them again. Who opens the home must not fail for that.
        return sum(1 for digest in left if self._files.erase(digest))

    def erased_last(self) -> set[bytes]:
        """Digests that the ledger names last in an ``erased`` record. Erasures are in the first partition; others go by their ticks."""
        erased: dict[bytes, int] = {}
        first = next(self._reader.records_of_kind(ERASURES, "erased"), None)
        if first is None:
            return set()
        since = _tick_of(first)
        for partition in range(self._reader.partitions):
            for record in self._reader.records(partition, first.position if partition == ERASURES else 0):
                tick = _tick_of(record)
                if partition != ERASURES and tick < since:
                    continue
                named = set(named_digests(record.body)) | set(named_digests(record.evidence or b""))
                if record.kind == "erased":
                    erased |= dict.fromkeys(named, tick)
                    continue
                for digest in named.union(*map(self.named_by, named)):
                    if partition == ERASURES or tick >= erased.get(digest, 0):
                        erased.pop(digest, None)
        return set(erased)

    def named_by(self, digest: bytes) -> Iterator[bytes]:
        """The digests that stored content names: a sealed value (an order, a run's inputs) or a signed report.

        Found by the bytes, as `ledger.loose` finds them in records: additions of later versions are found too.
        What is neither names nothing, and so does what is not there. May give more than content (hashes, leases).
        """
        # No envelope is larger than canonical bytes may be, so an artifact of gigabytes is not read to see if it is one.
        if len(digest) != DIGEST_BYTES or (self._files.size(digest) or 0) > ITEM_BYTES_MAX:
            return
        data = self.get(digest)
        if data is None:
            return
        envelope = _map(data)
        if envelope.keys() == {"json", "nonce"}:
            yield from written_digests([data])
        elif envelope.keys() == {"body", "sig"} and isinstance(envelope["body"], bytes):
            yield from named_digests(envelope["body"])
            yield from written_digests([data])
            # A large value lies in content of its own, as plain JSON, and may name files as a small one may.
            body = _map(envelope["body"])
            for value in (body.get("value_content"), *large_values(body.get("elements"))):
                if isinstance(value, bytes):
                    yield from self._written_in(value)

    def _written_in(self, digest: bytes) -> Iterator[bytes]:
        if len(digest) != DIGEST_BYTES:
            return
        data = self._reader.content(digest)
        if data is not None:
            yield from written_digests([data])
            return
        stream = self._files.stream(digest)
        if stream is not None:
            with stream:
                yield from written_digests(iter(stream.read1, b""))


def _map(data: bytes) -> dict[str, object]:
    """What canonical bytes say, if it is a map; empty for anything else."""
    try:
        value = decode(data)
    except NotCanonical:
        return {}
    return value if isinstance(value, dict) else {}


def referenced_digests(content: Content) -> Iterator[bytes]:
    """Every digest that a record names, directly, through its evidence or through content: what must be kept.

    Content counts as far as it can be read: what an erased report or payload named is named by it no longer. Damaged content
    is an error, because it is unknown what it named.
    """
    reader = content.reader
    for row in reader.jobs():
        yield from _with_inner(content, Job.decode(row.body).payload_digest)
    for run_row in reader.runs():
        run = Run.decode(run_row.body)
        yield from (run.contract_digest, run.bindings_digest)
        yield from _with_inner(content, run.inputs_digest)
    for partition in range(reader.partitions):
        for record in reader.records(partition):
            if record.kind == "transition" and record.evidence is not None:
                evidence = Evidence.decode(record.evidence)
                if evidence.detail_digest is not None:
                    yield evidence.detail_digest
                    if not evidence.names_decision:
                        yield from content.named_by(evidence.detail_digest)
            elif (field := NAMING.get(record.kind)) is not None:
                body = decode(record.body)
                if isinstance(body, dict) and isinstance(body[field], bytes):
                    yield body[field]
            elif (inputs := scheduled_inputs(record)) is not None:
                yield from _with_inner(content, inputs)


NAMING = {"submitted": "decision_digest", "step_reused": "ingredients_digest", "run_reused": "ingredients_digest"}
"""Records that name content themselves, and the field that does."""


def scheduled_inputs(record: RecordRow) -> bytes | None:
    """The digest of what a schedule runs, in the record that made it; None in any other. Named until it is erased."""
    if record.kind != OPERATED or record.evidence is None:
        return None
    body = _map(record.body)
    return inputs_named(body, _map(record.evidence)) if body.get("evidence_digest") == sha256(record.evidence) else None


def _tick_of(record: RecordRow) -> int:
    tick = _map(record.body).get("tick")
    return tick if type(tick) is int else 0


def _with_inner(content: Content, digest: bytes) -> Iterator[bytes]:
    yield digest
    yield from content.named_by(digest)


def unreferenced(
    content: Content, stored: Iterable[tuple[bytes, str]], too_young: Callable[[bytes], bool]
) -> list[tuple[bytes, str]]:
    """Stored content that no record names and that is old enough to be garbage."""
    named = set(referenced_digests(content))
    return [
        (digest, place)
        for digest, place in stored
        if digest not in named and not (place == "file" and too_young(digest))
    ]


def order_of(content: Content, row: JobRow) -> Order | None:
    """A job's order; None when it is erased, or when the job is of a kind that has none."""
    try:
        data = content.get(Job.decode(row.body).payload_digest)
        if data is None:
            return None
        order = read_order(open_value(data))
        return order.at(place_below(content.trees, order.call.base))
    except DetentError:
        return None
