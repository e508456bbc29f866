"""Random walks: numbers in, commands out.

A walk looks at where the jobs stand, so that most of its commands are nearly right and all corners are reached: stale
leases, repeated requests, full queues, spent budgets, retries that wait for room. The same numbers give the same walk.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from detent.canon import encode, sha256
from detent.kernel import (
    AdvanceTick,
    BackoffSchedule,
    Cancel,
    ChangeTrust,
    Claim,
    Command,
    EndRun,
    EnrollWorker,
    Erase,
    Evidence,
    Finish,
    Grant,
    Heartbeat,
    Job,
    Kernel,
    KernelConfig,
    LeasePolicy,
    Operate,
    Outcome,
    QueuePolicy,
    RaiseEpoch,
    ReportUsage,
    Resume,
    RetireWorker,
    ReuseRun,
    ReuseStep,
    StartRun,
    Submit,
    Transition,
    lease_key,
)
from detent.kernel.evidence import KINDS
from detent.kernel.policy import INTERRUPTIONS, RULE_LE_ALL_RETRY, RULES, RULES_ORIGIN_NAMED, UNLIMITED_QUOTA
from tests.kernel.builders import NO_LEASE, OWNER_KEY_ID, TENANT, quota, verified

Numbers = tuple[int, ...]
NUMBERS_PER_STEP = 6
NUMBER_MAX = 99

JOB_IDS = (*(f"job-{number:02d}" for number in range(22)), "job-é", "job-\N{BLACK SPADE SUIT}")
STATES = ("QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "FAILED", "CANCELED")
TARGETS = {
    "QUEUED": ("RUNNING",),
    "RUNNING": ("SUCCEEDED", "FAILED", "CANCELED", "RETRYING"),
    "RETRYING": ("QUEUED",),
}
FITTING = {
    "RUNNING": ("dispatch",),
    "SUCCEEDED": ("result",),
    "FAILED": ("result", "watchdog", "interrupted", "result"),
    "CANCELED": ("cancel",),
    "RETRYING": ("result", "worker_lost", "result", "interrupted"),
    "QUEUED": ("retry_ready", "cancel"),
}
QUOTAS = (
    UNLIMITED_QUOTA,
    quota(cpu_time_budget_ms=2),
    quota(cpu_time_budget_ms=2, evaluation_rule_id=RULE_LE_ALL_RETRY),
    quota(memory_bytes_budget=4),
)
STEPS = (0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 7, 10, 11, 25, -3, -14)


def walk_config(number: int = 0) -> KernelConfig:
    """Short leases, short delays (one of them none at all), tight bounds."""
    per_class, total = ((1, 2), (2, 3), (4, 4), (2, 20))[number % 4]
    return KernelConfig(
        tick_ms=1 + number // 4 % 2,
        lease_policies=(LeasePolicy("short", 10, 7), LeasePolicy("long", 30, 2)),
        backoff_schedules=(
            *(BackoffSchedule("steps", (0, 4, 9)), BackoffSchedule("flat", (3,))),
            *((BackoffSchedule(INTERRUPTIONS, (0, 5)),) if number // 16 % 2 else ()),
        ),
        quota_policies=QUOTAS,
        queue=QueuePolicy(per_class, total),
        on_quota_running=("fail", "cancel")[number // 8 % 2],
        rules=RULES - number // 16 % 2,
    )


class Walk:
    """A kernel and the commands a walk gives it."""

    def __init__(self, settings: KernelConfig, *, with_runs: bool = False) -> None:
        self.kernel = Kernel(settings)
        self.with_runs = with_runs
        self.tick = 0
        self.grants: list[Grant] = []
        self.commands: list[Command] = []
        self.outcomes: list[Outcome] = []
        self.submitted: set[str] = set()

    def step(self, numbers: Numbers) -> tuple[Command, Outcome]:
        """Choose the next command by some numbers and apply it."""
        command = self._choose(numbers)
        outcome = self.kernel.apply(command)
        self.grants += outcome.grants
        self.commands.append(command)
        self.outcomes.append(outcome)
        return command, outcome

    def _choose(self, numbers: Numbers) -> Command:
        kind, which, how, detail, more, step = numbers
        passed = STEPS[step % len(STEPS)]
        tick = max(0, self.tick + passed)
        self.tick = max(self.tick, tick)
        if self.with_runs and kind >= 90:
            return self._about_runs(tick, which, how, detail)
        if kind < 22:
            return self._submit(tick, which, how, detail, more)
        if kind < 40:
            return Claim(tick, f"worker-{how % 2}", 1 + detail % 3)
        if kind < 55:
            return self._finish(tick, which, how, detail, more)
        if kind < 61:
            return Heartbeat(tick, *self._lease(which, how))
        if kind < 67:
            cpu, memory = (detail % 4, 0) if more % 2 else (0, detail % 9 - 3)
            job_id, lease_id = self._lease(which, how)
            taken = self.kernel.jobs[job_id].reports if job_id in self.kernel.jobs else 0
            number = max(0, taken + (0, 0, 0, 0, 0, 0, 0, -1, 1)[how % 9])
            return ReportUsage(tick, job_id, lease_id, number, cpu_time_ms=cpu, bytes_allocated=memory)
        if kind < 73:
            return self._cancel(tick, which, how, detail)
        if kind < 79 and self.commands:
            return replace(self.commands[-1 - which % min(len(self.commands), 12)], tick=tick)
        if kind < 91:
            return self._transition(tick, which, how, detail, more)
        if kind < 93:
            beats = tuple({self._lease(number, how) for number in (which, detail)})
            return Resume(tick, beats, 1 + more % 4)
        return AdvanceTick(tick, 1 + more % 4)

    def _submit(self, tick: int, which: int, how: int, detail: int, more: int) -> Submit:
        fresh = [job_id for job_id in JOB_IDS if job_id not in self.submitted]
        names = fresh[:3] if fresh and how % 8 else JOB_IDS
        job_id = names[which % len(names)]
        self.submitted.add(job_id)
        manifest = verified(
            job_id,
            priority=(1, 5, 5, 10)[detail % 4],
            lease_policy_id=("short", "long")[detail // 4 % 2],
            backoff_schedule_id=("steps", "flat")[detail // 8 % 2],
            quota=QUOTAS[(0, 0, 1, 2, 2, 3)[more % 6]],
            max_retries=more // 6 % 3,
            max_interruptions=how % 3,
            retry_categories=(("INTERNAL_ERROR",), ("INTERNAL_ERROR", "ValueError"), ())[more % 3],
            origin="detent/here" if self.kernel.config.rules >= RULES_ORIGIN_NAMED else None,
        )
        runs = sorted(self.kernel.runs)
        return Submit(tick, manifest, runs[which % len(runs)] if runs and how % 3 else None)

    def _lease(self, which: int, how: int) -> tuple[str, bytes]:
        """A job and a lease of it: mostly the active one, else one that was, else none at all."""
        running = [(job.job_id, job.lease_id) for job in self._live("RUNNING") if job.lease_id is not None]
        if running and how % 5:
            return running[which % len(running)]
        if self.grants and how % 25:
            grant = self.grants[-1 - which % len(self.grants)]
            return grant.job_id, grant.lease_id
        return JOB_IDS[which % len(JOB_IDS)], NO_LEASE

    def _live(self, *states: str) -> list[Job]:
        found = [job for job in self.kernel.jobs.values() if not states or job.state in states]
        return sorted(found, key=lambda job: job.job_id)

    def _finish(self, tick: int, which: int, how: int, detail: int, more: int) -> Finish:
        job_id, lease_id = self._lease(which, how)
        if detail % 3 == 0:
            return Finish(tick, job_id, lease_id)
        kind = ("result", "result", "result", "interrupted", "worker_lost", "watchdog", "expiry")[detail % 7]
        category = ("INTERNAL_ERROR", "ValueError", None)[more % 3] if kind == "result" else None
        return Finish(tick, job_id, lease_id, kind, ok=more % 20 == 0, reason_code="ENDED", category=category)

    def _cancel(self, tick: int, which: int, how: int, detail: int) -> Cancel:
        live = self._live()
        if not live or how % 6 == 0:
            return Cancel(tick, TENANT, JOB_IDS[which % len(JOB_IDS)])
        job = live[which % len(live)]
        expected = (None, job.transition_seq, job.transition_seq - 1)[detail % 3]
        return Cancel(tick, TENANT, job.job_id, expected_transition_seq=max(expected, 0) if expected else expected)

    def _transition(self, tick: int, which: int, how: int, detail: int, more: int) -> Transition:
        job_id = JOB_IDS[which % len(JOB_IDS)]
        live = self._live()
        if live and how % 10:
            job_id = live[which % len(live)].job_id
        job = self.kernel.find(TENANT, job_id)
        state, seq, attempt = (job.state, job.transition_seq, job.attempt_id) if job else ("QUEUED", 0, 0)
        if how % 7 == 1:
            state = STATES[detail % 6]
        targets: Sequence[str] = STATES if how % 7 == 2 else TARGETS.get(state, STATES)
        to_state = targets[detail % len(targets)]
        kinds: Sequence[str] = sorted(KINDS) if more % 7 == 1 else FITTING[to_state]
        if how % 7 == 3:
            seq = max(0, seq + (-1, 1, -2)[more % 3])
        if how % 7 == 4:
            attempt = max(0, attempt + (-1, 1)[more % 2])
        evidence = self._evidence(job, kinds[more % len(kinds)], detail, more)
        return Transition(tick, TENANT, job_id, attempt, seq, state, to_state, evidence)

    def _evidence(self, job: Job | None, kind: str, detail: int, more: int) -> bytes:
        fields: dict[str, Any] = {"lease_id": job.lease_id if job else None}
        if kind == "dispatch":
            if more % 11:
                fields["replica_id"] = f"worker-{detail % 2}"
            if job:
                fields["lease_id"] = lease_key(TENANT, job.job_id, job.attempt_id, job.transition_seq)
        if more % 5 == 0:
            fields["lease_id"] = (None, NO_LEASE)[detail % 2]
        if kind == "result" and more % 3:
            fields["category"] = ("INTERNAL_ERROR", "ValueError")[detail % 2]
        return Evidence(kind, ("ENDED", "DISPATCHED")[kind == "dispatch"], **fields).encode()

    def _about_runs(self, tick: int, which: int, how: int, detail: int) -> Command:
        """Commands beside the lifecycle of jobs; a new epoch may also bring other bounds."""
        run_id = f"run-{which % 4}"
        choice = how % 8
        if detail % 8 == 2:
            excepted = ("step-0",) if how % 2 else ()
            return ReuseRun(tick, run_id, f"run-{how % 4}", excepted, bytes([how % 2]) * 32)
        if detail % 8 >= 6:
            return self._about_operators(tick, which, how)
        if detail % 4 == 0:
            return ReuseStep(
                tick, run_id, f"step-{how % 3}", JOB_IDS[detail // 4 % len(JOB_IDS)], bytes([how % 2]) * 32
            )
        if choice < 3:
            return StartRun(tick, TENANT, run_id, "walk", bytes(32), bytes(32), bytes(32), "operation")
        if choice < 6:
            return EndRun(tick, run_id, ("completed", "failed", "cancelled")[which % 3])
        if choice == 6:
            expected = max(0, self.kernel.erasures + (0, 0, -1, 1)[detail % 4])
            return Erase(tick, (bytes([which % 2]) * 32,), expected)
        if which % 3:
            settings = replace(self.kernel.config, queue=walk_config(which).queue)
            return RaiseEpoch(tick, self.kernel.epoch + which % 2, OWNER_KEY_ID, settings.encode())
        return ChangeTrust(tick, self.kernel.trust_version + which // 3 % 2, bytes(32), b"signed")

    def _about_operators(self, tick: int, which: int, how: int) -> Command:
        """Actions, well written and badly; workers that come, come again, come with another's key, and go."""
        worker_id = f"gpu-{which % 2}"
        if how % 3 == 0:
            action = ("job.cancel", "key.create", "No Action")[which % 3]
            evidence = (None, encode({"reason": "walk"}), b"junk")[how // 3 % 3]
            tenant_id = TENANT if which % 2 else None
            return Operate(
                tick, "p_ann", "dtk_1", action, "job", JOB_IDS[which % 24], "OK", bytes(32), tenant_id, evidence
            )
        if how % 3 == 1:
            certificate = bytes([how % 2])
            evidence = encode({"certificate": certificate, "proof": b""})
            return EnrollWorker(tick, worker_id, bytes([(which + how // 9) % 4]) * 32, sha256(certificate), evidence)
        return RetireWorker(tick, worker_id, ("RETIRED_BY_USER", "KEY_LOST")[how % 2])


def numbers_from(seed: int, steps: int) -> list[Numbers]:
    """The numbers of a whole walk, from one seed."""
    source = random.Random(seed)
    return [tuple(source.randrange(NUMBER_MAX + 1) for _ in range(NUMBERS_PER_STEP)) for _ in range(steps)]


def walked(seed: int, steps: int, *, with_runs: bool = True) -> Walk:
    """A whole walk from one seed."""
    walk = Walk(walk_config(seed), with_runs=with_runs)
    for numbers in numbers_from(seed, steps):
        walk.step(numbers)
    return walk
