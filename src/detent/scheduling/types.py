"""What a task asks for and what a replica offers: the contract's types, and the two that wrap them.

`ModelRequirements` and `PlacementInput` have exactly the contract's fields. What they lack stands around them: readiness,
mask, slots and model in `ReplicaStatus`, everything about one request in `TaskRequest` (X-088). All four are checked when
they are made, so that nothing behind this file looks at a value twice, and all four have one canonical map, because they
travel in recorded commands and in checkpoints.

The maps are written out field by field: every decision and every report is hashed, and a loop over the names costs three
times as much. A test compares the names with the fields.

Lists of features and the devices of a mask are sets in meaning. They are put in order when the value is made: two
descriptions of the same thing have the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from detent.canon import check_uint64, encode_trusted, sha256
from detent.canon.grammar import PRIORITY_DEFAULT
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel.manifest import EVICTABLE_KINDS, JOB_KINDS
from detent.scheduling.checks import (
    check_bool,
    check_id,
    check_mask,
    check_names,
    check_optional_id,
    check_positive,
    check_priority,
    exact_fields,
)

ENGINE_GENERIC = "generic"
"""Engine of replicas that run jobs without a model (X-093)."""


@dataclass(frozen=True, slots=True)
class ModelRequirements:
    """What a model needs of a replica. ``ctx_max`` is the limit the user sees, all overhead taken off."""

    model_id: str
    model_digest: str | None
    ctx_max: int
    quant: str | None
    streaming: bool
    extensions: tuple[str, ...] = ()

    FIELDS = ("model_id", "model_digest", "ctx_max", "quant", "streaming", "extensions")

    def __post_init__(self) -> None:
        check_id("model_id", self.model_id)
        for name in ("model_digest", "quant"):
            check_optional_id(name, getattr(self, name))
        check_positive("ctx_max", self.ctx_max)
        check_bool("streaming", self.streaming)
        object.__setattr__(self, "extensions", check_names("extensions", self.extensions))

    def to_map(self) -> dict[str, object]:
        """The canonical map; what was not observed is null."""
        return {
            "model_id": self.model_id,
            "model_digest": self.model_digest,
            "ctx_max": self.ctx_max,
            "quant": self.quant,
            "streaming": self.streaming,
            "extensions": list(self.extensions),
        }

    @classmethod
    def from_map(cls, value: object) -> ModelRequirements:
        """Read the map; refuse a missing, extra or wrongly typed field."""
        return cls(**exact_fields("ModelRequirements", value, cls.FIELDS))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PlacementInput:
    """A replica as the contract lets the scheduler see it.

    In what a replica reports, ``active_slots`` counts work that this scheduler did not put there, and is 0 for a replica
    of its own. In what a `Fleet` shows, the scheduler's own live leases are added.
    """

    replica_id: str
    pool_id: str
    engine: str
    engine_version: str
    free_vram_mb: int
    active_slots: int
    ctx_max_supported: int
    features: tuple[str, ...] = ()

    FIELDS = (
        "replica_id",
        "pool_id",
        "engine",
        "engine_version",
        "free_vram_mb",
        "active_slots",
        "ctx_max_supported",
        "features",
    )

    def __post_init__(self) -> None:
        for name in ("replica_id", "pool_id", "engine", "engine_version"):
            check_id(name, getattr(self, name))
        for name in ("free_vram_mb", "active_slots", "ctx_max_supported"):
            check_uint64(name, getattr(self, name))
        object.__setattr__(self, "features", check_names("features", self.features))

    def to_map(self) -> dict[str, object]:
        """The canonical map."""
        return {
            "replica_id": self.replica_id,
            "pool_id": self.pool_id,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "free_vram_mb": self.free_vram_mb,
            "active_slots": self.active_slots,
            "ctx_max_supported": self.ctx_max_supported,
            "features": list(self.features),
        }

    @classmethod
    def from_map(cls, value: object) -> PlacementInput:
        """Read the map; refuse a missing, extra or wrongly typed field."""
        return cls(**exact_fields("PlacementInput", value, cls.FIELDS))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica with all that placement needs beside the contract's view of it (CORE-X003).

    ``device_mask`` names the devices the replica computes on, separated by commas; None for one that needs none.
    ``model_id`` is None for a replica that serves no model.
    """

    placement: PlacementInput
    ready: bool
    device_mask: str | None
    replica_set_id: str
    max_slots: int
    model_id: str | None
    model_digest: str | None
    sampler_profile_version: str
    partition_id: int = 0

    FIELDS = (
        "placement",
        "ready",
        "device_mask",
        "replica_set_id",
        "max_slots",
        "model_id",
        "model_digest",
        "sampler_profile_version",
        "partition_id",
    )

    def __post_init__(self) -> None:
        if type(self.placement) is not PlacementInput:
            raise InvalidInput(f"placement must be a PlacementInput, not {show(self.placement)}")
        check_bool("ready", self.ready)
        object.__setattr__(self, "device_mask", check_mask(self.device_mask))
        for name in ("replica_set_id", "sampler_profile_version"):
            check_id(name, getattr(self, name))
        for name in ("model_id", "model_digest"):
            check_optional_id(name, getattr(self, name))
        if self.model_digest is not None and self.model_id is None:
            raise InvalidInput("model_digest needs a model_id beside it")
        check_positive("max_slots", self.max_slots)
        check_uint64("partition_id", self.partition_id)
        if self.placement.active_slots > self.max_slots:
            raise InvalidInput(f"active_slots {self.placement.active_slots} is above max_slots {self.max_slots}")

    @property
    def replica_id(self) -> str:
        """The id of the replica inside."""
        return self.placement.replica_id

    def to_map(self) -> dict[str, object]:
        """The canonical map."""
        return {
            "placement": self.placement.to_map(),
            "ready": self.ready,
            "device_mask": self.device_mask,
            "replica_set_id": self.replica_set_id,
            "max_slots": self.max_slots,
            "model_id": self.model_id,
            "model_digest": self.model_digest,
            "sampler_profile_version": self.sampler_profile_version,
            "partition_id": self.partition_id,
        }

    @classmethod
    def from_map(cls, value: object) -> ReplicaStatus:
        """Read the map; refuse a missing, extra or wrongly typed field."""
        fields = exact_fields("ReplicaStatus", value, cls.FIELDS)
        return cls(**{**fields, "placement": PlacementInput.from_map(fields["placement"])})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Pin:
    """A request's wish for one pool and no other."""

    pool_id: str

    def __post_init__(self) -> None:
        check_id("pin.pool_id", self.pool_id)


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """One job as admission and placement see it (CORE-X004).

    ``device_mask`` names the only devices that may be used; None leaves the choice open. ``sampler_profile_version`` None
    does as well. The last four fields are ours: the kind decides whether a full queue may drop the job, ``vram_mb`` is what
    the job needs free on its replica when it starts, ``time_ms`` and ``cost`` are the most it may take from its session.
    """

    job_id: str
    session_id: str | None = None
    priority: int = PRIORITY_DEFAULT
    requirements: ModelRequirements | None = None
    engine: str | None = None
    device_mask: str | None = None
    pin: Pin | None = None
    prompt_tokens: int = 0
    max_new_tokens: int = 0
    seed: int = 0
    sampler_profile_version: str | None = None
    job_kind: str = "inference"
    vram_mb: int | None = None
    time_ms: int | None = None
    cost: int | None = None

    FIELDS = (
        "job_id",
        "session_id",
        "priority",
        "requirements",
        "engine",
        "device_mask",
        "pin",
        "prompt_tokens",
        "max_new_tokens",
        "seed",
        "sampler_profile_version",
        "job_kind",
        "vram_mb",
        "time_ms",
        "cost",
    )

    def __post_init__(self) -> None:
        check_id("job_id", self.job_id)
        for name in ("session_id", "engine", "sampler_profile_version"):
            check_optional_id(name, getattr(self, name))
        check_priority(self.priority)
        if self.requirements is not None and type(self.requirements) is not ModelRequirements:
            raise InvalidInput(f"requirements must be ModelRequirements, not {show(self.requirements)}")
        if self.pin is not None and type(self.pin) is not Pin:
            raise InvalidInput(f"pin must be a Pin, not {show(self.pin)}")
        object.__setattr__(self, "device_mask", check_mask(self.device_mask))
        for name in ("prompt_tokens", "max_new_tokens", "seed"):
            check_uint64(name, getattr(self, name))
        for name in ("vram_mb", "time_ms", "cost"):
            if getattr(self, name) is not None:
                check_uint64(name, getattr(self, name))
        if type(self.job_kind) is not str or self.job_kind not in JOB_KINDS:
            raise InvalidInput(f"job_kind must be one of {', '.join(sorted(JOB_KINDS))}, not {show(self.job_kind)}")

    @property
    def tokens(self) -> int:
        """The token budget the request asks for: prompt and generation together."""
        return self.prompt_tokens + self.max_new_tokens

    @property
    def evictable(self) -> bool:
        """Whether a full queue may drop this job for another (X-031)."""
        return self.job_kind in EVICTABLE_KINDS

    def to_map(self) -> dict[str, object]:
        """The canonical map."""
        return {
            "job_id": self.job_id,
            "session_id": self.session_id,
            "priority": self.priority,
            "requirements": None if self.requirements is None else self.requirements.to_map(),
            "engine": self.engine,
            "device_mask": self.device_mask,
            "pin": None if self.pin is None else {"pool_id": self.pin.pool_id},
            "prompt_tokens": self.prompt_tokens,
            "max_new_tokens": self.max_new_tokens,
            "seed": self.seed,
            "sampler_profile_version": self.sampler_profile_version,
            "job_kind": self.job_kind,
            "vram_mb": self.vram_mb,
            "time_ms": self.time_ms,
            "cost": self.cost,
        }

    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes: how a decision names the request it is about."""
        return sha256(encode_trusted(self.to_map()))

    @classmethod
    def from_map(cls, value: object) -> TaskRequest:
        """Read the map; refuse a missing, extra or wrongly typed field."""
        fields = dict(exact_fields("TaskRequest", value, cls.FIELDS))
        if fields["requirements"] is not None:
            fields["requirements"] = ModelRequirements.from_map(fields["requirements"])
        if fields["pin"] is not None:
            fields["pin"] = Pin(**exact_fields("pin", fields["pin"], ("pool_id",)))  # type: ignore[arg-type]
        return cls(**fields)  # type: ignore[arg-type]


def derive(catalog: Mapping[str, object], capabilities: Mapping[str, object]) -> ModelRequirements:
    """Model requirements from what a catalog and an engine's adapter have observed (OC-CORE-1014).

    The catalog gives ``model_id`` (or ``ref``, which then is the id), ``ctx`` and, where known, ``model_digest``, ``quant``
    and ``extensions``. The adapter gives ``streaming``, ``ctx_overhead`` (tokens that tokenizer and template take) and,
    where it has one, its own limit ``ctx_max``. Nothing is guessed: an optional fact that is absent stays None, a missing
    required one is refused. Both documents may say more; it is not read.
    """
    limit = check_positive("catalog ctx", _stated("catalog", catalog, "ctx"))
    if capabilities.get("ctx_max") is not None:
        limit = min(limit, check_positive("capabilities ctx_max", capabilities["ctx_max"]))
    overhead = _stated("capabilities", capabilities, "ctx_overhead")
    effective = limit - check_uint64("capabilities ctx_overhead", overhead)  # type: ignore[arg-type]
    if effective < 1:
        raise InvalidInput(f"a context of {limit} tokens leaves nothing after an overhead of {show(overhead)}")
    quant = catalog.get("quant")
    return ModelRequirements(
        model_id=check_id("model_id", catalog["model_id"] if "model_id" in catalog else catalog.get("ref")),
        model_digest=catalog.get("model_digest"),  # type: ignore[arg-type]
        ctx_max=effective,
        quant=None if quant is None else check_id("quant", quant).upper().replace("-", "_"),
        streaming=_stated("capabilities", capabilities, "streaming"),  # type: ignore[arg-type]
        extensions=catalog.get("extensions", ()),  # type: ignore[arg-type]
    )


def _stated(what: str, facts: Mapping[str, object], name: str) -> object:
    if facts.get(name) is None:
        raise InvalidInput(f"{what} does not say {name}, and it cannot be guessed", details={"argument": name})
    return facts[name]
