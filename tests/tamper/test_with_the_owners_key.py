"""Tampering by an attacker with the owner's key, with the records of jobs: every signature is good, and the rules still find it.

Runs, owners and erasures have `test_with_the_owners_key_beside_jobs`; what even they do not find, `test_what_no_rule_finds`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.canon import decode, encode, sha256
from detent.kernel import Submit
from detent.kernel.evidence import Evidence
from detent.ledger import HeadItem
from tests.ledger.build import Builder, codes, edit, key, lively
from tests.tamper.forge import LEASE, append, check, found, next_record, place_of, position_of, rewrite, running


def forged(to_state: str, job_id: str = "running", evidence: Evidence | None = None, **changes: Any) -> Any:
    """Append one forged transition and give back the finding of a code."""
    ledger = running()
    job = ledger.rows[job_id]
    grounds = evidence or Evidence("result", "COMPLETED", job.lease_id)
    append(ledger, next_record(ledger, job_id, to_state, grounds, **changes))
    return check(ledger)


def test_the_forgers_own_tools_make_records_that_pass() -> None:
    """If this were red, the tests below would find the forger's clumsiness instead of his lie."""
    assert forged("SUCCEEDED").findings == ()
    ledger = running()
    job = ledger.rows["running"]
    append(ledger, next_record(ledger, "running", "CANCELED", Evidence("cancel", "CANCELLED_BY_USER", job.lease_id)))
    assert check(ledger).findings == ()


@pytest.mark.parametrize(
    ("job_id", "to_state"),
    [
        ("queued", "SUCCEEDED"),
        ("queued", "CANCELED"),
        ("queued", "FAILED"),
        ("running", "QUEUED"),
        ("running", "RUNNING"),
        ("ended", "RUNNING"),
        ("ended", "FAILED"),
    ],
)
def test_an_illegal_transition_correctly_signed_is_found(job_id: str, to_state: str) -> None:
    """Tampering: illegal transition, correctly signed (R). PIPE-037"""
    finding = found(forged(to_state, job_id), "TRANSITION_ILLEGAL")
    assert (finding.job_id, finding.batch_no, finding.position) == (job_id, 2, 10)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tenant_id": "rival"}, "JOB_MIXED"),
        ({"job_manifest_hash": LEASE}, "JOB_MIXED"),
        ({"quota_policy_hash": LEASE}, "JOB_MIXED"),
        ({"transition_seq": 5}, "SEQ_WRONG"),
        ({"transition_seq": 0}, "SEQ_WRONG"),
        ({"attempt_id": 1}, "ATTEMPT_WRONG"),
        ({"from_state": "QUEUED"}, "STATE_WRONG"),
        ({"prev_chain_hash": LEASE}, "CHAIN_BROKEN"),
        ({"idempotency_key": LEASE}, "TRANSITION_KEY_WRONG"),
        ({"request_digest": LEASE}, "REQUEST_DIGEST_WRONG"),
        ({"evidence_ref": "sha256:" + "0" * 64}, "EVIDENCE_DIGEST_WRONG"),
        ({"lease_id": LEASE}, "LEASE_WRONG"),
        ({"lease_id": None}, "LEASE_WRONG"),
        ({"dispatch": True}, "DISPATCH_WRONG"),
        ({"reason_code": "OTHER"}, "EVIDENCE_INVALID"),
        ({"partition_id": 1}, "RECORD_PARTITION_WRONG"),
        ({"signer_key_id": LEASE}, "RECORD_SIGNER_WRONG"),
        ({"quota_verdict": "QUOTA_CPU_TIME"}, "QUOTA_WRONG"),
        ({"quota_verdict": "FINE"}, "RECORD_FIELDS_WRONG"),
        ({"batch_index": 1}, "CANCEL_BATCH_BROKEN"),
        ({"batch_len": 2}, "CANCEL_BATCH_BROKEN"),
        ({"batch_len": 0}, "CANCEL_BATCH_BROKEN"),
        ({"batch_id": LEASE}, "CANCEL_BATCH_BROKEN"),
        ({"tick": 2**64 - 1}, "TICK_OUT_OF_BATCH"),
        ({"tick": 3}, "TICK_OUT_OF_BATCH"),
    ],
)
def test_every_field_of_a_signed_record_is_held_against_the_jobs_history(changes: dict[str, Any], code: str) -> None:
    """Tampering: duplicate seq with other content, needs key (Q, H). PIPE-063, X-035, X-036, X-050, X-064"""
    finding = found(forged("SUCCEEDED", **changes), code)
    assert (finding.batch_no, finding.position) == (2, 10)


@pytest.mark.parametrize(
    ("to_state", "evidence", "code"),
    [
        ("SUCCEEDED", Evidence("expiry", "LEASE_EXPIRED"), "EVIDENCE_INVALID"),
        ("SUCCEEDED", Evidence("result", "COMPLETED", LEASE), "LEASE_WRONG"),
        ("SUCCEEDED", Evidence("result", "COMPLETED"), "LEASE_WRONG"),
        ("CANCELED", Evidence("result", "COMPLETED"), "EVIDENCE_INVALID"),
        ("RETRYING", Evidence("result", "CRASHED", category="INTERNAL_ERROR"), "RETRY_NOT_ALLOWED"),
        ("RETRYING", Evidence("result", "CRASHED", category="OTHER"), "RETRY_NOT_ALLOWED"),
        ("RETRYING", Evidence("expiry", "LEASE_EXPIRED"), "RETRY_NOT_ALLOWED"),
        ("FAILED", Evidence("expiry", "LEASE_EXPIRED"), "LEASE_TIME_WRONG"),
        ("FAILED", Evidence("expiry", "OTHER"), "EVIDENCE_INVALID"),
        ("FAILED", Evidence("quota", "QUOTA_CPU_TIME"), "QUOTA_WRONG"),
        ("CANCELED", Evidence("quota", "QUOTA_CPU_TIME"), "RETRY_NOT_ALLOWED"),
    ],
)
def test_evidence_that_does_not_justify_its_transition_is_found(to_state: str, evidence: Evidence, code: str) -> None:
    """A.5, A.7, X-018, X-039, X-163: the kernel would not have decided so (R)"""
    lease = running().rows["running"].lease_id
    grounds = replace(evidence, lease_id=lease) if evidence.lease_id is None and code != "LEASE_WRONG" else evidence
    assert found(forged(to_state, evidence=grounds), code).job_id == "running"


@pytest.mark.parametrize(
    ("evidence", "changes", "code"),
    [
        (Evidence("dispatch", "DISPATCHED"), {}, "EVIDENCE_INVALID"),
        (Evidence("cancel", "CANCELLED_BY_USER", replica_id="w"), {}, "EVIDENCE_INVALID"),
        (Evidence("dispatch", "DISPATCHED", replica_id="w"), {"quota_verdict": "QUOTA_IO_BYTES"}, "QUOTA_WRONG"),
        (Evidence("dispatch", "DISPATCHED", replica_id="w"), {"dispatch": False}, "DISPATCH_WRONG"),
        (Evidence("dispatch", "DISPATCHED", replica_id="w"), {"lease_id": LEASE}, "LEASE_WRONG"),
    ],
)
def test_a_start_that_the_kernel_would_not_have_granted_is_found(
    evidence: Evidence, changes: dict[str, Any], code: str
) -> None:
    assert found(forged("RUNNING", "queued", evidence, **changes), code).job_id == "queued"


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        (Evidence("retry_ready", "RETRY_READY"), None),
        (Evidence("retry_ready", "OTHER"), "EVIDENCE_INVALID"),
        (Evidence("cancel", "CANCELLED_BY_USER"), "EVIDENCE_INVALID"),
        (Evidence("result", "COMPLETED"), "EVIDENCE_INVALID"),
    ],
)
def test_a_way_back_into_the_queue_has_one_reason(evidence: Evidence, code: str | None) -> None:
    """X-043"""
    ledger = Builder()
    ledger.submit("again")
    ledger.claim(1)
    ledger.finish("again", ok=False)
    ledger.commit()
    ledger.tick += 5_000
    append(ledger, next_record(ledger, "again", "QUEUED", evidence))
    assert codes(check(ledger)) == (set() if code is None else {code})


def test_a_record_that_is_wrong_in_two_ways_is_found_in_both() -> None:
    evidence = Evidence("result", "CRASHED", running().rows["running"].lease_id, category="INTERNAL_ERROR")
    assert codes(forged("RETRYING", evidence=evidence, prev_chain_hash=LEASE)) == {"CHAIN_BROKEN", "RETRY_NOT_ALLOWED"}


def test_one_fault_does_not_look_like_many() -> None:
    """After a record that cannot be, the job is taken to stand where that record claims."""
    ledger = running()
    append(ledger, next_record(ledger, "ended", "RUNNING", Evidence("dispatch", "DISPATCHED", replica_id="w")))
    body = ledger.commits[-1].records[0][0]
    job = ledger.rows["ended"]
    job.state, job.transition_seq, job.head, job.lease_id = "RUNNING", 3, sha256(body), decode(body)["idempotency_key"]
    append(ledger, next_record(ledger, "ended", "SUCCEEDED", Evidence("result", "COMPLETED", job.lease_id)))
    report = check(ledger)
    assert {finding.position for finding in report.findings} == {10}
    assert "TRANSITION_ILLEGAL" in codes(report)


def test_a_record_of_no_job_that_names_another_signer_is_found() -> None:
    ledger = lively()
    number, index = place_of(ledger, "run_started")
    rewrite(ledger, number, index, signer_key_id=LEASE)
    assert found(check(ledger), "RECORD_SIGNER_WRONG").position == position_of(ledger, number, index)


def test_a_batch_that_claims_other_ticks_than_its_commands_have_is_found() -> None:
    """X-165"""
    ledger = running()
    ledger.commits[1].last_tick += 1
    assert found(check(ledger), "TICK_OUT_OF_BATCH").batch_no == 1


def test_an_illegal_transition_without_evidence_is_found_too() -> None:
    ledger = running()
    body, _ = next_record(ledger, "ended", "RUNNING", Evidence("result", "COMPLETED"))
    append(ledger, (body, None))
    assert codes(check(ledger)) >= {"TRANSITION_ILLEGAL", "EVIDENCE_MISSING"}


def test_a_retry_before_its_time_is_found() -> None:
    """PIPE-092: fixed delays"""
    ledger = lively()
    number, index = place_of(ledger, "transition", "flaky", 2)
    rewrite(ledger, number, index, tick=decode(ledger.commits[number].records[index][0])["tick"] - 1)
    ledger.commits[number].first_tick -= 1
    assert found(check(ledger), "LEASE_TIME_WRONG").job_id == "flaky"


def test_a_torn_cancel_batch_is_found() -> None:
    """A.4: atomic, only to CANCELED, under the scheduler's lease"""
    ledger = lively()
    number, index = place_of(ledger, "transition", "unwanted", 0)
    records = ledger.commits[number].records
    last = records.pop(index + 1)
    finding = found(check(ledger), "CANCEL_BATCH_BROKEN")
    assert (finding.job_id, finding.position) == ("unwanted", position_of(ledger, number, index))
    records.append(last)
    assert check(ledger, [item for item in ledger.items() if not isinstance(item, HeadItem)]).ok
    plain, flaky, first, second = records
    ledger.commits[number].records = [flaky, first, plain, second]
    assert found(check(ledger), "CANCEL_BATCH_BROKEN").position == position_of(ledger, number, 2)


def test_a_cancel_batch_that_is_dispatched_or_takes_another_way_is_found() -> None:
    """A.4"""
    ledger = lively()
    number, index = place_of(ledger, "transition", "unwanted", 0)
    for changes, code in (
        ({"dispatch": True}, "DISPATCH_WRONG"),
        ({"batch_len": 3}, "CANCEL_BATCH_BROKEN"),
        ({"batch_len": 1}, "DISPATCH_WRONG"),
    ):
        other = lively()
        rewrite(other, number, index, **changes)
        assert found(check(other), code).job_id == "unwanted"
    wrong = Evidence("cancel", "CANCELLED_BY_USER", LEASE, "scheduler:0")
    unwatched = Evidence("cancel", "CANCELLED_BY_USER", LEASE, "worker-1")
    for evidence, code in ((wrong, "LEASE_WRONG"), (unwatched, "EVIDENCE_INVALID")):
        other = running()
        append(other, next_record(other, "queued", "RUNNING", evidence, batch_len=2, dispatch=False))
        assert found(check(other), code).job_id == "queued"


def test_a_job_submitted_twice_or_where_it_does_not_belong_is_found() -> None:
    ledger = running()
    number, index = place_of(ledger, "submitted", "running")
    append(ledger, ledger.commits[number].records[index])
    assert found(check(ledger), "JOB_REPEATED").job_id == "running"
    two = Builder(partitions=2)
    job_id = next(name for name in "abcdefgh" if two.owner(name) == 1)
    two.submit(job_id)
    two.commit()
    moved = two.commits[-1]
    two.commits[-1] = replace(
        moved, partition=0, records=[(edit(moved.records[0][0], partition_id=0), moved.records[0][1])]
    )
    assert found(check(two), "JOB_PARTITION_WRONG").job_id == job_id


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tenant_id": "rival"}, "JOB_MIXED"),
        ({"job_kind": "platform"}, "JOB_MIXED"),
        ({"job_manifest_hash": LEASE}, "MANIFEST_HASH_WRONG"),
        ({"chain_hash": LEASE}, "CHAIN_BROKEN"),
        ({"partition_id": 1}, "RECORD_PARTITION_WRONG"),
        ({"signer_key_id": LEASE}, "RECORD_SIGNER_WRONG"),
        ({"run_id": "nowhere"}, "RUN_UNKNOWN"),
        ({"tick": 7}, "TICK_OUT_OF_BATCH"),
    ],
)
def test_every_field_of_a_submission_is_held_against_its_manifest(changes: dict[str, Any], code: str) -> None:
    """X-046, X-050"""
    ledger = running()
    number, index = place_of(ledger, "submitted", "queued")
    rewrite(ledger, number, index, **changes)
    assert found(check(ledger), code).position == position_of(ledger, number, index)


def test_a_manifest_the_owner_signed_himself_is_found() -> None:
    """Tampering: right key, wrong role (owner signs a manifest) (T). X-046"""
    ledger = Builder()
    ledger.keys["manifest"] = ledger.keys["transition"]
    ledger.submit("mine")
    ledger.commit()
    assert found(check(ledger), "KEY_WRONG_ROLE").job_id == "mine"


def test_a_batch_the_executor_signed_is_found() -> None:
    """Tampering: right key, wrong role (executor signs a transition) (T). X-046"""
    ledger = running()
    ledger.commits[1].signer = key("result")
    assert found(check(ledger), "KEY_WRONG_ROLE").batch_no == 1


def planted(ledger: Builder, origin: str | None) -> None:
    """A job that its submitter, who works with two deployments, signed for another one, brought here with the owner's key."""
    elsewhere = Builder(origin="detent/elsewhere")
    elsewhere.submit("planted", origin=origin)
    (command,), _, _ = elsewhere.pending[0]
    assert isinstance(command, Submit)
    ledger.apply(replace(command, tick=ledger.tick))
    ledger.commit()


def test_a_job_signed_for_another_ledger_is_found_in_the_ledger_and_in_the_bundle_of_a_run() -> None:
    """Tampering: plant a job of another deployment with the transition key alone (T). X-197"""
    ledger = running()
    planted(ledger, "detent/elsewhere")
    report = check(ledger)
    finding = found(report, "MANIFEST_ORIGIN_WRONG")
    assert (codes(report), finding.job_id, finding.batch_no) == ({"MANIFEST_ORIGIN_WRONG"}, "planted", 2)
    assert "signed for the ledger 'detent/elsewhere', and this is 'detent/0123456789abcdef'" in finding.message
    assert not any("to no other" in sentence for sentence in report.proved)
    ledger = lively()
    ledger.start_run("run-2")
    ledger.submit("step-9", run_id="run-2", origin="detent/elsewhere")
    ledger.claim()
    ledger.finish("step-9")
    ledger.end_run("run-2")
    ledger.commit()
    report = check(ledger, ledger.run_items("run-2"))
    assert (codes(report), found(report, "MANIFEST_ORIGIN_WRONG").job_id) == ({"MANIFEST_ORIGIN_WRONG"}, "step-9")


def test_a_job_signed_for_no_ledger_is_counted_under_what_is_not_proved() -> None:
    """X-197: such manifests were signed before and fit every ledger, so nothing tells whether they belong here"""
    ledger = running()
    assert check(ledger).counts["submitted_without_origin"] == 0
    planted(ledger, None)
    report = check(ledger)
    assert report.findings == ()
    assert report.counts["submitted_without_origin"] == 1
    (said,) = [sentence for sentence in report.not_proved if "names no ledger" in sentence]
    assert said.startswith("That 1 job was submitted to this ledger")
    assert said.endswith("job planted in batch 2 of partition 0.")


def test_a_job_that_names_no_ledger_is_found_once_the_rules_ask_for_it() -> None:
    """Tampering: plant a job that was signed before manifests named their ledger (T). X-197"""
    ledger = running()
    ledger.raise_epoch(config=replace(ledger.kernels[0].config, rules=3))
    planted(ledger, None)
    assert ledger.rows.get("planted") is None, "the kernel refuses it"
    ledger.kernels[0].config = replace(ledger.kernels[0].config, rules=2)
    planted(ledger, None)
    report = check(ledger)
    assert (codes(report), found(report, "MANIFEST_ORIGIN_MISSING").job_id) == ({"MANIFEST_ORIGIN_MISSING"}, "planted")


def test_rules_that_go_back_are_found() -> None:
    """Tampering: announce older rules, to plant what the newer ones forbid (T). X-197"""
    ledger = running()
    ledger.raise_epoch(config=replace(ledger.kernels[0].config, rules=3))
    ledger.commit()
    assert check(ledger).ok
    ledger.raise_epoch(config=replace(ledger.kernels[0].config, rules=2))
    ledger.commit()
    finding = found(check(ledger), "CONFIG_WRONG")
    assert (finding.batch_no, finding.message) == (3, "the rules go back from 3 to 2")


def test_a_manifest_with_a_bad_signature_for_another_tenant_or_of_unknown_policies_is_found() -> None:
    ledger = running()
    number, index = place_of(ledger, "submitted", "queued")
    body, envelope = ledger.commits[number].records[index]
    assert envelope is not None
    fields = decode(envelope)
    fields["sig"]["sig"] = bytes(64)
    ledger.commits[number].records[index] = (body, encode(fields))
    assert found(check(ledger), "MANIFEST_SIGNATURE_INVALID").job_id == "queued"
    limited = Builder(tenants=("acme",))
    limited.submit("theirs", tenant="rival")
    limited.commit()
    assert found(check(limited), "KEY_OUT_OF_SCOPE").job_id == "theirs"
    ledger = running()
    ledger.config = replace(
        ledger.config, lease_policies=(replace(ledger.config.lease_policies[0], lease_policy_id="other"),)
    )
    ledger.kernels[0].config = ledger.config
    ledger.submit("elsewhere", lease_policy_id="other")
    ledger.commit()
    assert found(check(ledger), "MANIFEST_POLICY_UNKNOWN").job_id == "elsewhere"
