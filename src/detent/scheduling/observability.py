"""What is seen of scheduling from outside: eleven fields in every log line, and the metric families, both as data.

Nothing here writes or counts. A log line is built from a job's facts, a `Sample` says that a family gets a value; the shell
writes the one and hands the other to its registry. `metrics_contract.json` beside this file is the same table of families
for programs that read no Python; a test keeps them equal.

Utilisations are ratios from 0 to 1 and durations are seconds, because dashboards expect that. They are the
only floats of this room, they are computed last, and no decision reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from detent.canon import check_uint64, sub_uint64
from detent.canon.late import NamedTuple, dataclass
from detent.errors import InvalidInput, Refused
from detent.kernel.queue import Enqueued
from detent.scheduling.checks import CLASSES, check_id, check_optional_id, check_positive
from detent.scheduling.pool_queues import PoolQueues

LOG_FIELDS: Final = (
    "job_id",
    "session_id",
    "engine",
    "pool_id",
    "replica_id",
    "model_id",
    "quant",
    "ctx",
    "kv_warmth",
    "queue_time_ms",
    "decode_time_ms",
)
"""The fields of every dispatch and finish line (OC-CORE-1040). A job without a model has them, too, as nulls (X-020)."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of a job when a line is written about it. What is not known, or not applicable, is None.

    ``kv_warmth`` says whether the replica still held the session's key-value cache. Ticks are those of this attempt: put
    in the queue, dispatched, first token, end.
    """

    job_id: str
    session_id: str | None = None
    engine: str | None = None
    pool_id: str | None = None
    replica_id: str | None = None
    model_id: str | None = None
    quant: str | None = None
    ctx: int | None = None
    kv_warmth: bool | None = None
    queued_tick: int | None = None
    dispatched_tick: int | None = None
    first_token_tick: int | None = None
    ended_tick: int | None = None
    tick_ms: int = 1

    TICKS = ("queued_tick", "dispatched_tick", "first_token_tick", "ended_tick")

    def __post_init__(self) -> None:
        check_id("job_id", self.job_id)
        for name in ("session_id", "engine", "pool_id", "replica_id", "model_id", "quant"):
            check_optional_id(name, getattr(self, name))
        if self.kv_warmth is not None and type(self.kv_warmth) is not bool:
            raise InvalidInput(f"kv_warmth must be true, false or absent, not {self.kv_warmth!r}")
        if self.ctx is not None:
            check_uint64("ctx", self.ctx)
        check_positive("tick_ms", self.tick_ms)
        known = [check_uint64(name, getattr(self, name)) for name in self.TICKS if getattr(self, name) is not None]
        if known != sorted(known):
            raise InvalidInput(f"the ticks of job {self.job_id!r} do not come in the order of its life: {known}")

    def ms_between(self, earlier: str, later: str) -> int | None:
        """Milliseconds from one of the ticks to another; None while either is unknown."""
        begun, over = getattr(self, earlier), getattr(self, later)
        return None if begun is None or over is None else sub_uint64(over, begun) * self.tick_ms


def log_fields(facts: JobFacts) -> dict[str, object]:
    """All eleven fields, in the contract's order, null where there is nothing to say."""
    times = {
        "queue_time_ms": facts.ms_between("queued_tick", "dispatched_tick"),
        "decode_time_ms": facts.ms_between("first_token_tick", "ended_tick"),
    }
    return {name: times[name] if name in times else getattr(facts, name) for name in LOG_FIELDS}


MetricType: TypeAlias = Literal["gauge", "counter", "histogram"]

LATENCY_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One family: its name as a scraper sees it, what it measures, and the labels it has, with their values if closed."""

    name: str
    type: MetricType
    measures: str
    """Which quantity of OC-CORE-1041 this is."""
    help: str
    labels: Mapping[str, tuple[str, ...] | None]
    buckets: tuple[float, ...] = ()

    def to_map(self) -> dict[str, object]:
        """The family as written in the contract file."""
        return {
            "name": self.name,
            "type": self.type,
            "measures": self.measures,
            "help": self.help,
            "labels": {label: None if values is None else list(values) for label, values in self.labels.items()},
            "buckets": list(self.buckets),
        }


_POOL: Final = {"pool_id": None}
_REPLICA: Final = {"pool_id": None, "replica_id": None}
_MODEL: Final = {"pool_id": None, "engine": None, "model_id": None}
PRELOAD_OUTCOMES: Final = ("loaded", "already_loaded", "failed", "out_of_memory")
REJECT_CODES: Final = (
    "INVALID_PARAMS",
    "POOL_UNREADY",
    "QUEUE_FULL",
    "LIMIT_TENANT",
    "NO_FEASIBLE_POOL",
    "CTX_TOO_LONG",
    "TOKEN_BUDGET_EXCEEDED",
    "SESSION_BUDGET_EXCEEDED",
)
DROP_REASONS: Final = ("DROPPED_LRU", "SHED_LOW_PRIORITY")

METRIC_FAMILIES: Final = (
    MetricFamily(
        "detent_queue_depth",
        "gauge",
        "queue depth",
        "Jobs waiting, by pool and priority class.",
        {**_POOL, "priority": tuple(map(str, CLASSES))},
    ),
    MetricFamily(
        "detent_admission_rejected_total",
        "counter",
        "reject count",
        "Requests refused at admission, by code.",
        {**_POOL, "code": REJECT_CODES},
    ),
    MetricFamily(
        "detent_queue_dropped_total",
        "counter",
        "drop count",
        "Waiting jobs evicted for another one, by reason.",
        {**_POOL, "reason": DROP_REASONS},
    ),
    MetricFamily(
        "detent_first_token_latency_seconds",
        "histogram",
        "first-token latency",
        "From entering the queue to the first token.",
        _MODEL,
        LATENCY_BUCKETS,
    ),
    MetricFamily(
        "detent_decode_latency_seconds",
        "histogram",
        "decode latency",
        "From the first token to the last.",
        _MODEL,
        LATENCY_BUCKETS,
    ),
    MetricFamily(
        "detent_gpu_utilization_ratio",
        "gauge",
        "GPU utilisation",
        "Share of the time in which a replica's devices computed.",
        _REPLICA,
    ),
    MetricFamily(
        "detent_vram_utilization_ratio",
        "gauge",
        "VRAM utilisation",
        "Share of a replica's device memory in use.",
        _REPLICA,
    ),
    MetricFamily(
        "detent_kv_pressure_ratio",
        "gauge",
        "KV pressure",
        "Share of a replica's key-value cache in use.",
        _REPLICA,
    ),
    MetricFamily(
        "detent_preload_total",
        "counter",
        "preload outcomes",
        "Attempts to load a model before it is needed, by outcome.",
        {**_REPLICA, "outcome": PRELOAD_OUTCOMES},
    ),
)
"""Every family of OC-CORE-1041."""


class Sample(NamedTuple):
    """One value for one family: a gauge is set to it, a counter raised by it, a histogram observes it."""

    name: str
    value: float
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What a replica reports of its devices: shares in thousandths, memory in megabytes, cache in blocks."""

    pool_id: str
    replica_id: str
    gpu_busy_permille: int
    vram_used_mb: int
    vram_total_mb: int
    kv_used_blocks: int
    kv_total_blocks: int

    def __post_init__(self) -> None:
        for name in ("pool_id", "replica_id"):
            check_id(name, getattr(self, name))
        for part, whole in (
            ("vram_used_mb", "vram_total_mb"),
            ("kv_used_blocks", "kv_total_blocks"),
        ):
            check_positive(whole, getattr(self, whole))
            if check_uint64(part, getattr(self, part)) > getattr(self, whole):
                raise InvalidInput(f"{part} {getattr(self, part)} is above {whole} {getattr(self, whole)}")
        if check_uint64("gpu_busy_permille", self.gpu_busy_permille) > 1_000:
            raise InvalidInput(f"gpu_busy_permille {self.gpu_busy_permille} is above 1000")


Depths: TypeAlias = Mapping[str, Mapping[int, int]]
"""How many jobs wait, by pool and class."""


def queue_depths(queues: PoolQueues) -> Depths:
    """The depth of every class of every pool with waiting jobs."""
    return {pool_id: pool.depths() for pool_id, pool in queues.pools().items()}


def queue_samples(*partitions: Depths) -> Iterator[Sample]:
    """The depth of every class of every pool with waiting jobs, and always of the nameless pool, over all partitions."""
    pools = dict.fromkeys(["", *(pool_id for depths in partitions for pool_id in depths)])
    for pool_id in pools:
        for priority in CLASSES:
            depth = sum(depths.get(pool_id, {}).get(priority, 0) for depths in partitions)
            yield Sample("detent_queue_depth", depth, {"pool_id": pool_id, "priority": str(priority)})


def admission_samples(answer: Enqueued | Refused, pool_id: str = "") -> Iterator[Sample]:
    """What one answer of a queue, or one refusal of admission before it, adds to the counts."""
    if isinstance(answer, Refused):
        yield Sample("detent_admission_rejected_total", 1, {"pool_id": pool_id, "code": answer.code})
    elif answer.evicted:
        labels = {"pool_id": pool_id, "reason": answer.reason_code}
        yield Sample("detent_queue_dropped_total", len(answer.evicted), labels)


def latency_samples(facts: JobFacts) -> Iterator[Sample]:
    """Latencies of a finished generation; nothing for a job that made no tokens."""
    labels = {"pool_id": facts.pool_id or "", "engine": facts.engine or "", "model_id": facts.model_id or ""}
    for name, begun, over in (
        ("detent_first_token_latency_seconds", "queued_tick", "first_token_tick"),
        ("detent_decode_latency_seconds", "first_token_tick", "ended_tick"),
    ):
        elapsed_ms = facts.ms_between(begun, over)
        if elapsed_ms is not None:
            yield Sample(name, elapsed_ms / 1_000, labels)


def load_samples(load: ReplicaLoad) -> Iterator[Sample]:
    """How busy and how full a replica is."""
    labels = {"pool_id": load.pool_id, "replica_id": load.replica_id}
    yield Sample("detent_gpu_utilization_ratio", load.gpu_busy_permille / 1_000, labels)
    yield Sample("detent_vram_utilization_ratio", load.vram_used_mb / load.vram_total_mb, labels)
    yield Sample("detent_kv_pressure_ratio", load.kv_used_blocks / load.kv_total_blocks, labels)


def preload_sample(pool_id: str, replica_id: str, outcome: str) -> Sample:
    """One attempt to load a model ahead of need."""
    if outcome not in PRELOAD_OUTCOMES:
        raise InvalidInput(f"the outcome of a preload is one of {', '.join(PRELOAD_OUTCOMES)}, not {outcome!r}")
    labels = {"pool_id": check_id("pool_id", pool_id), "replica_id": check_id("replica_id", replica_id)}
    return Sample("detent_preload_total", 1, {**labels, "outcome": outcome})
