"""Bodies of the ledger's records, built in one place (X-167).

A body is a canonical map; the group commit binds its bytes. The kernel builds bodies, the ledger signs and checks them.
"""

from __future__ import annotations

from detent.canon import encode_trusted, sha256
from detent.kernel.history import (
    ERASED,
    RUN_ENDED,
    RUN_REUSED,
    STEP_REUSED,
    WORKER_ENROLLED,
    WORKER_RETIRED,
    Record,
)
from detent.kernel.job import Job

SUBMITTED = "submitted"
TRANSITION = "transition"
RUN_STARTED = "run_started"
OWNER_EPOCH = "owner_epoch"
TRUST_CHANGED = "trust_changed"
OPERATED = "operated"

RECORD_FIELDS: dict[str, frozenset[str]] = {
    SUBMITTED: frozenset(
        {
            "kind",
            "tenant_id",
            "job_id",
            "run_id",
            "job_kind",
            "job_manifest_hash",
            "quota_policy_hash",
            "chain_hash",
            "decision_digest",
            "partition_id",
            "tick",
            "signer_key_id",
        }
    ),
    TRANSITION: frozenset(
        {
            "kind",
            "tenant_id",
            "job_id",
            "attempt_id",
            "transition_seq",
            "from_state",
            "to_state",
            "evidence_ref",
            "job_manifest_hash",
            "idempotency_key",
            "request_digest",
            "lease_id",
            "dispatch",
            "reason_code",
            "tick",
            "partition_id",
            "quota_policy_hash",
            "quota_verdict",
            "batch_id",
            "batch_index",
            "batch_len",
            "prev_chain_hash",
            "signer_key_id",
        }
    ),
    RUN_STARTED: frozenset(
        {
            "kind",
            "tenant_id",
            "run_id",
            "name",
            "contract_digest",
            "bindings_digest",
            "inputs_digest",
            "operation_id",
            "partition_id",
            "tick",
            "signer_key_id",
        }
    ),
    STEP_REUSED: frozenset(
        {"kind", "run_id", "step_id", "job_id", "ingredients_digest", "partition_id", "tick", "signer_key_id"}
    ),
    RUN_REUSED: frozenset(
        {
            "kind",
            "run_id",
            "reused_run_id",
            "jobs_digest",
            "steps_reused",
            "except_steps",
            "ingredients_digest",
            "partition_id",
            "tick",
            "signer_key_id",
        }
    ),
    RUN_ENDED: frozenset(
        {
            "kind",
            "tenant_id",
            "run_id",
            "status",
            "job_count",
            "jobs_digest",
            "steps_reused",
            "partition_id",
            "tick",
            "signer_key_id",
        }
    ),
    OWNER_EPOCH: frozenset(
        {
            "kind",
            "epoch",
            "config_digest",
            "queue_policy_hash",
            "replay_token",
            "orchestrator_version",
            "partition_id",
            "tick",
            "signer_key_id",
        }
    ),
    TRUST_CHANGED: frozenset({"kind", "version", "config_digest", "partition_id", "tick", "signer_key_id"}),
    ERASED: frozenset({"kind", "erasure_seq", "digests", "reason_code", "partition_id", "tick", "signer_key_id"}),
    OPERATED: frozenset(
        {
            "kind",
            "tenant_id",
            "principal_id",
            "credential_id",
            "action",
            "object_kind",
            "object_id",
            "outcome_code",
            "request_digest",
            "evidence_digest",
            "partition_id",
            "tick",
            "signer_key_id",
        }
    ),
    WORKER_ENROLLED: frozenset(
        {
            "kind",
            "worker_id",
            "key_id",
            "certificate_digest",
            "evidence_digest",
            "partition_id",
            "tick",
            "signer_key_id",
        }
    ),
    WORKER_RETIRED: frozenset({"kind", "worker_id", "key_id", "reason_code", "partition_id", "tick", "signer_key_id"}),
}
"""Every record kind and exactly the fields it has; the verifier refuses any other."""

OPTIONAL_FIELDS: dict[str, frozenset[str]] = {
    RUN_ENDED: frozenset({"reason_code"}),
    STEP_REUSED: frozenset({"element"}),
}
"""Fields that a record of a kind may have besides: each came later than the kind, and is left out where there is nothing to say."""

DIGESTS_PER_ERASED_MAX = 1_000
EXCEPTED_STEPS_MAX = 200
"""Steps that one ``run_reused`` may except. Their ids, of at most 200 bytes each, fit into a record."""


def submitted_record(
    job: Job,
    envelope: bytes,
    *,
    decision_digest: bytes | None,
    partition_id: int,
    tick: int,
    signer_key_id: bytes,
) -> Record:
    """A job has been accepted; the signed manifest stands beside the record as its evidence."""
    body = encode_trusted(
        {
            "kind": SUBMITTED,
            "tenant_id": job.tenant_id,
            "job_id": job.job_id,
            "run_id": job.run_id,
            "job_kind": job.job_kind,
            "job_manifest_hash": job.manifest_hash,
            "quota_policy_hash": job.quota_policy_hash,
            "chain_hash": job.head,
            "decision_digest": decision_digest,
            "partition_id": partition_id,
            "tick": tick,
            "signer_key_id": signer_key_id,
        }
    )
    return Record(SUBMITTED, job.job_id, job.run_id, None, body, envelope, sha256(body))


def plain_record(
    kind: str,
    fields: dict[str, object],
    *,
    job_id: str | None = None,
    run_id: str | None = None,
    evidence: bytes | None = None,
) -> Record:
    """A record that belongs to no job's chain: runs, reuse, epochs, trust, erasures."""
    body = encode_trusted({"kind": kind, **fields})
    return Record(kind, job_id, run_id, None, body, evidence, sha256(body))
