"""Replay: the recorded commands lead to the recorded bytes, and whatever does not is named."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

from detent.canon import encode
from detent.kernel import Claim, IterEvent, MemoryHistory, RaiseEpoch, decode_commands, encode_commands
from detent.ledger import BatchItem, Item, read_items, replay_items, verify_items
from tests.ledger.build import Builder, edit, key, lively, seal_commits


def test_replaying_an_untouched_ledger_gives_the_same_bytes() -> None:
    """X-165, PIPE-118"""
    ledger = lively()
    report = replay_items(read_items(BytesIO(ledger.bundle())))
    assert report.ok
    assert report.differences == ()
    assert report.batches == len(ledger.commits)
    assert report.commands == sum(commit.command_count for commit in ledger.commits)
    assert report.records == sum(len(commit.records) for commit in ledger.commits)
    assert report.transition_log_hash == ledger.verify().transition_log_hash
    assert report.metrics == (ledger.kernels[0].metrics_snapshot(),)


def test_several_partitions_are_replayed_apart() -> None:
    ledger = Builder(partitions=3)
    for number in range(12):
        ledger.submit(f"job-{number}")
    for partition in range(3):
        ledger.claim(20, partition=partition)
    ledger.commit()
    report = replay_items(ledger.items())
    assert report.ok
    assert len(report.metrics) == 3
    assert report.transition_log_hash == ledger.verify().transition_log_hash


def test_a_changed_command_is_found() -> None:
    """X-165: verify finds the digest, replay the consequence, even if the owner signs the forgery"""
    ledger = lively()
    commit = ledger.commits[2]
    [claim] = decode_commands(commit.commands)
    assert isinstance(claim, Claim)
    forged = encode_commands([replace(claim, replica_id="worker-2")])
    assert forged != commit.commands
    ledger.commits[2] = replace(commit, commands=forged)
    items = ledger.items()
    assert verify_items([item for item in items if not hasattr(item, "note")], root=ledger.root).ok, (
        "signed by the owner"
    )
    report = replay_items(items)
    assert not report.ok
    first = report.differences[0]
    assert (first.partition, first.batch_no, first.position) == (0, 2, 6)
    assert "evidence_ref" in first.problem


def test_a_forged_record_is_found_by_name_of_its_fields() -> None:
    """PIPE-118"""
    ledger = lively()
    commit = ledger.commits[1]
    body, evidence = commit.records[0]
    commit.records[0] = (edit(body, tick=9), evidence)
    report = replay_items(ledger.items())
    assert [(difference.position, difference.problem) for difference in report.differences] == [
        (2, "the record differs in tick")
    ]
    assert not report.ok


def test_changed_evidence_a_missing_record_and_other_ticks_are_found() -> None:
    ledger = lively()
    body, evidence = ledger.commits[2].records[0]
    assert evidence is not None
    ledger.commits[2].records[0] = (body, edit(evidence, reason_code="OTHER"))
    del ledger.commits[3].records[-1]
    ledger.commits[4].last_tick += 1
    problems = [difference.problem for difference in replay_items(ledger.items()).differences]
    assert problems[0] == "the record's evidence differs"
    assert any("the commands lead to 4 records, the ledger has 3" in problem for problem in problems)
    assert any("the replay went from tick" in problem for problem in problems)


def test_commands_that_are_not_those_the_batch_binds_are_found() -> None:
    ledger = lively()
    items: list[Item] = list(ledger.items())
    place = next(index for index, item in enumerate(items) if isinstance(item, BatchItem)) + 1
    item = items[place]
    assert isinstance(item, BatchItem)
    items[place] = item._replace(commands=encode_commands(decode_commands(item.commands)[:-1]))
    problems = [difference.problem for difference in replay_items(items).differences]
    assert "the commands are not those the batch record binds" in problems


def test_hostile_commands_are_a_difference_and_no_error() -> None:
    ledger = lively()
    for blob in (
        b"\xff",
        encode([["tick", []]]),
        encode([["heartbeat", 5, [], {}]]),
        encode([["epoch", 1, 2, 3, 4]]),
        encode([[]]),
    ):
        commits = [replace(ledger.commits[0]), replace(ledger.commits[1], commands=blob, command_count=1)]
        report = replay_items(seal_commits(commits)[0].items)
        assert not report.ok
        assert report.differences[-1].batch_no == 1


def test_a_batch_record_that_cannot_be_read_ends_the_replay_of_its_partition() -> None:
    items = [item for item in lively().items() if isinstance(item, BatchItem)]
    items[1] = items[1]._replace(body=b"\xa0")
    report = replay_items(items)
    assert not report.ok
    assert report.transition_log_hash is None
    assert len(report.differences) == 1


def test_differences_are_kept_up_to_a_limit_and_counted_beyond() -> None:
    ledger = Builder()
    for number in range(150):
        ledger.submit(f"job-{number:03d}")
    ledger.commit()
    commit = ledger.commits[1]
    commit.records = [(edit(body, tick=1), evidence) for body, evidence in commit.records]
    report = replay_items(ledger.items())
    assert len(report.differences) == 100
    assert report.differences_total == 150


def test_the_bundle_of_a_run_has_nothing_to_replay_and_says_so() -> None:
    report = replay_items(lively().run_items("run-1"))
    assert not report.ok
    assert "commands are not in it" in report.notes[0]
    assert report.to_map()["notes"] == list(report.notes)


def test_nothing_at_all_is_not_a_replay() -> None:
    assert not replay_items([]).ok
    assert not replay_items(read_items(BytesIO(b""))).ok


def test_the_trace_is_handed_on_and_the_history_is_the_callers() -> None:
    """PIPE-110"""
    ledger = lively()
    events: list[IterEvent] = []
    histories: list[MemoryHistory] = []

    def make_history(partition: int) -> MemoryHistory:
        assert partition == 0
        histories.append(MemoryHistory())
        return histories[-1]

    report = replay_items(
        ledger.items(), make_history=make_history, after_command=lambda _, __, outcome: events.extend(outcome.events)
    )
    assert report.ok
    committed = [event for event in events if event.status == "COMMITTED"]
    assert len(committed) == ledger.verify().counts["transitions"]
    assert set(histories[0].jobs) == {job_id for job_id, job in ledger.rows.items() if job.terminal}


def test_a_ledger_that_never_had_an_owner_is_replayed_with_the_plain_configuration() -> None:
    ledger = Builder()
    without = [
        command for command in decode_commands(ledger.commits[0].commands) if not isinstance(command, RaiseEpoch)
    ]
    commit = replace(ledger.commits[0], commands=encode_commands(without), command_count=1)
    report = replay_items(seal_commits([commit])[0].items)
    assert not report.ok
    assert "the commands lead to 1 records, the ledger has 2" in [
        difference.problem for difference in report.differences
    ]


def test_another_signer_in_the_epoch_command_shows_in_every_record() -> None:
    ledger = lively()
    commands = [
        replace(command, signer_key_id=key("stranger").key_id) if isinstance(command, RaiseEpoch) else command
        for command in decode_commands(ledger.commits[0].commands)
    ]
    ledger.commits[0].commands = encode_commands(commands)
    report = replay_items(ledger.items())
    assert report.differences_total == report.records
