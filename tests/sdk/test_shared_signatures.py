"""Jobs that are submitted together share one signature, and each can still be shown alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import detent
from detent.canon.crypto import SIGNATURE_BYTES
from detent.kernel.evidence import detail_of
from detent.ledger import SignedResult
from detent.ledger.schema import SubmittedManifest, read_submitted
from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_home
from tests.sdk import work_functions as functions

__all__ = ["detent_clock", "detent_home"]


def signatures(home: Path) -> list[bytes]:
    """The signatures of all manifests, in the order of the ledger."""
    found = []
    with Parts().open_reader(Home(home).ledger) as reader:
        for record in reader.records(0):
            if record.kind == "submitted" and record.evidence is not None:
                signed = read_submitted(record.evidence)
                assert isinstance(signed, SubmittedManifest)
                found.append(signed.signature)
    return found


def test_calls_submitted_together_share_one_signature_and_verify(detent_home: TemporaryHome) -> None:
    """X-046, PIPE-029: one signature covers many manifests, and each manifest names its own path to it"""
    home = detent_home.path
    with detent.Client(home, workers=1) as client:
        handles = client.submit_many(functions.square, [(number,) for number in range(20)])
        assert [handle.result() for handle in handles] == [number * number for number in range(20)]
    found = signatures(home)
    assert len(set(found)) == 20, "each has a path of its own"
    assert len({signature[:SIGNATURE_BYTES] for signature in found}) == 1, "under one signature"
    assert all(len(signature) > SIGNATURE_BYTES for signature in found)
    assert detent_home.verify().ok


def test_reports_of_one_commit_share_one_signature(detent_home: TemporaryHome) -> None:
    """JOB-083: 20 results come back in few commits, and every report is verified by its own bytes"""
    home = detent_home.path
    with detent.Client(home, workers=1) as client:
        for handle in client.submit_many(functions.square, [(number,) for number in range(20)]):
            handle.result()
    signed: Counter[bytes] = Counter()
    with Parts().open_reader(Home(home).ledger) as reader:
        for record in reader.records(0):
            named = None if record.kind != "transition" or record.evidence is None else detail_of(record.evidence)
            content = None if named is None else reader.content(named)
            if content is not None and b"manifest_hash" in content:
                signed[SignedResult.parse(content).signature[:SIGNATURE_BYTES]] += 1
    assert signed.total() == 20
    assert len(signed) < 20, "several results of a commit share a signature"
    report = detent_home.verify()
    assert report.ok
    assert sum(report.executors.values()) == 20


def test_a_call_submitted_alone_has_a_plain_signature(detent_home: TemporaryHome) -> None:
    home = detent_home.path
    with detent.Client(home, workers=1) as client:
        assert client.submit(functions.square, 3).result() == 9
    assert [len(signature) for signature in signatures(home)] == [SIGNATURE_BYTES]
    assert detent_home.verify().ok
