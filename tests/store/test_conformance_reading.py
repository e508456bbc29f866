"""What every store must answer when it is read, put to each of them."""

from __future__ import annotations

import pickle
from hashlib import sha256
from typing import Any

import pytest

from detent.errors import InvalidInput, InvariantBroken
from detent.store.api import (
    CHECKPOINTS_KEPT,
    CONTENT_INLINE_BYTES_MAX,
    REFUSALS_KEPT_MAX,
    CheckpointRow,
    DecisionsRow,
    Hashed,
    JobHead,
    JobsWanted,
    Store,
    TreeHeadRow,
)
from tests.store.ledgers import Ledger
from tests.store.rows import (
    PARTITIONS,
    Writer,
    content,
    digest,
    everything,
    job,
    note,
    refusal,
    run,
    stored,
    submitted,
    transition,
)

# Records


def test_records_of_a_job_come_in_the_order_they_were_appended(writer: Writer, store: Store) -> None:
    writer.submit("a", "b")
    writer.move("b", 1, "RUNNING")
    writer.move("a", 1, "RUNNING")
    writer.move("a", 2, "SUCCEEDED")
    writer.append([note("step_reused", job_id="a")])
    found = list(store.records_of_job("a"))
    assert [(record.kind, record.transition_seq) for record in found] == [
        ("submitted", None),
        ("transition", 0),
        ("transition", 1),
        ("step_reused", None),
    ]
    assert list(store.records_of_job("nobody")) == []


def test_a_record_may_name_a_job_that_has_no_row(writer: Writer, store: Store) -> None:
    writer.append([note("erased", job_id="elsewhere")])
    assert [record.job_id for record in store.records(0)] == ["elsewhere"]
    assert [record.kind for record in store.records_of_job("elsewhere")] == ["erased"]
    assert store.job("elsewhere") is None
    assert list(store.jobs()) == []


def test_records_are_found_by_kind_within_a_partition(store: Store) -> None:
    Writer(store, 0).append([note("owner_epoch"), submitted("a"), note("owner_epoch")], [job("a")])
    Writer(store, 1).append([note("owner_epoch"), submitted("b")], [job("b")])
    assert [record.position for record in store.records_of_kind(0, "owner_epoch")] == [0, 2]
    assert [record.position for record in store.records_of_kind(0, "owner_epoch", 1)] == [2]
    assert list(store.records_of_kind(0, "owner_epoch", 3)) == []
    assert [record.job_id for record in store.records_of_kind(1, "submitted")] == ["b"]
    assert list(store.records_of_kind(1, "submitted", 9)) == []
    assert [record.position for record in store.records_of_kind(1, "owner_epoch")] == [0]
    assert list(store.records_of_kind(0, "trust_changed")) == []
    assert list(store.records_of_kind(0, "transition")) == []


def test_records_of_a_run_are_its_own_and_its_jobs_submissions(store: Store) -> None:
    second, first = Writer(store, 1), Writer(store, 0)
    second.submit("b", run_id="run-1")
    first.append([note("run_started", run_id="run-1"), note("run_started", run_id="run-2")])
    first.submit("a", run_id="run-1")
    first.append(
        [transition("a", 0)._replace(run_id="run-1"), note("run_ended", run_id="run-1")],
        [job("a", seq=1, state="RUNNING", run_id="run-1")],
    )
    found = [(record.partition, record.kind, record.job_id) for record in store.records_of_run("run-1")]
    assert found == [
        (0, "run_started", None),
        (0, "submitted", "a"),
        (0, "run_ended", None),
        (1, "submitted", "b"),
    ]


def test_a_transition_is_found_by_its_sequence(writer: Writer, store: Store) -> None:
    writer.submit("a")
    writer.move("a", 1, "RUNNING")
    commit = writer.move("a", 2, "FAILED")
    assert store.transition("a", 1) == commit.records[0]
    assert store.transition("a", 2) is None
    assert store.transition("b", 0) is None


# Jobs and runs

UNORDERED = ["b", "é", "a", "Z", "\U0001f600", "\uffff", "aa"]
ORDERED = ["Z", "a", "aa", "b", "é", "\uffff", "\U0001f600"]


def test_jobs_and_heads_are_ordered_by_the_bytes_of_their_ids(writer: Writer, store: Store) -> None:
    """X-050"""
    writer.submit(*UNORDERED)
    assert [row.job_id for row in store.jobs()] == ORDERED
    assert list(store.job_heads()) == [JobHead(job_id, 0, digest(f"{job_id} 0")) for job_id in ORDERED]


def test_jobs_are_read_in_pages(writer: Writer, store: Store) -> None:
    writer.submit(*UNORDERED)
    seen: list[str] = []
    while page := [row.job_id for row in store.jobs(after=seen[-1] if seen else None, limit=3)]:
        assert len(page) <= 3
        seen += page
    assert seen == ORDERED
    assert list(store.jobs(limit=0)) == []


def test_recent_jobs_come_newest_first_by_submission(writer: Writer, store: Store) -> None:
    """Not by their last change, and not by their ids, which are drawn."""
    writer.submit("c", "a", run_id="run-1")
    writer.submit("d", "b")
    for job_id, run_id in (("c", "run-1"), ("b", None)):
        writer.move(job_id, 1, "RUNNING", run_id=run_id)
    writer.move("c", 2, "SUCCEEDED", run_id="run-1")

    def ids(**choice: object) -> list[str]:
        return [row.job_id for row in store.recent_jobs(**choice)]  # type: ignore[arg-type]

    assert ids() == ["b", "d", "a", "c"]
    assert ids(limit=2) == ["b", "d"]
    assert ids(limit=0) == []
    assert ids(run_id="run-1") == ["a", "c"]
    assert ids(run_id="run-1", state="QUEUED") == ["a"]
    assert ids(state="QUEUED") == ["d", "a"]
    assert ids(state="SUCCEEDED") == ["c"]
    assert ids(state="RUNNING", limit=1) == ["b"]
    assert ids(run_id="run-2") == []


def test_a_page_has_one_tenants_jobs_newest_first(writer: Writer, store: Store) -> None:
    writer.submit("c", "a", run_id="run-1")
    others = ("x", "d", "y")
    writer.append([submitted(name) for name in others], [job(name, tenant_id="other") for name in others])
    writer.submit("b", "e")
    for job_id, state in (("b", "FAILED"), ("e", "CANCELED")):
        writer.move(job_id, 1, "RUNNING")
        writer.move(job_id, 2, state)
    writer.move("c", 1, "RUNNING", run_id="run-1")

    def ids(tenant: str = "tenant", *, limit: int = 10, **choice: Any) -> list[str]:
        found = store.jobs_page(JobsWanted(tenant, **choice), limit=limit)
        assert [number for number, _ in found] == sorted((number for number, _ in found), reverse=True)
        return [row.job_id for _, row in found]

    assert ids() == ["e", "b", "a", "c"]
    assert ids("other") == ["y", "d", "x"]
    assert ids("nobody") == []
    assert ids(limit=2) == ["e", "b"]
    second = store.jobs_page(JobsWanted("tenant"), limit=2)[1][0]
    assert ids(before=second) == ["a", "c"]
    assert ids(before=0) == []
    assert ids(state="QUEUED") == ["a"]
    assert ids("other", state="QUEUED") == ["y", "d", "x"]
    assert ids(state="FAILED") == ["b"]
    assert ids("other", state="FAILED") == []
    assert ids(state="CANCELED", before=second) == []
    assert ids(run_id="run-1") == ["a", "c"]
    assert ids(run_id="run-1", state="RUNNING") == ["c"]
    assert ids("other", run_id="run-1") == []
    assert ids(label="nothing/like it") == []


def test_jobs_and_runs_are_found_by_the_beginning_of_their_ids(writer: Writer, store: Store) -> None:
    writer.submit("ab-1", "ab-2", "ac-1", "b")
    writer.append([submitted("ab-9")], [job("ab-9", tenant_id="other")], runs=[run("ab-r"), run("b-r")])

    def ids(prefix: str, tenant: str = "tenant", **choice: object) -> list[str]:
        return [row.job_id for row in store.jobs_prefixed(tenant, prefix, **{"limit": 10, **choice})]  # type: ignore[arg-type]

    assert ids("a") == ["ab-1", "ab-2", "ac-1"]
    assert ids("ab") == ["ab-1", "ab-2"]
    assert ids("ab", "other") == ["ab-9"]
    assert ids("ab", after="ab-1") == ["ab-2"]
    assert ids("a", limit=1) == ["ab-1"]
    assert ids("%") == ids("A") == ids("ab-1x") == []
    assert [row.run_id for row in store.runs_prefixed("tenant", "ab", limit=10)] == ["ab-r"]
    assert [row.run_id for row in store.runs_prefixed("tenant", "", after="ab-r", limit=10)] == ["b-r"]
    assert store.runs_prefixed("other", "ab", limit=10) == []
    last = store.last_run_prefixed("tenant", "")
    assert last is not None
    assert last.run_id == "b-r"
    assert store.last_run_prefixed("tenant", "ab") == store.run("ab-r")
    assert store.last_run_prefixed("other", "ab") is store.last_run_prefixed("tenant", "ac") is None


def test_a_page_has_one_tenants_runs_newest_first(writer: Writer, store: Store) -> None:
    mine = [run("b", started=5), run("a", started=5), run("c", started=1, ended=9, status="completed")]
    writer.append(runs=[*mine, run("x", started=7)._replace(tenant_id="other")])

    def ids(tenant: str = "tenant", **choice: object) -> list[str]:
        return [row.run_id for row in store.runs_page(tenant, **{"limit": 10, **choice})]  # type: ignore[arg-type]

    assert ids() == ["b", "a", "c"]
    assert ids("other") == ["x"]
    assert ids("nobody") == []
    assert ids(limit=1) == ["b"]
    assert ids(before=(5, "b")) == ["a", "c"]
    assert ids(before=(5, "a")) == ["c"]
    assert ids(before=(1, "c")) == []
    assert ids(status="completed") == ["c"]
    assert ids(status="RUNNING", before=(5, "b")) == ["a"]
    assert ids("other", status="completed") == []


def test_jobs_are_chosen_by_run_and_state(writer: Writer, store: Store) -> None:
    writer.submit("c", "a", "b", run_id="run-1")
    writer.submit("d")
    for job_id, run_id in (("a", "run-1"), ("b", "run-1"), ("d", None)):
        writer.move(job_id, 1, "RUNNING", run_id=run_id)
    writer.move("b", 2, "SUCCEEDED", run_id="run-1")

    def ids(**choice: str) -> list[str]:
        return [row.job_id for row in store.jobs(**choice)]  # type: ignore[arg-type]

    assert ids(run_id="run-1") == ["a", "b", "c"]
    assert ids(run_id="run-1", state="RUNNING") == ["a"]
    assert ids(run_id="run-1", after="a") == ["b", "c"]
    assert ids(state="RUNNING") == ["a", "d"]
    assert ids(state="RUNNING", after="a") == ["d"]
    assert ids(state="SUCCEEDED") == ["b"]
    assert ids(state="SUCCEEDED", after="b") == []
    assert ids(state="CANCELED") == []
    assert [row.job_id for row in store.jobs(state="RUNNING", limit=1)] == ["a"]
    assert [head.job_id for head in store.job_heads(run_id="run-1")] == ["a", "b", "c"]
    assert list(store.job_heads(run_id="run-2")) == []
    assert store.job_counts() == {"QUEUED": 1, "RUNNING": 2, "SUCCEEDED": 1}


def test_a_jobs_row_is_the_last_one_written(writer: Writer, store: Store) -> None:
    writer.submit("a")
    commit = writer.move("a", 1, "RUNNING")
    assert store.job("a") == stored(commit.jobs[0])
    assert store.job("b") is None
    # What was read can be written back as it is: it expects the sequence it was read at.
    row = store.job("a")
    assert row is not None
    writer.append([], [row._replace(body=b"heartbeat")])
    assert store.job("a") == row._replace(body=b"heartbeat")


def test_runs_come_newest_first_and_are_replaced_whole(writer: Writer, store: Store) -> None:
    writer.append(runs=[run("old", started=1), run("same-b", started=5), run("same-a", started=5)])
    writer.append(runs=[run("old", started=1, ended=9, status="SUCCEEDED")])
    assert [row.run_id for row in store.runs()] == ["same-b", "same-a", "old"]
    assert [row.run_id for row in store.runs(limit=1)] == ["same-b"]
    assert [row.run_id for row in store.runs(status="SUCCEEDED")] == ["old"]
    assert [row.run_id for row in store.runs(status="RUNNING", limit=1)] == ["same-b"]
    assert list(store.runs(status="CANCELED")) == []
    assert store.run("old") == run("old", started=1, ended=9, status="SUCCEEDED")
    assert store.run("none") is None


def test_open_runs_come_newest_first_and_none_that_has_ended(writer: Writer, store: Store) -> None:
    opened = [run(name, started=at, status="running") for name, at in (("a", 3), ("b", 4), ("c", 4), ("d", 1))]
    writer.append(runs=[*opened, run("other", started=9)])
    assert [row.run_id for row in store.runs(status="running")] == ["c", "b", "a", "d"]
    writer.append(runs=[run("b", started=4, ended=5, status="completed")])
    assert [row.run_id for row in store.runs(status="running")] == ["c", "a", "d"]
    assert [row.run_id for row in store.runs(status="running", limit=2)] == ["c", "a"]
    assert next(store.runs(status="running")) == opened[2]


# Content


def test_content_is_kept_by_digest_in_the_commit_that_names_it(writer: Writer, store: Store) -> None:
    """X-181"""
    pairs = [content("payload"), content(bytes(CONTENT_INLINE_BYTES_MAX)), content(b"")]
    writer.append(content=pairs)
    writer.append(content=[content("payload")])
    assert [store.content(found) for found, _ in pairs] == [data for _, data in pairs]
    assert list(store.content_digests()) == sorted((found, len(data)) for found, data in pairs)
    assert store.content(digest("other")) is None


def test_decisions_are_kept_by_the_batch_that_decided(store: Store) -> None:
    """X-181"""
    one, other = Writer(store), Writer(store, 1)
    one.append(decisions=b"first")
    one.append()
    one.append(decisions=b"third")
    other.append(decisions=b"theirs")
    assert list(store.decisions(0)) == [DecisionsRow(0, 0, b"first"), DecisionsRow(0, 2, b"third")]
    assert list(store.decisions(0, 1, 3)) == [DecisionsRow(0, 2, b"third")]
    assert list(store.decisions(0, 1, 2)) == []
    assert list(store.decisions(1)) == [DecisionsRow(1, 0, b"theirs")]
    assert list(store.decisions(2)) == []


def test_content_that_this_process_hashed_is_kept_without_hashing_it_again(
    writer: Writer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only making `Hashed` content computes its digest; a pair from elsewhere is hashed by every store."""
    hashed, plain = Hashed(b"staged here"), content("from elsewhere")
    asked: list[bytes] = []

    def counted(data: bytes) -> Any:
        asked.append(data)
        return sha256(data)

    monkeypatch.setattr("detent.store.checks.sha256", counted)
    writer.append(content=[hashed, plain])
    assert asked == [b"from elsewhere"]
    assert store.content(digest("staged here")) == b"staged here"


def test_hashed_content_does_not_leave_its_process() -> None:
    with pytest.raises(TypeError, match="does not leave its process"):
        pickle.dumps(Hashed(b"data"))


def test_erased_content_is_gone_and_known_as_erased(writer: Writer, store: Store) -> None:
    writer.append(content=[content("secret"), content("kept")])
    writer.append(erased=[digest("secret"), digest("in a file")])
    assert store.content(digest("secret")) is None
    assert store.content(digest("kept")) == b"kept"
    assert list(store.erased_digests()) == sorted([digest("secret"), digest("in a file")])
    assert [store.is_erased(digest(text)) for text in ("secret", "in a file", "kept", "never")] == [
        True,
        True,
        False,
        False,
    ]
    assert list(store.content_digests()) == [(digest("kept"), 4)]


def test_content_that_comes_again_after_its_erasure_is_kept(writer: Writer, store: Store) -> None:
    writer.append(content=[content("twice")])
    writer.append(erased=[digest("twice")])
    writer.append(content=[content("twice")])
    assert store.content(digest("twice")) == b"twice"
    assert not store.is_erased(digest("twice"))


def test_content_that_is_kept_and_erased_in_one_commit_is_erased(writer: Writer, store: Store) -> None:
    writer.append(content=[content("brief")], erased=[digest("brief")])
    assert store.content(digest("brief")) is None
    assert store.is_erased(digest("brief"))


def test_removing_unreferenced_content_frees_its_bytes_and_forgets_no_erasure(writer: Writer, store: Store) -> None:
    writer.append(content=[content("12345"), content("123"), content("kept")], erased=[digest("erased")])
    assert store.remove_content([digest("12345"), digest("123"), digest("erased"), digest("never")]) == 8
    assert store.remove_content([digest("12345")]) == 0
    assert store.remove_content([]) == 0
    assert list(store.content_digests()) == [(digest("kept"), 4)]
    assert not store.is_erased(digest("12345"))
    assert store.is_erased(digest("erased"))


# Checkpoints, tree heads, refusals


def test_the_newest_checkpoints_are_kept(store: Store) -> None:
    """X-168"""
    Writer(store, 1).append(checkpoint=CheckpointRow(1, 0, digest("other"), b"other"))
    writer = Writer(store, 0)
    rows = [CheckpointRow(0, number, digest(f"{number}"), b"%d" % number) for number in range(5)]
    for row in rows:
        writer.append(checkpoint=row)
    assert list(store.checkpoints(0)) == rows[:-3:-1]
    assert CHECKPOINTS_KEPT == 2
    assert [row.body for row in store.checkpoints(1)] == [b"other"]


def test_tree_heads_come_newest_first_and_a_cosigned_one_replaces_the_plain_one(writer: Writer, store: Store) -> None:
    for size in (1, 2, 3):
        writer.append(tree_head=TreeHeadRow(0, size, f"note {size}"))
    store.append_tree_head(TreeHeadRow(0, 2, "note 2, cosigned"))
    assert [head.note for head in store.tree_heads(0)] == ["note 3", "note 2, cosigned", "note 1"]
    assert list(store.tree_heads(1)) == []


@pytest.mark.parametrize("head", [TreeHeadRow(0, 2, "note"), TreeHeadRow(0, 0, "note"), TreeHeadRow(0, 1, "")])
def test_a_tree_head_over_batches_that_are_not_there_is_a_broken_invariant(
    writer: Writer, store: Store, head: TreeHeadRow
) -> None:
    writer.append()
    with pytest.raises(InvariantBroken):
        store.append_tree_head(head)
    assert list(store.tree_heads(0)) == []


def test_refusals_come_newest_first(writer: Writer, store: Store) -> None:
    """X-182"""
    writer.append(refusals=[refusal("QUEUE_FULL", job_id="a"), refusal("CONFLICT", tick=1, job_id="b")])
    store.append_refusals([refusal("UNKNOWN_JOB", tick=2), refusal("LEASE_INVALID", tick=3, job_id="a")])
    store.append_refusals([])
    assert [row.code for row in store.refusals()] == ["LEASE_INVALID", "UNKNOWN_JOB", "CONFLICT", "QUEUE_FULL"]
    assert [row.code for row in store.refusals(job_id="a")] == ["LEASE_INVALID", "QUEUE_FULL"]
    assert [row.code for row in store.refusals(limit=1)] == ["LEASE_INVALID"]


def test_of_too_many_refusals_the_oldest_go(store: Store) -> None:
    """X-182"""
    store.append_refusals([refusal("CONFLICT", tick=tick) for tick in range(REFUSALS_KEPT_MAX)])
    store.append_refusals([refusal("CONFLICT", tick=REFUSALS_KEPT_MAX + more) for more in range(5)])
    ticks = [row.tick for row in store.refusals(limit=REFUSALS_KEPT_MAX * 2)]
    assert (len(ticks), ticks[0], ticks[-1]) == (REFUSALS_KEPT_MAX, REFUSALS_KEPT_MAX + 4, 5)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (refusal("CONFLICT")._replace(partition=PARTITIONS), InvariantBroken),
        (refusal(""), InvariantBroken),
        (refusal("CONFLICT", tick=2**63), InvalidInput),
    ],
)
def test_an_impossible_refusal_is_not_kept(store: Store, wrong: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        store.append_refusals([refusal("CONFLICT"), wrong])  # type: ignore[list-item]
    assert list(store.refusals()) == []


# Moments


def test_an_iterator_shows_the_moment_it_was_asked_for(writer: Writer, store: Store) -> None:
    writer.submit("a", "b", "c")
    jobs, records, batches = store.jobs(), store.records(0), store.batches(0)
    first = next(jobs)
    writer.move("c", 1, "RUNNING")
    writer.submit("d")
    assert [row.state for row in [first, *jobs]] == ["QUEUED"] * 3
    assert len(list(records)) == 3
    assert len(list(batches)) == 1
    assert len(list(store.records(0))) == 5


def test_a_snapshot_shows_the_moment_it_was_taken_to_every_question(ledger: Ledger, writer: Writer) -> None:
    store = ledger.store
    writer.submit("a")
    before = everything(store)
    with store.snapshot() as moment:
        writer.move("a", 1, "RUNNING")
        writer.append(content=[content("new")], refusals=[refusal("CONFLICT")])
        assert everything(moment) == before
    assert everything(store) != before


def test_another_handle_sees_what_was_committed(ledger: Ledger) -> None:
    writer = Writer(ledger.store)
    writer.submit("a")
    other = ledger.second()
    assert everything(other) == everything(ledger.store)
    writer.move("a", 1, "RUNNING")
    assert everything(other) == everything(ledger.store)
