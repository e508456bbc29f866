"""A second kernel: slow, small, in plain dictionaries, written from the contract and not from the code.

`test_model` runs it beside the real kernel and compares them after every command; where they differ, one of them has
misread the contract. It takes the same commands and answers (status, code), and shares no other code with the kernel:
keys are computed with another CBOR library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import cbor2

Job = dict[str, Any]
Answer = tuple[str, str | None]
YES: Answer = ("COMMITTED", None)
AGAIN: Answer = ("DEDUPLICATED", None)
ENDED = {"SUCCEEDED", "FAILED", "CANCELED"}
INTERRUPTIONS = {"interrupted", "worker_lost"}
# The six legal moves, each with the kinds of evidence by which it can be asked for.
LEGAL = {
    ("QUEUED", "RUNNING"): {"dispatch"},
    ("RUNNING", "SUCCEEDED"): {"result"},
    ("RUNNING", "FAILED"): {"result", "expiry", "watchdog", "quota", *INTERRUPTIONS},
    ("RUNNING", "CANCELED"): {"cancel", "quota"},
    ("RUNNING", "RETRYING"): {"result", "expiry", "quota", *INTERRUPTIONS},
    ("RETRYING", "QUEUED"): {"retry_ready", "cancel"},
}


class Model:
    """The state of one partition."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.tick = 0
        self.jobs: dict[str, Job] = {}
        self.line: list[str] = []  # job ids in order of arrival
        self.edges: Counter[tuple[str, str]] = Counter()
        self.ambiguous, self.moves, self.changed = 0, 0, False

    def apply(self, command: Any) -> Answer:
        before, self.changed, self.moves = self.tick, False, 0
        for job_id, lease in getattr(command, "beats", ()):
            if self.leased(job_id, lease):
                self.extend(self.jobs[job_id], max(self.tick, command.tick))
        self.tick = max(self.tick, command.tick)
        self.pass_time(before, getattr(command, "due_max", None))
        decide: Callable[[Any], Answer] = getattr(self, type(command).__name__.lower())
        answer = decide(command)
        self.settle()
        if not self.changed:  # a command that did nothing need not be recorded, so it must not move the clock either
            self.tick = before
        return answer

    def due(self) -> list[tuple[int, str]]:
        """What becomes due by itself, in the order in which it is committed (X-065)."""
        jobs = self.jobs.values()
        expiries = [(job["expiry"], job["id"]) for job in jobs if job["state"] == "RUNNING"]
        retries = [(job["ready"], job["id"]) for job in jobs if job["state"] == "RETRYING" and not job["waiting"]]
        return sorted(expiries + retries)

    def pass_time(self, before: int, most: int | None) -> None:
        while (moments := self.due()) and moments[0][0] <= self.tick and (most is None or self.moves < most):
            job = self.jobs[moments[0][1]]
            if job["state"] == "RUNNING":
                self.end_attempt(job, "expiry", "LEASE_EXPIRED")
            elif self.room(job["priority"]):
                self.requeue(job)
            else:
                job["waiting"] = True
                self.changed |= job["ready"] > before

    def settle(self) -> None:
        """Free places go to waiting retries: longest ready first, then by class, then by id (X-042)."""
        while able := [job for job in self.jobs.values() if job["waiting"] and self.room(job["priority"])]:
            self.requeue(min(able, key=lambda job: (job["ready"], -job["priority"], job["id"])))

    def requeue(self, job: Job) -> None:
        self.move(job, "QUEUED", {"kind": "retry_ready", "reason_code": "RETRY_READY"})
        self.line.append(job["id"])

    def extend(self, job: Job, tick: int) -> bool:
        if fresh := bool(tick >= job["beat"]):
            more = self.config.leases[job["policy"]].heartbeat_extension_ticks
            job.update(beat=tick, expiry=max(job["expiry"], tick + more))
        return fresh

    def order(self) -> list[str]:
        return sorted(self.line, key=lambda job_id: -int(self.jobs[job_id]["priority"]))

    def room(self, priority: int) -> bool:
        mine = [job_id for job_id in self.line if self.jobs[job_id]["priority"] == priority]
        most: tuple[int, int] = (self.config.queue.capacity_per_class, self.config.queue.capacity_total)
        return len(mine) < most[0] and len(self.line) < most[1]

    def key(self, job: Job) -> bytes:
        """The key of the job's next transition: its lease, if that is the one to RUNNING."""
        return sha256(cbor2.dumps([job["tenant"], job["id"], job["attempt"], job["seq"]], canonical=True)).digest()

    def leased(self, job_id: str, lease: bytes) -> bool:
        return job_id in self.jobs and self.jobs[job_id]["lease"] == lease

    def move(self, job: Job, to_state: str, evidence: Job, *, dispatch: bool = False) -> None:
        source, key = job["state"], self.key(job)
        assert (source, to_state) in LEGAL
        job["log"].append((job["attempt"], source, to_state, evidence))
        self.edges[source, to_state] += 1
        self.moves += 1
        self.changed = True
        job.update(state=to_state, seq=job["seq"] + 1, reason=evidence["reason_code"])
        if to_state == "RUNNING":
            ttl = self.config.leases[job["policy"]].lease_ttl_ticks
            job.update(lease=key, grant=key, reports=[], beat=self.tick, expiry=self.tick + ttl)
            job["dispatched"] |= dispatch
        elif to_state == "QUEUED":
            job.update(attempt=job["attempt"] + 1, ready=None, waiting=False)
        else:
            job.update(lease=None, beat=None, expiry=None)
        if to_state == "RETRYING":
            delays = self.config.backoffs[job["schedule"]].delays_ms
            count = job["failures"]
            if evidence["kind"] in INTERRUPTIONS:
                pauses = self.config.backoffs.get("interruptions")
                delays, count = (0,) if pauses is None else pauses.delays_ms, job["interruptions"]
            delay_ms = delays[min(count, len(delays) - 1)]
            job["interruptions" if evidence["kind"] in INTERRUPTIONS else "failures"] += 1
            job["ready"] = self.tick + (delay_ms + self.config.tick_ms - 1) // self.config.tick_ms

    def no_retry(self, job: Job, evidence: Job) -> str | None:
        """Why an attempt that ended so is not tried again (A.7, X-163, X-164)."""
        kind = evidence["kind"]
        if kind == "quota":
            retryable = self.config.quotas[job["quota"]].evaluation_rule_id == "LE_ALL_RETRY_v1"
        else:
            by_category = kind == "result" and evidence.get("category") in job["categories"]
            retryable = by_category or kind in {"expiry", *INTERRUPTIONS}
        if not retryable:
            return "NOT_RETRYABLE"
        count, bound = ("interruptions", "max_interruptions") if kind in INTERRUPTIONS else ("failures", "max_retries")
        return "RETRIES_EXHAUSTED" if job[count] >= job[bound] else None

    def end_attempt(self, job: Job, kind: str, reason: str, **more: Any) -> None:
        evidence = {"kind": kind, "reason_code": reason, "lease_id": job["lease"], **more}
        final = "CANCELED" if kind == "quota" and self.config.on_quota_running == "cancel" else "FAILED"
        self.move(job, final if self.no_retry(job, evidence) else "RETRYING", evidence)

    def over(self, job: Job) -> str | None:
        budget = self.config.quotas[job["quota"]]
        if job["cpu"] > budget.cpu_time_budget_ms:
            return "QUOTA_CPU_TIME"
        return "QUOTA_MEMORY_BYTES" if job["peak"] > budget.memory_bytes_budget else None

    def cancel_batch(self, job: Job, kind: str, reason: str) -> None:
        if job["id"] in self.line:
            self.line.remove(job["id"])
        for to_state in ["QUEUED", "RUNNING", "CANCELED"][job["state"] == "QUEUED" :]:
            self.move(job, to_state, {"kind": kind, "reason_code": reason, "batch": True})

    def start(self, job: Job, evidence: Job) -> str | None:
        self.line.remove(job["id"])
        if denied := self.over(job):
            self.ambiguous += 1
            self.cancel_batch(job, "quota", denied)
        else:
            self.move(job, "RUNNING", evidence, dispatch=True)
        return denied

    def succeed(self, job: Job, evidence: Job) -> Answer:
        if denied := self.over(job):
            self.end_attempt(job, "quota", denied)
            return self.doubt("DENIED_QUOTA", denied)
        self.move(job, "SUCCEEDED", evidence)
        return YES

    def doubt(self, status: str, code: str | None = None) -> Answer:
        """A request for a transition that is not granted: traced and counted, nothing written."""
        self.ambiguous, self.changed = self.ambiguous + 1, True
        return status, code or status

    def submit(self, command: Any) -> Answer:
        wanted, digest = command.manifest.manifest, sha256(command.manifest.body).digest()
        if known := self.jobs.get(wanted.job_id):
            return AGAIN if known["manifest"] == digest else ("CONFLICT", "CONFLICT")
        if not self.room(wanted.priority):
            return "REFUSED", "QUEUE_FULL"
        self.jobs[wanted.job_id] = {
            "id": wanted.job_id, "tenant": wanted.tenant_id, "manifest": digest, "priority": wanted.priority,
            "policy": wanted.lease_policy_id, "schedule": wanted.backoff_schedule_id, "quota": wanted.quota_policy_hash,
            "max_retries": wanted.max_retries, "max_interruptions": wanted.max_interruptions,
            "categories": wanted.retry_categories, "state": "QUEUED", "waiting": False, "dispatched": False, "log": [],
            **dict.fromkeys(("seq", "attempt", "failures", "interruptions", "allocated", "peak", "cpu"), 0),
            **dict.fromkeys(("reason", "lease", "grant", "beat", "expiry", "ready")),
        }  # fmt: skip
        self.line.append(wanted.job_id)
        self.changed = True
        return YES

    def claim(self, command: Any) -> Answer:
        evidence, granted = {"kind": "dispatch", "reason_code": "DISPATCHED", "replica_id": command.replica_id}, 0
        while self.line and granted < command.limit:
            job = self.jobs[self.order()[0]]
            granted += self.start(job, {**evidence, "lease_id": self.key(job)}) is None
        return YES

    def finish(self, command: Any) -> Answer:
        if command.kind not in ({"result"} if command.ok else {"result", "watchdog", *INTERRUPTIONS}):
            return "REFUSED", "INVALID_PARAMS"
        if not (job := self.jobs.get(command.job_id)):
            return "REFUSED", "UNKNOWN_JOB"
        more = {} if command.category is None else {"category": command.category}
        evidence = {"kind": command.kind, "reason_code": command.reason_code, "lease_id": command.lease_id, **more}
        if job["lease"] != command.lease_id:
            exits = [entry for entry in job["log"] if entry[1] == "RUNNING"]
            repeat = exits and exits[-1][3] == evidence and (exits[-1][2] == "SUCCEEDED") == command.ok
            if repeat or self.config.rules < 2:  # under the first rules a stale result left no trace
                return AGAIN if repeat else ("REFUSED", "LEASE_INVALID")
            return self.doubt("REFUSED", "LEASE_INVALID")
        if command.ok:
            return self.succeed(job, evidence)
        self.end_attempt(job, command.kind, command.reason_code, **more)
        return YES

    def heartbeat(self, command: Any) -> Answer:
        if not self.leased(command.job_id, command.lease_id):
            return "REFUSED", "LEASE_INVALID" if command.job_id in self.jobs else "UNKNOWN_JOB"
        self.changed |= self.extend(self.jobs[command.job_id], command.tick)
        return YES

    def reportusage(self, command: Any) -> Answer:
        job, report = self.jobs.get(command.job_id), (command.cpu_time_ms, command.bytes_allocated)
        if job and job["grant"] == command.lease_id and command.report_no < len(job["reports"]):
            other = command.report_no + 1 == len(job["reports"]) and job["reports"][-1] != report
            return ("CONFLICT", "CONFLICT") if other else AGAIN
        if job is None or job["lease"] != command.lease_id:
            return "REFUSED", "LEASE_INVALID" if job else "UNKNOWN_JOB"
        if command.report_no > len(job["reports"]):
            return "CONFLICT", "CONFLICT"
        allocated = job["allocated"] + command.bytes_allocated
        if allocated < 0:
            return "REFUSED", "INVALID_PARAMS"
        job.update(allocated=allocated, peak=max(job["peak"], allocated), cpu=job["cpu"] + command.cpu_time_ms)
        job["reports"].append(report)
        self.changed = True
        if violated := self.over(job):
            self.end_attempt(job, "quota", violated)
        return YES

    def cancel(self, command: Any) -> Answer:
        if not (job := self.jobs.get(command.job_id)) or job["tenant"] != command.tenant_id:
            return "REFUSED", "UNKNOWN_JOB"
        if job["state"] in ENDED:
            return AGAIN if job["state"] == "CANCELED" else self.doubt("CONTRACT_VIOLATION")
        if command.expected_transition_seq not in {None, job["seq"]}:
            return self.doubt("CONFLICT")
        if job["state"] != "RUNNING":
            self.cancel_batch(job, "cancel", command.reason_code)
            return YES
        self.move(job, "CANCELED", {"kind": "cancel", "reason_code": command.reason_code, "lease_id": job["lease"]})
        return YES

    def transition(self, command: Any) -> Answer:
        """The checks of table A.5, one after the other."""
        pair = (command.from_state, command.to_state)
        job = self.jobs.get(command.job_id)
        if pair not in LEGAL:
            return self.doubt("CONTRACT_VIOLATION") if job else ("CONTRACT_VIOLATION", "CONTRACT_VIOLATION")
        evidence = cbor2.loads(command.evidence)
        if evidence["kind"] not in LEGAL[pair] or (pair[1] == "RUNNING" and "replica_id" not in evidence):
            return "REFUSED", "INVALID_PARAMS"
        if not job:
            return "REFUSED", "UNKNOWN_JOB"
        expected = command.expected_transition_seq
        if expected < job["seq"] and job["log"][expected] == (command.attempt_id, *pair, evidence):
            self.changed = True  # a repeat leaves a trace event
            return AGAIN
        if expected != job["seq"] or command.attempt_id != job["attempt"]:
            return self.doubt("CONFLICT")
        if pair[0] != job["state"]:
            return self.doubt("CONTRACT_VIOLATION")
        return self.decide(job, pair[1], evidence)

    def decide(self, job: Job, to_state: str, evidence: Job) -> Answer:
        lease, kind = evidence.get("lease_id"), evidence["kind"]
        if to_state == "QUEUED":
            return self.doubt("REFUSED", "NOT_RETRYABLE")  # what was ready and had room has gone already
        right = lease == self.key(job) if to_state == "RUNNING" else lease == job["lease"] is not None
        if kind in {"expiry", "quota"} or not (right or (lease is None and kind in {"dispatch", "cancel", "watchdog"})):
            return self.doubt("REFUSED", "LEASE_INVALID")
        if to_state == "RETRYING" and (code := self.no_retry(job, evidence)):
            return self.doubt("REFUSED", code)
        if to_state == "SUCCEEDED":
            return self.succeed(job, evidence)
        if to_state == "RUNNING":
            return ("DENIED_QUOTA", denied) if (denied := self.start(job, evidence)) else YES
        self.move(job, to_state, evidence)
        return YES

    def advancetick(self, command: Any) -> Answer:
        self.changed = True
        return YES

    resume = advancetick
