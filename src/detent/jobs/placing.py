"""Where a job can run: with its home's own workers, or with a worker elsewhere.

The home's own workers offer what ``[resources]`` counts and nothing else. A job that names a pool or labels, or takes more than the home
has, is for workers elsewhere: its request names all that such a worker must offer, so that claims which offer less pass it over.
Whether there is such a worker is another question. It is asked once, before anything is begun (`lacking`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from detent.canon.late import dataclass
from detent.jobs.order import POOL, RESOURCE, JobLimits

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Offer:
    """What one worker elsewhere offers."""

    labels: frozenset[str]
    """Its labels, and its pools and resources as `pool:NAME` and `resource:NAME`."""
    resources: Mapping[str, int] | None
    """How much it has of each resource; None: it has not said so yet."""
    fault: str | None = None
    """Why such a worker cannot be had, of one that is yet to be started."""


def fits(needs: Mapping[str, int], has: Mapping[str, int]) -> bool:
    """Whether there is as much of everything as is needed."""
    return all(has.get(name, 0) >= amount for name, amount in needs.items())


def wanted_by(limits: JobLimits, here: Mapping[str, int]) -> tuple[str, ...]:
    """All that the worker of a job must offer; nothing where the home's own workers do, who have what ``here`` says."""
    named = limits.wanted
    if not named and fits(limits.resources, here):
        return ()
    return (*named, *(f"{RESOURCE}{name}" for name in sorted(limits.resources)))


def lacking(limits: JobLimits, offers: Sequence[Offer], promised: Mapping[str, Sequence[str]]) -> str | None:
    """What no worker elsewhere offers of what a job asks for, in words; None where one offers all of it.

    ``promised`` are the pools whose workers come and go, with the labels of these: a job waits for them.
    """
    named = frozenset(limits.wanted)
    if named and any(named <= {f"{POOL}{pool}", *labels} for pool, labels in promised.items()):
        return None
    suited = [offer for offer in offers if named <= offer.labels and offer.fault is None]
    # A worker that has said nothing yet may have the resources if it is one of those that the job names.
    if any(bool(named) if offer.resources is None else fits(limits.resources, offer.resources) for offer in suited):
        return None
    if named and (faults := [offer.fault for offer in offers if named <= offer.labels and offer.fault is not None]):
        return f"{wanted_words(named)}: {faults[0]}"
    if suited or not named:
        return _amounts(limits.resources, suited)
    nearest = max(
        (offer.labels for offer in offers if offer.fault is None),
        key=lambda labels: len(named & labels),
        default=_NOTHING,
    )
    return wanted_words(named - nearest)


def wanted_words(wanted: Iterable[str]) -> str:
    """What is asked of a worker, in words: pools, resources, labels."""
    parts = (one.partition(":") for one in sorted(wanted, key=lambda one: (":" not in one, one)))
    return ", ".join(f"{kind} {name}" if colon else f"label {kind}" for kind, colon, name in parts)


def _amounts(needs: Mapping[str, int], offers: Sequence[Offer]) -> str:
    most = {name: max((offer.resources or {}).get(name, 0) for offer in offers) if offers else 0 for name in needs}
    short = [name for name, amount in needs.items() if most[name] < amount] or list(needs)
    return ", ".join(f"{needs[name]:,} {name}" for name in short)
