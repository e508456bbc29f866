"""Tampering with an editor: an attacker without keys changes, drops, moves, repeats or splices, and is found."""

from __future__ import annotations

from detent.canon import decode, encode
from detent.ledger import BatchItem, ContentItem, Item, verify_items
from tests.ledger.build import Builder, codes, edit, key, lively, resign, seal_commits
from tests.tamper.forge import (
    batches,
    check,
    found,
    place_of,
    position_of,
    rewrite,
    with_batch,
    with_record,
    with_records,
)

NO_L = 2**252 + 27742317777372353535851937790883648493
"""The order of Ed25519's group."""


def test_a_dropped_middle_record_is_found() -> None:
    """Tampering: drop a middle record (H, Q, M)"""
    ledger = lively()
    number, index = place_of(ledger, "transition", "flaky", 1)
    report = check(ledger, with_records(ledger.items(), number, lambda records: records.pop(index)))
    assert codes(report) >= {"RECORD_COUNT_WRONG", "RECORDS_ROOT_WRONG", "SEQ_WRONG", "CHAIN_BROKEN", "STATE_WRONG"}
    assert found(report, "RECORDS_ROOT_WRONG").batch_no == number
    gap = found(report, "SEQ_WRONG")
    assert (gap.job_id, gap.transition_seq) == ("flaky", 2)


def test_a_dropped_middle_batch_is_found() -> None:
    """Tampering: drop a middle record (H, Q, M)"""
    ledger = lively()
    report = check(ledger, with_batch(ledger.items(), 3, lambda item: None))
    assert codes(report) >= {"BATCH_NUMBER_WRONG", "BATCH_CHAIN_BROKEN", "POSITION_WRONG", "HEAD_ROOT_MISMATCH"}
    assert found(report, "BATCH_NUMBER_WRONG").batch_no == 4
    assert found(report, "HEAD_BEYOND_LEDGER").batch_no == 10


def test_a_dropped_first_record_of_a_job_is_found() -> None:
    """Tampering: drop the first record (H, Q)"""
    ledger = lively()
    number, index = place_of(ledger, "submitted", "plain")
    report = check(ledger, with_records(ledger.items(), number, lambda records: records.pop(index)))
    assert found(report, "JOB_UNKNOWN").job_id == "plain"
    assert found(report, "RECORD_COUNT_WRONG").batch_no == number


def test_a_dropped_first_batch_leaves_nothing_to_trust() -> None:
    """Tampering: drop the first record (H, Q)"""
    ledger = lively()
    report = check(ledger, with_batch(ledger.items(), 0, lambda item: None))
    assert found(report, "TRUST_MISSING").batch_no == 1
    assert found(report, "BATCH_NUMBER_WRONG").batch_no == 1


def test_two_swapped_records_of_one_job_are_found() -> None:
    """Tampering: swap two records of one job (H, Q)"""
    ledger = lively()
    number, index = place_of(ledger, "transition", "unwanted", 0)

    def swap(records: list[object]) -> None:
        records[index], records[index + 1] = records[index + 1], records[index]

    report = check(ledger, with_records(ledger.items(), number, swap))
    assert codes(report) >= {"RECORDS_ROOT_WRONG", "SEQ_WRONG", "CHAIN_BROKEN"}
    assert found(report, "SEQ_WRONG").job_id == "unwanted"
    assert found(report, "SEQ_WRONG").position == position_of(ledger, number, index)


def test_two_swapped_batches_are_found() -> None:
    ledger = lively()
    items = ledger.items()
    first = items.index(batches(items)[4])
    items[first], items[first + 1] = items[first + 1], items[first]
    assert codes(check(ledger, items)) >= {"BATCH_NUMBER_WRONG", "BATCH_CHAIN_BROKEN", "HEAD_ROOT_MISMATCH"}


def test_a_repeated_record_is_found() -> None:
    """Tampering: duplicate a record, same bytes (Q, M)"""
    ledger = lively()
    number, index = place_of(ledger, "transition", "plain", 1)
    report = check(ledger, with_records(ledger.items(), number, lambda records: records.insert(index, records[index])))
    assert codes(report) >= {"RECORD_COUNT_WRONG", "RECORDS_ROOT_WRONG", "SEQ_WRONG"}
    assert found(report, "SEQ_WRONG").position == position_of(ledger, number, index + 1)


def test_a_repeated_batch_is_found() -> None:
    ledger = lively()
    items = ledger.items()
    place = items.index(batches(items)[2])
    report = check(ledger, [*items[: place + 1], items[place], *items[place + 1 :]])
    assert codes(report) >= {"BATCH_NUMBER_WRONG", "BATCH_CHAIN_BROKEN", "HEAD_ROOT_MISMATCH", "SEQ_WRONG"}


def test_sequences_renumbered_after_a_deletion_do_not_help() -> None:
    """Tampering: renumber seq after a deletion, no key (S)"""
    ledger = lively()
    number, index = place_of(ledger, "transition", "flaky", 2)
    items = with_records(ledger.items(), 3, lambda records: records.pop(1))
    report = check(
        ledger,
        with_records(
            items,
            number,
            lambda records: records.__setitem__(index, (edit(records[index][0], transition_seq=1), records[index][1])),
        ),
    )
    assert found(report, "RECORDS_ROOT_WRONG").batch_no == 3
    assert {finding.batch_no for finding in report.findings if finding.code == "RECORDS_ROOT_WRONG"} == {3, number}


def test_a_record_of_another_job_tenant_or_ledger_is_found() -> None:
    """Tampering: splice a record of another job/tenant/ledger (S covers ledger origin, tenant, job; H)"""
    ledger = lively()
    other = Builder(origin="detent/ffffffffffffffff")
    other.submit("plain", tenant="rival")
    other.claim(1)
    other.commit()
    foreign = other.commits[1].records
    number, index = place_of(ledger, "transition", "plain", 0)
    report = check(ledger, with_records(ledger.items(), number, lambda records: records.__setitem__(index, foreign[1])))
    assert found(report, "JOB_MIXED").position == position_of(ledger, number, index)
    assert codes(report) >= {"RECORDS_ROOT_WRONG", "CHAIN_BROKEN", "JOB_MIXED"}
    whole = check(
        ledger, with_batch(ledger.items(), number, lambda item: seal_commits(other.commits, other.origin)[0].items[1])
    )
    assert found(whole, "BATCH_ORIGIN_WRONG").batch_no == 1


def test_a_batch_of_another_partition_is_found() -> None:
    ledger = Builder(partitions=2)
    for name in "abcdefgh":
        ledger.submit(name)
    ledger.commit()
    sealed = ledger.sealed()
    items: list[Item] = [
        ledger.header(),
        *sealed[0].items,
        sealed[1].items[0],
        sealed[0].items[1]._replace(partition=1),
    ]
    report = check(ledger, items)
    assert found(report, "BATCH_PARTITION_WRONG").partition == 1


def test_a_swapped_manifest_is_found_though_the_hash_was_kept() -> None:
    """Tampering: manifest swapped, hash kept (X)"""
    ledger = lively()
    number, index = place_of(ledger, "submitted", "plain")
    other = ledger.commits[number].records[index + 1][1]
    report = check(
        ledger,
        with_records(ledger.items(), number, lambda records: records.__setitem__(index, (records[index][0], other))),
    )
    finding = found(report, "MANIFEST_HASH_WRONG")
    assert (finding.position, finding.job_id) == (position_of(ledger, number, index), "plain")
    assert "RECORDS_ROOT_WRONG" not in codes(report), "the record itself is untouched"


def test_swapped_content_is_found() -> None:
    """Tampering: artifact bytes swapped (X)"""
    ledger = lively()
    [item] = ledger.contents
    ledger.contents = [ContentItem(item.digest, b"something else")]
    finding = found(check(ledger), "CONTENT_DIGEST_WRONG")
    assert item.digest.hex() in finding.message


def test_a_downgraded_digest_is_found() -> None:
    """Tampering: artifact digest algorithm downgrade (T, allow list)"""
    ledger = lively()
    number, index = place_of(ledger, "transition", "plain", 0)
    rewrite(ledger, number, index, evidence_ref="md5:" + "0" * 32)
    finding = found(check(ledger), "RECORD_FIELDS_WRONG")
    assert finding.position == position_of(ledger, number, index)
    assert "evidence_ref" in finding.message


def test_a_swapped_policy_is_found() -> None:
    """Tampering: quota/backoff/lease policy artifact swapped (X)"""
    ledger = lively()
    body, config = ledger.commits[0].records[0]
    assert config is not None
    fields = decode(config)
    fields["lease_policies"][0]["lease_ttl_ticks"] = 1
    report = check(
        ledger, with_records(ledger.items(), 0, lambda records: records.__setitem__(0, (body, encode(fields))))
    )
    finding = found(report, "CONFIG_WRONG")
    assert finding.position == 0
    assert codes(report) == {"CONFIG_WRONG"}


def test_changed_evidence_is_found_at_its_record() -> None:
    ledger = lively()
    number, index = place_of(ledger, "transition", "plain", 0)

    def change(records: list[tuple[bytes, bytes]]) -> None:
        records[index] = (records[index][0], edit(records[index][1], replica_id="elsewhere"))

    report = check(ledger, with_records(ledger.items(), number, change))
    assert found(report, "EVIDENCE_DIGEST_WRONG").position == position_of(ledger, number, index)
    assert codes(report) == {"EVIDENCE_DIGEST_WRONG"}


def test_removed_and_added_evidence_is_found() -> None:
    ledger = lively()
    for kind, job_id, seq in (("transition", "plain", 0), ("submitted", "plain", None)):
        number, index = place_of(ledger, kind, job_id, seq)
        body, _ = ledger.commits[number].records[index]
        report = check(ledger, with_record(ledger.items(), number, index, (body, None)))
        assert found(report, "EVIDENCE_MISSING").position == position_of(ledger, number, index)
    for index in (0, 1):
        report = check(ledger, with_record(ledger.items(), 0, index, (ledger.commits[0].records[index][0], None)))
        assert found(report, "EVIDENCE_MISSING").position == index
    number, index = place_of(ledger, "run_started")
    report = check(
        ledger,
        with_records(ledger.items(), number, lambda records: records.__setitem__(index, (records[index][0], b"x"))),
    )
    assert found(report, "EVIDENCE_UNEXPECTED").position == position_of(ledger, number, index)


def test_a_changed_command_is_found() -> None:
    """X-165: a changed command is found"""
    ledger = lively()

    def change(item: BatchItem) -> BatchItem:
        commands = decode(item.commands)
        commands[0][1] += 1
        return item._replace(commands=encode(commands))

    report = check(ledger, with_batch(ledger.items(), 2, change))
    assert found(report, "COMMANDS_DIGEST_WRONG").batch_no == 2


def test_a_malleated_signature_is_found() -> None:
    """Tampering: malleated signature, S + L (S)"""
    ledger = lively()

    def malleate(item: BatchItem) -> BatchItem:
        scalar = int.from_bytes(item.signature[32:], "little") + NO_L
        return item._replace(signature=item.signature[:32] + scalar.to_bytes(32, "little"))

    report = check(ledger, with_batch(ledger.items(), 4, malleate))
    assert found(report, "BATCH_SIGNATURE_INVALID").batch_no == 4


def test_deleting_and_signing_the_rest_with_a_foreign_key_is_found() -> None:
    """Tampering: delete + re-sign later records with a foreign key (T)"""
    ledger = lively()
    del ledger.commits[3].records[0]
    for commit in ledger.commits[3:]:
        commit.signer = key("stranger")
    ledger.heads.clear()
    report = check(ledger)
    assert {finding.batch_no for finding in report.findings if finding.code == "KEY_UNKNOWN"} == set(range(3, 11))
    assert "CHAIN_BROKEN" not in codes(report) or found(report, "KEY_UNKNOWN").batch_no == 3


def test_a_signature_of_another_message_type_is_found() -> None:
    """Tampering: signature from another message type (domain separation)"""
    ledger = lively()
    for label in (b"", b"detent/trust/v1\x00", b"detent/result/v1\x00", b"UML_OS.Pipeline.JobManifest_v1\x00"):
        report = check(
            ledger,
            with_batch(
                ledger.items(),
                2,
                lambda item, prefix=label: item._replace(signature=ledger.signer.sign(prefix + item.body)),  # type: ignore[misc]
            ),
        )
        assert found(report, "BATCH_SIGNATURE_INVALID").batch_no == 2


def test_another_encoding_with_the_same_meaning_is_found() -> None:
    """Tampering: non-canonical CBOR with the same meaning (B). X-047"""
    ledger = lively()

    def longer(data: bytes, before: bytes, after: bytes) -> bytes:
        assert before in data
        return data.replace(before, after, 1)

    number, index = place_of(ledger, "transition", "plain", 0)
    body, evidence = ledger.commits[number].records[index]
    assert evidence is not None
    cases = [
        ((longer(body, b"batch_len\x01", b"batch_len\x18\x01"), evidence), "RECORD_NOT_CANONICAL"),
        ((longer(body, b"dispatch\xf5", b"dispatch\xc1\xf5"), evidence), "RECORD_NOT_CANONICAL"),
        ((body, longer(evidence, b"\x64kind", b"\x78\x04kind")), "EVIDENCE_DIGEST_WRONG"),
    ]
    for pair, code in cases:
        report = check(ledger, with_record(ledger.items(), number, index, pair))
        assert found(report, code).position == position_of(ledger, number, index)
    item = batches(ledger.items())[number]
    forged = resign(item, longer(item.body, b"\x65epoch\x01", b"\x65epoch\x18\x01"), ledger.signer)
    report = check(ledger, with_batch(ledger.items(), number, lambda _: forged._replace(leaf_hash=None)))
    assert found(report, "BATCH_MALFORMED").batch_no == number


def test_every_record_left_out_of_a_run_makes_its_bundle_red() -> None:
    """X-167: a bundle with one job left out is refused"""
    ledger = lively()
    report = verify_items(ledger.run_items("run-1", leave_out=["step-2"]), root=ledger.root)
    finding = found(report, "RUN_JOBS_WRONG")
    number, index = place_of(ledger, "run_ended")
    assert finding.position == position_of(ledger, number, index)
    assert "2 jobs; 1 were submitted" in finding.message
