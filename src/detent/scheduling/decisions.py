"""Decision records: why a job was admitted, refused, evicted, placed or kept waiting.

A decision is a value, made by a pure function from recorded inputs, so the request and the fleet as it was are enough to
make it again with the same bytes. It is stored as evidence by digest, and therefore bounded: counts for each filter and
it lists the best few candidates; the other thousands follow from the fleet whose digest it names (X-181).

Refusals make no job and no transition; their decisions go to a log of their own (X-182). Why an attempt was ended or a job
is tried again needs no record of its own: the evidence of that transition says it, and `explain` reads it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from detent.canon import NotCanonical, decode, encode, encode_trusted, sha256
from detent.canon.late import NamedTuple, dataclass
from detent.errors import InvalidInput, InvariantBroken, Refused
from detent.scheduling.queues import Position

DECISION_VERSION: Final = 1
DECISION_BYTES_MAX: Final = 8 * 1024
CANDIDATES_MAX: Final = 16
MESSAGE_CHARS_MAX: Final = 400

ADMITTED: Final = "admitted"
REFUSED: Final = "refused"
EVICTED: Final = "evicted"
PLACED: Final = "placed"
WAITING: Final = "waiting"
KINDS: Final = (ADMITTED, REFUSED, EVICTED, PLACED, WAITING)

STAGES: Final = (
    "pin",
    "readiness",
    "device_mask",
    "engine_model",
    "context",
    "features",
    "free_slot",
    "affinity",
)
"""The filters of a placement in the order they run (CORE-X019). A replica is counted where it falls out."""

# Reasons of decisions that carry no code of the error registry.
PINNED: Final = "PINNED"
BEST_POOL: Final = "BEST_POOL"
FEASIBLE_POOL: Final = "FEASIBLE_POOL"
FIRST_IN_ORDER: Final = "FIRST_IN_ORDER"
SESSION_AFFINITY: Final = "SESSION_AFFINITY"
NO_FREE_SLOT: Final = "NO_FREE_SLOT"
NOT_READY: Final = "NOT_READY"
NO_FEASIBLE_REPLICA: Final = "NO_FEASIBLE_REPLICA"
NOT_FIRST: Final = "NOT_FIRST"
ANY_WORKER: Final = "ANY_WORKER"


class Candidate(NamedTuple):
    """A replica that was considered: its sort keys, and the filter that removed it, if one did."""

    replica_id: str
    free_vram_mb: int
    active_slots: int
    removed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision about one job. Fields that do not belong to its kind are empty and leave no trace in its bytes."""

    kind: str
    job_id: str
    reason: str
    message: str = ""
    pool_id: str | None = None
    replica_id: str | None = None
    counts: tuple[int, ...] = ()
    """Replicas removed by each of `STAGES`."""
    candidates: tuple[Candidate, ...] = ()
    candidate_count: int = 0
    """How many replicas passed every filter before affinity; the best of them are in ``candidates``."""
    feasible_unready: int = 0
    """Of the replicas removed by readiness, those that would otherwise do."""
    order: str | None = None
    request_digest: bytes | None = None
    fleet_digest: bytes | None = None
    last_good: str | None = None
    """The replica where the session's last success ran, as the placement was told it."""
    queue: Position | None = None
    budget_left: tuple[tuple[str, int], ...] = ()
    facts: tuple[tuple[str, int | str], ...] = ()
    """What only this kind has: who evicted whom, the numbers of a refusal."""

    def to_map(self) -> dict[str, object]:
        """The canonical map; what is empty is left out."""
        body: dict[str, object] = {
            "version": DECISION_VERSION,
            "kind": self.kind,
            "job_id": self.job_id,
            "reason": self.reason,
        }
        for name in _PLAIN:
            value = getattr(self, name)
            if value:
                body[name] = value
        if self.counts:
            body["counts"] = dict(zip(STAGES, self.counts, strict=True))
            body["candidate_count"] = self.candidate_count
        if self.candidates:
            body["candidates"] = [list(candidate) for candidate in self.candidates]
        if self.queue is not None:
            body["queue"] = _place_map(self.queue)
        if self.budget_left:
            body["budget_left"] = dict(self.budget_left)
        if self.facts:
            body["facts"] = dict(self.facts)
        return body

    def encode(self) -> bytes:
        """Canonical bytes, at most `DECISION_BYTES_MAX` of them."""
        data = encode_trusted(self.to_map())
        if len(data) > DECISION_BYTES_MAX:
            raise InvariantBroken(f"a decision has {len(data)} bytes, the limit is {DECISION_BYTES_MAX}")
        return data

    def digest(self) -> bytes:
        """How evidence names this decision: the digest under which its bytes are stored."""
        return sha256(self.encode())

    @classmethod
    def decode(cls, data: bytes) -> Decision:
        """Read a stored decision; refuse what is not exactly one."""
        try:
            body = decode(data, bytes_max=DECISION_BYTES_MAX)
        except NotCanonical as exc:
            raise InvalidInput(f"a decision is canonical CBOR: {exc}") from exc
        return cls.from_map(body)

    @classmethod
    def from_map(cls, value: object) -> Decision:
        """Read the canonical map; refuse what would not come out of `to_map` again."""
        if not isinstance(value, dict) or value.get("kind") not in KINDS:
            raise InvalidInput(f"a decision is a map whose kind is one of {', '.join(KINDS)}")
        if type(value.get("version")) is not int or value["version"] != DECISION_VERSION:
            raise InvalidInput(f"a decision of another version than {DECISION_VERSION} cannot be read")
        try:
            decision = cls(**_parts(value))  # type: ignore[arg-type]
            same = encode(decision.to_map()) == encode(value)
        except (TypeError, ValueError, KeyError, AttributeError, NotCanonical) as exc:
            raise InvalidInput(f"not a decision: {exc}") from exc
        if not same or not _well_typed(decision):
            raise InvalidInput("not a decision: a field is missing, unknown or of the wrong type")
        return decision


_PLAIN: Final = (
    "message",
    "pool_id",
    "replica_id",
    "feasible_unready",
    "order",
    "request_digest",
    "fleet_digest",
    "last_good",
)


def admitted_to_open_pool(job_id: str, queue: Position) -> bytes:
    """The bytes of the commonest decision: nothing was asked for and no replica is registered. As `Decision.encode`."""
    return encode_trusted(
        {
            "version": DECISION_VERSION,
            "kind": ADMITTED,
            "job_id": job_id,
            "reason": ANY_WORKER,
            "queue": _place_map(queue),
        }
    )


def placed_on_asker(job_id: str, replica_id: str) -> bytes:
    """The bytes of the decision to give a job of the open pool to the worker that asked. As `Decision.encode`."""
    return encode_trusted(
        {
            "version": DECISION_VERSION,
            "kind": PLACED,
            "job_id": job_id,
            "reason": ANY_WORKER,
            "replica_id": replica_id,
        }
    )


def _place_map(queue: Position) -> dict[str, int]:
    return {"priority": queue.priority, "arrival": queue.arrival, "place": queue.place, "before": queue.before}


def refused(job_id: str, refusal: Refused, **inputs: object) -> Decision:
    """The decision behind a refusal: its code, its words, and what it was decided from."""
    message = refusal.message[:MESSAGE_CHARS_MAX]
    return Decision(REFUSED, job_id, refusal.code, message, facts=_facts(refusal.details), **inputs)  # type: ignore[arg-type]


def evicted(job_id: str, reason_code: str, by_job_id: str, queue: Position | None = None) -> Decision:
    """A queued job lost its place to another: ``DROPPED_LRU`` or ``SHED_LOW_PRIORITY`` (X-082)."""
    return Decision(EVICTED, job_id, reason_code, queue=queue, facts=(("by_job_id", by_job_id),))


def waits_behind(job_id: str, pool_id: str | None, queue: Position) -> Decision:
    """A job that is not the head of its class waits for those before it, wherever there is room (X-084)."""
    return Decision(WAITING, job_id, NOT_FIRST, pool_id=pool_id, queue=queue)


def _facts(details: Mapping[str, object]) -> tuple[tuple[str, int | str], ...]:
    """The numbers and words of a refusal, in order; longer texts are cut, as in every message."""
    kept: list[tuple[str, int | str]] = []
    for name in sorted(details)[:CANDIDATES_MAX]:
        value = details[name]
        if type(value) is int:
            kept.append((name, value))
        elif type(value) is str:
            kept.append((name, value[:100]))
    return tuple(kept)


def _well_typed(decision: Decision) -> bool:
    texts = (decision.job_id, decision.reason, decision.message)
    names = (decision.pool_id, decision.replica_id, decision.order, decision.last_good)
    digests = (decision.request_digest, decision.fleet_digest)
    numbers = [*decision.counts, decision.candidate_count, decision.feasible_unready]
    numbers += [amount for _, amount in decision.budget_left]
    numbers += [] if decision.queue is None else _place_map(decision.queue).values()
    for one in decision.candidates:
        numbers += one[1:3]
        if type(one.replica_id) is not str or one.removed_by not in (None, *STAGES):
            return False
    return (
        all(type(text) is str for text in texts)
        and all(name is None or type(name) is str for name in names)
        and all(digest is None or type(digest) is bytes for digest in digests)
        and all(type(number) is int for number in numbers)
        and all(type(fact) in (int, str) for _, fact in decision.facts)
    )


def _parts(body: dict[str, object]) -> dict[str, object]:
    parts = {name: value for name, value in body.items() if name != "version"}
    if "counts" in body:
        counts: dict[str, int] = body["counts"]  # type: ignore[assignment]
        parts["counts"] = tuple(counts[stage] for stage in STAGES)
    if "candidates" in body:
        parts["candidates"] = tuple(Candidate(*candidate) for candidate in body["candidates"])  # type: ignore[attr-defined]
    if "queue" in body:
        parts["queue"] = Position(**body["queue"])  # type: ignore[arg-type]
    for name in ("budget_left", "facts"):
        if name in body:
            parts[name] = tuple(sorted(body[name].items()))  # type: ignore[attr-defined]
    return parts
