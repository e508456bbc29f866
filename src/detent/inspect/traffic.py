"""A recorded ledger read as traffic: what came in at a partition, and how each attempt went.

The commands give arrivals, cancellations, orders and configurations; the records give the attempts, from the tick of their
dispatch to the tick of their end. What a simulation needs and the ledger does not say is estimated here, and counted, so
that it can be said:

- how long a job takes that never ran, or had not ended: the median of its kind;
- which workers could claim work, where no replica was registered: every lease holder, with as many places as it ever held
  leases at once, from its first lease to the end of its last. No worker leaves before another has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from detent.canon import NotCanonical, decode
from detent.canon.late import NamedTuple, dataclass
from detent.kernel import (
    Arrival,
    Cancel,
    Command,
    Heartbeat,
    KernelConfig,
    Manifest,
    Order,
    RaiseEpoch,
    RefusedManifest,
    Resume,
    Submit,
    decode_commands,
)
from detent.kernel import evidence as ev
from detent.kernel.table import State
from detent.ledger.items import BatchItem
from detent.ledger.loose import loose
from detent.scheduling.what_if import (
    EVICTED,
    REFUSED,
    STOPPED,
    Attempt,
    Came,
    Cancelled,
    Configured,
    Fate,
    Input,
    Ordered,
    Traffic,
    Work,
    WorkerCame,
    WorkerLeft,
)
from detent.words.states import FAILED, RETRYING, RUNNING, SUCCEEDED, WAITING, word_of

_STATES: Final = {state.value: word_of(state) for state in State} | {State.QUEUED.value: WAITING}


class _Submitted(NamedTuple):
    """An arrival whose job's attempts are not all known yet."""

    tick: int
    submit: Submit


@dataclass(slots=True)
class _Spell:
    """One attempt: from a dispatch to the end of its lease."""

    start: int
    replica_id: str
    lease_id: bytes
    exit: int | None = None
    end: str = SUCCEEDED
    kind: str = ev.RESULT
    delay_ticks: int = 0
    expiry: int = 0
    """When its lease would have run out, as it stood when the attempt ended."""
    progress: tuple[int, ...] = ()
    open_pool: bool = False


@dataclass(slots=True)
class _Life:
    """A job: what it brought, and its attempts."""

    manifest: Manifest
    came_tick: int
    fate: Fate | None = None
    """None: it was refused."""
    spells: list[_Spell] = field(default_factory=list)
    failures: int = 0
    interruptions: int = 0
    lease_ticks: int = 0
    heartbeat_ticks: int = 0
    stopped_tick: int | None = None
    """When its worker confirmed that it no longer runs."""
    settled: bytes | None = None


@dataclass(slots=True)
class _Beats:
    last: int = 0
    progress: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Worker:
    first: int
    last: int = 0
    held: int = 0
    slots: int = 0


@dataclass(slots=True)
class Estimates:
    """What had to be guessed, in numbers."""

    never_ran: int = 0
    unfinished: int = 0
    stopped: int = 0
    """Jobs that a limit ended: how long they would have run is unknown."""
    unknown: int = 0
    """Of the jobs that never ran, those for which no other job gave a clue."""


class Recorder:
    """Reads one partition's batches, in order."""

    def __init__(self) -> None:
        self.configs: list[KernelConfig] = []
        self.estimates = Estimates()
        self.workers: dict[str, _Worker] = {}
        self._tick = 0
        self._lives: dict[str, _Life] = {}
        self._inputs: list[Input | _Submitted] = []
        self._beats: dict[bytes, _Beats] = {}
        self._registered: set[str] = set()

    def batch(self, item: BatchItem) -> None:
        """Take in the next batch."""
        for command in decode_commands(item.commands):
            self._tick = max(self._tick, command.tick)
            self._command(command)
        for body, evidence in item.records:
            fields = loose(body)
            if isinstance(fields, dict):
                self._record(fields, evidence)

    def fates(self) -> dict[str, Fate]:
        """How every job ended, by its records."""
        return {
            job_id: life.fate or Fate(job_id, life.manifest.priority, life.came_tick, REFUSED)
            for job_id, life in self._lives.items()
        }

    def traffic(self) -> Traffic:
        """All that came in, with what had to be estimated filled in."""
        self.estimates = Estimates(
            stopped=sum(life.fate is not None and life.fate.state == STOPPED for life in self._lives.values())
        )
        typical = _Typical(self._lives.values())
        attempts = {job_id: self._attempts(life, typical) for job_id, life in self._lives.items()}
        inputs: list[Input] = list(_workers(self.workers))
        for came in self._inputs:
            if type(came) is not _Submitted:
                inputs.append(came)  # type: ignore[arg-type]
            elif (work := self._work(came.submit, attempts)) is not None:
                inputs.append(Came(came.tick, work))
        # A worker that comes at a tick is there for what else happens at it: they stand first, and sorting keeps that.
        inputs.sort(key=lambda one: one.tick)
        return Traffic(self.configs[0] if self.configs else KernelConfig(), tuple(inputs))

    # -- commands ------------------------------------------------------------------------------------------------------

    def _command(self, command: Command) -> None:
        tick = self._tick
        if type(command) is Submit and not isinstance(command.manifest, RefusedManifest):
            manifest = command.manifest.manifest
            known = self._lives.get(manifest.job_id)
            if known is None or known.fate is None:
                self._lives[manifest.job_id] = _Life(manifest, tick)
            self._inputs.append(_Submitted(tick, command))
        elif type(command) is Cancel:
            life = self._lives.get(command.job_id)
            # One that expects a sequence may have been refused for that; if it was not, its record says so.
            own = life is not None and command.tenant_id == life.manifest.tenant_id
            if own and command.expected_transition_seq is None:
                self._inputs.append(Cancelled(tick, command.job_id))
        elif type(command) is Order:
            self._order(command, tick)
        elif type(command) is Heartbeat:
            beats = self._beats.setdefault(command.lease_id, _Beats())
            beats.last = max(beats.last, command.tick)
            if command.progress:
                beats.progress.append(tick)
        elif type(command) is Resume:
            for _, lease_id, *_named in command.beats:
                beats = self._beats.setdefault(lease_id, _Beats())
                beats.last = max(beats.last, tick)
        elif type(command) is RaiseEpoch:
            self.configs.append(KernelConfig.decode(command.config))
            self._inputs.append(Configured(tick, self.configs[-1]))

    def _order(self, order: Order, tick: int) -> None:
        """Orders about a job belong to its own time, not to the clock: its slot, and what it used, come with its end."""
        try:
            fields = decode(order.data)
        except NotCanonical:
            return  # Refused then, and would be again.
        life = self._lives.get(fields.get("job_id")) if isinstance(fields, dict) else None  # type: ignore[arg-type]
        if order.name == "job_stopped":
            if life is not None and life.stopped_tick is None:
                life.stopped_tick = tick
            return
        if order.name == "session_settle" and life is not None:
            life.settled = order.data
            return
        if order.name == "replica_register" and isinstance(fields, dict):
            self._registered.add(_replica_id(fields))
        self._inputs.append(Ordered(tick, order.name, order.data))

    # -- records -------------------------------------------------------------------------------------------------------

    def _record(self, fields: dict[str, Any], evidence: bytes | None) -> None:
        kind = fields.get("kind")
        life = self._lives.get(fields.get("job_id", ""))
        if life is None:
            return
        if kind == "submitted":
            life.fate = Fate(fields["job_id"], life.manifest.priority, fields["tick"])
        elif kind == "transition" and life.fate is not None:
            self._transition(life, life.fate, fields, loose(evidence or b"") or {})

    def _transition(self, life: _Life, fate: Fate, fields: dict[str, Any], evidence: dict[str, Any]) -> None:
        tick, to_state = fields["tick"], fields["to_state"]
        if to_state == State.RUNNING and fields["dispatch"]:
            self._dispatched(life, fate, tick, str(evidence.get("replica_id")), fields["lease_id"])
        elif fields["from_state"] == State.RUNNING and fate.state == RUNNING:
            self._left(life, tick, to_state, str(evidence.get("kind")))
        fate.state = _STATES[to_state] if to_state != State.RUNNING or fields["dispatch"] else fate.state
        if to_state == State.CANCELED:
            fate.reason = fields["reason_code"]
            if fate.reason in ev.EVICTIONS:
                fate.state = EVICTED
            elif evidence.get("kind") == ev.CANCEL:
                self._inputs.append(Cancelled(tick, fate.job_id))
        elif to_state == State.FAILED and evidence.get("kind") == ev.WATCHDOG:
            fate.state, fate.reason = STOPPED, fields["reason_code"]

    def _dispatched(self, life: _Life, fate: Fate, tick: int, replica_id: str, lease_id: bytes) -> None:
        if fate.started_tick is None:
            fate.started_tick = tick
        fate.replicas.append(replica_id)
        policy = self.configs[-1].leases.get(life.manifest.lease_policy_id) if self.configs else None
        if policy is not None:
            life.lease_ticks, life.heartbeat_ticks = policy.lease_ttl_ticks, policy.heartbeat_extension_ticks
        spell = _Spell(tick, replica_id, lease_id, open_pool=replica_id not in self._registered)
        life.spells.append(spell)
        if spell.open_pool:
            worker = self.workers.setdefault(replica_id, _Worker(tick))
            worker.held += 1
            worker.slots = max(worker.slots, worker.held)

    def _left(self, life: _Life, tick: int, to_state: str, kind: str) -> None:
        spell = life.spells[-1]
        beats = self._beats.pop(spell.lease_id, _Beats())
        spell.exit, spell.kind = tick, kind
        spell.end = {"SUCCEEDED": SUCCEEDED, "RETRYING": RETRYING}.get(to_state, FAILED)
        spell.expiry = max(spell.start + life.lease_ticks, beats.last + life.heartbeat_ticks if beats.last else 0)
        spell.progress = tuple(max(0, said - spell.start) for said in beats.progress)
        config = self.configs[-1] if self.configs else KernelConfig()
        if to_state == State.RETRYING and kind in ev.INTERRUPTIONS:
            spell.delay_ticks = config.interruption_ticks(life.interruptions)
            life.interruptions += 1
        elif to_state == State.RETRYING:
            if life.manifest.backoff_schedule_id in config.backoffs:
                spell.delay_ticks = config.backoff_ticks(life.manifest.backoff_schedule_id, life.failures)
            life.failures += 1
        if spell.open_pool:
            worker = self.workers[spell.replica_id]
            worker.held -= 1
            worker.last = tick

    # -- the whole -----------------------------------------------------------------------------------------------------

    def _work(self, submit: Submit, attempts: Mapping[str, tuple[Attempt, ...]]) -> Work | None:
        manifest = submit.manifest.manifest  # type: ignore[union-attr]
        life = self._lives[manifest.job_id]
        config = self.configs[-1] if self.configs else KernelConfig()
        if life.fate is None and manifest.policy_fault(config) is not None:
            return None  # Not the scheduler's refusal: no scheduling policy would have let it in.
        arrival = Arrival(
            manifest.job_id,
            manifest.priority,
            manifest.job_kind,
            manifest.may_be_evicted,
            manifest.pool_pin,
            submit.request,
            tenant_id=manifest.tenant_id,
        )
        lease = config.leases.get(manifest.lease_policy_id)
        lease_ticks = life.lease_ticks or (0 if lease is None else lease.lease_ttl_ticks)
        return Work(arrival, attempts[manifest.job_id], lease_ticks, life.settled)

    def _attempts(self, life: _Life, typical: _Typical) -> tuple[Attempt, ...]:
        made = [_attempt(life, spell) for spell in life.spells if spell.exit is not None]
        if made and made[-1].end != RETRYING and life.spells[-1].exit is not None:
            return tuple(made)
        estimate = typical.ticks(life.manifest.job_kind)
        if not life.spells:
            self.estimates.never_ran += 1
            self.estimates.unknown += estimate is None
        else:
            self.estimates.unfinished += 1
            last = life.spells[-1]
            seen = self._tick - last.start if last.exit is None else last.exit - last.start
            estimate = max(seen, estimate or 0) if last.exit is None else seen
        return (*made, Attempt(estimate or 0, SUCCEEDED))


def _attempt(life: _Life, spell: _Spell) -> Attempt:
    assert spell.exit is not None
    hold_ticks: int | None = None
    if spell.kind in ev.CUT_SHORT:
        freed = spell.expiry
        if life.stopped_tick is not None and life.stopped_tick >= spell.exit:
            freed = min(freed, life.stopped_tick)
        hold_ticks = max(0, freed - spell.exit)
    # Cancelling a running job does not wait for its end, so when that was is not known.
    ticks = None if spell.kind == ev.CANCEL else spell.exit - spell.start
    return Attempt(ticks, spell.end, spell.delay_ticks, hold_ticks, spell.progress)


class _Typical:
    """How long jobs take: the median of the attempts that ended by themselves, by kind of job."""

    def __init__(self, lives: Iterable[_Life]) -> None:
        found: dict[str | None, list[int]] = {}
        for life in lives:
            for spell in life.spells:
                if spell.exit is not None and spell.kind == ev.RESULT:
                    for kind in (life.manifest.job_kind, None):
                        found.setdefault(kind, []).append(spell.exit - spell.start)
        self._medians = {kind: sorted(ticks)[(len(ticks) - 1) // 2] for kind, ticks in found.items()}

    def ticks(self, job_kind: str) -> int | None:
        """Of this kind; of any where none of this kind ended, and None where none did at all."""
        return self._medians.get(job_kind, self._medians.get(None))


def _workers(workers: dict[str, _Worker]) -> Iterator[WorkerCame | WorkerLeft]:
    """Who claimed work in the open pool, and when he was there."""
    events = [(worker.first, 0, name) for name, worker in workers.items()]
    events += [(worker.last, 1, name) for name, worker in workers.items() if not worker.held]
    present = 0
    last: str | None = None
    for tick, leaves, name in sorted(events):
        if leaves and present == 1:
            last = name
        elif leaves:
            present -= 1
            yield WorkerLeft(tick, name)
        else:
            yield WorkerCame(tick, name, workers[name].slots)
            present += 1
            if last is not None:
                yield WorkerLeft(tick, last)
                present, last = present - 1, None


def _replica_id(fields: dict[Any, Any]) -> str:
    replica = fields.get("replica")
    placement = replica.get("placement") if isinstance(replica, dict) else None
    return str(placement.get("replica_id")) if isinstance(placement, dict) else ""
