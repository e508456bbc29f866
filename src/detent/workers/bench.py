"""What a supervisor works against: where its leases, orders and inputs come from, and where its reports go.

A *bench* is a home of this machine (`home_bench`), or a server that is reached by signed turns (`detent.remote`). A supervisor
decides what runs and when; a bench knows how to ask for it. Both kinds keep the same promises: a report that was settled is not
lost, a lease that is no longer in force is told, and what may or may not have been done is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from detent.canon.late import dataclass
from detent.executor.assignment import Assignment
from detent.jobs.elements import Elements
from detent.jobs.order import Order
from detent.jobs.work import Result, WorkReport
from detent.kernel import Grant, QuotaPolicy
from detent.owner.backend import Reported
from detent.reuse.witness import Witnessed
from detent.workers.action_leases import HeldAction
from detent.workers.reports import Attempt


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt that this supervisor has closed on the ledger, and where the job stands since."""

    job_id: str
    state: str
    digest: bytes | None
    report: WorkReport | None


class Inputs(NamedTuple):
    """What an attempt is given beside its order."""

    action: HeldAction | None
    values: Mapping[str, bytes | Path]


class Allowance(NamedTuple):
    """What an attempt may use, and what earlier attempts of its job have left it."""

    left: QuotaPolicy | None = None
    earlier: Elements | None = None
    retried: frozenset[str] = frozenset()


class Closing(NamedTuple):
    """An attempt that is over, under its number, with its report; without one its worker was lost."""

    number: int
    grant: Grant
    result: Result
    reported: Reported | None


class Settled(NamedTuple):
    """The answer to reports and a claim."""

    attempted: Sequence[Attempted | None]
    """For each report, in order: where its job stands. None where this process has nothing to tell of it."""
    grants: Sequence[Grant] = ()
    may_be_more: bool = False
    """Whether there may be more to claim."""


class Listener(Protocol):
    """What a bench tells a supervisor, from any thread."""

    def hear(self, moved: Sequence[tuple[str, bool]], *, queued: bool) -> None:
        """Jobs have moved, each with whether that may be the end of an attempt; and whether some have come into the queue."""


class Bench(Protocol):
    """The far side of a supervisor. Only the thread that takes the supervisor's steps calls it, `close` and `attach` excepted."""

    @property
    def identity(self) -> str:
        """The name that leases are held under."""

    @property
    def beat_seconds(self) -> Mapping[str, float]:
        """How often a lease is to be extended, by the name of its policy; never empty."""

    @property
    def turn(self) -> AbstractContextManager[bool]:
        """Entered to settle: whether this thread had to wait for others first."""

    def attach(self, listener: Listener) -> Callable[[], None]:
        """Tell a supervisor what happens from now on; returns what ends that."""

    def offer(self, vacant: int) -> None:
        """Say how many jobs could begin now: others may lease as many for this supervisor."""

    def free(self, vacant: int) -> int:
        """How many of the jobs that could begin are left for the supervisor to claim by itself."""

    def withdraw(self, vacant: int) -> int:
        """Offer nothing until the next offer; returns what is `free` then."""

    def granted(self) -> Sequence[Grant]:
        """Take what was leased for the supervisor since the last time."""

    def lost(self, held: Container[bytes]) -> Sequence[Grant]:
        """Leases whose grant no caller received, if there may be any; ``held`` are those that are known."""

    def has_news(self) -> bool:
        """Whether `granted` or `lost` have something to tell."""

    def cut_short(self) -> None:
        """Take note that a step was cut short: answers that granted leases may be lost."""

    def order(self, grant: Grant) -> Order:
        """What a job has to do."""

    def inputs(self, grant: Grant, order: Order) -> Inputs:
        """The values that an order names, and its action, checked; refuses what is not there or not its own."""

    def allowance(self, grant: Grant, order: Order) -> Allowance:
        """What the attempt may use."""

    def witness(self, order: Order, since: float) -> Witnessed:
        """What an attempt at an order ran in, by a look not older than ``since``."""

    def sign(self, attempts: Sequence[Attempt]) -> list[Reported]:
        """Sign the outcomes of attempts, together."""

    def settle(self, closing: Sequence[Closing], wanted: int, until: float | None) -> Settled:
        """Close attempts and claim ``wanted`` jobs, in one commit. Asked again until it is known, or ``until`` a moment."""

    def beat(self, grants: Sequence[Grant], until: float | None) -> Sequence[bool]:
        """Extend leases; for each, whether it is in force."""

    def in_force(self, grant: Grant) -> bool:
        """Whether a lease is still the job's own."""

    def ended(self, job_id: str) -> Attempted | None:
        """How a job ended that was taken from the supervisor; None while it has not."""

    def release_orphans(self, held: Container[str], until: float | None) -> bool:
        """End the leases of workers that are provably gone, but for those of jobs ``held`` here; whether there were any."""

    def now_ms(self) -> int:
        """The wall clock."""

    def close(self, grants: Sequence[Grant]) -> None:
        """Give up these leases and whatever was granted since; those attempts count as interrupted, not as failed."""


def assignment_of(number: int, grant: Grant, order: Order, inputs: Inputs, allowance: Allowance) -> Assignment:
    """What an executor is handed."""
    return Assignment(number, grant.job_id, grant.attempt_id, order, inputs.values, *allowance)
