"""Tampering where one signature covers the manifests of a submission or the reports of a commit: each still stands alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from detent.canon import decode, encode
from detent.canon.crypto import sign_together
from detent.errors import InvalidInput
from detent.kernel import MANIFEST_LABEL, Manifest, Submit, VerifiedManifest
from detent.ledger import Report, SignedResult, sign_own_manifests, sign_results, verify_bundle, write_bundle
from detent.ledger.signing import RESULT_LABEL
from tests.cli.conftest import Cli, cli
from tests.ledger.build import Builder, codes, digest_of, key
from tests.tamper.test_reports import RESULT, both_ways, hand_in, report_of

__all__ = ["cli"]

NAMES = [f"job-{number}" for number in range(5)]
Forge = Callable[[list[VerifiedManifest]], list[VerifiedManifest]]
ForgeResults = Callable[[list[SignedResult]], list[SignedResult]]


def manifests(ledger: Builder, names: list[str], **fields: Any) -> list[Manifest]:
    quota = ledger.config.quota_policies[0].hash()
    return [
        Manifest("acme", name, "task", digest_of(name), 5, quota, ledger.tick, origin=ledger.origin, **fields)
        for name in names
    ]


def submitted(forge: Forge = lambda signed: signed, forge_results: ForgeResults = lambda signed: signed) -> Builder:
    """A run whose jobs were submitted under one signature, and reported under another, after tampering with both."""
    ledger = Builder()
    ledger.start_run("run-1")
    for signed in forge(sign_own_manifests(manifests(ledger, NAMES), key("manifest"))):
        ledger.apply(Submit(ledger.tick, signed, "run-1"))
    ledger.claim(len(NAMES))
    ledger.commit()
    ledger.tick += 5
    reports = forge_results(sign_results([report_of(ledger, name).body() for name in NAMES], RESULT))
    for name, report in zip(NAMES, reports, strict=True):
        hand_in(ledger, name, report.envelope())
    ledger.end_run("run-1")
    ledger.commit()
    return ledger


def test_signatures_shared_by_a_commit_verify_in_the_ledger_and_in_the_bundle_of_its_run() -> None:
    """X-046, JOB-083: every manifest and every report is proved by itself"""
    ledger = submitted()
    for report in both_ways(ledger):
        assert report.ok
        assert report.executors == {RESULT.key_id.hex(): len(NAMES)}
    assert ledger.verify().counts["signatures"] == ledger.size() + 2 * len(NAMES), "each message counts"


def test_ed25519_is_asked_once_for_messages_signed_together() -> None:
    asked: list[tuple[bytes, bytes, bytes]] = []

    def count(signed: Any) -> list[bool]:
        asked.extend(signed)
        return [True] * len(signed)

    ledger = submitted()
    assert ledger.verify(verify_many=count).ok
    assert len(asked) == len(set(asked)) == ledger.size() + 2


def test_a_job_of_a_submission_can_be_shown_without_the_others() -> None:
    """The bundle of a run has no manifest or report of the other runs that were submitted together with it."""
    ledger = Builder()
    ledger.start_run("run-1")
    ledger.start_run("run-2")
    signed = sign_own_manifests(manifests(ledger, NAMES), key("manifest"))
    for number, one in enumerate(signed):
        ledger.apply(Submit(ledger.tick, one, "run-1" if number == 3 else "run-2"))
    ledger.cancel(NAMES[3])
    ledger.end_run("run-1", "cancelled")
    ledger.commit()
    bundle = b"".join(write_bundle(ledger.run_items("run-1")))
    assert signed[3].signature in bundle
    assert not any(other.body in bundle for other in signed if other is not signed[3])
    assert verify_bundle(BytesIO(bundle), ledger.root).ok


def swapped(signed: list[Any]) -> list[Any]:
    """The signatures of two neighbours, exchanged."""
    one, other = signed[1], signed[2]
    return [signed[0], replaced(one, other.signature), replaced(other, one.signature), *signed[3:]]


def foreign(signed: list[Any]) -> list[Any]:
    """The path of another tree of the same size, signed by the same key, under this root's signature."""
    label = MANIFEST_LABEL if isinstance(signed[0], VerifiedManifest) else RESULT_LABEL
    signer = key("manifest") if isinstance(signed[0], VerifiedManifest) else RESULT
    theirs = sign_together(signer, [label + b"other", *(label + one.body for one in signed[1:])])
    return [signed[0], replaced(signed[1], signed[1].signature[:64] + theirs[1][64:]), *signed[2:]]


def truncated(signed: list[Any]) -> list[Any]:
    """A path without its last hash."""
    return [signed[0], replaced(signed[1], signed[1].signature[:-32]), *signed[2:]]


def reused(signed: list[Any]) -> list[Any]:
    """A good signature of one message under another one."""
    return [signed[0], replaced(signed[1], signed[0].signature), *signed[2:]]


def replaced(one: VerifiedManifest | SignedResult, signature: bytes) -> VerifiedManifest | SignedResult:
    if isinstance(one, SignedResult):
        return one._replace(signature=signature)
    return VerifiedManifest(one.manifest, one.body, one.key_id, signature)


TAMPERED = [(swapped, {"job-1", "job-2"}), (foreign, {"job-1"}), (truncated, {"job-1"}), (reused, {"job-1"})]


def jobs_found(report: Report) -> set[str | None]:
    return {finding.job_id for finding in report.findings}


@pytest.mark.parametrize(("forge", "jobs"), TAMPERED)
def test_a_manifest_with_the_path_of_another_is_found(forge: Forge, jobs: set[str]) -> None:
    """Tampering: swapped leaf, foreign tree, truncated path, reused path. X-046"""
    for report in both_ways(submitted(forge)):
        assert codes(report) == {"MANIFEST_SIGNATURE_INVALID"}
        assert jobs_found(report) == jobs


@pytest.mark.parametrize(("forge", "jobs"), TAMPERED)
def test_a_report_with_the_path_of_another_is_found(forge: ForgeResults, jobs: set[str]) -> None:
    """Tampering: swapped leaf, foreign tree, truncated path, reused path. JOB-083"""
    for report in both_ways(submitted(forge_results=forge)):
        assert codes(report) == {"RESULT_SIGNATURE_INVALID"}
        assert jobs_found(report) == jobs
        assert report.executors == {RESULT.key_id.hex(): len(NAMES) - len(jobs)}, "only good signatures count"


def test_a_changed_root_signature_is_found_for_every_job_that_shares_it() -> None:
    def forge(signed: list[VerifiedManifest]) -> list[VerifiedManifest]:
        return [
            VerifiedManifest(one.manifest, one.body, one.key_id, bytes([one.signature[0] ^ 1]) + one.signature[1:])
            for one in signed
        ]

    for report in both_ways(submitted(forge)):
        assert codes(report) == {"MANIFEST_SIGNATURE_INVALID"}
        assert jobs_found(report) == set(NAMES)


@pytest.mark.parametrize("size", [72, 65, 104 + 16 * 32])
def test_an_envelope_whose_signature_has_no_known_form_is_refused(size: int) -> None:
    envelope = decode(sign_results([b"body"], RESULT)[0].envelope())
    assert isinstance(envelope, dict)
    with pytest.raises(InvalidInput, match="64 bytes and a path"):
        SignedResult.parse(encode(envelope | {"sig": envelope["sig"] | {"sig": bytes(size)}}))


ELSEWHERE = "detent/elsewhere"


def at_the_door(cli: Cli, ledger: Builder, tmp_path: Path) -> list[tuple[str, str]]:
    """Code and job of every finding of `detent verify FILE`, for the whole ledger and for its run."""
    found = []
    for name, items in (("all", ledger.items()), ("run", ledger.run_items("run-1"))):
        file = tmp_path / f"{name}.detent"
        file.write_bytes(b"".join(write_bundle(items)))
        result = cli("verify", str(file), "--root", ledger.root, "-o", "json")
        assert result.code == (1 if result.document["findings"] else 0)
        found.append([(finding["code"], finding["job_id"]) for finding in result.document["findings"]])
    assert found[0] == found[1]
    return found[0]


def test_manifests_signed_together_for_another_ledger_are_found_at_the_door(cli: Cli, tmp_path: Path) -> None:
    """X-197: the ledger's origin is in each leaf, so a tree that was signed for another one cannot be planted"""
    ledger = Builder()
    ledger.start_run("run-1")
    theirs = [replace(one, origin=ELSEWHERE) for one in manifests(ledger, NAMES)]
    for signed in sign_own_manifests(theirs, key("manifest")):
        ledger.apply(Submit(ledger.tick, signed, "run-1"))
        ledger.cancel(signed.manifest.job_id)
    ledger.end_run("run-1", "cancelled")
    ledger.commit()
    assert at_the_door(cli, ledger, tmp_path) == [("MANIFEST_ORIGIN_WRONG", name) for name in NAMES]


def test_reports_signed_together_for_another_ledger_are_found_at_the_door(cli: Cli, tmp_path: Path) -> None:
    """JOB-083: a report names its manifest by hash, and the manifest names its ledger"""

    def elsewhere(signed: list[SignedResult]) -> list[SignedResult]:
        there = Builder(ELSEWHERE)
        for one in sign_own_manifests(manifests(there, NAMES), key("manifest")):
            there.apply(Submit(there.tick, one))
        there.claim(len(NAMES))
        return sign_results([report_of(there, name).body() for name in NAMES], RESULT)

    assert at_the_door(cli, submitted(), tmp_path) == []
    forged = submitted(forge_results=elsewhere)
    assert at_the_door(cli, forged, tmp_path) == [("RESULT_MISMATCH", name) for name in NAMES]
