"""Sessions: where each last succeeded, and what is left of its budgets.

A request's worst case is taken from its session when it is admitted and settled when its job has ended: what was not used
comes back. A budget is never negative. Should a job use more than it asked for, the session pays as far as it can, and the
rest is recorded as an overrun in the accounts.

A session belongs to the partition its own id hashes to, even if its jobs run elsewhere: there its budgets are debited,
one request after the other, before the job is submitted, so parallel requests cannot spend the same tokens twice (X-030).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from detent.canon import check_uint64, encode
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.kernel import partition_of
from detent.scheduling.checks import check_id, exact_fields
from detent.scheduling.types import TaskRequest

SESSIONS_MAX: Final = 100_000
"""Sessions with budgets. One more is refused: to forget one would be to give it its budget again."""
LAST_GOOD_MAX: Final = 100_000
"""Sessions whose last good replica is remembered. Of more than these the longest unused is forgotten, at no loss but warmth."""
SNAPSHOT_VERSION: Final = 1

BUDGETS: Final = ("tokens", "time", "cost")


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a session may use in all; None for an unlimited budget. The operator chooses the unit of cost."""

    tokens: int | None = None
    time_ms: int | None = None
    cost: int | None = None

    FIELDS = ("tokens", "time_ms", "cost")

    def __post_init__(self) -> None:
        for name in self.FIELDS:
            if getattr(self, name) is not None:
                check_uint64(name, getattr(self, name))

    def to_list(self) -> list[int | None]:
        """The amounts in the order of `BUDGETS`."""
        return [self.tokens, self.time_ms, self.cost]

    @property
    def limited(self) -> bool:
        """Whether there is any budget at all."""
        return any(amount is not None for amount in self.to_list())


@dataclass(frozen=True, slots=True)
class Used:
    """What a job used up."""

    tokens: int = 0
    time_ms: int = 0
    cost: int = 0

    def __post_init__(self) -> None:
        for name in Budgets.FIELDS:
            check_uint64(name, getattr(self, name))


@dataclass(slots=True)
class _Account:
    left: list[int | None]
    overrun: list[int]


class Sessions:
    """The sessions of one partition. Only its owner changes them, one request after the other."""

    def __init__(
        self, *, defaults: Budgets | None = None, affinity: bool = True, partition_id: int = 0, partitions: int = 1
    ) -> None:
        check_uint64("partitions", partitions)
        if check_uint64("partition_id", partition_id) >= partitions:
            raise InvalidInput(f"partition_id {partition_id} is outside 0..{partitions - 1}")
        self.defaults = defaults or Budgets()
        self.affinity = affinity
        self.partition_id = partition_id
        self.partitions = partitions
        self._accounts: dict[str, _Account] = {}
        self._debits: dict[str, tuple[str, list[int]]] = {}
        self._last_good: OrderedDict[str, str] = OrderedDict()

    # -- budgets

    def open(self, session_id: str, budgets: Budgets) -> Refused | None:
        """Give a session budgets of its own. Refused when it has some already: they would be filled up again."""
        if refusal := self._foreign(check_id("session_id", session_id)):
            return refusal
        if session_id in self._accounts:
            return Refused("INVALID_PARAMS", f"session {show(session_id)} has budgets already")
        if len(self._accounts) >= SESSIONS_MAX:
            return _no_room(session_id)
        self._accounts[session_id] = _Account(budgets.to_list(), [0] * len(BUDGETS))
        return None

    def close(self, session_id: str) -> bool:
        """Forget a session with its budgets, its open debits and its last good replica."""
        self._debits = {job: debit for job, debit in self._debits.items() if debit[0] != session_id}
        known = self._last_good.pop(session_id, None) is not None
        return self._accounts.pop(session_id, None) is not None or known

    def check(self, request: TaskRequest) -> Refused | None:
        """Refuse a request that its session's budgets do not cover, naming the first one that is too small."""
        session_id = request.session_id
        if session_id is None or request.job_id in self._debits:
            return None
        if refusal := self._foreign(session_id):
            return refusal
        account = self._accounts.get(session_id)
        if account is None and self.defaults.limited and len(self._accounts) >= SESSIONS_MAX:
            return _no_room(session_id)
        left = self.defaults.to_list() if account is None else account.left
        for budget, remaining, needed in zip(BUDGETS, left, _needed(request), strict=True):
            if remaining is None:
                continue
            # Who does not say how much he needs is let in as long as anything is left.
            if (needed is None and remaining == 0) or (needed is not None and needed > remaining):
                details = {"budget": budget, "left": remaining, "needed": needed or 0, "session_id": session_id}
                message = f"the {budget} budget of session {show(session_id)} has {remaining} left" + (
                    "" if needed is None else f", {needed} are needed"
                )
                return Refused("SESSION_BUDGET_EXCEEDED", message, details)
        return None

    def debit(self, request: TaskRequest) -> Refused | None:
        """Take a request's worst case from its session's budgets. Asked again for the same job, it takes nothing."""
        if refusal := self.check(request):
            return refusal
        session_id = request.session_id
        if session_id is None or request.job_id in self._debits:
            return None
        account = self._accounts.get(session_id)
        if account is None:
            if not self.defaults.limited:
                return None
            account = self._accounts[session_id] = _Account(self.defaults.to_list(), [0] * len(BUDGETS))
        taken = [
            0 if left is None else needed or 0 for left, needed in zip(account.left, _needed(request), strict=True)
        ]
        account.left = [None if left is None else left - take for left, take in zip(account.left, taken, strict=True)]
        self._debits[request.job_id] = (session_id, taken)
        return None

    def settle(self, job_id: str, used: Used) -> bool:
        """Replace what was taken for a job by what it used. False when nothing stands open for it."""
        debit = self._debits.pop(job_id, None)
        if debit is None:
            return False
        session_id, taken = debit
        account = self._accounts[session_id]
        for place, spent in enumerate((used.tokens, used.time_ms, used.cost)):
            left = account.left[place]
            if left is not None:
                after = left + taken[place] - spent
                account.left[place] = max(after, 0)
                account.overrun[place] += max(-after, 0)
        return True

    def refund(self, job_id: str) -> bool:
        """Give back all that was taken for a job that did not run: refused by the queue, or cancelled in it."""
        return self.settle(job_id, Used())

    def keep(self, job_id: str) -> bool:
        """Charge a job that ran without reporting its usage the whole amount taken. False: nothing was open."""
        return self._debits.pop(job_id, None) is not None

    def left(self, session_id: str | None) -> tuple[tuple[str, int], ...]:
        """What is left of each of a session's budgets, by name."""
        if session_id is None:
            return ()
        account = self._accounts.get(session_id)
        amounts = self.defaults.to_list() if account is None else account.left
        return tuple(sorted((name, left) for name, left in zip(BUDGETS, amounts, strict=True) if left is not None))

    def has(self, session_id: str) -> bool:
        """Whether a session has budgets of its own."""
        return session_id in self._accounts

    def names(self, prefix: str, limit: int) -> list[str]:
        """Sessions with budgets whose ids begin so, in order."""
        return sorted(name for name in self._accounts if name.startswith(prefix))[:limit]

    def overrun(self, session_id: str) -> tuple[tuple[str, int], ...]:
        """What a session's jobs used beyond its budgets."""
        account = self._accounts.get(session_id)
        found = () if account is None else zip(BUDGETS, account.overrun, strict=True)
        return tuple(sorted((name, amount) for name, amount in found if amount))

    # -- affinity

    def succeeded(self, session_id: str, replica_id: str) -> None:
        """Remember where a session's last success ran."""
        self._last_good[check_id("session_id", session_id)] = check_id("replica_id", replica_id)
        self._last_good.move_to_end(session_id)
        if len(self._last_good) > LAST_GOOD_MAX:
            self._last_good.popitem(last=False)

    def last_good(self, session_id: str) -> str | None:
        """The replica a session would like to stay on; None when none is known or affinity is switched off."""
        return self._last_good.get(session_id) if self.affinity else None

    # -- checkpoints

    def snapshot(self) -> dict[str, object]:
        """All sessions as a canonical value; last good replicas in the order they would be forgotten."""
        return {
            "version": SNAPSHOT_VERSION,
            "defaults": self.defaults.to_list(),
            "affinity": self.affinity,
            "partition_id": self.partition_id,
            "partitions": self.partitions,
            "accounts": [
                [session_id, list(account.left), list(account.overrun)]
                for session_id, account in sorted(self._accounts.items())
            ],
            "debits": [[job_id, debit[0], list(debit[1])] for job_id, debit in sorted(self._debits.items())],
            "last_good": [[session_id, replica_id] for session_id, replica_id in self._last_good.items()],
        }

    @classmethod
    def restore(cls, snapshot: object) -> Sessions:
        """The sessions that `snapshot` was taken of; refuses what could not have been one."""
        names = "version defaults affinity partition_id partitions accounts debits last_good".split()
        parts = exact_fields("a snapshot of sessions", snapshot, names)
        if parts["version"] != SNAPSHOT_VERSION:
            raise InvalidInput(f"a snapshot of sessions of another version than {SNAPSHOT_VERSION} cannot be read")
        try:
            sessions = cls(
                defaults=Budgets(*parts["defaults"]),  # type: ignore[misc]
                affinity=parts["affinity"],  # type: ignore[arg-type]
                partition_id=parts["partition_id"],  # type: ignore[arg-type]
                partitions=parts["partitions"],  # type: ignore[arg-type]
            )
            for session_id, left, overrun in parts["accounts"]:  # type: ignore[attr-defined]
                account = _Account(Budgets(*left).to_list(), [check_uint64("overrun", amount) for amount in overrun])
                sessions._accounts[check_id("session_id", session_id)] = account
            for job_id, session_id, taken in parts["debits"]:  # type: ignore[attr-defined]
                if session_id not in sessions._accounts or len(taken) != len(BUDGETS):
                    raise InvalidInput(f"a debit of job {show(job_id)} has no session with budgets")
                amounts = [check_uint64("debit", amount) for amount in taken]
                sessions._debits[check_id("job_id", job_id)] = (session_id, amounts)
            for session_id, replica_id in parts["last_good"]:  # type: ignore[attr-defined]
                sessions.succeeded(session_id, replica_id)
        except (TypeError, ValueError) as exc:
            raise InvalidInput(f"not a snapshot of sessions: {exc}") from exc
        if encode(sessions.snapshot()) != encode(snapshot):
            raise InvalidInput("not a snapshot of sessions: it is out of order, or a part is too short")
        return sessions

    def _foreign(self, session_id: str) -> Refused | None:
        if self.partitions == 1 or partition_of(session_id, self.partitions) == self.partition_id:
            return None
        owner = partition_of(session_id, self.partitions)
        message = f"session {show(session_id)} belongs to partition {owner}, this is {self.partition_id}"
        return Refused("NOT_PARTITION_OWNER", message, {"partition_id": owner})


def _needed(request: TaskRequest) -> tuple[int | None, int | None, int | None]:
    return (request.tokens, request.time_ms, request.cost)


def _no_room(session_id: str) -> Refused:
    message = f"there is no room for session {show(session_id)}: {SESSIONS_MAX} sessions have budgets"
    return Refused("QUEUE_FULL", message, {"sessions_max": SESSIONS_MAX})
