"""The kernel's one lifecycle as the commands show it: what was decided, in which order, under which names."""

from __future__ import annotations

from typing import Any

import pytest

from detent.canon import decode, encode, sha256
from detent.kernel import Finish
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.testing import FakeClock
from tests.cli.conftest import Cli
from tests.homes import EARLY_MS, TENANT, Hand

JOBS = ("done", "large", "broken", "slow", "dropped", "waiting")


def moves(job: dict[str, Any]) -> list[tuple[str, str]]:
    return [(record["from_state"], record["to_state"]) for record in job["records"] if record["kind"] == "transition"]


def transitions(cli: Cli, job_id: str) -> list[dict[str, Any]]:
    """The bodies of a job's transition records, as they were signed."""
    records = cli.json("show", job_id, "--raw")["records"]
    return [record["body"] for record in records if record["kind"] == "transition"]


def manifest(cli: Cli, job_id: str) -> dict[str, Any]:
    """A job's signed manifest: its body and the signature outside it."""
    first: dict[str, Any] = cli.json("show", job_id, "--raw")["records"][0]
    assert first["kind"] == "submitted"
    return dict(first["evidence"])


def text(data: bytes) -> str:
    return f"sha256:{data.hex()}"


def test_doctor_names_the_kernel_and_its_six_operators(cli: Cli) -> None:
    """PIPE-001..PIPE-003, PIPE-005, PIPE-069, PIPE-072, PIPE-079, X-055"""
    kernel = cli.json("doctor", "--quick")["kernel"]
    assert kernel["orchestrator_version"] == "UML_OS.Pipeline.Orchestrator_v1"
    assert (kernel["spec_date"], kernel["spec_author"]) == ("2026-02-18", "Olejar Damir")
    assert kernel["compliance"] == "EQC v1.1 Option A (single merged specification)"
    operators = {operator["name"]: operator for operator in kernel["operators"]}
    assert set(operators) == {
        "UML_OS.Pipeline.JobSubmit_v1",
        "UML_OS.Pipeline.JobTransition_v1",
        "UML_OS.Pipeline.JobHeartbeat_v1",
        "UML_OS.Pipeline.JobCancel_v1",
        "UML_OS.Pipeline.JobQuery_v1",
        "UML_OS.Error.Emit_v1",
    }
    transition = operators["UML_OS.Pipeline.JobTransition_v1"]
    assert transition["inputs"] == [
        *("tenant_id", "job_id", "attempt_id", "expected_transition_seq", "from_state", "to_state", "evidence_ref")
    ]
    assert transition["outputs"] == ["transition_record"]
    heartbeat = operators["UML_OS.Pipeline.JobHeartbeat_v1"]
    assert (heartbeat["inputs"], heartbeat["outputs"]) == (["job_id", "lease_id", "tick"], ["heartbeat_record"])
    for operator in (transition, heartbeat):
        assert (operator["category"], operator["purity"]) == ("Orchestration", "IO")
        assert operator["determinism"] == "deterministic"


def test_doctor_shows_the_closed_table_of_states_and_checks_it(cli: Cli) -> None:
    """PIPE-004, PIPE-050..PIPE-055, PIPE-115: six states, six moves, three ends, pinned to the major version."""
    document = cli.json("doctor", "--quick")
    table = document["kernel"]["table"]
    assert table["moves"] == {
        "QUEUED": ["RUNNING"],
        "RUNNING": ["CANCELED", "FAILED", "RETRYING", "SUCCEEDED"],
        "RETRYING": ["QUEUED"],
        "SUCCEEDED": [],
        "FAILED": [],
        "CANCELED": [],
    }
    assert (table["major"], table["digest"]) == (1, "e3582d0534fd57f4")
    (checked,) = [check for check in document["checks"] if check["name"] == "kernel"]
    assert checked["status"] == "ok"
    assert "states and moves of version 1 (e3582d0534fd57f4)" in checked["text"]


@pytest.mark.parametrize(
    ("job_id", "expected"),
    [
        ("done", [("QUEUED", "RUNNING"), ("RUNNING", "SUCCEEDED")]),
        ("broken", [("QUEUED", "RUNNING"), ("RUNNING", "FAILED")]),
        (
            "slow",
            [
                *(("QUEUED", "RUNNING"), ("RUNNING", "RETRYING"), ("RETRYING", "QUEUED")),
                *(("QUEUED", "RUNNING"), ("RUNNING", "SUCCEEDED")),
            ],
        ),
        ("dropped", [("QUEUED", "RUNNING"), ("RUNNING", "CANCELED")]),
        ("waiting", []),
    ],
)
def test_a_job_goes_from_submission_to_its_end_without_skipping_a_state(
    cli: Cli, job_id: str, expected: list[tuple[str, str]]
) -> None:
    """PIPE-056, PIPE-075, PIPE-080, PIPE-089: each record begins in the state in which the one before it ended."""
    job = cli.json("show", job_id)
    assert job["records"][0]["kind"] == "submitted"
    assert moves(job) == expected
    states = ["QUEUED", *(target for _, target in expected)]
    assert [source for source, _ in expected] == states[:-1]


def test_attempts_and_transitions_are_counted_from_zero_in_every_record(cli: Cli) -> None:
    """PIPE-044, PIPE-047, PIPE-048, X-037, X-038: the record of a requeue still has the attempt that it ends."""
    job = cli.json("show", "slow")
    assert (job["transition_seq"], job["attempt_id"], job["attempt"]) == (5, 1, 2)
    found = [(body["attempt_id"], body["transition_seq"]) for body in transitions(cli, "slow")]
    assert found == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4)]
    waiting = cli.json("show", "waiting")
    assert (waiting["transition_seq"], waiting["attempt_id"], waiting["state"]) == (0, 0, "queued")
    assert waiting["backoff_schedule_id"] == "default"


def test_a_transition_record_has_exactly_the_fields_of_the_contract(cli: Cli) -> None:
    """PIPE-018, PIPE-040, PIPE-084: counters and ticks are integers, and each record names the signed manifest."""
    expected = {
        *("kind", "tenant_id", "job_id", "attempt_id", "transition_seq", "from_state", "to_state", "evidence_ref"),
        *("job_manifest_hash", "idempotency_key", "request_digest", "lease_id", "dispatch", "reason_code", "tick"),
        *("partition_id", "quota_policy_hash", "quota_verdict", "batch_id", "batch_index", "batch_len"),
        *("prev_chain_hash", "signer_key_id"),
    }
    for job_id in JOBS:
        named = cli.json("show", job_id)["job_manifest_hash"]
        for body in transitions(cli, job_id):
            assert set(body) == expected
            assert body["job_manifest_hash"] == named
            counters = ("attempt_id", "transition_seq", "tick", "partition_id", "batch_index", "batch_len")
            assert {type(body[name]) for name in counters} == {int}


def test_keys_and_leases_follow_their_formula(cli: Cli) -> None:
    """PIPE-063, PIPE-087, X-036: a lease is named by the key of the transition that grants it."""
    found = transitions(cli, "slow")
    for body in found:
        said = [TENANT, "slow", body["attempt_id"], body["transition_seq"]]
        assert body["idempotency_key"] == text(sha256(encode(said)))
    first, second = [body for body in found if body["to_state"] == "RUNNING"]
    assert first["lease_id"] == first["idempotency_key"]
    assert second["lease_id"] == second["idempotency_key"]
    assert first["lease_id"] != second["lease_id"]


def test_a_manifest_says_who_asked_for_what_under_which_policies(cli: Cli) -> None:
    """PIPE-042, PIPE-043, PIPE-049: the signature block stands outside the body, and the hash is of the body."""
    signed = manifest(cli, "slow")
    assert set(signed) == {"body", "sig"}
    assert set(signed["sig"]) == {"key_id", "alg", "sig"}
    body = signed["body"]
    assert {
        *("manifest_version", "tenant_id", "job_id", "job_kind", "payload_digest", "priority", "lease_policy_id"),
        *("max_retries", "backoff_schedule_id", "quota_policy_hash", "created_tick", "origin"),
    } <= set(body)
    assert (body["tenant_id"], body["job_id"], body["priority"], body["max_retries"]) == (TENANT, "slow", 5, 1)
    assert body["origin"] == cli.json("verify")["origin"]


def test_evidence_is_named_by_digest_and_says_why(cli: Cli) -> None:
    """PIPE-081, X-064: kind, reason, lease, where it was sent, and the digest of what justified it."""
    (_, dispatched, ended) = cli.json("show", "done", "--raw")["records"]
    assert (dispatched["evidence"]["kind"], dispatched["evidence"]["replica_id"]) == ("dispatch", "worker-a")
    assert dispatched["evidence"]["lease_id"] == dispatched["body"]["lease_id"]
    assert (ended["evidence"]["kind"], ended["evidence"]["reason_code"]) == ("result", "COMPLETED")
    assert ended["evidence"]["detail_digest"].startswith("sha256:")
    assert ended["body"]["evidence_ref"].startswith("sha256:")


def test_cancelling_a_waiting_job_is_one_batch_that_no_worker_sees(cli: Cli) -> None:
    """PIPE-059, PIPE-077, X-001: two legal moves under a lease that the scheduler gives itself, never dispatched."""
    assert cli("cancel", "waiting").code == 0
    run, end = transitions(cli, "waiting")
    assert [(run["from_state"], run["to_state"]), (end["from_state"], end["to_state"])] == [
        ("QUEUED", "RUNNING"),
        ("RUNNING", "CANCELED"),
    ]
    assert run["batch_id"] == end["batch_id"]
    assert [(body["batch_index"], body["batch_len"]) for body in (run, end)] == [(0, 2), (1, 2)]
    assert [run["dispatch"], end["dispatch"]] == [False, False]
    assert run["transition_seq"] + 1 == end["transition_seq"]
    assert cli.json("show", "waiting")["attempts"] == 0


def test_nothing_leaves_a_state_that_is_an_end(cli: Cli) -> None:
    """PIPE-037, PIPE-051, PIPE-077: cancelling what has ended writes nothing and moves nothing."""
    for job_id, state in (("done", "succeeded"), ("broken", "failed"), ("dropped", "cancelled")):
        before = cli.json("show", job_id)
        cli("cancel", job_id)
        after = cli.json("show", job_id)
        assert after["state"] == state
        assert (after["records"], after["transition_seq"], after["head"]) == (
            before["records"],
            before["transition_seq"],
            before["head"],
        )


def test_looking_at_a_job_changes_nothing(cli: Cli) -> None:
    """PIPE-078"""
    before = cli.json("verify")
    for job_id in JOBS:
        cli.json("show", job_id)
        cli.json("explain", job_id)
    after = cli.json("verify")
    for name in ("transition_log_hash", "trees", "counts"):
        assert after[name] == before[name]


def test_replay_gives_the_same_bytes_the_same_hash_and_the_counted_metrics(cli: Cli) -> None:
    """PIPE-010, PIPE-017, PIPE-035, PIPE-036, PIPE-085, PIPE-118, X-061"""
    found, verified = cli.json("replay"), cli.json("verify")
    assert (found["ok"], found["differences"]) == (True, [])
    assert found["transition_log_hash"] == verified["transition_log_hash"]
    assert cli.json("replay")["transition_log_hash"] == found["transition_log_hash"]
    (metrics,) = found["metrics"]
    assert metrics["queue_depth"] == 1
    assert metrics["job_success_rate"] == 3 / 5
    assert metrics["jobs"] == {
        "QUEUED": 1,
        "RUNNING": 0,
        "RETRYING": 0,
        "SUCCEEDED": 3,
        "FAILED": 1,
        "CANCELED": 1,
    }
    assert metrics["transitions"] == {
        "QUEUED->RUNNING": 6,
        "RETRYING->QUEUED": 1,
        "RUNNING->CANCELED": 1,
        "RUNNING->FAILED": 1,
        "RUNNING->RETRYING": 1,
        "RUNNING->SUCCEEDED": 3,
    }


def test_every_record_is_signed_and_a_changed_one_is_found(cli: Cli) -> None:
    """PIPE-070, PIPE-083, X-166: through the batch that binds it."""
    assert cli.json("verify")["counts"]["transitions"] == 13

    def change(database: Any) -> None:
        ((rowid, body),) = database.execute(
            "SELECT rowid, body FROM records WHERE kind = 'transition' LIMIT 1"
        ).fetchall()
        changed = body.replace(b"RUNNING", b"RUNNINH")
        assert changed != body
        database.execute("UPDATE records SET body = ? WHERE rowid = ?", (changed, rowid))

    cli.played.edit(change)
    result = cli("verify", "-o", "json")
    assert result.code == 1
    assert result.document["ok"] is False


def test_the_lease_that_ends_with_no_retry_left_fails_the_job(cli: Cli) -> None:
    """X-039, X-040: `max_retries` is the manifest's; a job is never left between two attempts."""
    clock = FakeClock(EARLY_MS + 3_600_000)
    with cli.played.session(clock) as session:
        hand = Hand(cli.played.home, session)
        hand.succeed(hand.claim())  # The one that waits.
        hand.submit("last", 1, max_retries=0)
        hand.claim()
        for _ in range(8):
            clock.jump(5_000)
            session.ask([])
    job = cli.json("show", "last")
    assert (job["state"], job["reason_code"], job["max_retries"]) == ("failed", "LEASE_EXPIRED", 0)
    assert moves(job) == [("QUEUED", "RUNNING"), ("RUNNING", "FAILED")]
    assert "max_retries" in manifest(cli, "last")["body"]


def test_a_result_at_the_end_of_its_lease_comes_too_late(cli: Cli) -> None:
    """PIPE-038, PIPE-039, PIPE-082, X-065: what is due at a tick is decided before what is asked at that tick."""
    clock = FakeClock(EARLY_MS + 3_600_000)
    with cli.played.session(clock) as session:
        hand = Hand(cli.played.home, session)
        grant = hand.claim()
        for _ in range(8):
            clock.jump(5_000)
            session.ask([])
        (answer,) = session.ask([Finish(0, grant.job_id, grant.lease_id)])
        assert answer.refusal is not None
        assert answer.refusal.code == "LEASE_INVALID"
    assert ("RUNNING", "RETRYING") in moves(cli.json("show", "waiting"))
    assert "LEASE_INVALID" in cli("explain", "waiting").out
    (failure,) = cli.json("show", "waiting", "--raw")["refusals"]
    assert {"t", "failure_code", "failure_operator", "replay_token", "diagnostics"} <= set(failure)
    assert failure["failure_code"] == "LEASE_INVALID"
    assert failure["failure_operator"].startswith("UML_OS.Pipeline.")


def test_a_retry_that_finds_the_queue_full_waits_and_goes_first(cli: Cli) -> None:
    """X-042, X-043: it is neither dropped nor refused, and takes the first place that comes free."""
    settings = cli.played.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("capacity_per_class = 256", "capacity_per_class = 1"))
    clock = FakeClock(EARLY_MS + 3_600_000)
    with cli.played.session(clock) as session:
        hand = Hand(cli.played.home, session)
        hand.claim()  # The one that waits; its worker is never heard of again.
        hand.submit("next", 1)
        for _ in range(8):
            clock.jump(5_000)
            session.ask([])
        assert cli.json("show", "waiting")["state"] == "retrying"
        assert hand.claim().job_id == "next"
        session.ask([])
        assert cli.json("show", "waiting")["state"] == "queued"
        assert hand.claim().job_id == "waiting"


def test_a_job_is_shown_with_the_four_budgets_of_its_quota(cli: Cli) -> None:
    """PIPE-045"""
    quota = cli.json("show", "done")["quota"]
    assert {name for name in quota if name.endswith(("_budget", "_budget_ms"))} == {
        *("gpu_time_budget_ms", "cpu_time_budget_ms", "io_bytes_budget", "memory_bytes_budget")
    }


def test_a_checkpoint_is_what_the_commands_lead_to_and_a_changed_one_is_found(cli: Cli) -> None:
    """PIPE-121, PIPE-122, X-168: live jobs, the queue and the place in the log, in canonical CBOR."""
    parts = Parts(clock=FakeClock(EARLY_MS + 3_600_000), checkpoint_records=1)
    with Session(cli.played.home, parts, environment=cli.played.environment) as session:
        Hand(cli.played.home, session).submit("one", 1)
        Hand(cli.played.home, session).submit("two", 2)
    stored: list[bytes] = []

    def read(database: Any) -> None:
        stored.extend(body for (body,) in database.execute("SELECT body FROM checkpoints ORDER BY checkpoint_no"))

    cli.played.edit(read)
    newest = decode(stored[-1])
    assert encode(newest) == stored[-1]
    assert b"waiting" in stored[-1]
    assert b"done" not in stored[-1].replace(b"undone", b"")
    assert cli.json("verify")["ok"]
    assert cli.json("replay")["ok"]

    def change(database: Any) -> None:
        database.execute("UPDATE checkpoints SET body = ?", (stored[-1].replace(b"waiting", b"waitinh"),))

    cli.played.edit(change)
    assert cli("verify").code == 1
