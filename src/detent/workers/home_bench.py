"""The bench of a home on this machine: the owner is asked directly or over its socket, and the ledger is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from detent.errors import DetentError, Refused
from detent.jobs.order import Order
from detent.kernel import Claim, Command, Finish, Grant, Heartbeat, Job, QuotaPolicy
from detent.kernel.history import Record
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.kernel.quota import left_of
from detent.kernel.table import TERMINAL, State
from detent.owner.backend import Backend, Reported
from detent.owner.routing import Pieces
from detent.owner.session import ask_again
from detent.owner.socket_messages import Answer
from detent.reuse.witness import Witnessed
from detent.workers.action_leases import ActionLeases
from detent.workers.bench import Allowance, Attempted, Closing, Inputs, Listener, Settled
from detent.workers.claim_ahead import ClaimAhead, given_up
from detent.workers.identity import is_gone, worker_identity
from detent.workers.reports import Attempt, Reporter, closing_command

BEATS_PER_LEASE: Final = 3
ANSWER_SECONDS: Final = 0.05
"""How long a caller that drives waits for an answer although its own time is over."""
_IN_QUEUE: Final = b"kretry_ready"
"""How evidence of a job's return to the queue is written: a text of eleven bytes."""
_DISPATCH: Final = b"hdispatch"


def ends_attempt(record: Record) -> bool:
    """Whether a record may be the end of an attempt; evidence is looked at as bytes, because that is cheap."""
    return record.kind == "transition" and _DISPATCH not in (record.evidence or b"")


def news_of(records: Sequence[Record]) -> tuple[int, list[tuple[str, bool]]]:
    """How many jobs have come into the queue and are still there, and which have moved, each with whether an attempt may be over."""
    queued: set[str | None] = set()
    moved: list[tuple[str, bool]] = []
    for record in records:
        job_id, evidence = record.job_id, record.evidence or b""
        if record.kind == "submitted" or _IN_QUEUE in evidence:
            queued.add(job_id)  # Also if it is the very job that is being given back: it is in the queue again.
        elif job_id in queued and _DISPATCH in evidence:
            queued.discard(job_id)  # Another supervisor has it already.
        elif job_id is not None:
            moved.append((job_id, ends_attempt(record)))
    return len(queued), moved


def limiting_quotas(backend: Backend) -> dict[bytes, QuotaPolicy]:
    """The quotas that limit something, by hash; one that the settings have dropped is still decided by the kernel."""
    return {quota.hash(): quota for quota in backend.policies.quotas.values() if quota != UNLIMITED_QUOTA}


def allowance_of(
    backend: Backend, grant: Grant, order: Order, quotas: Mapping[bytes, QuotaPolicy] | None = None
) -> Allowance:
    """What an attempt may use of its job's budgets, and, of an array, what earlier attempts came to."""
    policy = (limiting_quotas(backend) if quotas is None else quotas).get(grant.quota_policy_hash)
    row = backend.reader.job(grant.job_id) if policy is not None or order.elements else None
    if row is None:
        return Allowance()
    job = Job.read(row.body)
    left = None if policy is None else left_of(job.usage, policy)
    if not order.elements:
        return Allowance(left)
    found = backend.array_report(grant.job_id) if grant.attempt_id else None
    return Allowance(left, None if found is None else found[1].carried(), frozenset(job.retry_categories))


class HomeBench:
    """A home, as its supervisor sees it."""

    def __init__(
        self,
        backend: Backend,
        *,
        witness: Callable[[Order, float], Witnessed],
        rouse: Callable[[], None],
        look: Callable[[], None],
        on_refused: Callable[[Refused], None] = lambda _refusal: None,
    ) -> None:
        """``rouse`` has the supervisor take what was leased for it, ``look`` has it look into the queue."""
        self.identity = str(worker_identity(backend.random(4).hex()))
        self.session = backend.session
        self.turn = backend.turn
        self.now_ms = backend.now_ms
        self.witness = witness
        self.reporter = Reporter(backend, self.identity)
        self.claim_ahead = ClaimAhead(backend.session, self.identity, rouse=rouse, look=look, on_refused=on_refused)
        self.beat_seconds = {
            name: min(policy.lease_ttl_ticks, policy.heartbeat_extension_ticks) / 1000 / BEATS_PER_LEASE
            for name, policy in backend.policies.leases.items()
        }
        self.offer, self.free, self.withdraw = self.claim_ahead.offer, self.claim_ahead.free, self.claim_ahead.withdraw
        self.granted, self.has_news, self.cut_short = (
            self.claim_ahead.granted,
            self.claim_ahead.has_news,
            self.claim_ahead.lose,
        )
        self.stopping = threading.Event()
        """Ends the wait for an owner that does not answer."""
        self._backend = backend
        self._quotas = limiting_quotas(backend)
        self._action_leases = ActionLeases(lambda: backend.reader)

    def attach(self, listener: Listener) -> Callable[[], None]:
        """Tell the supervisor what is committed from now on."""
        return self.session.observe(partial(self._observe, listener))

    def _observe(self, listener: Listener, records: Sequence[Record]) -> None:
        """Called after commits, on the thread that made them."""
        queued, moved = news_of(records)
        if moved or queued:
            listener.hear(moved, queued=bool(queued))

    # -- work ----------------------------------------------------------------------------------------------------------

    def order(self, grant: Grant) -> Order:
        """What a job has to do."""
        return self._backend.order(grant.payload_digest)

    def inputs(self, grant: Grant, order: Order) -> Inputs:
        """The values that an order names, and its action, checked."""
        action = self._action_leases.held(grant.run_id, order.origin.action)
        return Inputs(action, {named: self._backend.result_value(named) for named in dict.fromkeys(order.results())})

    def allowance(self, grant: Grant, order: Order) -> Allowance:
        """What the attempt may use of its job's budgets, and, of an array, what earlier attempts came to."""
        return allowance_of(self._backend, grant, order, self._quotas)

    def sign(self, attempts: Sequence[Attempt]) -> list[Reported]:
        """Sign the outcomes of attempts with the home's own key."""
        return self.reporter.report(attempts)

    # -- the ledger ----------------------------------------------------------------------------------------------------

    def settle(self, closing: Sequence[Closing], wanted: int, until: float | None) -> Settled:
        """Close attempts and claim more, in one commit."""
        commands, content = _asked_by(closing)
        may_be_more = False
        if wanted:
            commands.append(Claim(0, self.identity, wanted))

        def again() -> None:
            nonlocal may_be_more
            if wanted:
                # The answer that granted leases may be lost: they are there all the same, and the next step finds them.
                self.claim_ahead.lose()
                commands[-1] = Claim(0, self.identity, 1)
                may_be_more = True

        answers = self._ask(commands, content, until, again)
        attempted = self._attempted(closing, answers)
        if not wanted:
            return Settled(attempted)
        grants = self.claim_ahead.hear(answers[-1])
        self.claim_ahead.leased(grants)
        return Settled(attempted, grants, may_be_more or len(grants) == wanted)

    def post(self, closing: Sequence[Closing]) -> Callable[[], list[Attempted | None]]:
        """Have attempts closed together with the next request of this thread; returns how to take the answers."""
        answers = self.session.post(*_asked_by(closing))
        return lambda: self._attempted(closing, answers())

    def beat(self, grants: Sequence[Grant], until: float | None) -> Sequence[bool]:
        """Extend leases, in one commit."""
        answers = self._ask([Heartbeat(0, grant.job_id, grant.lease_id) for grant in grants], None, until)
        return [answer.refusal is None for answer in answers]

    def in_force(self, grant: Grant) -> bool:
        """Whether the ledger has this lease as the job's own."""
        row = self._backend.reader.job(grant.job_id)
        return row is not None and row.state == State.RUNNING and Job.decode(row.body).lease_id == grant.lease_id

    def lost(self, held: Container[bytes]) -> Sequence[Grant]:
        """What was leased by claims whose answers were lost: all that this supervisor has, but does not hold."""
        if not self.claim_ahead.lost():
            return ()
        try:
            grants = self.session.grants(self.identity)
        except DetentError:
            self.claim_ahead.lose()  # The next step asks again.
            return ()
        return [grant for grant in grants if grant.lease_id not in held]

    def ended(self, job_id: str) -> Attempted | None:
        """How a job ended without us: those who wait leave it to us to tell, as long as we hold it."""
        row = self._backend.reader.job(job_id)
        if row is None or row.state not in TERMINAL:
            return None
        digest, report = self._backend.report_of(job_id) or (None, None)
        return Attempted(job_id, row.state, digest, report)

    def release_orphans(self, held: Container[str], until: float | None) -> bool:
        """End the leases of workers that are provably gone, so that their jobs need not wait for the leases' end."""
        commands: list[Command] = []
        for row in self._backend.reader.jobs(state=State.RUNNING.value):
            if row.job_id in held:
                continue
            job = Job.decode(row.body)
            if job.lease_holder and job.lease_id and is_gone(job.lease_holder):
                commands.append(
                    Finish(0, job.job_id, job.lease_id, kind="worker_lost", ok=False, reason_code="WORKER_LOST")
                )
        if commands:
            self._ask(commands, None, until)
        return bool(commands)

    def close(self, grants: Sequence[Grant]) -> None:
        """Give leases up, and lease nothing more."""
        if left := given_up([*grants, *self.claim_ahead.close()]):
            with suppress(DetentError):  # Then the next supervisor finds that this process is gone.
                self.session.ask(left)

    def _ask(
        self,
        commands: Sequence[Command],
        content_of: Sequence[Pieces] | None,
        until: float | None,
        before_again: Callable[[], None] = lambda: None,
    ) -> Sequence[Answer]:
        """Have commands decided; what may or may not have been done is asked for again, which is safe (X-173)."""
        # A caller that drives has to be back in time, and leaves it to the supervisor's thread to ask again.
        return ask_again(
            self.session,
            lambda: self.session.ask(
                commands,
                content_of=content_of,
                timeout=None if until is None else max(ANSWER_SECONDS, until - time.monotonic()),
            ),
            self.stopping,
            before_again=before_again,
            once=until is not None,
        )

    def _attempted(self, closing: Sequence[Closing], answers: Sequence[Answer]) -> list[Attempted | None]:
        return [self._became(one, answer) for one, answer in zip(closing, answers, strict=False)]

    def _became(self, closed: Closing, answer: Answer) -> Attempted | None:
        """Where a job stands after its attempt. After a refused report the ledger says it."""
        job_id, reported = closed.grant.job_id, closed.reported
        if answer.refusal is not None or answer.job is None:
            return self.ended(job_id)
        if reported is None or not answer.ok:
            return Attempted(job_id, answer.job.state, None, None)
        return Attempted(job_id, answer.job.state, reported.digest, reported.report)


def _asked_by(closing: Sequence[Closing]) -> tuple[list[Command], list[Pieces]]:
    """The commands that close some attempts, one for each, and the content that goes with each."""
    commands: list[Command] = [closing_command(one.grant, one.result, one.reported) for one in closing]
    return commands, [() if one.reported is None else one.reported.inline for one in closing]
