"""What a worker on another machine asks for in one turn, decided in one commit.

The worker only says what happened. The commands are made here, within the owner's turn, in the name of the one start of the worker whose
key signed the request: a report closes its attempt as any report does (JOB-083), an end without a report and a heartbeat count
for leases of that very start only, and a claim is for the workspaces of its certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from detent.errors import Refused
from detent.kernel import Claim, Command, Finish, Grant, Heartbeat, Kernel
from detent.kernel.evidence import REASON_WORKER_LOST
from detent.kernel.table import State
from detent.owner.socket_messages import Answer
from detent.owner.turn import Judge, Judged

OK: Final = "OK"
LEASE_INVALID: Final = "LEASE_INVALID"
_KINDS: Final = {"WORKER_LOST": "worker_lost"}


class Report(NamedTuple):
    """A signed report, as it is judged."""

    lease_id: bytes
    judge: Judge
    job_id: str = ""
    """As far as it can be read: what cannot is refused by any partition."""


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
    """One turn. Make it, hand `judge` to the owner, then `read` the answers."""

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

    def judge(self, kernel: Kernel) -> Judged:
        """The commands of this turn, from what stands now."""
        commands: list[Command] = []
        refusals: list[Refused] = []
        self.results, self.gone, self.found, self._places = {}, [], [], []
        if self.recovers:
            commands += self._given_up(kernel)
            self._places += [None] * len(commands)
        for report in self.reports:
            self._report(kernel, report, commands, refusals)
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

    def _report(self, kernel: Kernel, report: Report, commands: list[Command], refusals: list[Refused]) -> None:
        judged = report.judge(kernel)
        if isinstance(judged, Refused):
            refusals.append(judged)
            self.results[report.lease_id] = judged.code
            return
        made = judged.commands if isinstance(judged, Judged) else judged
        for command in made[:-1]:
            self._add(commands, command, None)
        self._add(commands, made[-1], report.lease_id)

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
