"""A decision in plain words, one line for each thing worth knowing. Text in, text out: who prints it is somebody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from detent.errors import CODES
from detent.scheduling import decisions as kinds
from detent.scheduling.decisions import CANDIDATES_MAX, STAGES, Candidate, Decision
from detent.scheduling.index import LEAST_LOADED, PACK

STAGE_WORDS: Final[Mapping[str, str]] = {
    "pin": "in other pools",
    "readiness": "not ready",
    "device_mask": "outside the device mask",
    "engine_model": "with another engine, model or sampler profile",
    "context": "with too small a context",
    "features": "without the features it needs",
    "free_slot": "without room now",
    "affinity": "passed over, because the session stays where it last succeeded",
}
ORDER_WORDS: Final[Mapping[str, str]] = {
    LEAST_LOADED: "most free memory first, then fewest taken slots, then name",
    PACK: "least free memory that fits first, then most taken slots, then name",
}
_WAITS: Final[Mapping[str, str]] = {
    kinds.NO_FREE_SLOT: "every replica that could take it has no room",
    kinds.NOT_READY: "no replica that could take it is ready",
    kinds.NO_FEASIBLE_REPLICA: "no replica that is registered now could ever take it",
    kinds.NOT_FIRST: "others of its class came first",
}
_POOLS: Final[Mapping[str, str]] = {
    kinds.PINNED: "the request pins it to that pool",
    kinds.BEST_POOL: "the best replica that could run it is there",
    kinds.ANY_WORKER: "no replica is registered, so whichever worker asks first takes it",
    kinds.FEASIBLE_POOL: "no replica that could run it is ready, and that is the first pool that has one",
}


def explain_lines(decision: Decision) -> list[str]:
    """Tell a decision: what was decided and why, who was looked at, who lost by what, where the job stood."""
    lines = [_HEADLINES[decision.kind](decision)]
    if decision.counts:
        lines += _funnel(decision)
    lines += [_candidate_line(number, one, decision) for number, one in enumerate(decision.candidates, 1)]
    hidden = decision.candidate_count - CANDIDATES_MAX
    if hidden > 0:
        lines.append(f"  and {hidden} more that could have taken it")
    if decision.queue is not None:
        place = decision.queue
        lines.append(
            f"It was number {place.place} in class {place.priority}, with {place.before} jobs to go before it."
        )
    if decision.budget_left:
        left = ", ".join(f"{amount} {name}" for name, amount in decision.budget_left)
        lines.append(f"Its session had left: {left}.")
    return lines


def _admitted(decision: Decision) -> str:
    if decision.pool_id is None:
        return f"Job {decision.job_id} was admitted: {_POOLS.get(decision.reason, decision.reason)}."
    return f"Job {decision.job_id} was admitted to pool {decision.pool_id}: {_POOLS.get(decision.reason, decision.reason)}."


def _refused(decision: Decision) -> str:
    return f"Job {decision.job_id} was refused ({decision.reason}): {decision.message}."


def _evicted(decision: Decision) -> str:
    by = _fact(decision, "by_job_id")
    return f"Job {decision.job_id} lost its place in the queue to job {by} ({_code(decision.reason)})."


def _placed(decision: Decision) -> str:
    if decision.reason == kinds.ANY_WORKER:
        return (
            f"Job {decision.job_id} was given to {decision.replica_id}: it asked first, and no replica is registered."
        )
    where = f"Job {decision.job_id} was placed on replica {decision.replica_id} of pool {decision.pool_id}"
    if decision.reason == kinds.SESSION_AFFINITY:
        return f"{where}: its session last succeeded there."
    return f"{where}: it came first in order."


def _waiting(decision: Decision) -> str:
    where = "" if decision.pool_id is None else f" in pool {decision.pool_id}"
    return f"Job {decision.job_id} waits{where}: {_WAITS.get(decision.reason, decision.reason)}."


def _retrying(decision: Decision) -> str:
    when = f"tick {_fact(decision, 'ready_tick')}"
    when += ", when the queue has room" if _fact(decision, "waits_for_room") == 1 else ""
    ended = f"Attempt {_fact(decision, 'attempt_id')} of job {decision.job_id} ended ({_code(decision.reason)})"
    return f"{ended}; the next one is queued at {when}."


def _expired(decision: Decision) -> str:
    where = f"attempt {_fact(decision, 'attempt_id')} on replica {decision.replica_id}"
    return f"Job {decision.job_id}: {where} was ended at tick {_fact(decision, 'tick')} ({_code(decision.reason)})."


_HEADLINES: Final[Mapping[str, Callable[[Decision], str]]] = {
    kinds.ADMITTED: _admitted,
    kinds.REFUSED: _refused,
    kinds.EVICTED: _evicted,
    kinds.PLACED: _placed,
    kinds.WAITING: _waiting,
    kinds.RETRYING: _retrying,
    kinds.EXPIRED: _expired,
}


def _funnel(decision: Decision) -> list[str]:
    """How many were looked at and where they fell out, and how the rest was ordered."""
    # Affinity passes over replicas that had come through everything else, so they are counted among the candidates.
    removed = sum(decision.counts[:-1])
    fell = [f"{count} {STAGE_WORDS[stage]}" for stage, count in zip(STAGES, decision.counts, strict=True) if count]
    looked_at = removed + decision.candidate_count
    seen = "1 replica was looked at" if looked_at == 1 else f"{looked_at} replicas were looked at"
    lines = [
        f"{seen}: {', '.join(fell)}; {decision.candidate_count} could take it."
        if fell
        else f"{seen}; all could take it."
    ]
    if decision.feasible_unready:
        lines.append(f"Of those not ready, {decision.feasible_unready} could otherwise take it.")
    if decision.candidates and decision.order is not None:
        lines.append(f"Their order: {ORDER_WORDS.get(decision.order, decision.order)}.")
    return lines


def _candidate_line(number: int, one: Candidate, decision: Decision) -> str:
    keys = f"  {number}. {one.replica_id}: {one.free_vram_mb} MB free, {one.active_slots} slots taken"
    if one.replica_id == decision.replica_id:
        return f"{keys}, chosen"
    return keys if one.removed_by is None else f"{keys}, {STAGE_WORDS[one.removed_by]}"


def _fact(decision: Decision, name: str) -> int | str:
    return dict(decision.facts).get(name, "unknown")


def _code(reason: str) -> str:
    """A reason with the registry's words for it, where it has some."""
    entry = CODES.get(reason)
    return reason if entry is None else f"{reason}: {entry.meaning}"
