"""A decision in plain words, one line for each thing worth knowing. Pure: the caller prints the lines.

`explain_lines` tells what was decided; `waiting_lines` tells what a job waits for now, which is not a decision but the
scheduler's present answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from detent.errors import CODES
from detent.scheduling import decisions as kinds
from detent.scheduling.decisions import CANDIDATES_MAX, STAGES, Candidate, Decision
from detent.scheduling.index import LEAST_LOADED, PACK
from detent.scheduling.queues import Position
from detent.words.quantities import count_text

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
    kinds.NOT_FIRST: "earlier jobs of its class go first",
    kinds.ANY_WORKER: "no worker has asked for it yet",
}
_POOLS: Final[Mapping[str, str]] = {
    kinds.PINNED: "the request pins it to that pool",
    kinds.BEST_POOL: "the best replica that could run it is there",
    kinds.ANY_WORKER: "no replica is registered, so the first worker to ask takes it",
    kinds.FEASIBLE_POOL: "no replica that could run it is ready, and that is the first pool that has one",
}
_REMEDIES: Final[Mapping[str, str]] = {
    kinds.NO_FREE_SLOT: "It runs when one of them finishes a job.",
    kinds.NOT_READY: "It runs when one of them becomes ready.",
    kinds.NO_FEASIBLE_REPLICA: "It can only run if a suitable replica is registered.",
}


def explain_lines(
    decision: Decision,
    *,
    subject: str | None = None,
    candidates_max: int = CANDIDATES_MAX,
) -> list[str]:
    """Tell a decision: what was decided and why, which replicas were looked at and why the others lost, where the job stood.

    ``subject`` is what the job is called; without it the text stands for itself. At most ``candidates_max`` candidates are
    listed, and the others counted.
    """
    who = f"Job {decision.job_id}" if subject is None else subject
    lines = [_HEADLINES[decision.kind](decision, who)]
    lines += _looked_at(decision, candidates_max)
    if decision.queue is not None:
        place = decision.queue
        before = f"{count_text(place.before, 'job')}" if place.before else "no jobs"
        lines.append(f"It was number {place.place} in class {place.priority}, with {before} before it.")
    if decision.budget_left:
        left = ", ".join(f"{amount} {name}" for name, amount in decision.budget_left)
        lines.append(f"Its session had left: {left}.")
    return lines


def waiting_lines(decision: Decision, *, candidates_max: int = CANDIDATES_MAX) -> list[str]:
    """Tell what a waiting job waits for, from what the scheduler says of it now."""
    lines = [_waits_for(decision)]
    if decision.kind == kinds.WAITING and decision.reason in _REMEDIES:
        lines.append(_REMEDIES[decision.reason])
    lines += _looked_at(decision, candidates_max)
    if decision.queue is not None:
        lines.append(_stands(decision.queue))
    return lines


def replica_lines(decision: Decision, replicas: Sequence[Candidate], shown_max: int) -> list[str]:
    """Every replica that was looked at, in placement order, and the filter that removed it or the key it lost by."""
    if decision.reason == kinds.SESSION_AFFINITY:
        replicas = [one if one.removed_by else one._replace(removed_by=STAGES[-1]) for one in replicas]
    lines = [_candidate_line(number, one, decision) for number, one in enumerate(replicas[:shown_max], 1)]
    hidden = len(replicas) - len(lines)
    return [*lines, f"  and {hidden} more"] if hidden > 0 else lines


def because(decision: Decision) -> str:
    """In half a sentence why a job waits: for telling of it beside another."""
    if decision.kind == kinds.PLACED:
        return f"it is given to replica {decision.replica_id} next"
    return _WAITS.get(decision.reason, decision.reason)


def _waits_for(decision: Decision) -> str:
    before = 0 if decision.queue is None else decision.queue.before
    where = "" if decision.pool_id is None else f" in pool {decision.pool_id}"
    if decision.kind == kinds.PLACED:
        after = "" if not before else " when the higher classes have had their turn"
        return f"It waits for dispatch: replica {decision.replica_id}{where} has room for it{after}."
    if decision.reason == kinds.ANY_WORKER:
        return "It waits for its turn." if before else "It waits for a worker: the next one that asks gets it."
    return f"It waits{where}: {because(decision)}."


def _stands(place: Position) -> str:
    stands = f"number {place.place} of class {place.priority}"
    if not place.before:
        return f"It is next: {stands}, with no jobs before it."
    return f"It is {stands}; {count_text(place.before, 'job goes', 'jobs go')} before it."


NAMELESS: Final = "*"
"""In place of the id of a job that may not be named; no id has this form."""


def nameless(decision: Decision, may_name: Callable[[str], bool]) -> Decision:
    """A decision without the ids of jobs that may not be named."""
    facts = tuple(
        (name, NAMELESS if name == "by_job_id" and not may_name(str(value)) else value)
        for name, value in decision.facts
    )
    return replace(decision, facts=facts)


def _admitted(decision: Decision, who: str) -> str:
    where = "" if decision.pool_id is None else f" to pool {decision.pool_id}"
    return f"{who} was admitted{where}: {_POOLS.get(decision.reason, decision.reason)}."


def _refused(decision: Decision, who: str) -> str:
    return f"{who} was refused ({decision.reason}): {decision.message}."


def _evicted(decision: Decision, who: str) -> str:
    by = _fact(decision, "by_job_id")
    winner = "a job of another workspace" if by == NAMELESS else f"job {by}"
    return f"{who} lost its place in the queue to {winner} ({code_words(decision.reason)})."


def _placed(decision: Decision, who: str) -> str:
    if decision.reason == kinds.ANY_WORKER:
        return f"{who} was given to {decision.replica_id}: it asked first, and no replica is registered."
    where = f"{who} was placed on replica {decision.replica_id} of pool {decision.pool_id}"
    if decision.reason == kinds.SESSION_AFFINITY:
        return f"{where}: its session last succeeded there."
    return f"{where}: it came first in order."


def _waiting(decision: Decision, who: str) -> str:
    where = "" if decision.pool_id is None else f" in pool {decision.pool_id}"
    return f"{who} waits{where}: {because(decision)}."


_HEADLINES: Final[Mapping[str, Callable[[Decision, str], str]]] = {
    kinds.ADMITTED: _admitted,
    kinds.REFUSED: _refused,
    kinds.EVICTED: _evicted,
    kinds.PLACED: _placed,
    kinds.WAITING: _waiting,
}


def _looked_at(decision: Decision, candidates_max: int) -> list[str]:
    lines = _funnel(decision) if decision.counts else []
    shown = decision.candidates[:candidates_max]
    lines += [_candidate_line(number, one, decision) for number, one in enumerate(shown, 1)]
    # Those that only lacked room come after all that could have taken it.
    hidden = decision.candidate_count - len(shown)
    if hidden > 0:
        lines.append(f"  and {hidden} more that could have taken it")
    return lines


def _funnel(decision: Decision) -> list[str]:
    """How many were looked at and where they fell out, and how the rest was ordered."""
    # Affinity passes over replicas that had come through everything else, so they are counted among the candidates.
    removed = sum(decision.counts[:-1])
    fell = [f"{count} {STAGE_WORDS[stage]}" for stage, count in zip(STAGES, decision.counts, strict=True) if count]
    looked_at = removed + decision.candidate_count
    if not looked_at:
        return ["No replica is registered."]
    seen = f"{count_text(looked_at, 'replica')} {'was' if looked_at == 1 else 'were'} looked at"
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
    slots = count_text(one.active_slots, "slot")
    keys = f"  {number}. {one.replica_id}: {one.free_vram_mb} MB free, {slots} taken"
    if one.replica_id == decision.replica_id:
        return f"{keys}, chosen"
    if one.removed_by is not None:
        return f"{keys}, {'in another pool' if one.removed_by == STAGES[0] else STAGE_WORDS[one.removed_by]}"
    winner = next((other for other in decision.candidates if other.replica_id == decision.replica_id), None)
    return keys if winner is None else f"{keys}, lost by {_lost_by(one, winner)}"


def _lost_by(one: Candidate, winner: Candidate) -> str:
    """The first sort key in which a candidate differs from the chosen one; every order compares them in this sequence."""
    if one.free_vram_mb != winner.free_vram_mb:
        return "free memory"
    return "taken slots" if one.active_slots != winner.active_slots else "name"


def _fact(decision: Decision, name: str) -> int | str:
    return dict(decision.facts).get(name, "unknown")


def code_words(code: str) -> str:
    """A code with the registry's words for it, where it has some."""
    entry = CODES.get(code)
    return code if entry is None else f"{code}: {entry.meaning}"
