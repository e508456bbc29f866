"""Checkpoints: the kernel's whole live state as deterministic bytes, and back (X-022, X-168).

Only what is alive is here: jobs that have ended and runs that have closed are in the store. Restoring and going on gives
the same records as never having stopped; the property tests cut at every command to see to that (PIPE-123).
"""

from __future__ import annotations

from typing import Any

from detent.canon import NotCanonical, check_uint64, decode, encode_trusted, sha256
from detent.errors import InvalidInput, InvariantBroken, StoreCorrupt
from detent.kernel.history import History
from detent.kernel.job import Job
from detent.kernel.manifest import digest_fault
from detent.kernel.metrics import Metrics
from detent.kernel.partition_state import MakeQueue
from detent.kernel.policy import KernelConfig
from detent.kernel.queue import plain_queue
from detent.kernel.reducer import Kernel
from detent.kernel.run import Run

CHECKPOINT_VERSION = 1
CHECKPOINT_BYTES_MAX = 4 * 1024 * 1024 * 1024

FIELDS = (
    "version",
    "tick",
    "partition_id",
    "epoch",
    "signer_key_id",
    "trust_version",
    "trace_length",
    "erasures",
    "config",
    "queue_policy_hash",
    "queue",
    "jobs",
    "runs",
    "reused",
    "metrics",
    "sections",
)


def checkpoint(kernel: Kernel) -> bytes:
    """The kernel's state as deterministic CBOR: queue state, transition cursor, and all else a restore needs."""
    return encode_trusted(
        {
            "version": CHECKPOINT_VERSION,
            "tick": kernel.tick,
            "partition_id": kernel.config.partition_id,
            "epoch": kernel.epoch,
            "signer_key_id": kernel.signer_key_id,
            "trust_version": kernel.trust_version,
            "trace_length": kernel.trace_length,
            "erasures": kernel.erasures,
            "config": kernel.config.encode(),
            "queue_policy_hash": kernel.config.queue_policy_hash,
            "queue": kernel.queue.snapshot(),
            # As bytes, each: among so many digests some look like content ids, and the encoder's careful way (see canon)
            # should have to be gone for a single job and not for all of them.
            "jobs": [kernel.jobs[job_id].encode() for job_id in sorted(kernel.jobs)],
            "runs": [kernel.runs[run_id].encode() for run_id in sorted(kernel.runs)],
            "reused": [
                # The third is left out as it was before there was one.
                [run_id, sorted(run.reused), *([run.reused_run] if run.reused_run else [])]
                for run_id, run in sorted(kernel.runs.items())
                if run.steps_reused
            ],
            "metrics": kernel.metrics.to_list(),
            "sections": kernel.sections,
        }
    )


def checkpoint_digest(data: bytes) -> bytes:
    """The digest kept beside a checkpoint."""
    return sha256(data)


def restore(data: bytes, *, make_queue: MakeQueue = plain_queue, history: History | None = None) -> Kernel:
    """A kernel that goes on exactly where the one that made ``data`` stood.

    Raises `StoreCorrupt` for bytes that are not a checkpoint of this version, or whose parts contradict each other.
    """
    try:
        state = decode(data, bytes_max=CHECKPOINT_BYTES_MAX)
    except NotCanonical as exc:
        raise StoreCorrupt(f"the checkpoint is not canonical CBOR: {exc}") from exc
    if not isinstance(state, dict) or set(state) != set(FIELDS) or state["version"] != CHECKPOINT_VERSION:
        raise StoreCorrupt(f"the checkpoint is not one of version {CHECKPOINT_VERSION}")
    try:
        kernel = _rebuild(state, make_queue, history)
        kernel.check()
    except (InvalidInput, InvariantBroken, TypeError, ValueError, KeyError, AttributeError) as exc:
        raise StoreCorrupt(f"the checkpoint contradicts itself: {exc}") from exc
    said = (state["partition_id"], state["queue_policy_hash"], len(state["jobs"]), len(state["runs"]))
    if said != (kernel.config.partition_id, kernel.config.queue_policy_hash, len(kernel.jobs), len(kernel.runs)):
        raise StoreCorrupt("the checkpoint contradicts itself: its parts are those of different kernels")
    return kernel


def _rebuild(state: dict[str, Any], make_queue: MakeQueue, history: History | None) -> Kernel:
    kernel = Kernel(KernelConfig.decode(state["config"]), make_queue=make_queue, history=history)
    for name in ("tick", "epoch", "trust_version", "trace_length", "erasures"):
        setattr(kernel, name, check_uint64(name, state[name]))
    if fault := digest_fault("signer_key_id", state["signer_key_id"]):
        raise InvalidInput(fault)
    kernel.signer_key_id = state["signer_key_id"]
    kernel.queue.restore(state["queue"])
    kernel.jobs = {job.job_id: job for job in map(Job.decode, state["jobs"])}
    kernel.runs = {run.run_id: run for run in map(Run.decode, state["runs"])}
    if not isinstance(state["reused"], list):
        raise InvalidInput("reused steps are a list")
    for run_id, step_ids, *of_run in state["reused"]:
        run = kernel.runs[run_id]
        run.reused = set(step_ids)
        if of_run:
            (run.reused_run,) = of_run
    kernel.metrics = Metrics.from_list(state["metrics"])
    kernel.sections = state["sections"]
    kernel.rebuild_timers()
    return kernel
