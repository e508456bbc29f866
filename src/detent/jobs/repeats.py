"""Which jobs of workers elsewhere are run again on another worker, so that their values can be compared.

The rule: a call of a function whose result may be reused, since its author has declared that the same code and inputs give the same value. A call
that is not reused (``cache: false``, a task without ``reuse``), a command, work that leaves files behind, an array of elements, a part of an ordered map and
a platform job are never repeated. The sample follows from the job's id alone, so everyone who knows the setting can tell which jobs were in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from detent.canon import digest
from detent.jobs.order import Order, Origin, Retries

PREFIX: Final = "audit-"
PERCENT_MAX: Final = 100
_LABEL: Final = b"detent/audit/v1\0"
_KINDS: Final = ("python", "code")


def is_sampled(job_id: str, percent: int) -> bool:
    """Whether a job belongs to so many in a hundred."""
    drawn = int.from_bytes(digest(_LABEL, job_id.encode())[:8], "big")
    return drawn % PERCENT_MAX < percent


def repeat_id(job_id: str) -> str:
    """The id of the job that repeats another: the same whenever it is asked for, so none is repeated twice."""
    return PREFIX + digest(_LABEL, b"repeat" + job_id.encode()).hex()[:32]


def is_repeatable(order: Order, *, not_asked: str) -> bool:
    """Whether a job may be run once more; ``not_asked`` is what orders say of reuse that was not asked for."""
    call, origin = order.call, order.origin
    if call.kind not in _KINDS or call.outputs or order.elements or not call.cache:
        return False
    return bool(origin.ingredients) and origin.again != not_asked and origin.step != "chunk"


def repeated_order(order: Order, job_id: str) -> Order:
    """The order that repeats a job: the same call under the same limits, tried once, for no run."""
    origin = Origin(retry_of=job_id, ingredients=order.origin.ingredients)
    limits = replace(order.limits, retries=Retries(0, ()))
    return replace(order, label=f"audit of {order.label}"[:200], limits=limits, origin=origin)
