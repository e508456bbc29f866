"""Tree heads against the tree: those in the bundle, and those kept elsewhere.

A head is known by its size before anything has been read, so its root can be compared at the moment the tree has that
size. Whether a trusted log key signed it is asked at the end, when the chain of trust is known. A head that the verifier
kept itself needs no signature to count: that the ledger contradicts it is a finding either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from detent.canon import digest_text
from detent.canon.late import dataclass
from detent.canon.merkle import EMPTY_ROOT
from detent.ledger.batch import tree_origin
from detent.ledger.findings import Finding
from detent.ledger.note import (
    NoteInvalid,
    TreeHead,
    cosignature_hash,
    key_hash,
    parse_head,
    parse_note,
    verify_cosignature,
    verify_head,
)
from detent.ledger.trust import Trust
from detent.ledger.trust_config import LOG, WITNESS

HEADS_MAX: Final = 65_536
"""Tree heads of one partition that are held until the tree has reached their size."""


@dataclass(slots=True)
class Claim:
    """A tree head to be checked, and the outcome."""

    head: TreeHead
    note: str
    kept: bool
    believed: bool = False
    """Signed by a trusted log key, and its root is that of the batches."""
    agrees: bool | None = None


@dataclass(slots=True)
class HeadClaims:
    """All heads shown for one partition, by size."""

    partition: int
    origins: set[str]
    """Origin lines of this partition's tree heads, as far as it has been read: one, and one more for each copy."""
    by_size: dict[int, list[Claim]] = field(default_factory=dict)
    count: int = 0
    largest: Claim | None = None
    """The largest head in the bundle itself, believed or not."""
    witnessed: dict[str, int] = field(default_factory=dict)
    """Latest time at which each witness cosigned the newest head, by the witness's name."""

    def add(self, note: str, *, kept: bool) -> Finding | None:
        """Take a head in; say why not, if its text is not a head at all."""
        try:
            head = parse_head(parse_note(note).text)
        except NoteInvalid as exc:
            return Finding("HEAD_INVALID", f"a tree head cannot be read: {exc}", self.partition)
        if self.count >= HEADS_MAX:
            return Finding("BUNDLE_MALFORMED", f"more than {HEADS_MAX} tree heads", self.partition)
        self.count += 1
        claim = Claim(head, note, kept)
        self.by_size.setdefault(head.size, []).append(claim)
        if not kept and (self.largest is None or head.size > self.largest.head.size):
            self.largest = claim
        return None

    def passed(self, size: int, root: bytes) -> Iterator[Finding]:
        """The tree has ``size`` leaves and this root now: compare the heads of that size."""
        for claim in self.by_size.get(size, ()):
            if claim.head.origin not in self.origins:
                continue  # Of another ledger, which is said at the end.
            claim.agrees = claim.head.root == root
            if claim.agrees:
                continue
            shown = (
                f"the tree head of size {size} has root {digest_text(claim.head.root)}, the batches {digest_text(root)}"
            )
            code = "LEDGER_FORKED" if claim.kept else "HEAD_ROOT_MISMATCH"
            yield Finding(code, f"{'kept elsewhere: ' if claim.kept else ''}{shown}", self.partition, max(size - 1, 0))

    def newest(self, *, kept: bool | None = None) -> Claim | None:
        """The largest head that was believed; of those kept elsewhere, or those in the bundle, if asked."""
        for size in sorted(self.by_size, reverse=True):
            for claim in self.by_size[size]:
                if claim.believed and kept in {None, claim.kept}:
                    return claim
        return None

    def finish(self, trust: Trust | None, size: int | None) -> Iterator[Finding]:
        """Ask of every head: does the ledger reach it, and did a trusted log key sign it?

        ``size`` is that of the tree; None for the bundle of a run, which does not hold the whole tree.
        """
        if size is not None:
            yield from self.passed(0, EMPTY_ROOT)
        elif self.largest is not None:
            # A run's bundle has no tree of its own to compare with; its head stands for it, at that one size.
            agrees = self.largest.agrees
            yield from self.passed(self.largest.head.size, self.largest.head.root)
            self.largest.agrees = agrees
        for claims in self.by_size.values():
            for claim in claims:
                if claim.kept and claim.head.origin not in self.origins:
                    message = f"a tree head kept elsewhere is of another ledger, {claim.head.origin!r}"
                    yield Finding("HEAD_INVALID", message, self.partition)
                    continue
                if size is not None and claim.head.size > size:
                    yield self._beyond(claim, size)
                fault = signature_fault(claim, trust, self.partition)
                if fault is not None:
                    yield fault
                elif claim.agrees:
                    claim.believed = True
        newest = self.newest()
        if newest is not None and trust is not None:
            yield from self._witnesses(newest, trust)

    def _beyond(self, claim: Claim, size: int) -> Finding:
        if claim.kept:
            message = f"a tree head kept elsewhere covers {claim.head.size} batches, the ledger has {size}"
            return Finding("LEDGER_ROLLED_BACK", message, self.partition, size)
        message = f"a tree head covers {claim.head.size} batches, only {size} are here"
        return Finding("HEAD_BEYOND_LEDGER", message, self.partition, size)

    def _witnesses(self, claim: Claim, trust: Trust) -> Iterator[Finding]:
        """Who cosigned the newest head. Unknown cosigners say nothing; a known one whose line is bad spoils it."""
        known = list(trust.keys(WITNESS, claim.head.size, self.partition))
        for line in parse_note(claim.note).signatures:
            for entry in known:
                if line.key_hash != cosignature_hash(line.name, entry.public_key):
                    continue
                try:
                    self.witnessed[line.name] = verify_cosignature(
                        claim.note, name=line.name, public_key=entry.public_key
                    )
                except NoteInvalid as exc:
                    message = f"the tree head of size {claim.head.size}: {exc}"
                    yield Finding("COSIGNATURE_INVALID", message, self.partition)


def signature_fault(claim: Claim, trust: Trust | None, partition: int) -> Finding | None:
    """Say why a head is not to be believed, or nothing.

    The key must be valid at the first batch the head does not cover: that is where trust stands when a head is signed.
    """
    size = claim.head.size
    where = f"the tree head of size {size}"
    if trust is None:
        return None
    name = tree_origin(trust.origin_of_head(size), partition)
    if claim.head.origin != name:
        return Finding("HEAD_INVALID", f"{where} is of {claim.head.origin!r}, not of {name!r}", partition)
    lines = {line.key_hash for line in parse_note(claim.note).signatures if line.name == name}
    for entry in trust.keys(LOG, size, partition):
        if key_hash(name, entry.public_key) in lines:
            try:
                verify_head(claim.note, name=name, public_key=entry.public_key, origin=name)
            except NoteInvalid as exc:
                return Finding("HEAD_INVALID", f"{where}: {exc}", partition)
            return None
    return Finding("HEAD_INVALID", f"no log key that was valid then signed {where}", partition)
