"""Verification of whole and honest ledgers: green with a root, red without, and what it says it proved."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, sha256
from detent.errors import InvalidInput
from detent.kernel import QueuePolicy, transition_log_hash
from detent.kernel.evidence import KINDS_FOR
from detent.ledger import (
    FINDINGS,
    BatchItem,
    ContentItem,
    Finding,
    HeaderItem,
    HeadItem,
    JobItem,
    KeyEntry,
    TrustConfig,
    cosign,
    verify_bundle,
    verify_items,
)
from detent.ledger.book import Book, Signed, verify_each
from detent.ledger.claims import proved
from detent.ledger.findings import Findings
from tests.ledger.build import ORIGIN, Builder, codes, key, lively
from tests.ledger.lives import CONFIG, STEPS, play

WITNESS = "witness.example"


def test_what_was_proved_writes_numbers_as_the_page_does() -> None:
    book = Book(heads=None, findings=Findings(), root=None, verify_many=verify_each)
    book.header = HeaderItem(ORIGIN, 1)
    book.executors.update({b"\xab" * 32: 1_200, b"\xcd" * 32: 34})
    counts = Counter(batches=1_676, records=2_345, contents=3_456, rows=4_567, results_signed=1_234)
    sentences = list(proved(book, [], counts))
    assert [sentence.split()[0] for sentence in sentences] == ["1,676", "2,345", "0", "1,234", "4,567", "3,456"]
    assert sentences[3].endswith(": 1,200 by abababababababab, 34 by cdcdcdcdcdcdcdcd.")


def test_an_untouched_ledger_is_green() -> None:
    report = lively().verify()
    assert report.findings == ()
    assert report.ok


def test_a_bundle_without_a_pinned_root_is_never_green() -> None:
    """X-178"""
    report = verify_bundle(BytesIO(lively().bundle()))
    assert not report.ok
    assert codes(report) == {"TRUST_UNPINNED"}
    assert report.proved == ()
    assert not report.root_pinned


def test_the_root_may_be_given_as_text_or_bytes_and_must_be_a_digest() -> None:
    ledger = lively()
    assert ledger.verify(root=ledger.trust_versions[0].digest()).ok
    for root in ("sha256:", "md5:" + "0" * 64, ledger.root.upper(), b"short"):
        with pytest.raises(InvalidInput):
            ledger.verify(root=root)


def test_the_report_names_root_origin_scope_and_trees() -> None:
    ledger = lively()
    report = ledger.verify()
    assert (report.root, report.origin, report.scope, report.run_id) == (ledger.root, ledger.origin, "ledger", None)
    [tree] = report.trees
    assert (tree.partition, tree.size, tree.head_size) == (0, len(ledger.commits), len(ledger.commits))
    assert tree.root == ledger.sealed()[0].tree.root()


def test_the_report_counts_what_was_read() -> None:
    counts = lively().verify().counts
    assert counts["batches"] == 11
    assert counts["records"] == 35
    assert counts["jobs"] == counts["submitted"] == 8
    assert counts["transitions"] == 21
    assert counts["signatures"] == counts["batches"] + counts["submitted"]
    assert counts["erased_contents"] == 1


def test_the_log_hash_is_that_of_the_jobs_heads() -> None:
    """X-050"""
    ledger = lively()
    rows = [ledger.rows[name] for name in sorted(ledger.rows)]
    heads = [(job.job_id, job.transition_seq, job.head) for job in rows]
    assert ledger.verify().transition_log_hash == transition_log_hash(len(heads), heads)


def test_the_report_is_json() -> None:
    report = lively().verify(root=None)
    value = json.loads(json.dumps(report.to_map()))
    assert value["ok"] is False
    assert value["findings"][0]["code"] == "TRUST_UNPINNED"
    assert value["findings"][0]["usually"]
    assert value["transition_log_hash"].startswith("sha256:")
    assert value["trees"][0]["size"] == 11


def test_proved_and_not_proved_are_plain_sentences() -> None:
    """X-178"""
    report = lively().verify()
    assert any(line.startswith("11 batches of detent/") for line in report.proved)
    assert any("legal transitions only" in line for line in report.proved)
    assert any("no tree head kept elsewhere" in line for line in report.not_proved)
    assert any("executor can lie" in line for line in report.not_proved)
    assert any("nothing was left out before it was written" in line for line in report.not_proved)
    assert all(line[0].isupper() or line[0].isdigit() for line in (*report.proved, *report.not_proved))
    assert all(line.endswith(".") for line in (*report.proved, *report.not_proved))


def test_a_home_pinned_to_its_own_root_says_so() -> None:
    """X-178"""
    ledger = lively()
    report = verify_items(ledger.items(rows=True), root=ledger.root, pinned_home=True, rows_expected=True)
    assert report.ok
    assert any("its keys lie beside it" in line for line in report.not_proved)
    assert any("stored rows say what the records say" in line for line in report.proved)
    assert not any("its keys lie beside it" in line for line in ledger.verify().not_proved)


def test_kept_heads_are_continued_and_the_rest_is_said() -> None:
    ledger = lively()
    report = ledger.verify(kept_heads=[ledger.head(size=4), ledger.head(size=6)])
    assert report.ok
    assert any("continues the tree head over 6 batches" in line for line in report.proved)
    assert any("5 batches of partition 0 after the tree head kept elsewhere" in line for line in report.not_proved)
    assert not any("no tree head kept elsewhere was given" in line for line in report.not_proved)
    whole = ledger.verify(kept_heads=[ledger.head()])
    assert not any("after the tree head kept elsewhere" in line for line in whole.not_proved)


def test_batches_under_no_tree_head_are_said() -> None:
    ledger = lively()
    ledger.heads.pop()
    report = ledger.verify()
    assert report.ok
    assert any("its last 4 batches are under no tree head" in line for line in report.not_proved)


def test_a_ledger_without_any_tree_head_verifies_and_says_what_that_leaves_open() -> None:
    ledger = lively()
    ledger.heads.clear()
    report = ledger.verify()
    assert report.ok
    assert any("its last 11 batches are under no tree head" in line for line in report.not_proved)


def test_every_prefix_of_a_ledger_verifies() -> None:
    ledger = lively()
    commits = ledger.commits
    for length in range(1, len(commits) + 1):
        ledger.commits, ledger.heads, ledger.contents = commits[:length], [], []
        assert ledger.verify().findings == ()


def test_a_ledger_of_several_partitions_verifies() -> None:
    """PIPE-061"""
    ledger = Builder(partitions=3)
    for number in range(15):
        ledger.submit(f"job-{number}")
    for partition in range(3):
        ledger.claim(3, partition=partition)
    ledger.commit()
    ledger.keep_head()
    report = ledger.verify()
    assert report.findings == ()
    assert [tree.size for tree in report.trees] == [2, 2, 2]
    missing = [item for item in ledger.items() if getattr(item, "partition", 0) != 1]
    assert codes(verify_items(missing, root=ledger.root)) == {"TRUST_MISSING"}


def test_keys_are_rotated_and_the_past_stays_green() -> None:
    """X-046: a key is valid for a range of positions"""
    ledger = lively()
    ledger.rotate("transition", key("second owner"))
    ledger.submit("after")
    ledger.commit()
    ledger.rotate("log", key("second log"))
    ledger.keep_head()
    ledger.rotate("manifest", key("second submitter"))
    ledger.submit("later")
    ledger.commit()
    ledger.rotate("root", key("second root"))
    ledger.rotate("witness", key("second witness"))
    ledger.keep_head()
    report = ledger.verify(kept_heads=[ledger.head(size=3, signer=key("log"))])
    assert report.findings == ()
    assert report.counts["trust_changed"] == 6


def test_leases_that_ran_out_before_a_new_owner_began_are_ended_by_it() -> None:
    """PIPE-060: nothing is decided between two owners, so the records name the one that decided"""
    ledger = Builder()
    ledger.submit("orphan")
    ledger.claim(1)
    last, new = ledger.trust_versions[0], key("second owner")
    ledger.announce(
        TrustConfig(ORIGIN, (*last.keys, KeyEntry(new.public_key, "transition")), 2, last.digest()), key("root")
    )
    ledger.commit()
    ledger.tick, ledger.signer = 100_000, new
    ledger.raise_epoch()
    ledger.advance(0)
    ledger.commit()
    bodies = [decode(body) for body, _ in ledger.commits[-1].records]
    assert [(body["kind"], body["signer_key_id"]) for body in bodies] == [
        ("owner_epoch", new.key_id),
        ("transition", new.key_id),
    ]
    assert ledger.verify().findings == ()


def test_a_new_owner_may_bring_another_configuration() -> None:
    ledger = lively()
    config = replace(ledger.config, queue=QueuePolicy(3, 3), on_quota_running="cancel")
    ledger.raise_epoch(config=config)
    ledger.commit()
    ledger.heads.clear()
    assert ledger.verify().findings == ()


def test_a_run_is_verified_alone() -> None:
    """X-166, X-167"""
    ledger = lively()
    report = verify_items(ledger.run_items("run-1"), root=ledger.root)
    assert report.findings == ()
    assert (report.scope, report.run_id, report.counts["jobs"]) == ("run", "run-1", 2)
    assert "Run run-1 is complete: its end binds exactly these jobs." in report.proved
    assert any("this is one run" in line for line in report.not_proved)


def test_a_run_that_has_not_ended_is_not_complete() -> None:
    """X-167"""
    ledger = lively()
    ledger.start_run("run-2")
    ledger.submit("alone", run_id="run-2")
    ledger.commit()
    report = verify_items(ledger.run_items("run-2"), root=ledger.root)
    assert codes(report) == {"RUN_NOT_ENDED"}


def test_witnesses_may_be_asked_for() -> None:
    ledger = lively()
    plain = ledger.heads[-1]
    cosigned = cosign(plain.note, WITNESS, key("witness"), 1_000)
    assert codes(ledger.verify(witnesses_min=1)) == {"HEAD_NOT_WITNESSED"}
    ledger.heads[-1] = HeadItem(0, cosigned)
    report = ledger.verify(witnesses_min=1, witnessed_since=1_000)
    assert report.ok
    assert any(f"cosigned by {WITNESS}" in line for line in report.proved)
    assert not any("no witness cosigned" in line for line in report.not_proved)
    assert codes(ledger.verify(witnessed_since=1_001)) == {"HEAD_STALE"}
    ledger.heads[-1] = HeadItem(0, cosign(plain.note, WITNESS, key("stranger"), 1_000))
    assert codes(ledger.verify(witnesses_min=1)) == {"HEAD_NOT_WITNESSED"}


def test_findings_are_kept_up_to_a_limit_and_counted_beyond() -> None:
    ledger = lively()
    items = [item._replace(signature=bytes(64)) if isinstance(item, BatchItem) else item for item in ledger.items()]
    report = verify_items(items, root=ledger.root, findings_max=5)
    assert len(report.findings) == 5
    assert report.findings_total > 20
    assert sum(report.codes.values()) == report.findings_total
    assert not report.ok
    assert not verify_items(items, root=ledger.root, findings_max=0).ok


def test_findings_come_along_the_ledger() -> None:
    ledger = lively()
    items = [item._replace(signature=bytes(64)) if isinstance(item, BatchItem) else item for item in ledger.items()]
    places = [
        finding.batch_no for finding in verify_items(items, root=ledger.root).findings if finding.batch_no is not None
    ]
    assert places == sorted(places)


def test_every_finding_code_says_what_it_means_and_what_it_usually_is() -> None:
    assert all(kind.meaning and kind.usually for kind in FINDINGS.values())
    assert (
        str(Finding("SEQ_WRONG", "why", 1, 2, 3, "job", 4))
        == "SEQ_WRONG (partition 1, batch 2, record 3, job job, transition 4): why"
    )
    assert str(Finding("TRUST_UNPINNED", "why")) == "TRUST_UNPINNED: why"


def test_signatures_are_checked_together_by_the_given_checker() -> None:
    ledger = lively()
    sizes: list[int] = []

    def verify_many(signed: Sequence[Signed]) -> list[bool]:
        sizes.append(len(signed))
        return verify_each(signed)

    assert ledger.verify(verify_many=verify_many).ok
    assert sizes == [19]
    assert codes(ledger.verify(verify_many=lambda signed: [False] * len(signed))) == {
        "BATCH_SIGNATURE_INVALID",
        "MANIFEST_SIGNATURE_INVALID",
    }


def test_an_answer_that_is_not_true_is_not_a_good_signature() -> None:
    ledger = lively()
    report = ledger.verify(verify_many=lambda signed: [1] * len(signed))
    assert not report.ok


def test_items_stand_in_their_order() -> None:
    ledger = lively()
    items = ledger.items()
    assert codes(verify_items(items[1:], root=ledger.root)) >= {"ITEM_OUT_OF_ORDER"}
    assert codes(verify_items([*items, items[0]], root=ledger.root)) == {"ITEM_OUT_OF_ORDER"}
    assert codes(verify_items([*items, items[1]], root=ledger.root)) == {"ITEM_OUT_OF_ORDER"}
    run = ledger.run_items("run-1")
    whole = next(item for item in items if isinstance(item, BatchItem))
    assert codes(verify_items([*run[:-1], whole, run[-1]], root=ledger.root)) == {"ITEM_OUT_OF_ORDER"}
    assert codes(verify_items([*items[:3], run[3], *items[3:]], root=ledger.root)) == {"ITEM_OUT_OF_ORDER"}
    foreign = HeadItem(7, ledger.heads[0].note)
    assert codes(verify_items([items[0], foreign, *items[1:]], root=ledger.root)) == {"BATCH_PARTITION_WRONG"}


def test_without_a_header_the_rest_is_still_looked_at() -> None:
    ledger = lively()
    assert codes(verify_items(ledger.items()[3:], root=ledger.root)) == {"ITEM_OUT_OF_ORDER"}
    run = ledger.run_items("run-1")
    assert codes(verify_items(run[2:], root=ledger.root)) == {"ITEM_OUT_OF_ORDER", "HEAD_MISSING", "RUN_MISSING"}


def test_a_bundle_whose_beginning_was_changed_is_read_to_its_end() -> None:
    """What is said of a file that is no bundle hides nothing of one that is: its other items can be read."""
    ledger = lively()
    data = ledger.bundle()
    place = data.index(b"\xa7av\x01dkindfheader")
    for changed in (b"\x87", b"K", bytes(24)):
        start = data[:place] + changed + data[place + len(changed) :]
        found = codes(verify_bundle(BytesIO(start), ledger.root))
        assert found >= {"BUNDLE_MALFORMED", "ITEM_OUT_OF_ORDER", "BUNDLE_DIGEST_WRONG"}
    for cut in (0, 1, place, place + 1, place + 9):
        assert codes(verify_bundle(BytesIO(data[:cut]))) == {"BUNDLE_TRUNCATED", "TRUST_UNPINNED", "BUNDLE_MALFORMED"}


def test_what_a_reader_finds_stands_in_the_report() -> None:
    ledger = lively()
    finding = Finding("STORE_DAMAGED", "a page cannot be read")
    report = verify_items([*ledger.items(), finding], root=ledger.root)
    assert report.findings == (finding,)
    assert not report.ok


def test_more_tree_heads_than_can_be_held_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.ledger.tree_heads.HEADS_MAX", 1)
    report = lively().verify()
    assert codes(report) == {"BUNDLE_MALFORMED"}
    assert "more than 1 tree heads" in report.findings[0].message


def test_job_rows_without_their_body_are_compared_by_their_columns() -> None:
    ledger = lively()
    items = [item._replace(body=None) if isinstance(item, JobItem) else item for item in ledger.items(rows=True)]
    assert verify_items(items, root=ledger.root, rows_expected=True).ok


def test_nothing_at_all_is_not_green() -> None:
    assert codes(verify_items([], root=bytes(32))) == {"BUNDLE_MALFORMED"}
    empty = verify_items([HeaderItem("detent/x", 2)], root=bytes(32))
    assert codes(empty) == {"TRUST_MISSING"}
    assert codes(verify_items([HeaderItem("detent/x", 1, "run", "r")], root=bytes(32))) == {"RUN_MISSING"}


def test_erased_content_is_absent_and_its_history_whole() -> None:
    """X-171"""
    ledger = lively()
    assert any("1 contents were erased on purpose" in line for line in ledger.verify().proved)
    ledger.contents.append(ContentItem(ledger.contents[0].digest, b"a payload that goes"))
    assert codes(ledger.verify()) == {"CONTENT_DIGEST_WRONG"}
    data = b"a payload that goes"
    ledger.contents[-1] = ContentItem(sha256(data), data)
    assert codes(ledger.verify()) == {"CONTENT_NOT_ERASED"}


steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=80)


@given(steps)
def test_no_honest_ledger_is_ever_red(moves: list[tuple[str, int]]) -> None:
    """Tampering rules: false alarms on untouched ledgers: 0"""
    ledger = Builder(config=CONFIG)
    for name, number in moves:
        play(ledger, name, number)
    ledger.commit()
    report = verify_items(ledger.items(rows=True), root=ledger.root, rows_expected=True)
    assert report.findings == ()
    assert ledger.verify().ok
    ended = [run_id for (_, run_id), run in ledger.runs.items() if run.status != "running"]
    for run_id in ended:
        assert verify_items(ledger.run_items(run_id), root=ledger.root).findings == ()


def test_the_random_lives_reach_every_end_every_move_and_every_reason() -> None:
    """A property over ledgers in which nothing happens would prove nothing."""
    ledger, dice = Builder(config=CONFIG), random.Random(4711)
    for _ in range(1_500):
        play(ledger, dice.choice(STEPS), dice.randrange(10))
    ledger.commit()
    seen: Counter[tuple[str, str, str]] = Counter()
    for commit in ledger.commits:
        for body, evidence in commit.records:
            fields = decode(body)
            if fields["kind"] == "transition":
                seen[fields["from_state"], fields["to_state"], decode(evidence or b"")["kind"]] += 1
    allowed = {(*move, kind) for move, kinds in KINDS_FOR.items() for kind in kinds}
    assert allowed - seen.keys() == {("RETRYING", "QUEUED", "cancel")} - seen.keys()
    assert ledger.verify().findings == ()
