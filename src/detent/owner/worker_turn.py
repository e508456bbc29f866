"""What a worker on another machine asks for in one turn, decided in one commit.

The worker only says what happened. The commands are made here, within the owner's turn, in the name of the one start of the worker whose
key signed the request: a report closes its attempt as any report does (JOB-083), an end without a report and a heartbeat count
for leases of that very start only, and a claim is for the workspaces of its certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from detent.canon import sha256
from detent.errors import InvalidInput, Refused
from detent.kernel import Claim, Command, Finish, Grant, Heartbeat, Kernel
from detent.kernel.commands import command_from_list, command_to_list
from detent.kernel.evidence import REASON_WORKER_LOST
from detent.kernel.table import State
from detent.owner.socket_messages import Answer
from detent.owner.turn import Judge, Judged

Pairs: TypeAlias = Sequence[tuple[bytes, bytes]]
JudgeReport: TypeAlias = Callable[[bytes, Pairs], tuple[Judge, Pairs]]
"""What a partition has to decide about a signed report and what came with it, and the content that is kept if it is accepted."""

OK: Final = "OK"
LEASE_INVALID: Final = "LEASE_INVALID"
_KINDS: Final = {"WORKER_LOST": "worker_lost"}


class Report(NamedTuple):
    """A signed report, as it was handed in."""

    lease_id: bytes
    envelope: bytes
    job_id: str = ""
    """As far as it can be read: what cannot is refused by any partition."""
    content: Pairs = ()
    """What it names and brings along, by digest."""
    fault: str | None = None
    """What is wrong with its values, for which it is refused whatever else it says."""


class End(NamedTuple):
    """An attempt that ended without a report."""

    job_id: str
    lease_id: bytes
    code: str


class Lease(NamedTuple):
    """A lease that the worker says it holds."""

    job_id: str
    lease_id: bytes


@dataclass(slots=True)
class WorkerTurn:
    """One turn. Make it and have a partition decide it; then it says what came of it.

    Where the partition is owned: `prepare`, hand `judge` to the owner, `read` the answers. Elsewhere: send `to_list`, and `take_in` what comes back.
    """

    holder: str
    worker_id: str
    reports: Sequence[Report] = ()
    ends: Sequence[End] = ()
    leases: Sequence[Lease] = ()
    """All that it holds, to find those that are gone."""
    beats: frozenset[bytes] = frozenset()
    """Those of them that are to be extended."""
    claim: Claim | None = None
    recovers: bool = False
    """Whether it is the first turn of this start that this process hears of: leases of older starts are given up, its own looked up."""
    lease: str | None = None
    """The lease policy of workers elsewhere, which extends their leases as their claims do."""
    results: dict[bytes, str] = field(default_factory=dict)
    """By lease: how a report or an end was taken."""
    gone: list[bytes] = field(default_factory=list)
    """Leases that the worker holds no longer."""
    found: list[Grant] = field(default_factory=list)
    """Leases of this start, where they were looked up."""
    _places: list[bytes | None] = field(default_factory=list)
    """For each command the lease whose end it is."""
    _judges: list[Judge] = field(default_factory=list)
    """What is to be decided about each report."""

    def prepare(self, judge_report: JudgeReport) -> Pairs:
        """Check the signatures of the reports, outside the owner's turn; gives the content that goes with them."""
        content: dict[bytes, bytes] = {}
        self._judges = []
        for report in self.reports:
            if report.fault is not None:
                self._judges.append(_refusing(report.envelope, report.fault))
                continue
            judge, kept = judge_report(report.envelope, report.content)
            self._judges.append(judge)
            content.update(kept)
        return list(content.items())

    def judge(self, kernel: Kernel) -> Judged:
        """The commands of this turn, from what stands now."""
        commands: list[Command] = []
        refusals: list[Refused] = []
        self.results, self.gone, self.found, self._places = {}, [], [], []
        if self.recovers:
            commands += self._given_up(kernel)
            self._places += [None] * len(commands)
        for report, judge in zip(self.reports, self._judges, strict=True):
            self._report(kernel, report.lease_id, judge, commands, refusals)
        for end in self.ends:
            if end.lease_id not in self.results and self._holds(kernel, end.job_id, end.lease_id):
                kind = _KINDS.get(end.code, "interrupted")
                self._add(
                    commands, Finish(0, end.job_id, end.lease_id, kind, ok=False, reason_code=end.code), end.lease_id
                )
            else:
                self.results.setdefault(end.lease_id, LEASE_INVALID)
        for lease in self.leases:
            if lease.lease_id in self.results:
                continue
            if not self._holds(kernel, lease.job_id, lease.lease_id):
                self.gone.append(lease.lease_id)
            elif lease.lease_id in self.beats:
                self._add(commands, Heartbeat(0, lease.job_id, lease.lease_id, lease=self.lease), None)
        if self.recovers:
            self._find(kernel)
            named = {lease.lease_id for lease in self.leases}
            for grant in self.found:  # Told anew: the worker counts the whole lease from this turn on.
                if grant.lease_id not in named:
                    self._add(commands, Heartbeat(0, grant.job_id, grant.lease_id, lease=self.lease), None)
        if self.claim is not None:
            self._add(commands, self.claim, None)
        return Judged(commands, refusals)

    def part(self, is_own: Callable[[str], bool], *, claims: bool, left: int) -> WorkerTurn | None:
        """What one partition has to decide of this turn, with a claim for ``left`` jobs if it ``claims``; None if there is nothing.

        ``is_own`` says of a job's id whether it lies there.
        """
        claim = replace(self.claim, limit=left) if self.claim is not None and claims and left > 0 else None
        reports = [report for report in self.reports if is_own(report.job_id)]
        ends = [end for end in self.ends if is_own(end.job_id)]
        leases = [lease for lease in self.leases if is_own(lease.job_id)]
        if claim is None and not (self.recovers or reports or ends or leases):
            return None
        return WorkerTurn(
            self.holder, self.worker_id, reports, ends, leases, self.beats, claim, self.recovers, self.lease
        )

    def take(self, part: WorkerTurn) -> None:
        """Take in what a partition has decided."""
        self.results |= part.results
        self.gone += part.gone
        self.found += part.found

    def read(self, answers: Sequence[Answer]) -> Sequence[Grant]:
        """Take in the answers of the owner; the leases that were granted now."""
        for lease_id, answer in zip(self._places, answers, strict=False):
            if lease_id is not None:
                self.results[lease_id] = OK if answer.refusal is None else answer.refusal.code
        return answers[-1].grants if self.claim is not None and answers else ()

    def to_list(self) -> list[object]:
        """The turn as it travels to the owner of a partition."""
        return [
            self.holder,
            self.worker_id,
            [[*report[:3], [list(pair) for pair in report.content], report.fault] for report in self.reports],
            [list(end) for end in self.ends],
            [list(lease) for lease in self.leases],
            sorted(self.beats),
            None if self.claim is None else command_to_list(self.claim),
            self.recovers,
            self.lease,
        ]

    @classmethod
    def from_list(cls, value: Any) -> WorkerTurn:
        """Rebuild what `to_list` made; the kernel looks at what it says."""
        try:
            holder, worker_id, reports, ends, leases, beats, claim, recovers, lease = value
            claimed = None if claim is None else command_from_list(claim)
            if not (isinstance(holder, str) and isinstance(worker_id, str) and isinstance(claimed, Claim | None)):
                raise InvalidInput("a turn has a holder, a worker and a claim or none")
            return cls(
                holder,
                worker_id,
                [Report(one[0], one[1], one[2], [(pair[0], pair[1]) for pair in one[3]], one[4]) for one in reports],
                [End(*one) for one in ends],
                [Lease(*one) for one in leases],
                frozenset(beats),
                claimed,
                bool(recovers),
                lease,
            )
        except (TypeError, ValueError, IndexError) as exc:
            raise InvalidInput(f"not the turn of a worker: {exc}") from exc

    def outcome(self, granted: Sequence[Grant]) -> list[object]:
        """What came of the turn, as it travels back."""
        results = [list(item) for item in self.results.items()]
        return [results, self.gone, [list(grant) for grant in self.found], [list(grant) for grant in granted]]

    def take_in(self, outcome: Sequence[Any]) -> Sequence[Grant]:
        """Take in what came of the turn elsewhere; the leases that were granted now."""
        try:
            results, gone, found, granted = outcome
            self.results, self.gone = {lease_id: code for lease_id, code in results}, list(gone)  # noqa: C416 - checks pairs
            self.found = [Grant(*one) for one in found]
            return [Grant(*one) for one in granted]
        except (TypeError, ValueError) as exc:
            raise InvalidInput(f"not what came of a turn: {exc}") from exc

    def _report(
        self, kernel: Kernel, lease_id: bytes, judge: Judge, commands: list[Command], refusals: list[Refused]
    ) -> None:
        judged = judge(kernel)
        if isinstance(judged, Refused):
            refusals.append(judged)
            self.results[lease_id] = judged.code
            return
        made = judged.commands if isinstance(judged, Judged) else judged
        for command in made[:-1]:
            self._add(commands, command, None)
        self._add(commands, made[-1], lease_id)

    def _add(self, commands: list[Command], command: Command, lease_id: bytes | None) -> None:
        commands.append(command)
        self._places.append(lease_id)
        if lease_id is not None:
            self.results[lease_id] = OK

    def _holds(self, kernel: Kernel, job_id: str, lease_id: bytes) -> bool:
        job = kernel.jobs.get(job_id)
        if job is None or job.state != State.RUNNING:
            return False
        return job.lease_id == lease_id and job.lease_holder == self.holder

    def _given_up(self, kernel: Kernel) -> list[Command]:
        """End the leases of earlier starts of the worker: it has begun anew, so they run nowhere."""
        prefix = f"{self.worker_id}/"
        return [
            Finish(0, job.job_id, job.lease_id, "worker_lost", ok=False, reason_code=REASON_WORKER_LOST)
            for job in kernel.jobs.values()
            if job.state == State.RUNNING
            and job.lease_id is not None
            and job.lease_holder != self.holder
            and (job.lease_holder or "").startswith(prefix)
        ]

    def _find(self, kernel: Kernel) -> None:
        """Find the leases of this start that no result of this turn ends."""
        self.found = [
            Grant.of(job)
            for job in kernel.jobs.values()
            if job.state == State.RUNNING and job.lease_holder == self.holder and job.lease_id not in self.results
        ]


def _refusing(envelope: bytes, fault: str) -> Judge:
    """The judgement about a report with such a fault; its digest is kept in the log of decisions (X-157)."""
    refusal = Refused("REPORT_INVALID", f"the report's {fault}", {"result_digest": sha256(envelope)})
    return lambda _kernel: refusal
