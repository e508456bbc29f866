"""Signed reports: a result that a record names must be one that an executor was allowed to sign, for that very attempt.

Records come first and name a report by its digest; the report itself is content and comes later. So what a record says of
its attempt is kept until the report is there. A report that never comes was erased, which the ledger says, or is missing.
A home must have every report that it has not erased. A bundle has all of them or none: without any it cannot show who
signed the results, which the verification says; one that lacks only some of them was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from detent.canon import encode_trusted
from detent.kernel.evidence import RESULT as BY_RESULT
from detent.ledger.heads import Heads
from detent.ledger.loose import loose
from detent.ledger.schema import Grounds, read_evidence

_NAMED: Final = b"n"


class NamedResult(NamedTuple):
    """What a record says of the attempt that a report ended."""

    partition: int
    batch_no: int
    position: int
    tenant_id: str
    succeeded: bool
    job_id: str
    attempt_id: int
    lease_id: bytes | None
    manifest_hash: bytes


class ResultTable:
    """The reports that records have named and that have not come yet."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self.named = 0
        self.unnamed = 0
        """Results whose records name no report."""

    def name(self, digest: bytes, result: NamedResult) -> bool:
        """A record names a report; says whether it is the first to do so."""
        key = _NAMED + digest
        if self._heads.get(key) is not None:
            return False
        self.named += 1
        self._heads.put(key, encode_trusted(list(result)))
        return True

    def take(self, digest: bytes) -> NamedResult | None:
        """What is named by a digest; None when nothing is, or it was taken before."""
        key = _NAMED + digest
        data = self._heads.get(key)
        if data is None:
            return None
        self._heads.delete(key)
        return NamedResult(*loose(data))

    def left(self) -> Iterator[tuple[bytes, NamedResult]]:
        """Every report that was named and never taken."""
        for key, data in self._heads.items(_NAMED):
            yield key[len(_NAMED) :], NamedResult(*loose(data))


def report_named(evidence: bytes) -> bytes | None:
    """The digest of the signed report that a transition's evidence names; None for evidence of any other kind."""
    grounds = read_evidence(evidence)
    return grounds.detail_digest if isinstance(grounds, Grounds) and grounds.kind == BY_RESULT else None
