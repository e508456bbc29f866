"""Tampering with trust itself: other roots, older versions, keys out of their time, heads of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from detent.canon import decode, encode, sha256
from detent.canon.merkle import node_hash
from detent.kernel import ChangeTrust, encode_commands
from detent.ledger import (
    HeadItem,
    KeyEntry,
    PartialItem,
    PartialRecord,
    TreeHead,
    TrustConfig,
    cosign,
    sign_head,
    sign_trust,
    verify_items,
)
from detent.ledger.batch import tree_origin
from tests.ledger.build import ORIGIN, ROLES, Builder, codes, edit, key, lively, sign_tree
from tests.tamper.forge import check, found, with_record


def test_an_attackers_own_ledger_is_found_by_the_pinned_root() -> None:
    """Tampering: trust config replaced by attacker's (root signature, pinned root digest)"""
    attacker = Builder(keys={role: key(f"attacker {role}") for role in ROLES})
    attacker.submit("plain")
    attacker.commit()
    assert check(attacker).ok, "it agrees with itself"
    finding = found(check(attacker, root=lively().root), "TRUST_ROOT_MISMATCH")
    assert finding.batch_no == 0
    assert attacker.root in finding.message


def test_an_attackers_trust_signed_by_himself_is_found_by_its_signature() -> None:
    """Tampering: trust config replaced by attacker's (root signature, pinned root digest)"""
    ledger = lively()
    config = ledger.trust_versions[0]
    more = TrustConfig(ORIGIN, (*config.keys, KeyEntry(key("attacker").public_key, "transition")))
    forged = sign_trust(more, key("attacker")).envelope()
    report = check(ledger, with_record(ledger.items(), 0, 1, (ledger.commits[0].records[1][0], forged)))
    assert found(report, "TRUST_INVALID").batch_no == 0


def test_a_stale_policy_is_found_by_the_pinned_root() -> None:
    """Tampering: bundle with stale trust policy (policy digest pinned by the verifier)"""
    ledger = lively()
    newer = TrustConfig(ORIGIN, (*ledger.trust_versions[0].keys, KeyEntry(key("x").public_key, "log")))
    assert found(check(ledger, root=newer.digest()), "TRUST_ROOT_MISMATCH").batch_no == 0


def announced(ledger: Builder, config: TrustConfig, signer: str = "root") -> None:
    """Put an announcement on the ledger without asking the kernel."""
    signed = sign_trust(config, key(signer))
    body = encode(
        {
            "kind": "trust_changed",
            "version": config.version,
            "config_digest": signed.digest(),
            "partition_id": 0,
            "tick": ledger.tick,
            "signer_key_id": ledger.signer.key_id,
        }
    )
    command = ChangeTrust(ledger.tick, config.version, signed.digest(), signed.envelope())
    ledger.commits.append(
        replace(
            ledger.commits[-1],
            commands=encode_commands([command]),
            command_count=1,
            records=[(body, signed.envelope())],
            first_tick=ledger.tick,
            last_tick=ledger.tick,
        )
    )


def rotated() -> Builder:
    ledger = Builder()
    ledger.submit("before")
    ledger.commit()
    ledger.rotate("transition", key("second owner"))
    ledger.submit("after")
    ledger.commit()
    return ledger


def test_a_trust_version_rolled_back_or_repeated_is_found() -> None:
    """Tampering: trust config rolled back to an older version (version monotone, logged; C/W)"""
    ledger = rotated()
    assert check(ledger).ok
    announced(ledger, ledger.trust_versions[0])
    assert found(check(ledger), "TRUST_INVALID").batch_no == 5
    again = rotated()
    announced(again, again.trust_versions[1])
    assert found(check(again), "TRUST_INVALID").batch_no == 5


def test_the_first_version_announced_twice_is_found() -> None:
    ledger = Builder()
    ledger.commits[0].records.append(ledger.commits[0].records[1])
    assert found(check(ledger), "TRUST_INVALID").position == 2


def test_an_announcement_left_out_is_found_by_the_keys_it_brought() -> None:
    """Tampering: trust config rolled back to an older version"""
    ledger = rotated()
    del ledger.commits[2]
    report = check(ledger)
    assert {finding.batch_no for finding in report.findings if finding.code == "KEY_UNKNOWN"} == {2, 3}


def test_a_record_that_announces_something_else_than_its_evidence_is_found() -> None:
    ledger = rotated()
    body, evidence = ledger.commits[2].records[0]
    for changes in ({"version": 3}, {"config_digest": bytes(32)}):
        other = rotated()
        other.commits[2].records[0] = (edit(body, **changes), evidence)
        assert found(check(other), "TRUST_INVALID").batch_no == 2


def test_two_partitions_that_announce_different_versions_are_found() -> None:
    ledger = Builder(partitions=2)
    config = ledger.trust_versions[0]
    for number in range(2):
        entries = (*config.keys, KeyEntry(key(f"extra {number}").public_key, "witness"))
        version = TrustConfig(ORIGIN, entries, 2, config.digest())
        signed = sign_trust(version, key("root"))
        ledger.apply(ChangeTrust(0, 2, signed.digest(), signed.envelope()), number)
    ledger.commit()
    assert found(check(ledger), "TRUST_FORKED").partition == 1


def test_a_key_used_after_its_revocation_or_before_its_start_is_found() -> None:
    """Tampering: key used after revocation position / before its start (T: positions, not clock)"""
    late = rotated()
    late.commits[4].signer = key("transition")
    late.commits[4].records = [
        (edit(body, signer_key_id=key("transition").key_id), evidence) for body, evidence in late.commits[4].records
    ]
    assert found(check(late), "KEY_OUT_OF_RANGE").batch_no == 4
    early = Builder()
    new = key("second owner")
    last = early.trust_versions[0]
    entries = (*last.keys, KeyEntry(new.public_key, "transition", from_position=4))
    early.announce(TrustConfig(ORIGIN, entries, 2, last.digest()), key("root"))
    early.commit()
    early.signer = new
    early.raise_epoch()
    early.commit()
    assert found(check(early), "KEY_OUT_OF_RANGE").batch_no == 2
    manifest = Builder()
    manifest.rotate("manifest", key("second submitter"))
    manifest.keys["manifest"] = key("manifest")
    manifest.submit("old key")
    manifest.commit()
    assert found(check(manifest), "KEY_OUT_OF_RANGE").job_id == "old key"


def test_another_algorithm_in_a_key_a_signature_or_a_manifest_is_refused() -> None:
    """Tampering: unknown critical header, alg = none, alg mismatch, two signatures one bad (known bad: refuse all)"""
    ledger = lively()
    body, envelope = ledger.commits[0].records[1]
    assert envelope is not None
    for change in ({"alg": "none"}, {"alg": "ed25519"}, {"critical": True}):
        fields = decode(envelope)
        fields["sigs"][0] |= change
        report = check(ledger, with_record(ledger.items(), 0, 1, (body, encode(fields))))
        assert found(report, "TRUST_INVALID").batch_no == 0
    fields = decode(envelope)
    fields["sigs"].append({"key_id": key("log").key_id, "alg": "Ed25519", "sig": bytes(64)})
    report = check(ledger, with_record(ledger.items(), 0, 1, (body, encode(fields))))
    assert found(report, "TRUST_INVALID").batch_no == 0
    manifest = ledger.commits[1].records[0][1]
    assert manifest is not None
    fields = decode(manifest)
    fields["sig"]["alg"] = "none"
    report = check(ledger, with_record(ledger.items(), 1, 0, (ledger.commits[1].records[0][0], encode(fields))))
    assert found(report, "MANIFEST_INVALID").position == 2


def test_a_head_of_another_ledger_by_the_same_key_is_found() -> None:
    """Tampering: checkpoint of other origin, same key (origin line)"""
    ledger = lively()
    name = tree_origin("detent/ffffffffffffffff", 0)
    root = ledger.sealed()[0].tree.root()
    foreign = sign_head(TreeHead(name, 11, root), name, key("log"))
    ledger.heads = [HeadItem(0, foreign)]
    assert "is of 'detent/ffffffffffffffff/p0'" in found(check(ledger), "HEAD_INVALID").message
    ledger.heads = []
    assert "another ledger" in found(check(ledger, kept_heads=[foreign]), "HEAD_INVALID").message
    here = tree_origin(ORIGIN, 0)
    mixed = sign_head(TreeHead(name, 11, root), here, key("log"))
    ledger.heads = [HeadItem(0, mixed)]
    assert found(check(ledger), "HEAD_INVALID").partition == 0


def test_a_head_by_another_key_role_or_time_is_found() -> None:
    ledger = lively()
    for signer in ("stranger", "transition", "witness"):
        ledger.heads = [HeadItem(0, ledger.head(signer=key(signer)))]
        assert found(check(ledger), "HEAD_INVALID").partition == 0
    ledger = lively()
    ledger.rotate("log", key("second log"))
    ledger.heads = [HeadItem(0, ledger.head(signer=key("log")))]
    assert found(check(ledger), "HEAD_INVALID").partition == 0
    ledger.heads = [HeadItem(0, ledger.head(size=11, signer=key("log"))), HeadItem(0, ledger.head())]
    assert check(ledger).ok
    ledger.heads = [HeadItem(0, ledger.head(size=11))]
    assert found(check(ledger), "HEAD_INVALID").partition == 0


def test_text_that_is_no_head_is_found() -> None:
    ledger = lively()
    ledger.heads = [HeadItem(0, "hello")]
    assert found(check(ledger), "HEAD_INVALID").partition == 0
    ledger.heads = []
    assert "cannot be read" in found(check(ledger, kept_heads=["hello"]), "HEAD_INVALID").message


def test_a_forged_cosignature_of_a_known_witness_is_found() -> None:
    ledger = lively()
    [*before, last] = ledger.heads
    other = cosign(before[0].note, "witness.example", key("witness"), 5).splitlines()[-1]
    ledger.heads = [HeadItem(0, last.note + other + "\n")]
    assert found(check(ledger), "COSIGNATURE_INVALID").partition == 0


def test_a_root_by_another_rule_for_odd_leaves_is_found() -> None:
    """Tampering: root computed with other odd-leaf rule, duplicate last (RFC 6962 vectors)"""
    ledger = lively()
    level = list(ledger.sealed()[0].leaves)
    assert len(level) % 2 == 1
    while len(level) > 1:
        level += level[-1:] if len(level) % 2 else []
        level = [node_hash(level[place], level[place + 1]) for place in range(0, len(level), 2)]
    name = tree_origin(ORIGIN, 0)
    ledger.heads = [HeadItem(0, sign_head(TreeHead(name, 11, level[0]), name, key("log")))]
    assert found(check(ledger), "HEAD_ROOT_MISMATCH").batch_no == 10


def test_a_head_of_no_leaves_has_the_root_of_nothing() -> None:
    ledger = lively()
    name = tree_origin(ORIGIN, 0)
    ledger.heads = [HeadItem(0, sign_head(TreeHead(name, 0, sha256(b"")), name, key("log")))]
    assert check(ledger).ok
    ledger.heads = [HeadItem(0, sign_head(TreeHead(name, 0, bytes(32)), name, key("log")))]
    assert found(check(ledger), "HEAD_ROOT_MISMATCH").batch_no == 0


# -- the bundle of a run ------------------------------------------------------------------------------------------------


def run_report(ledger: Builder, change: Any, **options: Any) -> Any:
    items = ledger.run_items("run-1")
    changed = [change(item) if isinstance(item, PartialItem) else item for item in items]
    assert changed != items
    return verify_items([item for item in changed if item is not None], **({"root": ledger.root} | options))


def test_paths_of_a_wrong_length_or_to_another_place_prove_nothing() -> None:
    """Tampering: proof with wrong length, index >= size, size 0, 2^63 (proof length rule)"""
    ledger = lively()
    bad_paths: list[Any] = [
        lambda path: path[:-1],
        lambda path: [*path, bytes(32)],
        lambda path: [bytes(32)] * len(path),
    ]
    for bad in bad_paths:
        report = run_report(ledger, lambda item, bad=bad: item._replace(tree_path=bad(item.tree_path)))
        assert found(report, "BATCH_NOT_INCLUDED").partition == 0
        report = run_report(
            ledger,
            lambda item, bad=bad: item._replace(
                records=[record._replace(path=bad(record.path)) for record in item.records]
            ),
        )
        assert "RECORD_NOT_INCLUDED" in codes(report)
    for shift in (1, 60_000):
        report = run_report(
            ledger,
            lambda item, shift=shift: item._replace(
                records=[record._replace(index_in_batch=record.index_in_batch + shift) for record in item.records]
            ),
        )
        assert "RECORD_NOT_INCLUDED" in codes(report)


def test_a_runs_records_out_of_order_repeated_or_left_out_are_found() -> None:
    """X-167"""
    ledger = lively()
    reverse = run_report(ledger, lambda item: item._replace(records=list(reversed(item.records))))
    assert "POSITION_WRONG" in codes(reverse)
    items = ledger.run_items("run-1")
    partials = [item for item in items if isinstance(item, PartialItem)]
    for place in range(1, len(partials)):
        less = [item for item in items if item is not partials[place]]
        report = verify_items(less, root=ledger.root)
        erasure = all(decode(record.body)["kind"] == "erased" for record in partials[place].records)
        assert report.ok == erasure, "only what is no part of the run may be left out"
    twice = [*items[:4], items[3], *items[4:]]
    assert "BATCH_NUMBER_WRONG" in codes(verify_items(twice, root=ledger.root))


def test_a_run_without_its_tree_head_trust_or_start_is_found() -> None:
    ledger = lively()
    items = ledger.run_items("run-1")
    assert codes(verify_items([item for item in items if not isinstance(item, HeadItem)], root=ledger.root)) == {
        "HEAD_MISSING"
    }
    without_genesis = [item for item in items if item is not items[2]]
    assert "TRUST_MISSING" in codes(verify_items(without_genesis, root=ledger.root))

    def without_start(item: PartialItem) -> PartialItem:
        return item._replace(
            records=[record for record in item.records if decode(record.body)["kind"] != "run_started"]
        )

    assert codes(run_report(ledger, without_start)) >= {"RUN_UNKNOWN", "RUN_MISSING"}


def test_a_runs_batch_that_is_no_batch_or_breaks_the_chain_is_found() -> None:
    ledger = lively()
    assert "BATCH_MALFORMED" in codes(run_report(ledger, lambda item: item._replace(body=b"\xa0")))
    items, chained = ledger.run_items("run-1"), False
    for place, item in enumerate(items):
        if isinstance(item, PartialItem) and item is not items[2]:
            for changes, code in (
                ({"first_position": 0}, "POSITION_WRONG"),
                ({"origin": "detent/x"}, "BATCH_ORIGIN_WRONG"),
            ):
                body = edit(item.body, prev_batch_hash=bytes(32), **changes)
                forged = item._replace(body=body, signature=ledger.signer.sign(b"detent/batch/v1\x00" + body))
                report = verify_items([*items[:place], forged, *items[place + 1 :]], root=ledger.root)
                assert codes(report) >= {code, "BATCH_NOT_INCLUDED"}
                adjoins = item.tree_path and place > 3 and "BATCH_CHAIN_BROKEN" in codes(report)
                chained = chained or bool(adjoins)
    assert chained, "two batches of the run follow one another: the second must name the first"


def test_a_run_under_a_kept_head_of_the_same_size_must_have_its_root() -> None:
    """Tampering: two checkpoints, same size, different root"""
    ledger = lively()
    items = ledger.run_items("run-1")
    assert verify_items(items, root=ledger.root, kept_heads=[ledger.head()]).ok
    other = lively()
    other.commits[-1].last_tick += 1
    fork = sign_tree(other.sealed()[0], 0, None, key("log"))
    assert found(verify_items(items, root=ledger.root, kept_heads=[fork]), "LEDGER_FORKED").partition == 0
    older = verify_items(items, root=ledger.root, kept_heads=[ledger.head(size=4)])
    assert older.ok, "one run cannot show that the tree continues an older one"
    assert any("continues the tree head over 4 batches" in line for line in older.not_proved)


def test_a_partial_record_says_its_place_and_no_other() -> None:
    record = PartialRecord(2**16, b"", None, [])
    ledger = lively()
    report = run_report(ledger, lambda item: item._replace(records=[*item.records, record]))
    assert codes(report) >= {"RECORD_NOT_INCLUDED", "RECORD_NOT_CANONICAL"}


# -- copies ------------------------------------------------------------------------------------------------------------


def announced_copy(ledger: Builder, origin: str = "detent/copy") -> None:
    """Announce, in the next batch, that the ledger is a copy with a name and keys of its own."""
    last, begins = ledger.trust_versions[-1], ledger.size() + 1
    ended = tuple(replace(entry, to_position=begins) for entry in last.keys)
    own = tuple(KeyEntry(key(f"own {role}").public_key, role, from_position=begins) for role in ledger.keys)
    config = TrustConfig(origin, (*ended, *own), last.version + 1, last.digest(), copy_of=ledger.origin)
    ledger.announce(config, ledger.keys["root"])


def test_a_copy_that_goes_on_in_the_name_of_its_original_is_found() -> None:
    """Tampering: batches of a copy that pass for the original's. X-200"""
    ledger = Builder()
    ledger.submit("first")
    ledger.commit()
    announced_copy(ledger)
    ledger.commit()
    assert "BATCH_ORIGIN_WRONG" in codes(check(ledger))
