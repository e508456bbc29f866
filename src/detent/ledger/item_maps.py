"""Items as the maps of a bundle, and back: exact fields, exact types, bounded lists.

Reading takes the values of a loose decoding and looks at every one of them; the bundle's reader then compares bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from detent.canon.show import a_or_an
from detent.ledger.batch import RECORDS_PER_BATCH_MAX, is_signature
from detent.ledger.findings import Finding
from detent.ledger.items import (
    SCOPE_LEDGER,
    SCOPE_RUN,
    BatchItem,
    ContentItem,
    HeaderItem,
    HeadItem,
    Item,
    JobItem,
    PartialItem,
    PartialRecord,
    RunItem,
)

VERSION: Final = 1
PARTITIONS_MAX: Final = 65_536
PATH_MAX: Final = 64
"""Hashes in a path: a tree of 2**63 leaves needs no more."""
UINT64_MAX: Final = 2**64 - 1

_KIND_OF: Final[Mapping[type, str]] = {
    HeaderItem: "header",
    HeadItem: "head",
    BatchItem: "batch",
    PartialItem: "partial",
    ContentItem: "content",
    JobItem: "job",
    RunItem: "run",
}
ITEM_KINDS: Final = frozenset(_KIND_OF.values())

_Check = Callable[[Any], bool]


def item_to_map(item: Item) -> dict[str, Any]:
    """The map of any item but a batch, which has `batch_bytes`."""
    fields: dict[str, Any] = {"kind": _KIND_OF[type(item)], **item._asdict()}
    if isinstance(item, HeaderItem):
        fields["v"] = VERSION
    if isinstance(item, PartialItem):
        fields["records"] = [
            [record.index_in_batch, record.body, record.evidence, list(record.path)] for record in item.records
        ]
        fields["tree_path"] = list(item.tree_path)
    return fields


def batch_bytes(item: BatchItem) -> bytes:
    """The canonical map of a batch item, put together by hand.

    Batches are nearly all of a bundle, and nearly all of a batch is bytes that are copied: the encoder would look for tags
    in every one of them. What only a store has is left out.
    """
    parts = [b"\xa6\x64body", _bytes_head(len(item.body)), item.body, b"\x64kind\x65batch\x67records"]
    parts.append(_head(0x80, len(item.records)))
    for body, evidence in item.records:
        parts.append(b"\x82" + _bytes_head(len(body)))
        parts.append(body)
        if evidence is None:
            parts.append(b"\xf6")
        else:
            parts.append(_bytes_head(len(evidence)))
            parts.append(evidence)
    parts += (b"\x68commands", _bytes_head(len(item.commands)), item.commands)
    parts += (b"\x69partition", _head(0, item.partition))
    parts += (b"\x69signature", _bytes_head(len(item.signature)), item.signature)
    return b"".join(parts)


def item_from_map(fields: Mapping[str, Any]) -> Item | Finding:
    """Read an item from its map; say what is wrong with one that is none."""
    kind = fields["kind"]
    if kind == "batch" and (batch := _batch(fields)) is not None:
        return batch
    names = _FIELDS[kind]
    if fields.keys() != names.keys() | {"kind"}:
        if kind == "header" and isinstance(fields.get("v"), int) and fields["v"] != VERSION:
            return Finding("BUNDLE_VERSION_UNKNOWN", f"a bundle of version {fields['v']}, known is {VERSION}")
        return Finding("BUNDLE_MALFORMED", f"{a_or_an(kind)} item has exactly the fields {', '.join(sorted(names))}")
    for name, check in names.items():
        if not check(fields[name]):
            if name == "v" and type(fields["v"]) is int:
                return Finding("BUNDLE_VERSION_UNKNOWN", f"a bundle of version {fields['v']}, known is {VERSION}")
            return Finding("BUNDLE_MALFORMED", f"the {name} of {a_or_an(kind)} item is not what it must be")
    return _MAKE[kind](fields)


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _is_digest(value: Any) -> bool:
    return type(value) is bytes and len(value) == 32


def _is_uint64(value: Any) -> bool:
    return type(value) is int and 0 <= value <= UINT64_MAX


def _is_partition(value: Any) -> bool:
    return type(value) is int and 0 <= value < PARTITIONS_MAX


def _is_path(value: Any) -> bool:
    return type(value) is list and len(value) <= PATH_MAX and all(map(_is_digest, value))


def _optional(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _is_records(value: Any) -> bool:
    if type(value) is not list or len(value) > RECORDS_PER_BATCH_MAX:
        return False
    for pair in value:
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not bytes:
            return False
        if pair[1] is not None and type(pair[1]) is not bytes:
            return False
    return True


def _is_partial_records(value: Any) -> bool:
    if type(value) is not list or len(value) > RECORDS_PER_BATCH_MAX:
        return False
    return all(
        type(entry) is list
        and len(entry) == 4
        and type(entry[0]) is int
        and 0 <= entry[0] < RECORDS_PER_BATCH_MAX
        and type(entry[1]) is bytes
        and (entry[2] is None or type(entry[2]) is bytes)
        and _is_path(entry[3])
        for entry in value
    )


_FIELDS: Final[Mapping[str, Mapping[str, _Check]]] = {
    "header": {
        "v": lambda value: type(value) is int and value == VERSION,
        "origin": _is_text,
        "partitions": lambda value: type(value) is int and 1 <= value <= PARTITIONS_MAX,
        "scope": lambda value: type(value) is str and value in {SCOPE_LEDGER, SCOPE_RUN},
        "run_id": _optional(_is_text),
        "exported_tick": _is_uint64,
    },
    "head": {"partition": _is_partition, "note": _is_text},
    "batch": {
        "partition": _is_partition,
        "body": _is_bytes,
        "signature": is_signature,
        "commands": _is_bytes,
        "records": _is_records,
    },
    "partial": {
        "partition": _is_partition,
        "body": _is_bytes,
        "signature": is_signature,
        "records": _is_partial_records,
        "tree_path": _is_path,
    },
    "content": {"digest": _is_digest, "data": _is_bytes},
    "job": {
        "job_id": _is_text,
        "tenant_id": _is_text,
        "run_id": _optional(_is_text),
        "state": _is_text,
        "transition_seq": _is_uint64,
        "attempt_id": _is_uint64,
        "head": _is_digest,
        "body": _optional(_is_bytes),
        "partition": _optional(_is_partition),
        "tick": _optional(_is_uint64),
    },
    "run": {
        "partition": _is_partition,
        "run_id": _is_text,
        "tenant_id": _is_text,
        "name": _is_text,
        "status": _is_text,
        "started_tick": _is_uint64,
        "ended_tick": _optional(_is_uint64),
        "body": _optional(_is_bytes),
    },
}


def _batch(fields: Mapping[str, Any]) -> BatchItem | None:
    """A batch item, if it is one: nearly all items are, so they are not sent through the table."""
    try:
        partition, body, signature = fields["partition"], fields["body"], fields["signature"]
        commands, records = fields["commands"], fields["records"]
    except KeyError:
        return None
    if (
        len(fields) == 6
        and _is_partition(partition)
        and type(body) is type(commands) is bytes
        and is_signature(signature)
        and _is_records(records)
    ):
        return BatchItem(partition, body, signature, commands, records)
    return None


def _header(fields: Mapping[str, Any]) -> Item | Finding:
    header = HeaderItem(*(fields[name] for name in HeaderItem._fields))
    if (header.scope == SCOPE_RUN) != (header.run_id is not None):
        return Finding("BUNDLE_MALFORMED", "the header of a run's bundle names the run, and no other does")
    return header


def _partial(fields: Mapping[str, Any]) -> Item:
    records = [PartialRecord(*entry) for entry in fields["records"]]
    return PartialItem(fields["partition"], fields["body"], fields["signature"], records, fields["tree_path"])


_MAKE: Final[Mapping[str, Callable[[Mapping[str, Any]], Item | Finding]]] = {
    "header": _header,
    "head": lambda fields: HeadItem(fields["partition"], fields["note"]),
    "batch": lambda fields: BatchItem(
        fields["partition"], fields["body"], fields["signature"], fields["commands"], fields["records"]
    ),
    "partial": _partial,
    "content": lambda fields: ContentItem(fields["digest"], fields["data"]),
    "job": lambda fields: JobItem(*(fields[name] for name in JobItem._fields)),
    "run": lambda fields: RunItem(*(fields[name] for name in RunItem._fields)),
}


@lru_cache(maxsize=4096)
def _bytes_head(size: int) -> bytes:
    return _head(0x40, size)


def _head(major: int, argument: int) -> bytes:
    """A CBOR head in its shortest form, below 2**32."""
    if argument < 24:
        return bytes((major | argument,))
    if argument < 2**8:
        return bytes((major | 24, argument))
    if argument < 2**16:
        return bytes((major | 25, argument >> 8, argument & 255))
    return bytes((major | 26,)) + argument.to_bytes(4, "big")
