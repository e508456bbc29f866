"""Tampering by an attacker with the owner's key, with other records than those of jobs: runs, owners, configurations, erasures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.canon import decode, encode, sha256
from detent.kernel import AdvanceTick, EndRun, encode_commands
from detent.kernel.evidence import Evidence
from tests.ledger.build import Builder, codes, edit, lively
from tests.tamper.forge import LEASE, append, check, found, next_record, place_of, position_of, rewrite, running


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"jobs_digest": LEASE}, "RUN_JOBS_WRONG"),
        ({"job_count": 3}, "RUN_JOBS_WRONG"),
        ({"steps_reused": 0}, "RUN_JOBS_WRONG"),
        ({"tenant_id": "rival"}, "RUN_JOBS_WRONG"),
        ({"run_id": "other"}, "RUN_UNKNOWN"),
        ({"status": "fine"}, "RECORD_FIELDS_WRONG"),
    ],
)
def test_an_altered_end_of_a_run_is_found(changes: dict[str, Any], code: str) -> None:
    """Tampering: canonical log hash in run_end altered (recomputed). X-050, X-167"""
    ledger = lively()
    number, index = place_of(ledger, "run_ended")
    rewrite(ledger, number, index, **changes)
    assert found(check(ledger), code).position == position_of(ledger, number, index)


def test_a_reason_that_is_added_to_the_end_of_a_run_or_taken_from_it_is_found() -> None:
    """Tampering: the limit that ended a run denied, or invented (recomputed). X-116: the run's row says otherwise."""
    for reason, changed in ((None, "RUN_TIMEOUT"), ("RUN_TIMEOUT", None), ("RUN_TIMEOUT", "OTHER")):
        ledger = Builder()
        ledger.start_run("run-1")
        ledger.apply(EndRun(ledger.tick, "run-1", "failed", reason))
        ledger.commit()
        assert check(ledger, ledger.items(rows=True), rows_expected=True).ok
        number, index = place_of(ledger, "run_ended")
        body, _ = ledger.commits[number].records[index]
        fields = {name: value for name, value in decode(body).items() if name != "reason_code"}
        fields |= {} if changed is None else {"reason_code": changed}
        ledger.commits[number].records[index] = (encode(fields), None)
        assert codes(check(ledger, ledger.items(rows=True), rows_expected=True)) == {"FOLD_DIFFERS"}


@pytest.mark.parametrize("reason", [None, "", "not a code", 7])
def test_a_reason_that_is_no_code_is_found(reason: Any) -> None:
    """X-116"""
    ledger = lively()
    number, index = place_of(ledger, "run_ended")
    body, _ = ledger.commits[number].records[index]
    ledger.commits[number].records[index] = (encode(decode(body) | {"reason_code": reason}), None)
    assert found(check(ledger), "RECORD_FIELDS_WRONG").position == position_of(ledger, number, index)


def test_runs_and_reuse_that_never_were_are_found() -> None:
    ledger = lively()
    start, reuse = place_of(ledger, "run_started"), place_of(ledger, "step_reused", "plain")
    records = [ledger.commits[number].records[index] for number, index in (start, reuse)]
    append(ledger, records[0])
    assert "RUN_REPEATED" in codes(check(ledger))
    ledger.commits.pop()
    append(ledger, records[1])
    assert "RUN_UNKNOWN" in codes(check(ledger)), "the run has ended"
    other = lively()
    rewrite(other, *reuse, job_id="flaky")
    assert found(check(other), "REUSE_WRONG").position == position_of(other, *reuse)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"epoch": 1}, "EPOCH_WRONG"),
        ({"epoch": 3}, "EPOCH_WRONG"),
        ({"config_digest": LEASE}, "CONFIG_WRONG"),
        ({"queue_policy_hash": LEASE}, "CONFIG_WRONG"),
        ({"replay_token": LEASE}, "CONFIG_WRONG"),
        ({"orchestrator_version": "other"}, "CONFIG_WRONG"),
        ({"signer_key_id": LEASE}, "RECORD_SIGNER_WRONG"),
        ({"partition_id": 1}, "RECORD_PARTITION_WRONG"),
    ],
)
def test_an_owners_announcement_is_recomputed_from_its_configuration(changes: dict[str, Any], code: str) -> None:
    """X-051, PIPE-060"""
    ledger = running()
    ledger.raise_epoch()
    ledger.commit()
    rewrite(ledger, 2, 0, **changes)
    assert found(check(ledger), code).batch_no == 2


def test_a_deposed_owner_who_goes_on_writing_is_found() -> None:
    """PIPE-060: an epoch never comes back"""
    ledger = running()
    ledger.raise_epoch()
    ledger.commit()
    ledger.commits.append(
        replace(
            ledger.commits[1],
            epoch=1,
            records=[],
            first_tick=ledger.tick,
            last_tick=ledger.tick,
            commands=encode_commands([]),
            command_count=0,
        )
    )
    assert found(check(ledger), "EPOCH_WRONG").batch_no == 3


def test_an_epoch_that_does_not_rise_is_found() -> None:
    """PIPE-060: an epoch never comes back"""
    ledger = running()
    ledger.raise_epoch()
    ledger.commit()
    rewrite(ledger, 2, 0, epoch=1)
    ledger.commits[2].epoch = 1
    finding = found(check(ledger), "EPOCH_WRONG")
    assert (finding.position, finding.message) == (10, "epoch 1 after epoch 1")


@pytest.mark.parametrize(
    "change", [{"partitions": 2}, {"partitions": 2, "partition_id": 1}, {"tick_ms": 7}, {"epoch_base_ms": 7}]
)
def test_what_is_fixed_for_the_life_of_a_ledger_stays_so_however_well_it_is_hashed(change: dict[str, int]) -> None:
    """X-051, PIPE-061"""
    ledger = running()
    ledger.raise_epoch()
    ledger.commit()
    config = replace(ledger.config, **change)  # type: ignore[arg-type]
    body, _ = ledger.commits[2].records[0]
    hashes = {"queue_policy_hash": config.queue_policy_hash, "replay_token": config.replay_token}
    ledger.commits[2].records[0] = (edit(body, config_digest=sha256(config.encode()), **hashes), config.encode())
    assert found(check(ledger), "CONFIG_WRONG").position == 10


def test_configurations_that_cannot_be_are_found() -> None:
    for change in (
        {"partitions": 2},
        {"tick_ms": 7},
        {"on_quota_running": ["fail"]},
        {"queue": 7},
    ):
        ledger = running()
        ledger.raise_epoch()
        ledger.commit()
        body, config = ledger.commits[2].records[0]
        assert config is not None
        other = encode(decode(config) | change)
        ledger.commits[2].records[0] = (edit(body, config_digest=sha256(other)), other)
        assert found(check(ledger), "CONFIG_WRONG").position == 10


def test_a_clock_set_back_is_found() -> None:
    """Tampering: clock set back, ticks non-monotone (R: tick monotone per partition). X-009"""
    ledger = running()
    commit = append(ledger, tick=3)
    commit.records.clear()
    ledger.commits[1].last_tick = ledger.commits[1].first_tick = 5
    report = check(ledger)
    assert found(report, "TICK_BACKWARDS").batch_no == 2
    ledger = running()
    job = ledger.rows["running"]
    ledger.tick = 20
    append(ledger, next_record(ledger, "running", "SUCCEEDED", Evidence("result", "COMPLETED", job.lease_id)))
    ledger.tick = 19
    job = ledger.rows["failing"]
    ledger.commits[-1].records.append(
        next_record(ledger, "failing", "SUCCEEDED", Evidence("result", "COMPLETED", job.lease_id))
    )
    assert found(check(ledger), "TICK_BACKWARDS").job_id == "failing"


def test_erased_digests_out_of_order_and_records_of_no_kind_are_found() -> None:
    ledger = lively()
    number, index = place_of(ledger, "erased")
    rewrite(ledger, number, index, digests=[LEASE, b"a" * 32])
    assert found(check(ledger), "ERASED_WRONG").position == position_of(ledger, number, index)
    for body in (encode({"kind": "news"}), b"\xff", b"", encode(7)):
        ledger = running()
        append(ledger, (body, None))
        assert (
            found(check(ledger), "RECORD_NOT_CANONICAL" if body in {b"\xff", b""} else "RECORD_FIELDS_WRONG").position
            == 10
        )


def erasing() -> Builder:
    """A ledger with three erasures."""
    ledger = Builder()
    for number in range(3):
        ledger.erase(sha256(b"%d" % number))
        ledger.commit()
    return ledger


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_repeated_and_a_missing_erasure_are_found(number: int) -> None:
    """X-173: erasures are numbered, so that one cannot be recorded twice"""
    ledger = erasing()
    assert check(ledger).ok
    rewrite(ledger, 2, 0, erasure_seq=number)
    assert found(check(ledger), "ERASED_WRONG").position == position_of(ledger, 2, 0)
    ledger = erasing()
    del ledger.commits[2]
    assert "erasure 2 where erasure 1 is due" in found(check(ledger), "ERASED_WRONG").message


def test_an_erasure_in_another_partition_than_the_first_is_found() -> None:
    ledger = Builder(partitions=2)
    body = {"kind": "erased", "erasure_seq": 0, "digests": [LEASE], "reason_code": "ERASED_BY_USER"}
    body |= {"partition_id": 1, "tick": 0, "signer_key_id": ledger.signer.key_id}
    ledger.apply(AdvanceTick(0), 1)
    ledger.commit()
    ledger.commits[-1].records.append((encode(body), None))
    assert found(check(ledger), "ERASED_WRONG").partition == 1


def test_a_step_that_is_reused_twice_is_found() -> None:
    """X-173"""
    ledger = lively()
    ledger.start_run("run-9")
    for number in range(2):
        ledger.reuse("run-9", f"step-{number}", "plain")
    ledger.commit()
    assert check(ledger).ok
    number = len(ledger.commits) - 1
    rewrite(ledger, number, 2, step_id="step-0")
    assert found(check(ledger), "STEP_REPEATED").position == position_of(ledger, number, 2)
    ledger = lively()
    for run_id in ("run-8", "run-9"):
        ledger.start_run(run_id)
        ledger.reuse(run_id, "step", "plain")
        ledger.end_run(run_id)
    ledger.commit()
    assert check(ledger).ok, "the same step of another run is another step"


def test_a_run_in_a_partition_that_does_not_own_it_is_found() -> None:
    """X-167: two partitions could open it otherwise"""
    ledger = Builder(partitions=2)
    home = ledger.owner("run-1")
    assert ledger.start_run("run-1", partition=1 - home).refusal is not None
    assert ledger.start_run("run-1", partition=home).ok
    ledger.commit()
    assert check(ledger).ok
    place = next(number for number, commit in enumerate(ledger.commits) if len(commit.records) == 1)
    other = next(f"run-{number}" for number in range(99) if ledger.owner(f"run-{number}") != home)
    rewrite(ledger, place, 0, run_id=other)
    assert found(check(ledger), "RUN_PARTITION_WRONG").partition == home


def test_a_record_beyond_its_limit_is_found() -> None:
    ledger = lively()
    number, index = place_of(ledger, "erased")
    rewrite(ledger, number, index, digests=[sha256(b"%d" % place) for place in range(2_000)])
    assert found(check(ledger), "RECORD_TOO_LARGE").position == position_of(ledger, number, index)


def test_commands_that_cannot_be_read_are_found() -> None:
    for blob, count in (
        (b"\xff", 1),
        (encode([]), 1),
        (encode([7]), 1),
        (encode([["tick", -1]]), 1),
        (encode([["tick"]]), 1),
        (encode([["tick", "x"]]), 1),
    ):
        ledger = running()
        ledger.commits[1] = replace(ledger.commits[1], commands=blob, command_count=count)
        assert found(check(ledger), "COMMANDS_MALFORMED").batch_no == 1
