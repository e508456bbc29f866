"""The order of a chunk: what its worker gets, and how often the kernel tries it."""

from __future__ import annotations

from typing import Final

from detent.canon.grammar import PRIORITY_DEFAULT
from detent.executor.own_targets import COMPUTE_CHUNK
from detent.jobs.order import Call, JobLimits, Order, Origin, Retries
from detent.ordered import Chunk, chunk_job_id
from detent.owner.backend import Backend, Submission
from detent.runs.ordered.spec import Items, OrderedInputs
from detent.runs.ordered.timed_chunk import CATEGORY as OVER_TIME
from detent.runs.ordered.timed_chunk import wall_ms

SYSTEM: Final = ("INTERNAL_ERROR",)
"""Failures after which a chunk is always retried."""


def chunk_submission(
    backend: Backend, inputs: OrderedInputs, items: Items, run_id: str, part: tuple[Chunk, int]
) -> Submission:
    """The job of a chunk; ``part`` has the last seq of it that is to be computed. Its id does not depend on that."""
    spec = inputs.spec
    chunk, last = part
    work: dict[str, object] = {"compute": spec.compute}
    if spec.filter is not None:
        work["filter"] = spec.filter
    if spec.files:
        work["files"] = True
    if spec.retries.max:
        work["retries"] = spec.retries.max
    again = (*SYSTEM, *spec.retries.on) if spec.retries.max else SYSTEM
    if spec.item_ms is not None:
        work["item_ms"] = spec.item_ms
        if OVER_TIME in again:
            work["over_time_again"] = True
        else:
            again = (*again, OVER_TIME)  # The attempt that finds out which item it was, see `timed_chunk`.
    order = Order(
        Call(
            kind="python",
            target=COMPUTE_CHUNK,
            arguments=(work, items.part(chunk.first, last)),
            base=spec.base,
        ),
        f"{spec.name}/chunk",
        JobLimits(
            wall_ms=None if spec.item_ms is None else wall_ms(spec.item_ms),
            retries=Retries(inputs.config.max_retries, again),
        ),
        Origin(run_id=run_id, step="chunk", index=chunk.first),
    )
    return backend.submission(
        order,
        job_id=chunk_job_id(run_id, *chunk, backend.partitions),
        job_kind="seq",
        priority=PRIORITY_DEFAULT,
        key=None,
        run_id=run_id,
    )
