"""Records that belong to no job's chain: runs, reuse, owners, trust, erasures. What each of them must agree with.

A handler takes the walk, the record's fields (their shape has been checked) and its evidence, says what does not hold, and
folds the record in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from detent.canon import sha256
from detent.errors import InvalidInput, TrustError
from detent.kernel import ORCHESTRATOR_VERSION, KernelConfig, partition_of
from detent.ledger.items import SCOPE_LEDGER
from detent.ledger.tables import RunFold
from detent.ledger.trust_config import SignedTrust, TrustFault

if TYPE_CHECKING:
    from detent.ledger.walk_state import WalkState

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
    if job is None or job.state != "SUCCEEDED" or job.tenant_id != run.tenant_id:
        yield TrustFault("REUSE_WRONG", f"job {fields['job_id']!r} has no result that this run could reuse")


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
    runs.end(partition, run_id, run, fields["status"], fields["tick"], fields.get("reason_code"))


def owner_epoch(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:
    """A new owner begins: a higher epoch, and the configuration it decides by, recomputed from its bytes."""
    partition = walk.partition
    if fields["epoch"] <= partition.epoch:
        yield TrustFault("EPOCH_WRONG", f"epoch {fields['epoch']} after epoch {partition.epoch}")
    partition.change_owner(fields["epoch"], fields["signer_key_id"])
    if fields["config_digest"] != sha256(evidence):
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


PLAIN_KINDS: Final[Mapping[str, tuple[Handler, bool]]] = {
    "run_started": (run_started, False),
    "step_reused": (step_reused, False),
    "run_ended": (run_ended, False),
    "owner_epoch": (owner_epoch, True),
    "trust_changed": (trust_changed, True),
    "erased": (erased, False),
}
"""For each kind its handler, and whether it has evidence."""
