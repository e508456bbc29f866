"""The first record of a job: it must be exactly what the signed manifest beside it leads to.

Only the run a job belongs to, the decision that let it in and the tick are the record's own; the rest is in the manifest, so again the right record is
built and compared.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from detent.kernel import MANIFEST_LABEL, chain_genesis, partition_of
from detent.kernel.policy import RULES_ORIGIN_NAMED
from detent.ledger.book import Partition
from detent.ledger.schema import SubmittedManifest, is_digest, read_record, read_submitted
from detent.ledger.tables import JobFold, fixed_digest
from detent.ledger.templates import job_parts, submitted_body
from detent.ledger.trust_config import KeyEntry, TrustFault, manifest_origin_fault

if TYPE_CHECKING:
    from detent.ledger.walk_state import WalkState


def submitted(walk: WalkState, loosely: dict[str, Any], body: bytes, evidence: bytes | None, position: int) -> None:
    """Check a ``submitted`` record with its manifest, and start the job's fold."""
    signed = (
        read_submitted(evidence) if evidence is not None else TrustFault("EVIDENCE_MISSING", "there is no manifest")
    )
    faults: list[TrustFault] = []
    fold: JobFold | None = None
    fields = loosely
    if type(signed) is SubmittedManifest:
        fold = _expected(signed, loosely, body, walk.partition)
    if fold is None:
        strictly = read_record(body)
        if isinstance(strictly, TrustFault):
            return walk.note_all([strictly, signed] if isinstance(signed, TrustFault) else [strictly], position)
        fields = strictly
        fold = JobFold(
            fields["tenant_id"],
            fields["run_id"],
            "QUEUED",
            0,
            0,
            fields["chain_hash"],
            fields["job_manifest_hash"],
            fields["quota_policy_hash"],
        )
        faults += _differences(signed, fields, walk.partition)
    job_id = fields["job_id"]
    if not walk.in_time(fields["tick"]):
        walk.tick(fields["tick"], position, job_id)
    header = walk.book.header
    if (
        header is not None
        and header.partitions > 1
        and partition_of(job_id, header.partitions) != walk.partition.number
    ):
        faults.append(TrustFault("JOB_PARTITION_WRONG", f"job {job_id!r} belongs to another partition"))
    fold.tick, fold.moved_tick = walk.written_tick, fields["tick"]
    if isinstance(signed, SubmittedManifest):
        _take_policies(fold, signed)
        if walk.book.with_rows:
            fold.fixed = _fixed(fold, signed)
        faults += _manifest_faults(walk, signed, position)
    _add_job(walk, job_id, fold, faults)
    if faults:
        walk.note_all(faults, position, job_id)
    walk.submitted += 1
    return None


def _expected(signed: SubmittedManifest, fields: dict[str, Any], body: bytes, partition: Partition) -> JobFold | None:
    """The fold the record starts, if the record is exactly the one this manifest leads to."""
    manifest, run_id, tick = signed.fields, fields.get("run_id"), fields.get("tick")
    decision = fields.get("decision_digest")
    if type(tick) is not int or tick < 0 or not (run_id is None or type(run_id) is str):
        return None
    if not (decision is None or is_digest(decision)):
        return None
    manifest_hash = sha256(signed.body).digest()
    tenant_id, quota_policy_hash = manifest["tenant_id"], manifest["quota_policy_hash"]
    parts = job_parts(tenant_id, signed.job_id, manifest_hash, quota_policy_hash)
    expected, genesis = submitted_body(
        parts, partition.owner, tick, run_id, manifest["job_kind"], manifest_hash, decision
    )
    if expected != body:
        return None
    fold = JobFold(tenant_id, run_id, "QUEUED", 0, 0, genesis, manifest_hash, quota_policy_hash)
    fold.parts = parts
    return fold


def _differences(
    signed: SubmittedManifest | TrustFault, fields: dict[str, Any], partition: Partition
) -> list[TrustFault]:
    """Which fields of the record are not what they must be."""
    faults = [signed] if isinstance(signed, TrustFault) else []
    if fields["partition_id"] != partition.number:
        faults.append(TrustFault("RECORD_PARTITION_WRONG", f"a record of partition {fields['partition_id']}"))
    if fields["signer_key_id"] != partition.signer:
        faults.append(TrustFault("RECORD_SIGNER_WRONG", "the record names another signer than the owner"))
    genesis = chain_genesis(fields["tenant_id"], fields["job_id"], fields["job_manifest_hash"])
    if fields["chain_hash"] != genesis:
        faults.append(TrustFault("CHAIN_BROKEN", "the job's chain does not start from its manifest"))
    if isinstance(signed, SubmittedManifest):
        if fields["job_manifest_hash"] != sha256(signed.body).digest():
            faults.append(TrustFault("MANIFEST_HASH_WRONG", "the manifest is not the one the record names"))
        theirs = {"job_id": signed.job_id} | {
            name: signed.fields[name] for name in ("tenant_id", "job_kind", "quota_policy_hash")
        }
        if mixed := [name for name, value in theirs.items() if fields[name] != value]:
            faults.append(TrustFault("JOB_MIXED", f"the record's {', '.join(mixed)} is not the manifest's"))
    return faults


def _manifest_faults(walk: WalkState, signed: SubmittedManifest, position: int) -> list[TrustFault]:
    """Which ledger the manifest is for; who signed it, for whom, when; and whether the owner knows the policies it names."""
    partition, manifest = walk.partition, signed.fields
    faults: list[TrustFault] = []
    origin = manifest.get("origin")
    if origin is None:
        walk.unnamed += 1
        partition.unnamed = signed.job_id, walk.batch_no
        if partition.config is not None and partition.config.rules >= RULES_ORIGIN_NAMED:
            faults.append(
                TrustFault("MANIFEST_ORIGIN_MISSING", "the manifest does not name the ledger it was signed for")
            )
    elif fault := manifest_origin_fault(origin, partition.origin):
        faults.append(fault)
    if partition.trust is not None:
        entry = walk.submitter(partition.trust, signed.key_id)
        if isinstance(entry, KeyEntry):
            unlimited = entry.tenants is None and entry.partitions is None
            if not unlimited and (fault := entry.scope_fault(manifest["tenant_id"], partition.number)):
                faults.append(fault)
            message = "the manifest's signature does not verify"
            place = (partition.number, walk.batch_no, position, signed.job_id)
            walk.book.signature(
                (entry.public_key, MANIFEST_LABEL + signed.body, signed.signature),
                ("MANIFEST_SIGNATURE_INVALID", message, *place, None),
            )
        else:
            faults.append(entry)
    config = partition.config
    if config is not None and not (
        manifest["lease_policy_id"] in config.leases
        and manifest["backoff_schedule_id"] in config.backoffs
        and manifest["quota_policy_hash"] in config.quotas
    ):
        faults.append(TrustFault("MANIFEST_POLICY_UNKNOWN", "the manifest names a policy the owner does not have"))
    return faults


def _take_policies(fold: JobFold, signed: SubmittedManifest) -> None:
    manifest = signed.fields
    fold.max_retries, fold.max_interruptions = manifest["max_retries"], manifest["max_interruptions"]
    fold.retry_categories = tuple(manifest["retry_categories"])
    fold.lease_policy_id = manifest["lease_policy_id"]
    fold.backoff_schedule_id = manifest["backoff_schedule_id"]


def _fixed(fold: JobFold, signed: SubmittedManifest) -> bytes:
    """Digest of what the submission fixes of the job's stored row."""
    manifest = signed.fields
    return fixed_digest(
        (
            signed.job_id,
            fold.tenant_id,
            fold.run_id,
            manifest["job_kind"],
            fold.manifest_hash,
            signed.payload_digest,
            manifest["priority"],
            fold.lease_policy_id,
            fold.backoff_schedule_id,
            fold.quota_policy_hash,
            fold.max_retries,
            fold.max_interruptions,
            manifest["retry_categories"],
            fold.moved_tick,
        )
    )


def _add_job(walk: WalkState, job_id: str, fold: JobFold, faults: list[TrustFault]) -> None:
    jobs, run_id = walk.book.jobs, fold.run_id
    if jobs.get(job_id) is not None:
        faults.append(TrustFault("JOB_REPEATED", f"job {job_id!r} has been submitted before"))
        return
    if run_id is not None:
        run = walk.book.runs.open(walk.partition.number, run_id)
        if run is None:
            faults.append(TrustFault("RUN_UNKNOWN", f"run {run_id!r} is not open"))
        else:
            run.jobs += 1
            run.live_jobs += 1
    jobs.add(job_id, fold)
