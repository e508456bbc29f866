"""Random lives of an honest ledger: every command the kernel takes, whatever comes of it."""

from __future__ import annotations

from dataclasses import replace

from detent.kernel import (
    BackoffSchedule,
    Heartbeat,
    KernelConfig,
    LeasePolicy,
    QueuePolicy,
    QuotaPolicy,
    ReportUsage,
    Resume,
    Transition,
)
from detent.kernel.evidence import Evidence
from tests.ledger.build import Builder, key

CONFIG = KernelConfig(
    lease_policies=(LeasePolicy("default", 50, 20),),
    backoff_schedules=(BackoffSchedule("default", (10, 20)),),
    quota_policies=(
        *KernelConfig().quota_policies,
        QuotaPolicy(10, 10, 10, 10),
        QuotaPolicy(10, 10, 10, 10, "LE_ALL_RETRY_v1"),
    ),
    queue=QueuePolicy(4, 6),
)
JOB_STEPS = (
    *("ok", "crash", "interrupt", "worker_lost", "watchdog", "beat", "usage", "usage", "usage"),
    *("by_hand", "cancel_by_hand"),
)
STEPS = (
    *(
        "submit",
        "submit",
        "submit",
        "claim",
        "claim",
        "claim",
        "tick",
        "tick",
        "commit",
        "cancel",
        "run",
        "end",
        "reuse",
    ),
    *("erase", "epoch", "rotate", "head", "resume", "quota"),
    *JOB_STEPS,
)


def play(ledger: Builder, name: str, number: int) -> None:
    """One step; whatever the kernel refuses is refused."""
    kernel = ledger.kernels[0]
    if name in JOB_STEPS:
        running = sorted(job_id for job_id, job in kernel.jobs.items() if job.state == "RUNNING")
        if running:
            play_running(ledger, name, number, running[number % len(running)])
    elif name == "submit":
        play_submit(ledger, number)
    elif name == "claim":
        ledger.claim(1 + number % 3)
    elif name == "cancel" and kernel.jobs:
        ledger.cancel(sorted(kernel.jobs)[number % len(kernel.jobs)])
    elif name == "tick":
        ledger.advance(1 + number * 6)
    elif name == "resume":
        ledger.tick += number
        beats = tuple((job_id, job.lease_id) for job_id, job in sorted(kernel.jobs.items()) if job.lease_id is not None)
        ledger.apply(Resume(ledger.tick, beats[:2]))
    elif name in {"run", "end", "reuse"}:
        play_run(ledger, name, number)
    else:
        play_owner(ledger, name, number)


def play_submit(ledger: Builder, number: int) -> None:
    runs = sorted(ledger.kernels[0].runs)
    ledger.submit(
        f"job-{ledger.kernels[0].metrics.states.total()}",
        run_id=runs[0] if runs and number % 3 else None,
        priority=1 + number % 10,
        max_retries=number % 3,
        max_interruptions=number % 2,
        quota_policy_hash=ledger.config.quota_policies[number % 3].hash(),
    )


def play_running(ledger: Builder, name: str, number: int, job_id: str) -> None:
    job = ledger.kernels[0].jobs[job_id]
    assert job.lease_id is not None
    if name in {"ok", "crash"}:
        ledger.finish(job_id, ok=name == "ok")
    elif name in {"interrupt", "worker_lost", "watchdog"}:
        kind = "interrupted" if name == "interrupt" else name
        ledger.finish(job_id, ok=False, kind=kind, category=None)
    elif name == "beat":
        ledger.apply(Heartbeat(ledger.tick, job_id, job.lease_id))
    elif name == "usage":
        ledger.apply(ReportUsage(ledger.tick, job_id, job.lease_id, job.reports, cpu_time_ms=2 * number))
    else:
        to_state, kind = ("FAILED", "result") if name == "by_hand" else ("CANCELED", "cancel")
        evidence = Evidence(kind, "BY_HAND", job.lease_id if kind == "result" else None).encode()
        place = (job.tenant_id, job_id, job.attempt_id, job.transition_seq)
        ledger.apply(Transition(ledger.tick, *place, "RUNNING", to_state, evidence))


def play_run(ledger: Builder, name: str, number: int) -> None:
    open_runs = sorted(ledger.kernels[0].runs)
    if name == "run":
        ledger.start_run(f"run-{ledger.kernels[0].trace_length}-{number}")
    elif open_runs and name == "end":
        for run_id in open_runs:
            ledger.end_run(run_id, ("completed", "failed", "cancelled")[number % 3])
    elif open_runs and ledger.rows:
        ledger.reuse(open_runs[0], f"step-{number}", sorted(ledger.rows)[number % len(ledger.rows)])


def play_owner(ledger: Builder, name: str, number: int) -> None:
    ledger.commit()
    if name == "erase":
        ledger.erase(ledger.content(bytes([number])))
    elif name == "epoch":
        ledger.raise_epoch()
    elif name == "quota":
        config = ledger.kernels[0].config
        other = "fail" if config.on_quota_running == "cancel" else "cancel"
        ledger.raise_epoch(config=replace(config, on_quota_running=other))
    elif name == "rotate":
        role = ("transition", "manifest", "log")[number % 3]
        ledger.rotate(role, key(f"{role} after {ledger.size()}"))
    elif name == "head" and number < 3:
        ledger.keep_head()
    else:
        ledger.tick += number
