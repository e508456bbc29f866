"""Workers on other machines: the key that certifies them, their enrolment, and their certificates as they are looked up later.

A home gets its enrolment key when a server owns it first: the root key signs a version of trust that has one. Homes that never
serve keep the trust that they were made with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from detent.access.certificate import Certificate, Enrolment, Proof, issue
from detent.canon import SigningKey, decode_trusted
from detent.errors import Refused, TrustError
from detent.kernel import EnrollWorker
from detent.kernel.history import WORKER_ENROLLED, WORKER_RETIRED
from detent.ledger import KeyEntry, SignedTrust, Trust, TrustConfig, TrustFault, sign_trust
from detent.ledger.trust_config import ENROLL, ROOT
from detent.ledger.workers import Enrolled, enrolment_fault, read_enrolment
from detent.owner.home import Home
from detent.store.api import RecordRow, StoreReader

OpenReader: TypeAlias = Callable[[], AbstractContextManager[StoreReader]]


def announcements(home: Home, store: StoreReader, trusts: Sequence[Trust]) -> list[list[SignedTrust]]:
    """For each partition the versions of trust to announce, so that all of them have a key which certifies workers.

    The root key signs it. Where that is kept elsewhere, nothing is announced, and no worker can be enrolled until
    `detent keys rotate enroll` was run with it. Each server of a ledger has a key of its own.
    """
    newest = max(trusts, key=lambda trust: trust.config.version)
    signed: list[SignedTrust] = []
    if not _certifies(home, newest):
        sizes = [store.head(partition).size for partition in range(store.partitions)]
        root_key = _root_key(home, newest, max(sizes))
        if root_key is None:
            return [[] for _ in trusts]
        key = home.keyring.add(ENROLL, os.urandom(32))
        entry = KeyEntry(key.public_key, ENROLL, from_position=min(sizes) + 1)
        last = newest.versions[-1]
        keys = (*last.config.keys, entry)
        config = TrustConfig(newest.origin, keys, version=last.config.version + 1, prev=last.digest)
        signed.append(sign_trust(config, root_key))
    return [[*missed_versions(store, newest, trust), *signed] for trust in trusts]


def _certifies(home: Home, trust: Trust) -> bool:
    """Whether a key of this home certifies workers."""
    entries = (entry for entry in trust.config.keys if entry.role == ENROLL and entry.to_position is None)
    return any(home.keyring.holds(ENROLL, entry.key_id) for entry in entries)


def _root_key(home: Home, trust: Trust, position: int) -> SigningKey | None:
    for entry in trust.keys(ROOT, position):
        if home.keyring.holds(ROOT, entry.key_id):
            return home.keyring.find(ROOT, entry.key_id)
    return None


def missed_versions(store: StoreReader, newest: Trust, trust: Trust) -> list[SignedTrust]:
    """Versions that other partitions have announced and this one has not: a rotation was cut short between them."""
    known = trust.config.version
    if known == newest.config.version:
        return []
    envelopes: dict[int, SignedTrust] = {}
    for partition in range(store.partitions):
        for row in store.records_of_kind(partition, "trust_changed"):
            signed = SignedTrust.parse(row.evidence or b"")
            envelopes[TrustConfig.parse(signed.body).version] = signed
    return [envelopes[version] for version in range(known + 1, newest.config.version + 1)]


def certify(home: Home, trust: Trust, certificate: Certificate, proof: Proof, batch_no: int) -> EnrollWorker:
    """Sign a worker's certificate with the home's enrolment key: the command that puts both on the ledger, to be sent to every partition.

    Raises `TrustError` where the ledger has no such key in force, and `HomeError` where its private half is not here.
    """
    key = home.keyring.first(ENROLL, (entry.key_id for entry in trust.keys(ENROLL, batch_no)))
    if key is not None:
        enrolment = Enrolment(issue(certificate, key), proof)
        key_id, digest = certificate.key_id, enrolment.certificate_digest
        return EnrollWorker(0, certificate.worker_id, key_id, digest, enrolment.evidence())
    raise TrustError(
        "the ledger has no key that certifies workers",
        hint="the root key has to sign one: stop the server, and run `detent keys rotate enroll` where the root key is",
    )


class Certificates:
    """The certificates that hold on a ledger, each read from it when it is first asked for and remembered then.

    That a worker was retired since is for the turn to say, which knows everything up to now.
    """

    def __init__(self, open_reader: OpenReader, trusts: Sequence[Trust]) -> None:
        self._open_reader = open_reader
        self._trusts = trusts
        self._known: dict[tuple[int, bytes], Certificate] = {}

    def of(self, partition: int, key_id: bytes) -> Certificate | None:
        """The certificate of the worker that was enrolled with a key; None where there is none that holds."""
        known = self._known.get((partition, key_id))
        if known is not None:
            return known
        with self._open_reader() as reader:
            enrolled = enrolled_with(reader, self._trusts[partition], partition, key_id)
        if enrolled is None or enrolled.certificate is None:
            return None
        self._known[partition, key_id] = enrolled.certificate
        return enrolled.certificate


def enrolled_with(reader: StoreReader, trust: Trust, partition: int, key_id: bytes) -> Enrolled | None:
    """The worker that was enrolled with a key, if its certificate and proof hold; None otherwise."""
    for row in reader.records_of_kind(partition, WORKER_ENROLLED):
        fields = _fields(row)
        if fields["key_id"] != key_id:
            continue
        enrolment = read_enrolment(row.evidence or b"", fields["worker_id"], key_id, fields["certificate_digest"])
        if isinstance(enrolment, TrustFault) or enrolment_fault(trust, enrolment, row.batch_no, partition):
            return None
        enrolled = Enrolled(fields["worker_id"], enrolment.signed.certificate, row.position)
        for ended in reader.records_of_kind(partition, WORKER_RETIRED):
            if _fields(ended)["key_id"] == key_id:
                enrolled.retired = ended.position
        return enrolled
    return None


def enrolment_refusal(trust: Trust, command: EnrollWorker, batch_no: int, partition: int) -> Refused | None:
    """Say why a worker may not be enrolled in a batch, or nothing: its certificate and proof are checked before the kernel hears of it."""
    if not isinstance(command.evidence, bytes):
        return Refused("ENROLMENT_REFUSED", "an enrolment comes with the bytes of a certificate and a proof")
    enrolment = read_enrolment(command.evidence, command.worker_id, command.key_id, command.certificate_digest)
    fault = enrolment if isinstance(enrolment, TrustFault) else enrolment_fault(trust, enrolment, batch_no, partition)
    if fault is None:
        return None
    return Refused("ENROLMENT_REFUSED", fault.message, {"fault": fault.code})


def _fields(row: RecordRow) -> dict[str, Any]:
    fields = decode_trusted(row.body)
    return fields if isinstance(fields, dict) else {}
