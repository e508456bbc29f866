"""How commands about runs, owners, trust and erasures are decided: records that belong to no single job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.canon import UINT64_MAX, decode, sha256
from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.kernel import commands as cmd
from detent.kernel import records
from detent.kernel.evidence import reason_fault
from detent.kernel.history import ERASED, RUN_ENDED, RUN_REUSED, STEP_REUSED, Record
from detent.kernel.identity import ORCHESTRATOR_VERSION, partition_of, transition_log_hash
from detent.kernel.manifest import digest_fault, id_fault
from detent.kernel.outcome import CONFLICT, DEDUPLICATED, Outcome
from detent.kernel.policy import KernelConfig
from detent.kernel.run import COMPLETED, RUN_STATUSES, Run, has_result

if TYPE_CHECKING:
    from detent.kernel.partition_state import PartitionState

OPERATOR = "kernel"


def start_run(kernel: PartitionState, command: cmd.StartRun, out: Outcome) -> None:
    """Open a run; the same run again is the same answer, another one under its id a conflict."""
    fault = id_fault("tenant_id", command.tenant_id) or id_fault("run_id", command.run_id)
    fault = fault or id_fault("operation_id", command.operation_id) or id_fault("name", command.name)
    for name in ("contract_digest", "bindings_digest", "inputs_digest"):
        fault = fault or digest_fault(name, getattr(command, name))
    if fault:
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    if refusal := run_elsewhere(kernel, command.run_id):
        return kernel.refuse_with(out, refusal, OPERATOR)
    known = kernel.runs.get(command.run_id)
    if known is None and (body := kernel.history.ended_run(command.run_id)) is not None:
        known = Run.decode(body)
    run = Run(
        command.run_id,
        command.tenant_id,
        command.name,
        command.contract_digest,
        command.bindings_digest,
        command.inputs_digest,
        command.operation_id,
        kernel.tick,
    )
    if known is not None:
        same = run.to_list()[:7] == known.to_list()[:7]
        if not same:
            message = f"run {command.run_id!r} exists with other inputs"
            return kernel.refuse(out, "CONFLICT", message, OPERATOR, status=CONFLICT, run_id=command.run_id)
        out.status = DEDUPLICATED
        return None
    kernel.runs[run.run_id] = run
    kernel.touch_run(run)
    emit(
        kernel,
        out,
        records.RUN_STARTED,
        {
            "tenant_id": run.tenant_id,
            "run_id": run.run_id,
            "name": run.name,
            "contract_digest": run.contract_digest,
            "bindings_digest": run.bindings_digest,
            "inputs_digest": run.inputs_digest,
            "operation_id": run.operation_id,
        },
        run_id=run.run_id,
    )
    return None


def reuse_step(kernel: PartitionState, command: cmd.ReuseStep, out: Outcome) -> None:
    """Record that a step of an open run took an earlier job's result."""
    fault = id_fault("run_id", command.run_id) or id_fault("step_id", command.step_id)
    fault = (
        fault or id_fault("job_id", command.job_id) or digest_fault("ingredients_digest", command.ingredients_digest)
    )
    element = command.element
    if element is not None and (type(element) is not int or not 0 <= element <= UINT64_MAX):
        fault = fault or f"element must be an integer from 0 to 2^64-1, not {show(element)}"
    if fault:
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    if refusal := run_elsewhere(kernel, command.run_id):
        return kernel.refuse_with(out, refusal, OPERATOR)
    run = kernel.runs.get(command.run_id)
    known = None
    if run is None or command.step_id in run.reused:
        known = kernel.history.reused_step(command.run_id, command.step_id)
    if known is not None:
        return _repeat_reuse(kernel, known, command, out)
    if run is None:
        return kernel.refuse(out, "UNKNOWN_RUN", f"run {command.run_id!r} is not open", OPERATOR, run_id=command.run_id)
    # The history of another partition is recorded there. The owner has looked at it before it lets a request through (`owner/turn.py`).
    is_own = partition_of(command.job_id, kernel.config.partitions) == kernel.config.partition_id
    reused = kernel.history.ended_job(command.job_id) if is_own else None
    if is_own and (reused is None or not has_result(reused.state, element) or reused.tenant_id != run.tenant_id):
        message = f"job {command.job_id!r} has no result to reuse"
        return kernel.refuse(out, "UNKNOWN_JOB", message, OPERATOR, job_id=command.job_id)
    run.steps_reused += 1
    run.reused.add(command.step_id)
    kernel.touch_run(run)
    emit(
        kernel,
        out,
        STEP_REUSED,
        {
            "run_id": command.run_id,
            "step_id": command.step_id,
            "job_id": command.job_id,
            "ingredients_digest": command.ingredients_digest,
            **({} if element is None else {"element": element}),
        },
        job_id=None,
        run_id=command.run_id,
    )
    return None


def _repeat_reuse(kernel: PartitionState, known: Record, command: cmd.ReuseStep, out: Outcome) -> None:
    """The same reuse again gets its record; a step takes no second result (X-173)."""
    body = decode(known.body)
    said = (body["job_id"], body["ingredients_digest"], body.get("element")) if isinstance(body, dict) else None
    if said != (command.job_id, command.ingredients_digest, command.element):
        message = f"step {command.step_id!r} of run {command.run_id!r} has been reused otherwise"
        return kernel.refuse(out, "CONFLICT", message, OPERATOR, status=CONFLICT, run_id=command.run_id)
    out.status = DEDUPLICATED
    out.record = known
    return None


def reuse_run(kernel: PartitionState, command: cmd.ReuseRun, out: Outcome) -> None:
    """Record that an open run took the results of an earlier run's jobs, but for some steps.

    The record binds the histories of the earlier run's jobs by the digest that its end bound them by.
    """
    if fault := _reuse_run_fault(command):
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    if refusal := run_elsewhere(kernel, command.run_id):
        return kernel.refuse_with(out, refusal, OPERATOR)
    run = kernel.runs.get(command.run_id)
    known = kernel.history.reused_run(command.run_id) if run is None or run.reused_run else None
    if known is not None:
        return _repeat_run_reuse(kernel, known, command, out)
    if run is None:
        return kernel.refuse(out, "UNKNOWN_RUN", f"run {command.run_id!r} is not open", OPERATOR, run_id=command.run_id)
    body, end = kernel.history.ended_run(command.reused_run_id), kernel.history.run_end(command.reused_run_id)
    earlier = None if body is None else Run.decode(body)
    ended = None if end is None else decode(end.body)
    taken = 0 if earlier is None else earlier.jobs - len(command.except_steps)
    if (
        earlier is None
        or not isinstance(ended, dict)
        or earlier.status != COMPLETED
        or (earlier.tenant_id, earlier.contract_digest) != (run.tenant_id, run.contract_digest)
        or taken < 1
    ):
        message = f"run {command.reused_run_id!r} has no results that run {command.run_id!r} could reuse"
        return kernel.refuse(out, "UNKNOWN_RUN", message, OPERATOR, run_id=command.reused_run_id)
    run.steps_reused += taken
    run.reused_run = taken
    kernel.touch_run(run)
    emit(
        kernel,
        out,
        RUN_REUSED,
        {
            "run_id": command.run_id,
            "reused_run_id": command.reused_run_id,
            "jobs_digest": ended["jobs_digest"],
            "steps_reused": taken,
            "except_steps": list(command.except_steps),
            "ingredients_digest": command.ingredients_digest,
        },
        run_id=command.run_id,
    )
    return None


def _reuse_run_fault(command: cmd.ReuseRun) -> str | None:
    fault = id_fault("run_id", command.run_id) or id_fault("reused_run_id", command.reused_run_id)
    fault = fault or digest_fault("ingredients_digest", command.ingredients_digest)
    steps = command.except_steps
    if not isinstance(steps, tuple) or len(steps) > records.EXCEPTED_STEPS_MAX:
        return fault or f"a reuse of a run excepts at most {records.EXCEPTED_STEPS_MAX} steps, in a tuple"
    for step_id in steps:
        fault = fault or id_fault("except_steps", step_id)
    if fault is None and sorted(set(steps)) != list(steps):
        return "the excepted steps are in order, each once"
    return fault


def _repeat_run_reuse(kernel: PartitionState, known: Record, command: cmd.ReuseRun, out: Outcome) -> None:
    """The same reuse again gets its record; a run takes the results of no second run (X-173)."""
    body = decode(known.body)
    names = ("reused_run_id", "except_steps", "ingredients_digest")
    said = [body[name] for name in names] if isinstance(body, dict) else None
    if said != [command.reused_run_id, list(command.except_steps), command.ingredients_digest]:
        message = f"run {command.run_id!r} has been reused otherwise"
        return kernel.refuse(out, "CONFLICT", message, OPERATOR, status=CONFLICT, run_id=command.run_id)
    out.status = DEDUPLICATED
    out.record = known
    return None


def run_elsewhere(kernel: PartitionState, run_id: str) -> Refused | None:
    """Refuse a run that does not live in this partition.

    Runs are placed like jobs, by the digest of their id, so that no two partitions can open one. All jobs of a run are
    therefore jobs of one partition; with a single partition, as by default, that is not a limit at all.
    """
    config = kernel.config
    home = partition_of(run_id, config.partitions)
    if home == config.partition_id:
        return None
    message = (
        f"run {run_id!r} lives in partition {home} of {config.partitions}, not in {config.partition_id}: "
        "a run and its jobs must share a partition"
    )
    return Refused("NOT_PARTITION_OWNER", message, {"run_id": run_id, "partition": home})


def end_run(kernel: PartitionState, command: cmd.EndRun, out: Outcome) -> None:
    """Close a run whose jobs have all ended, binding each of them with its count and head (X-167)."""
    fault = id_fault("run_id", command.run_id)
    if not isinstance(command.status, str) or command.status not in RUN_STATUSES:
        fault = fault or f"a run ends as one of {', '.join(sorted(RUN_STATUSES))}, not {show(command.status)}"
    if command.reason_code is not None:
        fault = fault or reason_fault(command.reason_code)
    if fault:
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    if refusal := run_elsewhere(kernel, command.run_id):
        return kernel.refuse_with(out, refusal, OPERATOR)
    run = kernel.runs.get(command.run_id)
    if run is None:
        if (body := kernel.history.ended_run(command.run_id)) is not None:
            if Run.decode(body).status == command.status:
                out.status = DEDUPLICATED
                return None
            message = f"run {command.run_id!r} has ended otherwise"
            return kernel.refuse(out, "CONFLICT", message, OPERATOR, status=CONFLICT, run_id=command.run_id)
        return kernel.refuse(out, "UNKNOWN_RUN", f"there is no run {command.run_id!r}", OPERATOR)
    if run.live_jobs:
        message = f"run {run.run_id!r} still has {run.live_jobs} jobs that have not ended"
        return kernel.refuse(out, "RUN_NOT_DONE", message, OPERATOR, live_jobs=run.live_jobs)
    run.status, run.ended_tick, run.reason_code = command.status, kernel.tick, command.reason_code
    emit(
        kernel,
        out,
        RUN_ENDED,
        {
            "tenant_id": run.tenant_id,
            "run_id": run.run_id,
            "status": run.status,
            "job_count": run.jobs,
            "jobs_digest": transition_log_hash(run.jobs, kernel.history.run_heads(run.run_id)),
            "steps_reused": run.steps_reused,
            **({} if run.reason_code is None else {"reason_code": run.reason_code}),
        },
        run_id=run.run_id,
    )
    del kernel.runs[run.run_id]
    kernel.touch_run(run)
    kernel.history.end_run(run.run_id, run.encode())
    return None


def raise_epoch(kernel: PartitionState, command: cmd.RaiseEpoch, out: Outcome) -> None:
    """A new owner takes the partition, with its key and configuration; an epoch never comes back (PIPE-060)."""
    if type(command.epoch) is not int or not 0 <= command.epoch <= UINT64_MAX:
        message = f"epoch must be an integer from 0 to 2^64-1, not {show(command.epoch)}"
        return kernel.refuse(out, "INVALID_PARAMS", message, OPERATOR)
    if command.epoch <= kernel.epoch:
        message = f"epoch {command.epoch} is not above the present one, {kernel.epoch}"
        return kernel.refuse(out, "NOT_PARTITION_OWNER", message, OPERATOR, epoch=kernel.epoch)
    try:
        config = KernelConfig.decode(command.config)
    except InvalidInput as exc:
        return kernel.refuse(out, "INVALID_PARAMS", str(exc), OPERATOR)
    if fault := digest_fault("signer_key_id", command.signer_key_id) or _config_fault(kernel, config):
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    kernel.epoch = command.epoch
    kernel.signer_key_id = command.signer_key_id
    if config.to_map() != kernel.config.to_map():
        kernel.reconfigure(config)
    emit(
        kernel,
        out,
        records.OWNER_EPOCH,
        {
            "epoch": command.epoch,
            "config_digest": sha256(command.config),
            "queue_policy_hash": config.queue_policy_hash,
            "replay_token": config.replay_token,
            "orchestrator_version": ORCHESTRATOR_VERSION,
        },
        evidence=command.config,
    )
    return None


def change_trust(kernel: PartitionState, command: cmd.ChangeTrust, out: Outcome) -> None:
    """Announce the next version of the trust configuration on the ledger."""
    fault = digest_fault("config_digest", command.config_digest)
    if type(command.version) is not int or not isinstance(command.signed_config, bytes):
        fault = fault or "a trust change has an integer version and the bytes of the signed configuration"
    if fault:
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    if command.version != kernel.trust_version + 1:
        message = f"trust version {show(command.version)} does not follow version {kernel.trust_version}"
        return kernel.refuse(out, "CONFLICT", message, OPERATOR, status=CONFLICT)
    kernel.trust_version = command.version
    emit(
        kernel,
        out,
        records.TRUST_CHANGED,
        {"version": command.version, "config_digest": command.config_digest},
        evidence=command.signed_config,
    )
    return None


def erase(kernel: PartitionState, command: cmd.Erase, out: Outcome) -> None:
    """Record which content was erased, so that its absence is explained for ever after.

    Content belongs to no partition, and what was erased may come back. So that the order of both can be read off the
    ledger, erasures are in the first partition.
    """
    fault = reason_fault(command.reason_code)
    expected = command.expected_erasures
    if type(expected) is not int or not 0 <= expected <= UINT64_MAX:
        fault = fault or f"expected_erasures must be an integer from 0 to 2^64-1, not {show(expected)}"
    digests = command.digests if isinstance(command.digests, tuple) else ()
    if not 1 <= len(digests) <= records.DIGESTS_PER_ERASED_MAX:
        fault = fault or f"an erasure names 1 to {records.DIGESTS_PER_ERASED_MAX} digests"
    for digest in digests:
        fault = fault or digest_fault("digest", digest)
    if fault:
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    if kernel.config.partition_id != 0:
        return kernel.refuse(out, "NOT_PARTITION_OWNER", "erasures are recorded in partition 0", OPERATOR, partition=0)
    if expected != kernel.erasures:
        return _repeat_erase(kernel, command, out)
    fields = {"erasure_seq": expected, "digests": sorted(digests), "reason_code": command.reason_code}
    emit(kernel, out, ERASED, fields)
    kernel.erasures += 1
    return None


def _repeat_erase(kernel: PartitionState, command: cmd.Erase, out: Outcome) -> None:
    """An erasure that was recorded under the expected number is answered by its record; another one is a conflict."""
    known = kernel.history.erasure(command.expected_erasures) if command.expected_erasures < kernel.erasures else None
    body = None if known is None else decode(known.body)
    if isinstance(body, dict) and (body["digests"], body["reason_code"]) == (
        sorted(command.digests),
        command.reason_code,
    ):
        out.status = DEDUPLICATED
        out.record = known
        return
    message = f"{kernel.erasures} erasures are recorded, the request expects {command.expected_erasures}"
    kernel.refuse(out, "CONFLICT", message, OPERATOR, status=CONFLICT, stored_erasures=kernel.erasures)


def emit(
    kernel: PartitionState,
    out: Outcome,
    kind: str,
    fields: dict[str, object],
    *,
    job_id: str | None = None,
    run_id: str | None = None,
    evidence: bytes | None = None,
) -> None:
    """Make the record of a command that belongs to no single job, and answer with it."""
    common = {"partition_id": kernel.config.partition_id, "tick": kernel.tick, "signer_key_id": kernel.signer_key_id}
    record = records.plain_record(kind, {**fields, **common}, job_id=job_id, run_id=run_id, evidence=evidence)
    out.records.append(record)
    out.record = record
    kernel.history.add_record(record)


def _config_fault(kernel: PartitionState, config: KernelConfig) -> str | None:
    """Say why a configuration cannot take over from the present one, or nothing."""
    present = kernel.config
    if (config.partitions, config.partition_id, config.tick_ms, config.epoch_base_ms) != (
        present.partitions,
        present.partition_id,
        present.tick_ms,
        present.epoch_base_ms,
    ):
        return "partitions and the meaning of a tick are fixed for the life of a ledger"
    for job in kernel.jobs.values():
        if (
            job.lease_policy_id not in config.leases
            or job.backoff_schedule_id not in config.backoffs
            or job.quota_policy_hash not in config.quotas
        ):
            return f"the configuration drops a policy that job {job.job_id!r} uses"
    return None
