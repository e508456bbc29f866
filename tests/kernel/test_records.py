"""Transition records: their fields, their chain, and the log they make together."""

from __future__ import annotations

import random
from hashlib import sha256
from itertools import groupby
from typing import Any

import cbor2
import pytest

from detent.canon import decode
from detent.kernel import (
    RECORD_FIELDS,
    Claim,
    Command,
    Finish,
    Kernel,
    LogEntry,
    Submit,
    Transition,
    compare_logs,
    transition_log_hash,
)
from detent.kernel.evidence import Evidence
from tests.kernel.builders import TENANT, Scene, body_of, config, verified, waiting_retries
from tests.kernel.walk import Walk, walked


def test_a_transition_record_has_the_fields_of_the_contract() -> None:
    """PIPE-084"""
    assert RECORD_FIELDS["transition"] == {
        "kind", "tenant_id", "job_id", "attempt_id", "transition_seq", "from_state", "to_state", "evidence_ref",
        "job_manifest_hash", "idempotency_key", "request_digest", "lease_id", "dispatch", "reason_code", "tick",
        "partition_id", "quota_policy_hash", "quota_verdict", "batch_id", "batch_index", "batch_len",
        "prev_chain_hash", "signer_key_id",
    }  # fmt: skip


def test_a_record_says_what_happened_in_every_field() -> None:
    """PIPE-040, PIPE-048, PIPE-063, PIPE-084, X-035"""
    scene = Scene()
    scene.tick = 12
    grant = scene.start()
    (body,) = scene.bodies()
    key = sha256(cbor2.dumps([TENANT, "job-1", 0, 0])).digest()
    evidence = scene.records[-1].evidence
    assert evidence is not None
    reference = "sha256:" + sha256(evidence).hexdigest()
    manifest_hash = sha256(verified().body).digest()
    assert body == {
        "kind": "transition",
        "tenant_id": TENANT,
        "job_id": "job-1",
        "attempt_id": 0,
        "transition_seq": 0,
        "from_state": "QUEUED",
        "to_state": "RUNNING",
        "evidence_ref": reference,
        "job_manifest_hash": manifest_hash,
        "idempotency_key": key,
        "request_digest": sha256(cbor2.dumps(["QUEUED", "RUNNING", reference])).digest(),
        "lease_id": key,
        "dispatch": True,
        "reason_code": "DISPATCHED",
        "tick": 12,
        "partition_id": 0,
        "quota_policy_hash": verified().manifest.quota_policy_hash,
        "quota_verdict": "OK",
        "batch_id": key,
        "batch_index": 0,
        "batch_len": 1,
        "prev_chain_hash": sha256(cbor2.dumps(["chain/v1", TENANT, "job-1", manifest_hash])).digest(),
        "signer_key_id": bytes(32),
    }
    assert grant.lease_id == key


def test_counters_of_every_record_are_integers() -> None:
    """PIPE-018"""
    numbers = {"attempt_id", "transition_seq", "tick", "partition_id", "batch_index", "batch_len", "epoch", "version",
               "job_count", "steps_reused"}  # fmt: skip
    for outcome in walked(3, 150).outcomes:
        for record in outcome.records:
            body = body_of(record)
            assert all(type(body[name]) is int and 0 <= body[name] < 2**64 for name in numbers & body.keys())
            assert not any(isinstance(value, float) for value in body.values())


def logs_of(walk: Walk) -> dict[str, list[dict[str, Any]]]:
    """The transition records of a walk by job, in commit order, with each body's own hash."""
    records = [record for outcome in walk.outcomes for record in outcome.records if record.kind == "transition"]
    by_job: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        body = {**body_of(record), "own_hash": sha256(record.body).digest()}
        by_job.setdefault(body["job_id"], []).append(body)
    return by_job


@pytest.mark.parametrize("seed", range(8))
def test_the_records_of_a_job_chain_state_by_state_and_hash_by_hash(seed: int) -> None:
    """PIPE-056, PIPE-057, PIPE-058, X-050"""
    walk = walked(seed, 150)
    for job_id, bodies in logs_of(walk).items():
        state, attempt = "QUEUED", 0
        head = sha256(cbor2.dumps(["chain/v1", TENANT, job_id, bodies[0]["job_manifest_hash"]])).digest()
        for seq, body in enumerate(bodies):
            assert (body["transition_seq"], body["from_state"], body["attempt_id"]) == (seq, state, attempt)
            assert body["prev_chain_hash"] == head
            # In RUNNING there is a lease: the granting record and the leaving one name the same.
            if body["from_state"] == "RUNNING":
                assert body["lease_id"] == bodies[seq - 1]["idempotency_key"]
            state, head = body["to_state"], body["own_hash"]
            attempt += body["from_state"] == "RETRYING"
        found = walk.kernel.find(TENANT, job_id)
        assert found is not None
        assert (found.state, found.transition_seq, found.attempt_id, found.head) == (state, len(bodies), attempt, head)


@pytest.mark.parametrize("seed", range(8))
def test_only_batches_share_a_batch_id_and_they_are_whole(seed: int) -> None:
    """PIPE-059"""
    for bodies in logs_of(walked(seed, 150)).values():
        for _, batch in groupby(bodies, key=lambda body: body["batch_id"]):
            members = list(batch)
            assert [body["batch_index"] for body in members] == list(range(len(members)))
            assert {body["batch_len"] for body in members} == {len(members)}
            if len(members) > 1:
                assert members[-1]["to_state"] == "CANCELED"
                assert not any(body["dispatch"] for body in members)


# -- the log as a whole --------------------------------------------------------------------------------------------


def lives(order: list[str], ticks: dict[str, int]) -> list[Command]:
    """Jobs that each start by request and end, every step of a job at its own tick."""
    commands: list[Command] = [Submit(0, verified(job_id)) for job_id in order]
    steps = [(job_id, step) for step in (0, 1) for job_id in order]
    for job_id, step in steps:
        lease_id = sha256(cbor2.dumps([TENANT, job_id, 0, 0])).digest()
        if step == 0:
            evidence = Evidence("dispatch", "DISPATCHED", lease_id, "worker-1").encode()
            commands.append(Transition(ticks[job_id], TENANT, job_id, 0, 0, "QUEUED", "RUNNING", evidence))
        else:
            commands.append(Finish(ticks[job_id], job_id, lease_id))
    return commands


def entry_of(job_id: str, transition_seq: int, body: bytes) -> LogEntry:
    return LogEntry(job_id, transition_seq, cbor2.loads(body), body)


def log_of(commands: list[Command]) -> tuple[bytes, list[LogEntry]]:
    """The log hash and the canonical log after some commands."""
    kernel = Kernel(config())
    entries = []
    for command in commands:
        outcome = kernel.apply(command)
        assert outcome.ok
        entries += [
            entry_of(record.job_id or "", record.transition_seq or 0, record.body)
            for record in outcome.records
            if record.kind == "transition"
        ]
    history: Any = kernel.history
    heads = sorted((job_id, job.transition_seq, job.head) for job_id, job in history.jobs.items())
    return transition_log_hash(len(heads), heads), sorted(entries, key=lambda entry: entry.place)


JOBS = ["job-1", "job-10", "job-2", "Job-3", "job-é"]


@pytest.mark.parametrize("seed", range(5))
def test_the_arrival_of_independent_jobs_does_not_show_in_the_log(seed: int) -> None:
    """PIPE-027, PIPE-085, X-050"""
    shuffled = list(JOBS)
    random.Random(seed).shuffle(shuffled)
    same_ticks = dict.fromkeys(JOBS, 5)
    expected_hash, expected_log = log_of(lives(JOBS, same_ticks))
    found_hash, found_log = log_of(lives(shuffled, same_ticks))
    assert found_hash == expected_hash
    assert found_log == expected_log
    assert compare_logs(expected_log, found_log) == (None, None)


def test_the_canonical_log_is_ordered_by_the_bytes_of_the_id_and_then_by_sequence() -> None:
    """PIPE-027, X-050"""
    _, log = log_of(lives(JOBS, dict.fromkeys(JOBS, 5)))
    assert [entry.job_id for entry in log[::2]] == ["Job-3", "job-1", "job-10", "job-2", "job-é"]
    assert [entry.transition_seq for entry in log] == [0, 1] * len(JOBS)


def test_another_tick_is_another_log() -> None:
    """X-169: the hash asks whether the same was decided, not whether two runs came to the same end"""
    ticks = dict.fromkeys(JOBS, 5)
    assert log_of(lives(JOBS, ticks))[0] != log_of(lives(JOBS, {**ticks, "job-é": 6}))[0]


def test_any_edit_drop_or_insertion_changes_the_log_hash() -> None:
    """PIPE-057, PIPE-085, X-050: a chain is rebuilt from its records, and its head tells"""
    _, log = log_of(lives(JOBS, dict.fromkeys(JOBS, 5)))

    def rebuilt(entries: list[LogEntry]) -> bytes:
        """The log hash of some records, each chained to the one before it."""
        heads = {}
        for job_id, group in groupby(entries, key=lambda entry: entry.job_id):
            head, count = b"", 0
            for entry in group:
                body: Any = decode(entry.body or b"")
                head = sha256(
                    cbor2.dumps({**body, "prev_chain_hash": head or body["prev_chain_hash"]}, canonical=True)
                ).digest()
                count += 1
            heads[job_id] = (job_id, count, head)
        return transition_log_hash(len(heads), [heads[job_id] for job_id in sorted(heads)])

    original = rebuilt(log)
    seen = {original}
    for index, entry in enumerate(log):
        body: Any = decode(entry.body or b"")
        edited = entry_of(*entry[:2], cbor2.dumps({**body, "tick": body["tick"] + 1}, canonical=True))
        for other in (
            [*log[:index], edited, *log[index + 1 :]],
            [*log[:index], *log[index + 1 :]],
            [*log[:index], entry, *log[index:]],
        ):
            seen.add(rebuilt(other))
    assert len(seen) == 1 + 3 * len(log)


def test_a_lifecycle_is_replayed_from_manifest_and_log() -> None:
    """PIPE-010"""
    scene = Scene()
    scene.start()
    scene.at(100)
    scene.at(110)
    (grant,) = scene.claim()
    scene.finish(grant)
    replay = Kernel(config())
    for command in scene.commands:
        replay.apply(command)
    again: Any = replay.history
    assert again.jobs == scene.history.jobs
    heads = [
        [(job.job_id, job.transition_seq, job.head) for job in past.jobs.values()] for past in (again, scene.history)
    ]
    assert transition_log_hash(1, heads[0]) == transition_log_hash(1, heads[1])


def test_a_claim_is_a_function_of_the_queue_alone() -> None:
    """PIPE-046: who asks, and how often in vain, decides nothing"""
    curious, quiet = Scene(), Scene()
    for scene in (curious, quiet):
        scene.submit("job-1")
    for _ in range(3):
        curious.kernel.next_due()
        curious.kernel.metrics_snapshot()
        waiting_retries(curious.kernel)
        curious.apply(Claim(0, "", 1))
    assert [curious.claim(), quiet.claim()] == [curious.outcomes[-1].grants] * 2
    assert curious.records == quiet.records
