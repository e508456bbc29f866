"""What is done about an element of a run whose turn it is. Pure: everything that has to be read was read before.

For each element, in this order:

1. Its step is over because of another one's failure: it is dropped, unless an earlier process of the run left its job open.
2. An earlier process of the run began it: it is put where the ledger says it is. When what that was made of has changed
   since, the whole run is superseded.
3. A job of this run does the same work: the element joins it.
4. An earlier job did the same work, or another run's does it: its result is taken, or waited for.
5. Otherwise the element needs a job of its own.

The driver carries the decisions out one by one, because each may bear on the next: a result opens steps, a failure closes some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from detent.canon.late import dataclass
from detent.kernel.table import State
from detent.owner.backend import Submission
from detent.reuse.work_keys import Found, Miss, WorkKey
from detent.runs.record.resumed import Recorded
from detent.runs.record.step_run import Element
from detent.runs.submit.waiters import Flight
from detent.words.states import OVER

WAITING_MAX: Final = 4_000
"""Jobs of one run that may wait in the queue at once: room is for others, too."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """An element whose turn it is, and what was read about its work."""

    element: Element
    work_key: WorkKey
    recorded: Recorded | None = None
    """What an earlier process of the run did of it."""
    found: Found | Miss = Miss()
    """An earlier or a running job that answers for it, or why none does."""
    prepared: Submission | None = None
    """Its job, when the queue had no room for it a moment ago."""

    @property
    def flight(self) -> Flight | None:
        """What equal work under way is found by; None when the work is done every time."""
        return None if self.work_key.key is None else self.work_key.flight


@dataclass(frozen=True, slots=True)
class Submit:
    """The element needs a job of its own."""

    candidate: Candidate
    again: str = ""
    """Why the result of equal work is not taken, where there is some."""


@dataclass(frozen=True, slots=True)
class Join:
    """An open job does the same work: wait for that one."""

    candidate: Candidate
    job_id: str
    """The job, or the work of this run that is going to be one or a part of one."""
    element: int | None = None
    """Which element of the job, where that is an array of another run."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Take the result of another job."""

    candidate: Candidate
    found: Found
    is_recorded: bool = False
    """Whether the ledger has it already."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Take an earlier failure of the same work for the answer, as the user asked for (JOB-027)."""

    candidate: Candidate
    found: Found


@dataclass(frozen=True, slots=True)
class Adopt:
    """Wait for the job that an earlier process of this run submitted, or take its end."""

    candidate: Candidate
    state: str
    array: tuple[str, int] | None = None
    """The job and the place in it, where the element shares a job with others."""


@dataclass(frozen=True, slots=True)
class Supersede:
    """What this run did so far was done with something else: it ends, and a new one begins from what still holds."""

    candidate: Candidate
    change: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The element has to have its turn again."""

    element: Element


@dataclass(frozen=True, slots=True)
class Drop:
    """The element does not run any more."""

    element: Element


Decision: TypeAlias = Submit | Join | Reuse | Fail | Adopt | Supersede


def room(*, most: int | None, one_by_one: bool, own: int, open_jobs: int) -> int:
    """How many jobs of a run may be submitted now, by how many jobs it waits for and how many of them are its own.

    One by one, the next waits also for jobs that were joined (X-194); otherwise those count for their own runs.
    """
    if one_by_one:
        return max(0, 1 - open_jobs)
    return max(0, (WAITING_MAX if most is None else most) - own)


def may_begin(element: Element, *, left_open: bool) -> bool:
    """Whether anything is to be done about an element; ``left_open``: an earlier process submitted its job, which is open."""
    return left_open or element.step.state not in OVER


def next_work(candidate: Candidate, under_way: Mapping[Flight, str]) -> Decision:
    """Decide about an element that may begin; ``under_way`` are the open jobs of its run."""
    if candidate.recorded is not None:
        return resumed(candidate, candidate.recorded)
    flight = candidate.flight if under_way else None
    same = None if flight is None else under_way.get(flight)
    if same is not None and same != candidate.element.job_id:
        return Join(candidate, same)
    found = candidate.found
    if isinstance(found, Miss):
        return Submit(candidate, found.why)
    if found.running:
        return Join(candidate, found.job_id, found.element)
    if found.state == State.SUCCEEDED:
        return Reuse(candidate, found)
    return Fail(candidate, found)


def resumed(candidate: Candidate, recorded: Recorded) -> Reuse | Adopt | Supersede:
    """Decide about an element that an earlier process of its run began."""
    if recorded.change:
        return Supersede(candidate, recorded.change)
    if recorded.taken is not None:
        return Reuse(candidate, recorded.taken, is_recorded=True)
    return Adopt(candidate, recorded.state, recorded.array)


def after_join(candidate: Candidate, ended: Found, *, ending: bool) -> Reuse | Offer | Drop:
    """Decide about an element whose joined job has ended: take its result, or do the work after all."""
    if ended.state == State.SUCCEEDED and ended.report is not None:
        return Reuse(candidate, ended)
    if ending or candidate.element.step.state in OVER:
        return Drop(candidate.element)
    return Offer(candidate.element)
