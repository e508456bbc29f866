"""What may be asked of an owner between two of its turns, by a process that need not be its own.

A question has a name, takes plain values and is answered with plain values, so that it can travel. It only reads. Each is one function
of the kernel's state here, and one `Question` that says how its answer is read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from detent.canon.late import NamedTuple, dataclass
from detent.errors import InvalidInput
from detent.jobs.order import POOL
from detent.kernel import Kernel
from detent.kernel.job import Job
from detent.kernel.metrics import Metrics
from detent.kernel.table import State
from detent.scheduling.observability import Depths, queue_depths
from detent.scheduling.scheduler import Scheduler
from detent.scheduling.sessions import Sessions

T = TypeVar("T")

OWN_MAX: Final = 50
"""Places of one tenant's jobs that are told."""
LOOKED_MAX: Final = 10_000
"""Waiting jobs of a pool that are put in order for that; an owner decides nothing meanwhile."""
LISTED_MAX: Final = 1_000
"""Sessions that are named, at most."""


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One question: its name, how an owner answers it in plain values, and how these are read."""

    name: str
    answer: Callable[..., Any]
    """Takes the kernel, then what the question is about: texts, or None."""
    read: Callable[[Any], T]


class Counted(NamedTuple):
    """What a kernel has counted, and what waits in its queues."""

    metrics: Metrics
    depths: Depths
    tick_ms: int


class Place(NamedTuple):
    """Where a waiting job stands among those of its pool, and of its partition where the home has several."""

    job_id: str
    pool: str
    priority: int
    place: int
    """1 goes next."""
    queued_tick: int


class Queues(NamedTuple):
    """How many jobs wait, and how many may."""

    depths: Depths
    """By pool and class."""
    capacity_per_class: Mapping[int, int]
    capacity_total: int
    asked_for: Mapping[str, int]
    """Jobs that wait for a pool of workers elsewhere, by that pool."""
    oldest: Mapping[str, int]
    """Since which tick the job waits, by pool, that has waited longest of those that go next."""
    own: Sequence[Place]
    """Of one tenant, the first ones; none where too many jobs wait to look at all of them."""


def counted(kernel: Kernel) -> Counted:
    """What a kernel has counted by now."""
    queue = kernel.queue
    waiting = queue_depths(queue.queues) if isinstance(queue, Scheduler) else {}
    return Counted(kernel.metrics.copy(), waiting, kernel.config.tick_ms)


def queues(kernel: Kernel, tenant: str | None) -> Queues:
    """What waits in a partition, and where the first jobs of a tenant stand."""
    scheduler = kernel.queue
    assert isinstance(scheduler, Scheduler)
    per_class = scheduler.policy.capacity()
    total = scheduler.policy.capacity_total or sum(per_class.values())
    waiting = (job_id for job_id in scheduler.labelled if kernel.jobs[job_id].state == State.QUEUED)
    asked = (label for job_id in waiting for label in scheduler.labels_of(job_id) if label.startswith(POOL))
    asked_for = Counter(label.removeprefix(POOL) for label in asked)
    found, oldest, own = scheduler.queues, {}, []
    for pool_id, pool in found.pools().items():
        if heads := [_since(kernel.jobs[head.job_id]) for head in pool.heads()]:
            oldest[pool_id] = min(heads)
        if tenant is not None and len(pool) <= LOOKED_MAX:
            own += [
                Place(job_id, pool_id, job.priority, place, _since(job))
                for place, job_id in enumerate(pool.in_turn(), 1)
                if (job := kernel.jobs[job_id]).tenant_id == tenant
            ][:OWN_MAX]
    return Queues(queue_depths(found), per_class, total, asked_for, oldest, own)


def _since(job: Job) -> int:
    return job.submitted_tick if job.queued_tick is None else job.queued_tick


def _sessions(kernel: Kernel) -> Sessions:
    return kernel.queue.sessions if isinstance(kernel.queue, Scheduler) else Sessions()


def _left(kernel: Kernel, name: str) -> list[list[object]] | None:
    sessions = _sessions(kernel)
    return [list(item) for item in sessions.left(name)] if sessions.has(name) else None


def _depths(depths: Depths) -> list[object]:
    return [[pool, [list(item) for item in classes.items()]] for pool, classes in depths.items()]


def _read_depths(value: Any) -> Depths:
    return {pool: dict(classes) for pool, classes in value}


def _counted(kernel: Kernel) -> list[object]:
    found = counted(kernel)
    return [found.metrics.to_list(), _depths(found.depths), found.tick_ms]


def _queues(kernel: Kernel, tenant: str | None) -> list[object]:
    found = queues(kernel, tenant)
    tables = ([list(item) for item in table.items()] for table in (found.asked_for, found.oldest))
    per_class = [list(item) for item in found.capacity_per_class.items()]
    return [_depths(found.depths), per_class, found.capacity_total, *tables, [list(place) for place in found.own]]


def _read_queues(value: Any) -> Queues:
    depths, per_class, total, asked_for, oldest, own = value
    return Queues(
        _read_depths(depths), dict(per_class), total, dict(asked_for), dict(oldest), [Place(*one) for one in own]
    )


COUNTED: Final = Question(
    "counted", _counted, lambda said: Counted(Metrics.from_list(said[0]), _read_depths(said[1]), said[2])
)
QUEUES: Final = Question("queues", _queues, _read_queues)
BUDGET: Final = Question[dict[str, int] | None]("budget", _left, lambda said: None if said is None else dict(said))
"""What is left of each budget of a session; None where there is none of that name."""
SESSIONS: Final = Question[list[str]](
    "sessions", lambda kernel, prefix: _sessions(kernel).names(prefix, LISTED_MAX), list
)
"""The sessions whose names begin so."""
_ALL: Final[dict[str, Question[Any]]] = {one.name: one for one in (COUNTED, QUEUES, BUDGET, SESSIONS)}


def question_of(name: object, about: object) -> Callable[[Kernel], Any]:
    """A question that another process asks, as it is put to a kernel."""
    question = _ALL.get(name) if isinstance(name, str) else None
    if question is None or not isinstance(about, list) or not all(isinstance(one, str | None) for one in about):
        raise InvalidInput(f"an owner knows no question {name!r:.80} about that")
    return lambda kernel: question.answer(kernel, *about)
