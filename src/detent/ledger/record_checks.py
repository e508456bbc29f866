"""Checks of single records: the first record of a job, and the records of no job.

The first record of a job: it must be exactly what the signed manifest beside it leads to.

Only the run a job belongs to, the decision that let it in and the tick are the record's own; the rest is in the manifest, so again the right record is
built and compared.

Records that belong to no job's chain: runs, reuse, owners, trust, erasures. What each of them must agree with.

A handler takes the walk, the record's fields (their shape has been checked) and its evidence, says what does not hold, and
folds the record in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from detent.canon import sha256 as canon_sha256
from detent.errors import InvalidInput, TrustError
from detent.kernel import MANIFEST_LABEL, ORCHESTRATOR_VERSION, KernelConfig, chain_genesis, partition_of
from detent.kernel.policy import RULES_ORIGIN_NAMED
from detent.kernel.run import COMPLETED, has_result
from detent.ledger.book import Partition
from detent.ledger.items import SCOPE_LEDGER
from detent.ledger.operator_checks import operated, worker_enrolled, worker_retired
from detent.ledger.schema import SubmittedManifest, is_digest, read_record, read_submitted
from detent.ledger.tables import JobFold, RunFold, fixed_digest
from detent.ledger.templates import job_parts, submitted_body
from detent.ledger.trust_config import KeyEntry, SignedTrust, TrustFault, manifest_origin_fault

if TYPE_CHECKING:
    from detent.ledger.book import WalkState


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


Handler = Callable[["WalkState", Mapping[str, Any], bytes], Iterator[TrustFault]]


def run_started(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:  # noqa: ARG001 - has none
    """A run begins, once."""
    runs, partition, run_id = walk.book.runs, walk.partition.number, fields["run_id"]
    header = walk.book.header
    if header is not None and partition_of(run_id, header.partitions) != partition:
        yield TrustFault("RUN_PARTITION_WRONG", f"run {run_id!r} belongs to another partition")
    if runs.open(partition, run_id) is not None or runs.ended(partition, run_id) is not None:
        yield TrustFault("RUN_REPEATED", f"run {run_id!r} has been started before")
        return
    digests = (fields["contract_digest"], fields["bindings_digest"], fields["inputs_digest"])
    fold = RunFold(fields["tenant_id"], fields["name"], fields["tick"], *digests, fields["operation_id"])
    runs.start(partition, run_id, fold)


def step_reused(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:  # noqa: ARG001 - has none
    """A step of an open run took the result of a job of the same tenant that succeeded before.

    The job may be of another run, which a run's bundle does not hold, or of another partition, which may come later: then
    nothing can be said about it here.
    """
    book, partition = walk.book, walk.partition.number
    run = book.runs.open(partition, fields["run_id"])
    if run is None:
        yield TrustFault("RUN_UNKNOWN", f"run {fields['run_id']!r} is not open")
        return
    run.steps_reused += 1
    if not book.runs.reuse(partition, fields["run_id"], fields["step_id"]):
        yield TrustFault("STEP_REPEATED", f"step {fields['step_id']!r} of run {fields['run_id']!r} was reused before")
    header = book.header
    if header is None or header.scope != SCOPE_LEDGER or partition_of(fields["job_id"], header.partitions) != partition:
        return
    job = book.jobs.get(fields["job_id"])
    if job is None or not has_result(job.state, fields.get("element")) or job.tenant_id != run.tenant_id:
        yield TrustFault("REUSE_WRONG", f"job {fields['job_id']!r} has no result that this run could reuse")


def run_reused(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:  # noqa: ARG001 - has none
    """An open run took the results of an earlier run of the same tenant and contract that completed.

    The record binds the histories of that run's jobs. A run's bundle does not hold them; its receiver compares the digest with
    the one in the other run's bundle.
    """
    book, partition = walk.book, walk.partition.number
    run_id, reused = fields["run_id"], fields["reused_run_id"]
    run = book.runs.open(partition, run_id)
    if run is None:
        yield TrustFault("RUN_UNKNOWN", f"run {run_id!r} is not open")
        return
    run.steps_reused += fields["steps_reused"]
    if run.reused_run or not fields["steps_reused"]:
        yield TrustFault("REUSE_WRONG", f"run {run_id!r} was reused before, or takes no result")
    run.reused_run = True
    header = book.header
    if header is None or header.scope != SCOPE_LEDGER:
        book.unseen = reused, fields["jobs_digest"]
        return
    ended = book.runs.ended(partition, reused)
    if ended is None:
        yield TrustFault("REUSE_WRONG", f"run {reused!r} has not ended before run {run_id!r} takes its results")
        return
    tenant, _, status, _, _, _, contract, jobs, digest = ended
    if (tenant, status, contract) != (run.tenant_id, COMPLETED, run.contract_digest):
        yield TrustFault("REUSE_WRONG", f"run {reused!r} has no results that run {run_id!r} could reuse")
    elif digest != fields["jobs_digest"]:
        yield TrustFault("REUSE_WRONG", f"the reuse binds other histories of the jobs of run {reused!r} than these")
    elif jobs != fields["steps_reused"] + len(fields["except_steps"]):
        message = f"the reuse counts {fields['steps_reused']} results and {len(fields['except_steps'])} exceptions"
        yield TrustFault("REUSE_WRONG", f"{message}; run {reused!r} has {jobs} jobs")


def run_ended(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:  # noqa: ARG001 - has none
    """A run ends: every job of it, with its count and head, must be what was read (X-167)."""
    runs, partition, run_id = walk.book.runs, walk.partition.number, fields["run_id"]
    run = runs.open(partition, run_id)
    if run is None:
        yield TrustFault("RUN_UNKNOWN", f"run {run_id!r} is not open")
        return
    count, digest = runs.jobs_digest(partition, run_id, run)
    if fields["job_count"] != run.jobs or count != run.jobs:
        message = f"the run's end counts {fields['job_count']} jobs; {run.jobs} were submitted, {count} have ended"
        yield TrustFault("RUN_JOBS_WRONG", message)
    elif fields["jobs_digest"] != digest:
        yield TrustFault("RUN_JOBS_WRONG", "the run's end binds other histories of its jobs than these")
    if fields["tenant_id"] != run.tenant_id or fields["steps_reused"] != run.steps_reused:
        message = f"the run's end names tenant {fields['tenant_id']!r} and {fields['steps_reused']} reused steps"
        yield TrustFault("RUN_JOBS_WRONG", f"{message}; they are {run.tenant_id!r} and {run.steps_reused}")
    runs.end(partition, run_id, run, fields["status"], fields["tick"], fields.get("reason_code"), jobs_digest=digest)


def owner_epoch(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:
    """A new owner begins: a higher epoch, and the configuration it decides by, recomputed from its bytes."""
    partition = walk.partition
    if fields["epoch"] <= partition.epoch:
        yield TrustFault("EPOCH_WRONG", f"epoch {fields['epoch']} after epoch {partition.epoch}")
    partition.change_owner(fields["epoch"], fields["signer_key_id"])
    if fields["config_digest"] != canon_sha256(evidence):
        yield TrustFault("CONFIG_WRONG", "the configuration is not the one the record names")
    try:
        config = KernelConfig.decode(evidence)
        hashes = (config.queue_policy_hash, config.replay_token, ORCHESTRATOR_VERSION)
    except (InvalidInput, TypeError) as exc:
        yield TrustFault("CONFIG_WRONG", f"the configuration cannot be read: {exc}")
        return
    if (fields["queue_policy_hash"], fields["replay_token"], fields["orchestrator_version"]) != hashes:
        yield TrustFault("CONFIG_WRONG", "the policy hash, replay token or version is not that of the configuration")
    header, before = walk.book.header, partition.config
    if config.partition_id != partition.number or (header is not None and config.partitions != header.partitions):
        yield TrustFault("CONFIG_WRONG", f"a configuration for partition {config.partition_id} of {config.partitions}")
    elif before is not None and (before.tick_ms, before.epoch_base_ms) != (config.tick_ms, config.epoch_base_ms):
        yield TrustFault("CONFIG_WRONG", "the meaning of a tick changes in the middle of the ledger")
    elif before is not None and config.rules < before.rules:
        # A version that knows only older rules cannot open the ledger, so only a holder of the key takes them back.
        yield TrustFault("CONFIG_WRONG", f"the rules go back from {before.rules} to {config.rules}")
    partition.config = config


def trust_changed(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:
    """A version of trust is announced: it must follow the one before and be signed by a root key of that one."""
    book, partition = walk.book, walk.partition
    try:
        signed = SignedTrust.parse(evidence)
        if fields["config_digest"] != signed.digest():
            yield TrustFault("TRUST_INVALID", "the trust configuration is not the one the record names")
        if partition.trust is None:
            # The genesis batch announces before anything is read; a ledger without it has its finding already.
            return
        genesis = partition.trust.versions[0]
        if not partition.genesis_seen and (genesis.position, genesis.digest) == (walk.batch_no, signed.digest()):
            partition.genesis_seen = True
        else:
            partition.trust = partition.trust.extend(evidence, walk.batch_no)
    except TrustError as exc:
        yield TrustFault("TRUST_INVALID", str(exc))
        return
    version = partition.trust.config.version
    if fields["version"] != version:
        yield TrustFault(
            "TRUST_INVALID", f"the record announces version {fields['version']}, its evidence is {version}"
        )
    if book.versions.setdefault(version, signed.digest()) != signed.digest():
        yield TrustFault("TRUST_FORKED", f"another partition has another trust version {version}")


def erased(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:  # noqa: ARG001 - has none
    """Content was erased on purpose; its absence is explained from here on."""
    digests, number = fields["digests"], fields["erasure_seq"]
    partition, header = walk.partition, walk.book.header
    if partition.number != 0:
        yield TrustFault("ERASED_WRONG", f"an erasure in partition {partition.number}; erasures belong in partition 0")
    whole = header is None or header.scope == SCOPE_LEDGER
    if number < partition.erasures or (whole and number != partition.erasures):
        yield TrustFault("ERASED_WRONG", f"erasure {number} where erasure {partition.erasures} is due")
    partition.erasures = number + 1
    if digests != sorted(digests):
        yield TrustFault("ERASED_WRONG", "the erased digests are not in order")
    for digest in digests:
        walk.book.erased.add(digest)


PLAIN_KINDS: Final[Mapping[str, tuple[Handler, bool | None]]] = {
    "run_started": (run_started, False),
    "step_reused": (step_reused, False),
    "run_reused": (run_reused, False),
    "run_ended": (run_ended, False),
    "owner_epoch": (owner_epoch, True),
    "trust_changed": (trust_changed, True),
    "erased": (erased, False),
    "operated": (operated, None),
    "worker_enrolled": (worker_enrolled, True),
    "worker_retired": (worker_retired, False),
}
"""For each kind its handler, and whether it has evidence; None where the record itself says so."""
