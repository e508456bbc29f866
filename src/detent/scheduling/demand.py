"""What a request demands of a replica, and which filter removes the replicas that can never meet it.

What does not change from hour to hour about a replica (its pool, devices, engine, model, limits) is its `Shape`. Fleets have
few of them, and a demand judges each shape once; readiness and room are checked on the replica itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from detent.scheduling.checks import devices_of
from detent.scheduling.decisions import STAGES
from detent.scheduling.types import ENGINE_GENERIC, ModelRequirements, ReplicaStatus, TaskRequest

PIN, READINESS, DEVICE_MASK, ENGINE_MODEL, CONTEXT, FEATURES, FREE_SLOT, AFFINITY = range(len(STAGES))
PASSED: Final = len(STAGES)


class Shape:
    """What a demand can judge once for all replicas that share it. Compared by identity: an index makes each one once."""

    __slots__ = (
        "__weakref__",
        "ctx_max_supported",
        "devices",
        "engine",
        "features",
        "model_digest",
        "model_id",
        "pool_id",
        "sampler_profile_version",
    )

    def __init__(self, status: ReplicaStatus) -> None:
        self.pool_id = status.placement.pool_id
        self.devices = devices_of(status.device_mask)
        self.engine = status.placement.engine
        self.model_id = status.model_id
        self.model_digest = status.model_digest
        self.sampler_profile_version = status.sampler_profile_version
        self.ctx_max_supported = status.placement.ctx_max_supported
        self.features = frozenset(status.placement.features)


class Demand(NamedTuple):
    """What a request asks of a replica, without what makes it one request."""

    pool_id: str | None
    device_mask: str | None
    engine: str | None
    requirements: ModelRequirements | None
    sampler_profile_version: str | None
    vram_mb: int

    @classmethod
    def of(cls, request: TaskRequest, pool_id: str | None) -> Demand:
        """The demand of a request that may only go to ``pool_id``, or anywhere."""
        return cls(
            pool_id,
            request.device_mask,
            request.engine,
            request.requirements,
            request.sampler_profile_version,
            request.vram_mb or 0,
        )

    def judge(self, shape: Shape) -> int:
        """The filter that removes every replica of this shape, ready or not; `PASSED` if none does."""
        if self.pool_id is not None and shape.pool_id != self.pool_id:
            return PIN
        # Inside the mask means on no device outside of it; a replica without devices is inside no mask.
        if self.device_mask is not None and not (shape.devices and shape.devices <= devices_of(self.device_mask)):
            return DEVICE_MASK
        if not self._engine_and_model_match(shape):
            return ENGINE_MODEL
        needs = self.requirements
        if needs is None:
            return PASSED
        if shape.ctx_max_supported < needs.ctx_max:
            return CONTEXT
        return PASSED if shape.features.issuperset(needs.extensions) else FEATURES

    def _engine_and_model_match(self, shape: Shape) -> bool:
        if self.engine not in (None, shape.engine):
            return False
        if self.sampler_profile_version not in (None, shape.sampler_profile_version):
            return False
        if self.requirements is None:
            return shape.engine == ENGINE_GENERIC
        return self.requirements.model_id == shape.model_id and self.requirements.model_digest in (
            None,
            shape.model_digest,
        )
