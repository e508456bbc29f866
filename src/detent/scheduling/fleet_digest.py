"""A digest of the fleet that costs a few hashes for each replica that has changed, however many there are.

Replicas are spread over 256 buckets by the hash of their id, sixteen times sixteen: a change hashes its bucket, the row of
sixteen buckets it is in, and the sixteen rows. The digest depends on the replicas alone, not on the order of events
that led to them; every level has its own label, so nothing can be read as something on another level.
"""

from __future__ import annotations

from typing import Final

from detent.canon import digest, sha256

LEAF_LABEL: Final = b"detent/fleet-replica/v1\x00"
BUCKET_LABEL: Final = b"detent/fleet-bucket/v1\x00"
ROW_LABEL: Final = b"detent/fleet-row/v1\x00"
FLEET_LABEL: Final = b"detent/fleet/v1\x00"

_SIDE: Final = 16
_EMPTY_BUCKET: Final = digest(BUCKET_LABEL, b"")
_EMPTY_ROW: Final = digest(ROW_LABEL, _EMPTY_BUCKET * _SIDE)


class FleetDigest:
    """The digest of a set of replicas, each given by its description and its number of live leases."""

    __slots__ = ("_buckets", "_dirty", "_nodes", "_rows", "_whole")

    def __init__(self) -> None:
        self._buckets: list[dict[str, bytes]] = [{} for _ in range(_SIDE * _SIDE)]
        self._nodes = [_EMPTY_BUCKET] * (_SIDE * _SIDE)
        self._rows = [_EMPTY_ROW] * _SIDE
        self._dirty: set[int] = set()
        self._whole = digest(FLEET_LABEL, _EMPTY_ROW * _SIDE)

    def put(self, replica_id: str, description: bytes, live_leases: int) -> None:
        """Set a replica's leaf; ``description`` is the digest of its registered status."""
        number = sha256(replica_id.encode())[0]
        self._buckets[number][replica_id] = digest(LEAF_LABEL, description + live_leases.to_bytes(8, "big"))
        self._dirty.add(number)

    def drop(self, replica_id: str) -> None:
        """Take a replica out."""
        number = sha256(replica_id.encode())[0]
        del self._buckets[number][replica_id]
        self._dirty.add(number)

    def value(self) -> bytes:
        """The digest of the fleet as it is now."""
        if self._dirty:
            for number in self._dirty:
                leaves = self._buckets[number]
                self._nodes[number] = digest(BUCKET_LABEL, b"".join([leaves[name] for name in sorted(leaves)]))
            for row in {number // _SIDE for number in self._dirty}:
                self._rows[row] = digest(ROW_LABEL, b"".join(self._nodes[row * _SIDE : (row + 1) * _SIDE]))
            self._whole = digest(FLEET_LABEL, b"".join(self._rows))
            self._dirty.clear()
        return self._whole
