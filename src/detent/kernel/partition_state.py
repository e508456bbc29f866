"""The state of one partition, and the steps in which it changes.

Handlers decide; what they decide is carried out here: a transition is built, recorded and counted, a job enters and leaves the
table, a timer is set. Nothing here knows which commands there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from heapq import heapify, heappop, heappush

from detent.canon import UINT64_MAX, add_uint64, encode_trusted, sha256
from detent.errors import InvariantBroken, Refused
from detent.kernel import evidence as ev
from detent.kernel.history import History, MemoryHistory, Record
from detent.kernel.identity import request_digest, transition_key
from detent.kernel.job import Job
from detent.kernel.manifest import id_fault
from detent.kernel.metrics import Metrics
from detent.kernel.outcome import COMMITTED, REFUSED, JobState, Outcome, emit_error
from detent.kernel.policy import QUOTA_OK, KernelConfig
from detent.kernel.queue import JobQueue, plain_queue
from detent.kernel.quota import quota_verdict
from detent.kernel.records import TRANSITION
from detent.kernel.retry import retry_delay_ticks
from detent.kernel.run import Run
from detent.kernel.table import LEGAL
from detent.kernel.trace import IterEvent

TERMINAL_NAMES = frozenset({"SUCCEEDED", "FAILED", "CANCELED"})
TIMERS_SWEPT_MIN = 1_024
"""Dead timers that are not worth sweeping."""

NO_KEY = bytes(32)
"""Signer of a kernel that no owner has claimed yet; such records are never written to a ledger."""

MakeQueue = Callable[[KernelConfig], JobQueue]


class PartitionState:
    """The state of one partition; only the kernel's handlers change it."""

    def __init__(
        self,
        config: KernelConfig | None = None,
        *,
        make_queue: MakeQueue = plain_queue,
        history: History | None = None,
    ) -> None:
        # Start-up order is part of the contract (PIPE-107 to PIPE-109): queue and policies, then trust, then the log.
        self.config = config or KernelConfig()
        self.make_queue = make_queue
        self.queue = make_queue(self.config)
        self.trust_version = 0
        self.history: History = history if history is not None else MemoryHistory()
        self.jobs: dict[str, Job] = {}
        self.runs: dict[str, Run] = {}
        self.queued: dict[str, int] = {}
        """How many jobs of each tenant wait in the queue; those without any are left out."""
        self.metrics = Metrics()
        self.tick = 0
        self.trace_length = 0
        self.epoch = 0
        self.erasures = 0
        """How many ``erased`` records there are."""
        self.signer_key_id = NO_KEY
        self.own_holder = f"scheduler:{self.config.partition_id}"
        """Holder of the leases that exist only inside a cancel batch (A.4)."""
        self.sections: dict[str, object] = {}
        """Opaque named state of other rooms that checkpoints carry along (ordered runs, sessions, …)."""
        self._timers: list[tuple[int, str, int]] = []
        self._waiting: dict[Hashable, list[tuple[int, str, int]]] = {}
        self._touched: dict[str, tuple[Job, int]] = {}
        self._touched_runs: dict[str, Run] = {}

    # -- what the shell calls ------------------------------------------------------------------------------------------

    def query(self, tenant_id: str, job_id: str) -> JobState | Refused:
        """``JobQuery_v1``: a job's state, without changing anything."""
        if fault := id_fault("tenant_id", tenant_id) or id_fault("job_id", job_id):
            return Refused("INVALID_PARAMS", fault)
        job = self.find(tenant_id, job_id)
        if job is None:
            return Refused("UNKNOWN_JOB", f"tenant {tenant_id!r} has no job {job_id!r}", {"job_id": job_id})
        return JobState.of(job)

    def next_due(self) -> int | None:
        """The tick at which something becomes due without any command; None when nothing will."""
        timer, limit = self._next_timer(), self.queue.next_due()
        if timer is None or limit is None:
            return timer if limit is None else limit.tick
        return min(timer, limit.tick)

    def _first_due(self) -> int | None:
        """A tick before which certainly nothing is due: what `next_due` says, without looking whether a timer still counts."""
        limit = self.queue.next_due()
        if not self._timers:
            return None if limit is None else limit.tick
        return self._timers[0][0] if limit is None else min(self._timers[0][0], limit.tick)

    def _next_timer(self) -> int | None:
        while self._timers:
            due, job_id, seq = self._timers[0]
            job = self.jobs.get(job_id)
            if job is None or job.transition_seq != seq:
                heappop(self._timers)
            elif job.state == "RUNNING" and job.lease_expiry is not None and job.lease_expiry > due:
                heappop(self._timers)
                heappush(self._timers, (job.lease_expiry, job_id, seq))
            else:
                return due
        return None

    def drain_touched(self) -> tuple[list[tuple[Job, int]], list[Run]]:
        """Jobs changed since the last call, each with the sequence it had before (-1: it is new), and changed runs."""
        jobs, runs = list(self._touched.values()), list(self._touched_runs.values())
        self._touched, self._touched_runs = {}, {}
        return jobs, runs

    def metrics_snapshot(self) -> dict[str, object]:
        """The metric schema of the contract (PIPE-035, PIPE-036)."""
        return self.metrics.snapshot(len(self.queue))

    def crowded(self) -> Collection[Hashable]:
        """The lines of the queue in which retries wait for room."""
        return self._waiting.keys()

    def check(self) -> None:
        """Look at the whole state and raise `InvariantBroken` on the first thing that cannot be."""
        queued = sum(1 for job in self.jobs.values() if job.state == "QUEUED")
        if queued != len(self.queue):
            raise InvariantBroken(f"{queued} jobs are QUEUED, the queue holds {len(self.queue)}")
        if self.queued != Counter(job.tenant_id for job in self.jobs.values() if job.state == "QUEUED"):
            raise InvariantBroken("the tenants' counts of waiting jobs are not those of the jobs")
        alive = Counter(job.run_id for job in self.jobs.values() if job.run_id is not None)
        if alive != Counter({run_id: run.live_jobs for run_id, run in self.runs.items()}):
            raise InvariantBroken("the runs' counts of live jobs are not those of the jobs")
        if any(len(run.reused) + run.reused_run != run.steps_reused for run in self.runs.values()):
            raise InvariantBroken("the runs' reused steps are not as many as they count")
        for job in self.jobs.values():
            if job.state in TERMINAL_NAMES:
                raise InvariantBroken(f"ended job {job.job_id} is still in memory")
            leased = job.lease_id is not None and job.lease_expiry is not None and job.heartbeat_tick is not None
            if (job.state == "RUNNING") != leased:
                raise InvariantBroken(f"job {job.job_id} is {job.state} and its lease does not fit (PIPE-058)")
            if (job.state == "RETRYING") != (job.ready_tick is not None):
                raise InvariantBroken(f"job {job.job_id} is {job.state} and its ready tick does not fit")
            if job.attempt_id != job.failures + job.interruptions - (job.state == "RETRYING"):
                raise InvariantBroken(f"job {job.job_id}: attempts and their ends do not add up")

    # -- what handlers use ---------------------------------------------------------------------------------------------

    def find(self, tenant_id: str, job_id: str) -> Job | None:
        """A tenant's job, alive or ended."""
        job = self.jobs.get(job_id) or self.history.ended_job(job_id)
        return job if job is not None and job.tenant_id == tenant_id else None

    def refuse(
        self, out: Outcome, code: str, message: str, operator: str, *, status: str = REFUSED, **details: object
    ) -> None:
        """Answer with a refusal and its failure record."""
        self.refuse_with(out, Refused(code, message, details), operator, status=status)

    def refuse_with(self, out: Outcome, refusal: Refused, operator: str, *, status: str = REFUSED) -> None:
        """Answer with a refusal that has been decided elsewhere.

        The failure's ``t`` is the index of the event that shows the refusal, or the one it would have had (X-060).
        """
        out.status = status
        out.refusal = refusal
        t = next((event.t for event in out.events if event.status == status), self.trace_length)
        diagnostics: dict[str, object] = {"tick": self.tick, "message": refusal.message}
        if refusal.details:
            diagnostics["details"] = {
                name: value if isinstance(value, str | int | bytes) else str(value)
                for name, value in sorted(refusal.details.items())
            }
        out.error = emit_error(t, refusal.code, operator, self.config.replay_token, diagnostics)

    def trace(  # noqa: PLR0913 - one parameter for each field that varies
        self,
        out: Outcome,
        job: Job,
        to_state: str,
        status: str,
        *,
        from_state: str | None = None,
        seq: int | None = None,
        attempt_id: int | None = None,
        verdict: str = QUOTA_OK,
        reason: str | None = None,
        batch_id: bytes | None = None,
        dispatch: bool = False,
    ) -> None:
        """Emit the one event that every request for a transition leaves (PIPE-110)."""
        out.events.append(
            IterEvent(
                self.trace_length,
                self.tick,
                job.job_id,
                job.state if from_state is None else from_state,
                to_state,
                status,
                job.transition_seq if seq is None else seq,
                job.attempt_id if attempt_id is None else attempt_id,
                job.quota_policy_hash,
                verdict,
                reason,
                batch_id,
                dispatch,
                self.config.replay_token,
            )
        )
        self.trace_length += 1
        if status not in {COMMITTED, "DEDUPLICATED"}:
            self.metrics.ambiguous += 1

    def verdict(self, job: Job) -> str:
        """What the job's quota policy says of its ledger now."""
        return quota_verdict(job.usage, self.config.quotas[job.quota_policy_hash])

    def touch(self, job: Job, seq_before: int) -> None:
        """Remember that a job's row has to be written."""
        if job.job_id not in self._touched:
            self._touched[job.job_id] = (job, seq_before)

    def touch_run(self, run: Run) -> None:
        """Remember that a run's row has to be written."""
        self._touched_runs[run.run_id] = run

    def add_job(self, job: Job) -> None:
        """Take a new job into the table."""
        self.jobs[job.job_id] = job
        self.metrics.states["QUEUED"] += 1
        self.queued[job.tenant_id] = self.queued.get(job.tenant_id, 0) + 1
        self._touched[job.job_id] = (job, -1)

    def move(  # noqa: PLR0913 - one parameter for each field of the record that varies
        self,
        out: Outcome,
        job: Job,
        to_state: str,
        evidence: bytes,
        *,
        kind: str,
        reason: str,
        verdict: str | None = None,
        dispatch: bool = False,
        holder: str | None = None,
        batch: tuple[bytes, int, int] | None = None,
    ) -> Record:
        """Commit one legal transition: build its record, change the job, emit the event."""
        from_state, seq = job.state, job.transition_seq
        if (from_state, to_state) not in LEGAL:
            raise InvariantBroken(f"the kernel tried {from_state}->{to_state} for job {job.job_id}")
        if seq >= UINT64_MAX:
            raise InvariantBroken(f"transition_seq of job {job.job_id} is used up")
        key = transition_key(job.tenant_id, job.job_id, job.attempt_id, seq)
        reference = ev.evidence_ref(evidence)
        batch_id, batch_index, batch_len = batch or (key, 0, 1)
        verdict = verdict or self.verdict(job)
        body = encode_trusted(
            {
                "kind": TRANSITION,
                "tenant_id": job.tenant_id,
                "job_id": job.job_id,
                "attempt_id": job.attempt_id,
                "transition_seq": seq,
                "from_state": from_state,
                "to_state": to_state,
                "evidence_ref": reference,
                "job_manifest_hash": job.manifest_hash,
                "idempotency_key": key,
                "request_digest": request_digest(from_state, to_state, reference),
                "lease_id": key if to_state == "RUNNING" else job.lease_id,
                "dispatch": dispatch,
                "reason_code": reason,
                "tick": self.tick,
                "partition_id": self.config.partition_id,
                "quota_policy_hash": job.quota_policy_hash,
                "quota_verdict": verdict,
                "batch_id": batch_id,
                "batch_index": batch_index,
                "batch_len": batch_len,
                "prev_chain_hash": job.head,
                "signer_key_id": self.signer_key_id,
            }
        )
        record = Record(TRANSITION, job.job_id, job.run_id, seq, body, evidence, sha256(body))
        self.trace(out, job, to_state, COMMITTED, verdict=verdict, reason=reason, batch_id=batch_id, dispatch=dispatch)
        self.touch(job, seq)
        job.head = record.hash
        job.transition_seq = seq + 1
        job.conflicts = 0
        job.reason_code = reason
        job.state = to_state
        self._enter(job, to_state, key=key, seq=seq, kind=kind, dispatch=dispatch, holder=holder)
        out.records.append(record)
        self.history.add_record(record)
        states = self.metrics.states
        states[from_state] -= 1
        states[to_state] += 1
        if from_state == "QUEUED":
            self._count_waiting(job.tenant_id, -1)
        elif to_state == "QUEUED":
            self._count_waiting(job.tenant_id, 1)
        self.metrics.transitions[from_state, to_state] += 1
        if to_state in TERMINAL_NAMES:
            self._end(job)
        return record

    def requeue(self, out: Outcome, job: Job) -> None:
        """Commit RETRYING->QUEUED and give the job the last place of its class (X-043)."""
        evidence = ev.encode_evidence(ev.RETRY_READY, ev.REASON_RETRY_READY, None, None, None, None)
        self.move(out, job, "QUEUED", evidence, kind=ev.RETRY_READY, reason=ev.REASON_RETRY_READY)
        self.queue.readmit(job.job_id, job.priority)

    def forget_queue(self, job_id: str) -> None:
        """Take a job out of the queue because it leaves QUEUED by another way than its turn."""
        if not self.queue.cancel(job_id):
            raise InvariantBroken(f"job {job_id} is QUEUED and not in the queue")

    def schedule(self, due: int, job: Job) -> None:
        """Have `_pass_time` look at a job when ``due`` comes, unless it moves before.

        A timer whose job has moved on is dead weight until its tick comes, which may be long after the job has ended;
        so the dead are swept out before they outnumber the living.
        """
        if len(self._timers) > 2 * len(self.jobs) + TIMERS_SWEPT_MIN:
            self._timers = [
                timer
                for timer in self._timers
                if (own := self.jobs.get(timer[1])) is not None and own.transition_seq == timer[2]
            ]
            heapify(self._timers)
        heappush(self._timers, (due, job.job_id, job.transition_seq))

    def reconfigure(self, config: KernelConfig) -> None:
        """Take over another configuration with all state kept (a new epoch may bring one)."""
        snapshot = self.queue.snapshot()
        self.config = config
        self.queue = self.make_queue(config)
        self.queue.restore(snapshot)

    def rebuild_timers(self) -> None:
        """Derive timers, waiting retries and the tenants' counts from the jobs, after a restore.

        A retry that is due and has room has not been looked at yet (its delay was 0): that is for `_pass_time`, before
        the next command. One without room has been, or would find none.
        """
        self._timers, self._waiting = [], {}
        self.queued = dict(Counter(job.tenant_id for job in self.jobs.values() if job.state == "QUEUED"))
        for job in self.jobs.values():
            if job.state == "RUNNING" and job.lease_expiry is not None:
                self._timers.append((job.lease_expiry, job.job_id, job.transition_seq))
            elif job.state == "RETRYING" and job.ready_tick is not None:
                line = self.queue.line(job.job_id, job.priority)
                if job.ready_tick > self.tick or self.queue.has_room(line):
                    self._timers.append((job.ready_tick, job.job_id, job.transition_seq))
                else:
                    heappush(self._waiting.setdefault(line, []), (job.ready_tick, job.job_id, job.transition_seq))
        heapify(self._timers)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _enter(
        self, job: Job, to_state: str, *, key: bytes, seq: int, kind: str, dispatch: bool, holder: str | None
    ) -> None:
        """What a job's fields become on entering a state."""
        if to_state == "RUNNING":
            policy = self.config.leases[job.lease_policy_id]
            job.lease_id, job.lease_holder = key, holder
            job.lease_expiry = add_uint64(self.tick, policy.lease_ttl_ticks)
            job.heartbeat_tick = self.tick
            job.queued_tick = None
            job.reports, job.last_report = 0, None
            if dispatch:
                job.ever_dispatched = True
                self.schedule(job.lease_expiry, job)
                self.queue.leased(job.job_id, holder or "", self.tick)
            return
        if to_state == "QUEUED":
            job.attempt_id += 1
            job.ready_tick, job.queued_tick = None, self.tick
            return
        if job.lease_holder != self.own_holder:
            held_until = job.lease_expiry if kind in ev.CUT_SHORT else None
            self.queue.left(job.job_id, succeeded=to_state == "SUCCEEDED", held_until=held_until)
        job.lease_id = job.lease_holder = job.lease_expiry = job.heartbeat_tick = None
        job.exit_seq = seq
        if to_state == "RETRYING":
            job.ready_tick = add_uint64(self.tick, retry_delay_ticks(job, kind, self.config))
            if kind in ev.INTERRUPTIONS:
                job.interruptions += 1
            else:
                job.failures += 1
            self.schedule(job.ready_tick, job)

    def _count_waiting(self, tenant_id: str, change: int) -> None:
        count = self.queued.get(tenant_id, 0) + change
        if count:
            self.queued[tenant_id] = count
        else:
            del self.queued[tenant_id]

    def _end(self, job: Job) -> None:
        del self.jobs[job.job_id]
        self.history.end_job(job)
        self.queue.forget(job.job_id)
        run = self.runs.get(job.run_id) if job.run_id is not None else None
        if run is not None:
            run.live_jobs -= 1
            self.touch_run(run)
