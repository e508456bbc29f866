"""What even good rules do not find when the owner's key signs it, and what does: a head kept elsewhere, a witness, a receipt."""

from __future__ import annotations

from detent.canon import sha256
from detent.ledger import (
    BatchHeader,
    HeadItem,
    TrustFault,
    cosign,
    record_proof,
    replay_items,
    verify_head,
    verify_items,
    verify_record_proof,
)
from detent.ledger.batch import SealedBatch, tree_origin
from tests.ledger.build import ORIGIN, Builder, codes, edit, key, lively, sign_tree
from tests.tamper.forge import check, found, place_of, running, with_records


def without_last_record(ledger: Builder) -> Builder:
    """The owner takes back the last thing that happened, as if it never had: signs everything anew."""
    other = Builder()
    other.commits = ledger.commits[:-1]
    other.trust_versions = ledger.trust_versions
    return other


def test_a_dropped_last_record_is_only_found_by_a_tree_head() -> None:
    """Tampering: drop the last record of one job (M, C; without checkpoint not detectable)"""
    ledger = running()
    ledger.finish("running")
    ledger.commit()
    kept = ledger.head()
    rewritten = without_last_record(ledger)
    assert check(rewritten).ok, "not detectable"
    assert found(check(rewritten, kept_heads=[kept]), "LEDGER_ROLLED_BACK").batch_no == 2
    rewritten.heads = [HeadItem(0, kept)]
    assert found(check(rewritten), "HEAD_BEYOND_LEDGER").batch_no == 2


def test_a_rewritten_history_is_only_found_by_a_tree_head_kept_elsewhere_or_a_witness() -> None:
    """Tampering: delete + re-sign all with the right owner key, rebuild tree and checkpoint (C, W only)"""
    ledger = running()
    ledger.finish("running")
    ledger.commit()
    kept = ledger.head()
    forger = without_last_record(ledger)
    forger.kernels, forger.grants, forger.tick = running().kernels, ledger.grants, ledger.tick
    forger.finish("running", ok=False)
    forger.commit()
    forger.keep_head()
    assert check(forger).ok, "not detectable"
    finding = found(check(forger, kept_heads=[kept]), "LEDGER_FORKED")
    assert finding.batch_no == 2
    assert "has root sha256:" in finding.message
    assert "the batches sha256:" in finding.message, "it contains both roots: proof that both were signed"
    assert found(check(forger, witnesses_min=1), "HEAD_NOT_WITNESSED").partition == 0


def test_a_truncation_to_an_older_signed_size_is_only_found_by_a_newer_head_kept_or_witnessed() -> None:
    """Tampering: truncate the ledger to an older, validly signed size (C or W only); restore of an old backup"""
    ledger = lively()
    newest = ledger.head()
    old = HeadItem(0, cosign(ledger.head(size=6), "witness.example", key("witness"), 1_000))
    ledger.commits, ledger.heads = ledger.commits[:6], [old]
    ledger.contents.clear()
    assert check(ledger).ok, "not detectable"
    assert found(check(ledger, kept_heads=[newest]), "LEDGER_ROLLED_BACK").batch_no == 6
    assert found(check(ledger, witnessed_since=2_000), "HEAD_STALE").partition == 0


def test_an_old_head_replayed_as_current_is_found_by_the_largest_head_kept() -> None:
    """Tampering: old checkpoint replayed as current (verifier keeps max size; freshness bound from W time)"""
    ledger = lively()
    kept = [ledger.head(size=size) for size in (3, 9)]
    ledger.commits, ledger.contents = ledger.commits[:6], []
    ledger.heads = [HeadItem(0, ledger.head(size=6))]
    report = check(ledger, kept_heads=kept)
    assert codes(report) == {"LEDGER_ROLLED_BACK"}
    assert "covers 9 batches, the ledger has 6" in found(report, "LEDGER_ROLLED_BACK").message


def test_a_cut_tail_under_no_head_is_not_found_and_the_report_says_how_much_that_can_be() -> None:
    """Tampering: truncate the un-checkpointed tail (not detectable; exposure = checkpoint interval)"""
    ledger = lively()
    kept = ledger.head(size=7)
    ledger.commits, ledger.contents = ledger.commits[:8], []
    ledger.heads = [HeadItem(0, kept)]
    report = check(ledger, kept_heads=[kept])
    assert report.ok, "not detectable"
    assert any("its last 1 batches are under no tree head" in line for line in report.not_proved)


def test_a_split_view_is_only_found_by_a_witness() -> None:
    """Tampering: fork shown to different readers, split view (W quorum/gossip only)"""
    views = []
    for name in ("for you", "for me"):
        ledger = running()
        ledger.submit(name)
        ledger.commit()
        ledger.keep_head()
        views.append(ledger)
    assert all(check(view).ok for view in views), "not detectable by either reader alone"
    views[0].heads = [HeadItem(0, cosign(views[0].heads[0].note, "witness.example", key("witness"), 5))]
    assert check(views[0], witnesses_min=1).ok
    assert "HEAD_NOT_WITNESSED" in codes(check(views[1], witnesses_min=1))
    assert "LEDGER_FORKED" in codes(check(views[1], kept_heads=[views[0].heads[0].note])), "or by comparing heads"


def test_a_lie_about_time_that_fits_together_is_not_found() -> None:
    """Tampering: timestamp changed (S; a lying key holder not detectable, bounded by witness times)"""
    honest, liar = running(), Builder()
    liar.tick = 77
    liar.submit("late")
    liar.commit()
    assert check(liar).ok, "not detectable"
    assert replay_items(liar.items()).ok
    number, index = place_of(honest, "submitted", "queued")
    items = honest.items()
    body, evidence = honest.commits[number].records[index]
    report = check(
        honest, with_records(items, number, lambda records: records.__setitem__(index, (edit(body, tick=9), evidence)))
    )
    assert codes(report) >= {"RECORDS_ROOT_WRONG", "TICK_OUT_OF_BATCH"}


def test_an_omission_is_not_found_but_a_receipt_proves_it() -> None:
    """Tampering: event never written (not detectable by the log; submitter keeps a signed receipt and complains)"""
    ledger = running()
    ledger.submit("mine")
    ledger.commit()
    part = ledger.sealed()[0]
    item = part.items[2]
    sealed = SealedBatch(item.body, item.signature, part.leaves[2], b"")
    receipt = record_proof(sealed, [body for body, _ in item.records], 0, part.tree.inclusion_path(2))
    mine = item.records[0][0]
    note, name = ledger.head(), tree_origin(ORIGIN, 0)
    head = verify_head(note, name=name, public_key=key("log").public_key, origin=name)
    assert isinstance(verify_record_proof(mine, receipt, ledger.trust(), head), BatchHeader)
    forger = without_last_record(ledger)
    forger.tick = ledger.tick
    forger.kernels = running().kernels
    forger.submit("theirs")
    forger.commit()
    assert check(forger).ok, "not detectable by the log"
    shown = verify_head(forger.head(), name=name, public_key=key("log").public_key, origin=name)
    complaint = verify_record_proof(mine, receipt, forger.trust(), shown)
    assert isinstance(complaint, TrustFault)
    assert complaint.code == "BATCH_NOT_INCLUDED", "signed as accepted, and not in the ledger shown"


def test_an_executor_who_lies_about_a_result_is_not_found() -> None:
    """Tampering: executor lies about result or usage (not detectable; re-execution of a sample)"""
    ledger = running()
    ledger.finish("running", detail_digest=sha256(b"a result that never was"))
    ledger.commit()
    report = check(ledger)
    assert report.ok, "not detectable"
    assert any("an executor can lie" in line for line in report.not_proved)


def test_two_heads_of_one_size_are_told_apart() -> None:
    """Tampering: two checkpoints, same size, different root, fork (C/W; keep both as proof of misbehaviour)"""
    ledger = lively()
    other = running()
    other.submit("x")
    other.commit()
    size = other.size()
    fork = sign_tree(other.sealed()[0], 0, size, key("log"))
    ledger.heads.insert(0, HeadItem(0, fork))
    assert found(check(ledger), "HEAD_ROOT_MISMATCH").batch_no == size - 1
    ledger.heads.pop(0)
    assert found(check(ledger, kept_heads=[fork]), "LEDGER_FORKED").batch_no == size - 1


def test_a_whole_ledger_is_rewritten_and_replayed_green_so_only_the_outside_helps() -> None:
    """The home's holder has all keys (X-178)"""
    report = verify_items(running().items(), root=running().root, pinned_home=True)
    assert report.ok
    assert any("That this home was not rewritten as a whole" in line for line in report.not_proved)
