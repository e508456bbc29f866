"""The bench of a worker on another machine: leases, orders and inputs come by turns, and reports go with them.

What the supervisor settles is handed to the outbox, which keeps it until the server has answered; the next job can begin meanwhile. The
leases of a worker are those that the server granted and that neither ended nor were revoked. Each is counted on this machine's own
monotonic clock, from the *sending* of the last turn that was answered and named it: when that time is over, the worker ends what runs
under it before the server may grant the job elsewhere (self-fencing).
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from detent.access.certificate import replica_of
from detent.access.turn import LEASES_MAX, LOGS_MAX, PROTOCOL, PROTOCOLS, Answer, Beat, Ended, Granted, Turn
from detent.canon import SigningKey, decode_trusted, sha256
from detent.canon.grammar import CPU
from detent.errors import DetentError, InvalidInput
from detent.executor.own_targets import needs_home
from detent.jobs.order import Order
from detent.jobs.source_tree import place_below, tree_of
from detent.jobs.work import VALUE_INLINE_BYTES_MAX, Result, WorkReport
from detent.kernel import Grant, QuotaPolicy
from detent.ledger import sign_results
from detent.owner.backend import Inline, RandomBlocks, Reported
from detent.remote.outbox import Outbox, Outgoing
from detent.remote.output import SentOutput, printed_since
from detent.reuse.witness import CodeWitness, Witnessed
from detent.store.api import CONTENT_INLINE_BYTES_MAX
from detent.store.content import ContentFiles
from detent.store.trees import DIRECTORY as TREES
from detent.version import __version__
from detent.workers.bench import Allowance, Attempted, Closing, Inputs, Listener, Settled
from detent.workers.reports import Attempt, Reporter
from detent.workers.resources import feasible_fault
from detent.workflow.vocabulary import LeaseExpiredError

SEEN_MAX: Final = 10_000
"""Leases remembered, so that a grant that is told twice is begun once."""
FENCE_SHARE: Final = 5 / 6
"""How much of a lease may be counted on after an answered turn: the server extends it when a sixth has passed."""
FENCE_SECONDS_MAX: Final = 3.0
"""How long before that what runs is ended: children need a moment to go."""
NEVER: Final = 3600.0
"""Seconds between heartbeats of the supervisor, which need not send any: each turn extends all leases."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a worker says of itself, and where its jobs run."""

    slots: int
    kinds: frozenset[str]
    """The kinds of orders that can run here."""
    project: Path
    """Where the code of jobs is that bring none."""
    work: Path
    """Where content is cached and output is kept."""
    resources: Mapping[str, int] = field(default_factory=dict)
    pool: str | None = None
    labels: Sequence[str] = ()


@dataclass(slots=True)
class Held:
    """A lease, and what its attempt needs."""

    grant: Grant
    granted: Granted
    lease_seconds: float
    fence_at: float
    granted_ms: int
    """The server's time when it was told; the attempt begins later."""
    order: Order | None = None
    values: dict[str, bytes | Path] = field(default_factory=dict)
    earlier: WorkReport | None = None


class RemoteBench:
    """A server, as the supervisor of a worker elsewhere sees it. Safe for the supervisor's thread and those of the turns."""

    beat_seconds: Mapping[str, float] = {"": NEVER}
    """Turns extend the leases; the supervisor need not."""

    def __init__(self, worker_id: str, key: SigningKey, files: ContentFiles, machine: Machine) -> None:
        self.boot = os.urandom(8).hex()
        self.identity = replica_of(worker_id, self.boot)
        self.files = files
        self.turn: AbstractContextManager[bool] = nullcontext(enter_result=False)
        self.changed = threading.Condition()
        """Notified when there is something to tell the server, and guards everything below."""
        self.outbox = Outbox()
        self.output = SentOutput(machine.work)
        self.protocol = PROTOCOL
        self.leases: dict[bytes, Held] = {}
        self.vacant = 0
        self.is_draining = False
        self.random = RandomBlocks()
        self.reporter = Reporter(self, self.identity)
        self._key = key
        self._machine = machine
        self.work = machine.work
        self._witness = CodeWitness()
        self._granted: deque[Grant] = deque()
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._listener: Listener | None = None
        self._number = 0
        self._behind_ms = 0
        """What this machine's clock lacks of the server's."""

    # -- for the supervisor ----------------------------------------------------------------------------------------------

    def attach(self, listener: Listener) -> Callable[[], None]:
        """Tell the supervisor of grants and of leases that are gone."""
        self._listener = listener
        return lambda: None

    def now_ms(self) -> int:
        """The time, as far as possible that of the server: this machine's clock may be wrong by days."""
        return time.time_ns() // 1_000_000 + self._behind_ms

    def offer(self, vacant: int) -> None:
        """Ask for as many jobs with the next turn."""
        with self.changed:
            wanted = max(0, vacant - len(self._granted))
            if wanted != self.vacant:
                self.vacant = wanted
                self.changed.notify_all()

    def free(self, vacant: int) -> int:  # noqa: ARG002 - turns claim
        """None: the turns claim."""
        return 0

    withdraw = free

    def granted(self) -> Sequence[Grant]:
        """What has come and can begin."""
        if not self._granted:
            return ()
        with self.changed:
            granted = list(self._granted)
            self._granted.clear()
        return granted

    def lost(self, held: Container[bytes]) -> Sequence[Grant]:  # noqa: ARG002 - turns find them
        """None: a lease that is not named is granted again by the server."""
        return ()

    def has_news(self) -> bool:
        """Whether something has come."""
        return bool(self._granted)

    def cut_short(self) -> None:
        """Nothing is lost here by a step that was cut short."""

    def order(self, grant: Grant) -> Order:
        """What a job has to do; raises what the server found that keeps it from beginning."""
        held = self._held(grant)
        if held.granted.refusal is not None:
            category, code, message = held.granted.refusal
            if category == "VALIDATION_ERROR":
                raise LeaseExpiredError(message)
            raise DetentError(message, code=code)
        if held.order is None:
            raise InvalidInput("the order did not arrive")
        return held.order

    def inputs(self, grant: Grant, order: Order) -> Inputs:  # noqa: ARG002 - fetched with the grant
        """The values that the order names."""
        return Inputs(None, self._held(grant).values)

    def allowance(self, grant: Grant, order: Order) -> Allowance:
        """What the attempt may use, as the server says it."""
        held = self._held(grant)
        left = None if held.granted.left is None else _quota(held.granted.left)
        if not order.elements:
            return Allowance(left)
        earlier = None if held.earlier is None else held.earlier.carried()
        return Allowance(left, earlier, frozenset(held.granted.retried))

    def witness(self, order: Order, since: float) -> Witnessed:
        """What an attempt ran in, by the code that is here."""
        return self._witness.witness(order, since)

    def sign(self, attempts: Sequence[Attempt]) -> list[Reported]:
        """Sign the outcomes of attempts with the worker's own key, their times by the server's clock."""
        return self.reporter.report([(attempt[0], self._timed(*attempt[:2]), *attempt[2:]) for attempt in attempts])

    def _timed(self, grant: Grant, result: Result) -> Result:
        """A result whose times lie between its grant and now by the server's clock, however wrong the clock was that took them."""
        held = self.leases.get(grant.lease_id)
        now = self.now_ms()
        first = min(now, 0 if held is None else held.granted_ms)

        def timed(taken_ms: int) -> int:
            return min(now, max(first, taken_ms + self._behind_ms)) if taken_ms else 0

        elements = result.elements
        if elements is not None:
            own = range(result.started_ms, result.finished_ms + 1)  # The others are those of attempts before.
            elements = replace(elements, started_ms=[timed(one) if one in own else one for one in elements.started_ms])
        started_ms, finished_ms = timed(result.started_ms), timed(result.finished_ms)
        return replace(result, started_ms=started_ms, finished_ms=finished_ms, elements=elements)

    def settle(self, closing: Sequence[Closing], wanted: int, until: float | None) -> Settled:  # noqa: ARG002
        """Hand reports to the outbox; the next turn brings them."""
        with self.changed:
            for closed in closing:
                lease_id = closed.grant.lease_id
                if closed.reported is None or closed.result.lost:
                    self.outbox.end(Ended(closed.grant.job_id, lease_id, "WORKER_LOST"))
                else:
                    self.outbox.report(self._outgoing(lease_id, closed.reported))
            self.vacant += len(closing)
            self.changed.notify_all()
        return Settled([None] * len(closing))

    def beat(self, grants: Sequence[Grant], until: float | None) -> Sequence[bool]:  # noqa: ARG002 - turns do
        """Nothing to do: each turn names every lease."""
        return [self.in_force(grant) for grant in grants]

    def in_force(self, grant: Grant) -> bool:
        """Whether a lease counts here."""
        return grant.lease_id in self.leases

    def ended(self, job_id: str) -> Attempted | None:  # noqa: ARG002 - no caller waits here
        """Unknown here."""
        return None

    def release_orphans(self, held: Container[str], until: float | None) -> bool:  # noqa: ARG002 - the server's
        """The server's business."""
        return False

    def close(self, grants: Sequence[Grant]) -> None:
        """Give leases up with the last turn; those attempts count as interrupted."""
        with self.changed:
            for grant in (*grants, *self._granted):
                self.outbox.end(Ended(grant.job_id, grant.lease_id, "INTERRUPTED"))
            self._granted.clear()
            self.is_draining = True
            self.changed.notify_all()

    # -- what reports are made of ----------------------------------------------------------------------------------------

    def store(self, data: bytes) -> tuple[bytes, Inline]:
        """Bytes that a report names: they go with it, or are kept here until they are sent."""
        digest = sha256(data)
        if len(data) <= CONTENT_INLINE_BYTES_MAX:
            return digest, ((digest, data),)
        self.files.put(data, digest=digest)
        return digest, ()

    def stored_value(self, value: bytes | None) -> tuple[bytes | None, bytes | None, Inline]:
        """A value where it belongs: in the report, or as content of its own."""
        if value is None or len(value) <= VALUE_INLINE_BYTES_MAX:
            return value, None, ()
        digest, inline = self.store(value)
        return None, digest, inline

    def sign_together(self, reports: Sequence[tuple[WorkReport, bytes]]) -> list[Reported]:
        """Sign reports with the worker's key; one signature covers them all."""
        signed = sign_results([body for _, body in reports], self._key)
        envelopes = [result.envelope() for result in signed]
        return [
            Reported(sha256(envelope), report, ((sha256(envelope), envelope),))
            for (report, _), envelope in zip(reports, envelopes, strict=True)
        ]

    def _outgoing(self, lease_id: bytes, reported: Reported) -> Outgoing:
        inline = dict(reported.inline)
        envelope = inline.pop(reported.digest)
        files = [digest for digest in dict.fromkeys(reported.report.contents()) if digest not in inline]
        return Outgoing(lease_id, envelope, tuple(inline.values()), tuple(files))

    # -- for the turns ---------------------------------------------------------------------------------------------------

    def compose(self, wait_ms: int, now_ms: int) -> Turn:
        """The next turn, with everything that no turn under way brings. The caller holds `changed`."""
        reports, ends = self.outbox.take()
        self._number = max(self._number + 1, now_ms)
        brought = {report.lease_id for report in reports} | {end.lease_id for end in ends}
        content = {sha256(piece): piece for report in reports for piece in report.content}
        return Turn(
            self.boot,
            self._number,
            0 if self.is_draining or self.outbox.is_full else min(256, self.vacant, LEASES_MAX - len(self.leases)),
            wait_ms,
            self.is_draining,
            tuple(
                Beat(held.grant.job_id, lease_id) for lease_id, held in self.leases.items() if lease_id not in brought
            ),
            tuple((report.lease_id, report.envelope) for report in reports),
            tuple(content.values()),
            tuple(ends),
            self.output.take(),
            slots=self._machine.slots,
            version=__version__,
            resources=dict(self._machine.resources),
            pool=self._machine.pool,
            labels=tuple(sorted(set(self._machine.labels))),
            protocol=self.protocol,
        )

    def renumber(self, last: int) -> None:
        """Go on behind a number that the server has seen."""
        with self.changed:
            self._number = max(self._number, last)

    def not_sent(self, turn: Turn) -> None:
        """Bring what a turn would have brought with a later one."""
        with self.changed:
            self.outbox.back(_brought(turn))
            self.output.not_sent()
            self.changed.notify_all()

    def speak_older(self) -> bool:
        """Go on in the version of the protocol before this one; False where that is spoken already."""
        with self.changed:
            if self.protocol == min(PROTOCOLS):
                return False
            self.protocol -= 1
            return True

    def follow_output(self) -> bool:
        """Have what watched jobs have printed go with the next turn; whether there was anything."""
        with self.changed:
            jobs = {
                lease_id: held.grant.job_id
                for lease_id, held in self.leases.items()
                # Of an array only the call at hand could be seen.
                if held.order is not None and not held.order.elements
            }
            if not self.output.is_asked or self.output.has_fresh:
                return False
        progress = self.output.read_progress(jobs)[: LOGS_MAX // 2]
        logs = [*progress, *printed_since(self.output.read(jobs), LOGS_MAX - len(progress))]
        with self.changed:
            self.output.add([log for log in logs if log.lease_id in self.leases])
            if logs:
                self.changed.notify_all()
        return bool(logs)

    def take_in(self, turn: Turn, answer: Answer, sent_at: float) -> tuple[list[Held], list[Outgoing]]:
        """Take in an answer; gives the leases whose needs are to be fetched, and reports whose files are to be sent first."""
        results = dict(answer.results)
        unsent = [lease_id for lease_id, code in results.items() if code == "CONTENT_MISSING"]
        with self.changed:
            self.outbox.done([lease_id for lease_id in _brought(turn) if lease_id not in unsent])
            for lease_id in _brought(turn):
                if lease_id not in unsent:
                    self.leases.pop(lease_id, None)
            named = {beat.lease_id for beat in turn.beats}
            for lease_id in named:
                if (held := self.leases.get(lease_id)) is not None:
                    held.fence_at = max(held.fence_at, fence_at(sent_at, held.lease_seconds))
            self._behind_ms = answer.now_ms - time.time_ns() // 1_000_000
            granted_at = sent_at + answer.waited_ms / 1_000
            begun = [
                held
                for granted in answer.grants
                if (held := self._begun(granted, granted_at, answer.now_ms)) is not None
            ]
            self.vacant = max(0, self.vacant - len(begun))
            self.output.watch(answer.watch)
            missing = [outgoing for lease_id in unsent if (outgoing := self.outbox.get(lease_id)) is not None]
            self.changed.notify_all()
        self.revoke([lease_id for lease_id, _ in answer.revoked])
        return begun, missing

    def _begun(self, granted: Granted, granted_at: float, now_ms: int) -> Held | None:
        """A lease that is new here; None for one that was told before, or that came so late that its time is over."""
        grant = Grant(*granted.grant)
        lease_seconds = granted.lease_ms / 1_000
        until = fence_at(granted_at, lease_seconds)
        if grant.lease_id in self._seen or until <= time.monotonic():
            return None
        self._seen[grant.lease_id] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        held = self.leases[grant.lease_id] = Held(grant, granted, lease_seconds, until, now_ms)
        return held

    def fetched(
        self, held: Held, order: Order | None, values: dict[str, bytes | Path], earlier: bytes | None
    ) -> str | None:
        """Everything that an attempt needs is here: let it begin, or give it back and return why it is not for this worker."""
        code = None
        if order is not None:
            stays = needs_home(order.call)
            order = self._placed(order)
            held.order, held.values = order, values
            held.earlier = None if earlier is None else _report(earlier)
            if order.call.kind not in self._machine.kinds or stays:
                code = "KIND_UNSUPPORTED"
            elif feasible_fault(order.limits.resources, {CPU: self._machine.slots, **self._machine.resources}):
                code = "RESOURCES_SHORT" if self.protocol > 1 else "KIND_UNSUPPORTED"
            else:
                code = self._witness.mismatch(order, time.monotonic())
        if code is not None:
            self.give_back(held, code)
            return code
        with self.changed:
            if held.grant.lease_id in self.leases:
                self._granted.append(held.grant)
        if self._listener is not None:
            self._listener.hear((), queued=True)
        return None

    def _placed(self, order: Order) -> Order:
        """An order whose paths begin at its source tree, or at this worker's project where it brings none."""
        if tree_of(order.call.base) is None:
            return order.at(str(self._machine.project))
        return order.at(place_below(f"{self._machine.work / TREES}/", order.call.base))

    def give_back(self, held: Held, code: str) -> None:
        """End an attempt that did not begin here."""
        with self.changed:
            self.outbox.end(Ended(held.grant.job_id, held.grant.lease_id, code))
            self.vacant += 1
            self.changed.notify_all()

    def revoke(self, lease_ids: Sequence[bytes]) -> None:
        """Leases are gone: have the supervisor end what runs under them."""
        with self.changed:
            gone = [held for lease_id in lease_ids if (held := self.leases.pop(lease_id, None)) is not None]
        if gone and self._listener is not None:
            self._listener.hear([(held.grant.job_id, True) for held in gone], queued=False)

    def fence(self, now: float) -> float:
        """Give up the leases whose time is over; returns when to look again."""
        with self.changed:
            over = [lease_id for lease_id, held in self.leases.items() if held.fence_at <= now]
            over = [lease_id for lease_id in over if lease_id not in self.outbox.leases]
            left = [held.fence_at for lease_id, held in self.leases.items() if lease_id not in over]
        self.revoke(over)
        return min([max(at, now + 0.05) for at in left], default=now + 1.0)

    def _held(self, grant: Grant) -> Held:
        held = self.leases.get(grant.lease_id)
        if held is None:
            raise LeaseExpiredError("the lease is gone")
        return held


def fence_at(sent_at: float, lease_seconds: float) -> float:
    """Until when, on this machine's clock, a lease may be counted on that a turn sent then has named."""
    return sent_at + lease_seconds * FENCE_SHARE - min(FENCE_SECONDS_MAX, lease_seconds / 6)


def _brought(turn: Turn) -> list[bytes]:
    return [*(lease_id for lease_id, _ in turn.reports), *(end.lease_id for end in turn.ended)]


def _quota(said: Mapping[str, Any]) -> QuotaPolicy:
    try:
        return QuotaPolicy(**said)
    except TypeError as exc:
        raise InvalidInput("the server sent budgets that cannot be read") from exc


def _report(envelope: bytes) -> WorkReport:
    fields = decode_trusted(envelope)
    if not isinstance(fields, dict) or type(fields.get("body")) is not bytes:
        raise InvalidInput("a signed result is a map of body and sig")
    return WorkReport.read(fields["body"])
