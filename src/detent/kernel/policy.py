"""The policy artifacts a run is decided by, and the configuration that gathers them.

Each artifact has exactly the fields its contract lists. Everything that can change a decision is part of `queue_policy_hash`,
which goes into the replay token, so two runs that could differ never claim to be comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Final

from detent.canon import PRNG_FAMILY, UINT64_MAX, NotCanonical, check_uint64, decode, encode, ms_to_ticks, sha256
from detent.canon.grammar import POLICY
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel.identity import ORCHESTRATOR_VERSION

NUMERIC_POLICY_ID = "numeric/uint64-binary64-abort/v1"
ORDERING_POLICY_ID = "ordering/job-id-transition-seq/v1"
PARALLEL_POLICY_ID = "parallel/priority-then-fifo/v1"

EXPIRY_TRANSITION = "RUNNING->RETRYING"
JITTER_NONE = "NONE"
QUOTA_OK = "OK"
UNLIMITED = UINT64_MAX
"""A budget of 2^64-1 means that there is no limit; a budget of 0 means that nothing is allowed (X-049)."""

RULE_LE_ALL = "LE_ALL_v1"
RULE_LE_ALL_RETRY = "LE_ALL_RETRY_v1"


def check_name(field_name: str, value: object) -> str:
    """Accept a short identifier without blanks; refuse anything else by the name of its field."""
    if not isinstance(value, str) or not POLICY.fullmatch(value):
        raise InvalidInput(f"{field_name} must be 1 to 100 letters, digits or ._:/- characters, not {value!r}")
    return value


RULES_FIRST = 1
"""The rules of a configuration that names none."""
RULES_STALE_TRACED = 2
"""From these rules on a stale or contradicting result leaves its trace event and counts as ambiguous (PIPE-007)."""
RULES_ORIGIN_NAMED = 3
"""From these rules on every new job's manifest names its ledger (X-197)."""
RULES_POOL_OPENED = 4
"""From these rules on a fleet without replicas is the open pool for jobs that were admitted to one of its pools, too."""
RULES = RULES_POOL_OPENED


def _exact_fields(what: str, value: object, names: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a map with the fields {', '.join(names)}")
    if missing := [name for name in names if name not in value]:
        raise InvalidInput(f"{what} lacks {', '.join(missing)}")
    if unknown := sorted(str(name) for name in value if name not in names):
        raise InvalidInput(f"{what} has unknown fields: {', '.join(unknown)}")
    return value


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """How long a lease lasts and what its end means (PIPE-086)."""

    lease_policy_id: str
    lease_ttl_ticks: int
    heartbeat_extension_ticks: int
    expiry_transition: str = EXPIRY_TRANSITION

    FIELDS = ("lease_policy_id", "lease_ttl_ticks", "heartbeat_extension_ticks", "expiry_transition")

    def __post_init__(self) -> None:
        check_name("lease_policy_id", self.lease_policy_id)
        for name in ("lease_ttl_ticks", "heartbeat_extension_ticks"):
            if check_uint64(name, getattr(self, name)) == 0:
                raise InvalidInput(f"{name} must be at least 1")
        if self.expiry_transition != EXPIRY_TRANSITION:
            raise InvalidInput(f"expiry_transition must be {EXPIRY_TRANSITION!r}, not {self.expiry_transition!r}")

    def to_map(self) -> dict[str, object]:
        """The artifact as the map that is hashed and stored."""
        return {name: getattr(self, name) for name in self.FIELDS}

    @classmethod
    def from_map(cls, value: object) -> LeasePolicy:
        """Read the artifact; refuse a missing, extra or wrongly typed field."""
        return cls(**_exact_fields("LeasePolicy", value, cls.FIELDS))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class BackoffSchedule:
    """Fixed delays before each retry: no jitter, ever (PIPE-092, PIPE-094)."""

    backoff_schedule_id: str
    delays_ms: tuple[int, ...]
    jitter_mode: str = JITTER_NONE

    FIELDS = ("backoff_schedule_id", "delays_ms", "jitter_mode")

    def __post_init__(self) -> None:
        check_name("backoff_schedule_id", self.backoff_schedule_id)
        if not isinstance(self.delays_ms, tuple) or not self.delays_ms:
            raise InvalidInput("delays_ms must be a list with at least one delay")
        for index, delay in enumerate(self.delays_ms):
            check_uint64(f"delays_ms[{index}]", delay)
        if self.jitter_mode != JITTER_NONE:
            raise InvalidInput(f"jitter_mode must be {JITTER_NONE!r}, not {self.jitter_mode!r}")

    def delay_ms(self, k: int) -> int:
        """The delay before retry ``k``, counted from 0; the last one serves for all further retries (PIPE-093)."""
        return self.delays_ms[min(k, len(self.delays_ms) - 1)]

    def to_map(self) -> dict[str, object]:
        """The artifact as the map that is hashed and stored."""
        return {
            "backoff_schedule_id": self.backoff_schedule_id,
            "delays_ms": list(self.delays_ms),
            "jitter_mode": self.jitter_mode,
        }

    @classmethod
    def from_map(cls, value: object) -> BackoffSchedule:
        """Read the artifact; refuse a missing, extra or wrongly typed field."""
        fields = _exact_fields("BackoffSchedule", value, cls.FIELDS)
        delays = fields["delays_ms"]
        if not isinstance(delays, list):
            raise InvalidInput("delays_ms must be a list of integers")
        return cls(fields["backoff_schedule_id"], tuple(delays), fields["jitter_mode"])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class QuotaPolicy:
    """Budgets of one job over all its attempts, and the rule that compares them (PIPE-099)."""

    gpu_time_budget_ms: int
    cpu_time_budget_ms: int
    io_bytes_budget: int
    memory_bytes_budget: int
    evaluation_rule_id: str = RULE_LE_ALL

    BUDGETS = ("gpu_time_budget_ms", "cpu_time_budget_ms", "io_bytes_budget", "memory_bytes_budget")
    FIELDS = ("quota_policy_hash", *BUDGETS, "evaluation_rule_id")

    def __post_init__(self) -> None:
        for name in self.BUDGETS:
            check_uint64(name, getattr(self, name))
        if self.evaluation_rule_id not in (RULE_LE_ALL, RULE_LE_ALL_RETRY):
            raise InvalidInput(
                f"evaluation_rule_id must be {RULE_LE_ALL} or {RULE_LE_ALL_RETRY}, not {self.evaluation_rule_id!r}"
            )

    def hash(self) -> bytes:
        """``quota_policy_hash``: over the five fields beside the hash itself (PIPE-100, X-048)."""
        return sha256(encode({name: getattr(self, name) for name in (*self.BUDGETS, "evaluation_rule_id")}))

    @property
    def retries_allowed(self) -> bool:
        """Whether this policy's rule allows another attempt after a violation (PIPE-104)."""
        return self.evaluation_rule_id == RULE_LE_ALL_RETRY

    def to_map(self) -> dict[str, object]:
        """The artifact with its own hash."""
        return {"quota_policy_hash": self.hash(), **{name: getattr(self, name) for name in self.FIELDS[1:]}}

    @classmethod
    def from_map(cls, value: object) -> QuotaPolicy:
        """Read the artifact; refuse it when its hash is not its own."""
        fields = _exact_fields("QuotaPolicy", value, cls.FIELDS)
        policy = cls(**{name: fields[name] for name in cls.FIELDS[1:]})  # type: ignore[arg-type]
        if fields["quota_policy_hash"] != policy.hash():
            raise InvalidInput("quota_policy_hash does not match the policy's other fields")
        return policy


UNLIMITED_QUOTA = QuotaPolicy(UNLIMITED, UNLIMITED, UNLIMITED, UNLIMITED)
DEFAULT_LEASE = LeasePolicy("default", 30_000, 30_000)
DEFAULT_BACKOFF = BackoffSchedule("default", (1_000, 2_000, 4_000))
INTERRUPTIONS: Final = "interruptions"
"""Id of the schedule that holds the pauses after interruptions."""
INTERRUPTION_PAUSES = BackoffSchedule(INTERRUPTIONS, (0, 0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000))
"""Two interruptions cost nothing; after the third the pause doubles from 1 s to 60 s (X-191)."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Bounds of the queue and what a full one does."""

    capacity_per_class: int = 256
    capacity_total: int = 2_560
    admission_policy: str = "reject"

    FIELDS = ("capacity_per_class", "capacity_total", "admission_policy")

    def __post_init__(self) -> None:
        for name in ("capacity_per_class", "capacity_total"):
            if check_uint64(name, getattr(self, name)) == 0:
                raise InvalidInput(f"{name} must be at least 1")
        check_name("admission_policy", self.admission_policy)

    def to_map(self) -> dict[str, object]:
        """The policy as the map that is hashed and stored."""
        return {name: getattr(self, name) for name in self.FIELDS}

    @classmethod
    def from_map(cls, value: object) -> QueuePolicy:
        """Read the policy; refuse a missing, extra or wrongly typed field."""
        return cls(**_exact_fields("QueuePolicy", value, cls.FIELDS))  # type: ignore[arg-type]


@dataclass(frozen=True)
class KernelConfig:
    """All that a kernel's decisions depend on beside its commands.

    A plain `KernelConfig()` is a working single-partition configuration with the defaults of the decisions (A.10).
    """

    partitions: int = 1
    partition_id: int = 0
    tick_ms: int = 1
    epoch_base_ms: int = 0
    lease_policies: tuple[LeasePolicy, ...] = (DEFAULT_LEASE,)
    backoff_schedules: tuple[BackoffSchedule, ...] = (DEFAULT_BACKOFF,)
    quota_policies: tuple[QuotaPolicy, ...] = (UNLIMITED_QUOTA,)
    queue: QueuePolicy = field(default_factory=QueuePolicy)
    scheduling: Mapping[str, object] | None = None
    """The policy of the scheduler the kernel is handed, as its canonical map; None: that of the plain queue."""
    on_quota_running: str = "fail"
    seed: int = 0
    environment: Mapping[str, str] = field(default_factory=lambda: {"runtime_class": "CPU-only"})
    rules: int = RULES_FIRST
    """Which rules decide. A ledger is replayed by those it was written under, so each change of the kernel's
    decisions gets a number of its own; `RULES` is the newest, and what every new owner writes under."""

    FIELDS = (
        "partitions",
        "partition_id",
        "tick_ms",
        "epoch_base_ms",
        "lease_policies",
        "backoff_schedules",
        "quota_policies",
        "queue",
        "scheduling",
        "on_quota_running",
        "seed",
        "environment",
    )

    def __post_init__(self) -> None:
        for name in ("partitions", "partition_id", "tick_ms", "epoch_base_ms", "seed"):
            check_uint64(name, getattr(self, name))
        if self.partitions < 1 or self.tick_ms < 1:
            raise InvalidInput("partitions and tick_ms must be at least 1")
        if self.partition_id >= self.partitions:
            raise InvalidInput(f"partition_id {self.partition_id} is outside 0..{self.partitions - 1}")
        if self.on_quota_running not in ("fail", "cancel"):
            raise InvalidInput(f"on_quota_running must be 'fail' or 'cancel', not {self.on_quota_running!r}")
        for what, ids in (
            ("lease_policy_id", [policy.lease_policy_id for policy in self.lease_policies]),
            ("backoff_schedule_id", [schedule.backoff_schedule_id for schedule in self.backoff_schedules]),
            ("quota policy", [policy.hash().hex() for policy in self.quota_policies]),
        ):
            if not ids or len(set(ids)) != len(ids):
                raise InvalidInput(f"the configuration needs at least one {what}, each of them once")
        if self.scheduling is not None and not isinstance(self.scheduling, Mapping):
            raise InvalidInput("scheduling must be the map of a scheduling policy")
        if "runtime_class" not in self.environment:
            raise InvalidInput("environment needs a runtime_class")
        if type(self.rules) is not int or not RULES_FIRST <= self.rules <= RULES:
            raise InvalidInput(f"rules {show(self.rules)} are not known here, only {RULES_FIRST} to {RULES}")

    @cached_property
    def leases(self) -> dict[str, LeasePolicy]:
        """Lease policies by id."""
        return {policy.lease_policy_id: policy for policy in self.lease_policies}

    @cached_property
    def backoffs(self) -> dict[str, BackoffSchedule]:
        """Backoff schedules by id."""
        return {schedule.backoff_schedule_id: schedule for schedule in self.backoff_schedules}

    @cached_property
    def quotas(self) -> dict[bytes, QuotaPolicy]:
        """Quota policies by hash."""
        return {policy.hash(): policy for policy in self.quota_policies}

    def backoff_ticks(self, backoff_schedule_id: str, k: int) -> int:
        """The delay before retry ``k`` in ticks, rounded up."""
        return ms_to_ticks(self.backoffs[backoff_schedule_id].delay_ms(k), self.tick_ms)

    def interruption_ticks(self, k: int) -> int:
        """The pause after interruption ``k``, counted from 0, in ticks, rounded up.

        A configuration without such a schedule has none: those recorded before there was one replay as they were decided.
        """
        schedule = self.backoffs.get(INTERRUPTIONS)
        return 0 if schedule is None else ms_to_ticks(schedule.delay_ms(k), self.tick_ms)

    @cached_property
    def queue_policy_hash(self) -> bytes:
        """Hash of everything here that can change which job runs when."""
        body = self.to_map()
        for name in ("environment", "seed", "partition_id"):
            del body[name]
        return sha256(encode(body))

    @cached_property
    def environment_policy_hash(self) -> bytes:
        """Hash of the declared environment: runtime class, dependency lock, interpreter."""
        return sha256(encode(dict(self.environment)))

    @cached_property
    def replay_token(self) -> bytes:
        """The token every trace record of a run carries; known before the first command (X-051)."""
        return replay_token_of(
            ORCHESTRATOR_VERSION,
            self.seed,
            PRNG_FAMILY,
            (NUMERIC_POLICY_ID, ORDERING_POLICY_ID, PARALLEL_POLICY_ID),
            self.environment_policy_hash,
            self.queue_policy_hash,
        )

    def to_map(self) -> dict[str, object]:
        """The whole configuration as one map, policies as their artifacts."""
        return {
            "partitions": self.partitions,
            "partition_id": self.partition_id,
            "tick_ms": self.tick_ms,
            "epoch_base_ms": self.epoch_base_ms,
            "lease_policies": [policy.to_map() for policy in self.lease_policies],
            "backoff_schedules": [schedule.to_map() for schedule in self.backoff_schedules],
            "quota_policies": [policy.to_map() for policy in self.quota_policies],
            "queue": self.queue.to_map(),
            "scheduling": None if self.scheduling is None else dict(self.scheduling),
            "on_quota_running": self.on_quota_running,
            "seed": self.seed,
            "environment": dict(self.environment),
        } | ({} if self.rules == RULES_FIRST else {"rules": self.rules})

    def encode(self) -> bytes:
        """Canonical bytes of the configuration: what an ``owner_epoch`` record names by digest."""
        return encode(self.to_map())

    @classmethod
    def decode(cls, data: bytes) -> KernelConfig:
        """Read a configuration back from its canonical bytes."""
        try:
            said = decode(data)
            names = (*cls.FIELDS, "rules") if isinstance(said, dict) and "rules" in said else cls.FIELDS
            fields = _exact_fields("configuration", said, names)
        except NotCanonical as exc:
            raise InvalidInput(f"the configuration is not canonical CBOR: {exc}") from exc
        lists = ("lease_policies", "backoff_schedules", "quota_policies")
        if any(not isinstance(fields[name], list) for name in lists) or not isinstance(fields["environment"], dict):
            raise InvalidInput("the configuration's policies must be lists and its environment a map")
        return cls(
            partitions=fields["partitions"],  # type: ignore[arg-type]
            partition_id=fields["partition_id"],  # type: ignore[arg-type]
            tick_ms=fields["tick_ms"],  # type: ignore[arg-type]
            epoch_base_ms=fields["epoch_base_ms"],  # type: ignore[arg-type]
            lease_policies=tuple(map(LeasePolicy.from_map, fields["lease_policies"])),  # type: ignore[call-overload]
            backoff_schedules=tuple(map(BackoffSchedule.from_map, fields["backoff_schedules"])),  # type: ignore[call-overload]
            quota_policies=tuple(map(QuotaPolicy.from_map, fields["quota_policies"])),  # type: ignore[call-overload]
            queue=QueuePolicy.from_map(fields["queue"]),
            scheduling=fields["scheduling"],  # type: ignore[arg-type]
            on_quota_running=fields["on_quota_running"],  # type: ignore[arg-type]
            seed=fields["seed"],  # type: ignore[arg-type]
            environment=fields["environment"],
            rules=fields.get("rules", RULES_FIRST),  # type: ignore[arg-type]
        )


def replay_token_of(
    orchestrator_version: str,
    seed: int,
    prng_family: str,
    policy_ids: tuple[str, str, str],
    environment_policy_hash: bytes,
    queue_policy_hash: bytes,
) -> bytes:
    """The replay token of all that a replay needs beside the commands: what a run header says, in the order of X-051."""
    label = "UML_OS.ReplayToken_v1"
    policies = [*policy_ids, environment_policy_hash, queue_policy_hash]
    return sha256(encode([label, orchestrator_version, seed, prng_family, *policies]))
