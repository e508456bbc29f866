"""Scheduling: who waits, who runs and where, decided by pure functions.

A job goes through `admission` (may it wait, and where), `queues` (who waits), `placement` (which replica of the `fleet`), and
each of them says why in a decision of `decisions`. Beside the way stand `sessions` (budgets, affinity), `watchdog` (who is
stuck), `determinism` (what a replica set promises) and `policy` (all that can be set).

Without registered replicas, which is how every home runs today, `Scheduler.admit` takes the plain way: class queues and no
placement. Not reached yet: nothing registers a replica, so placement, sessions and budgets, replica sets and
`determinism` are run by tests alone; pools of replicas and inference will use them. tests/unreached.toml has the list.
"""

from __future__ import annotations

from detent.canon.grammar import PRIORITY_NAMES
from detent.kernel.queue import Enqueued
from detent.scheduling.admission import Admitted, NotAdmitted, admit
from detent.scheduling.checks import check_priority, workflow_priority
from detent.scheduling.decisions import STAGES, Candidate, Decision
from detent.scheduling.determinism import (
    GenerationRequest,
    ReferenceEngine,
    ReplicaSet,
    TokenStream,
    determinism_key,
    same_stream,
)
from detent.scheduling.explain import explain_lines
from detent.scheduling.fleet import Fleet
from detent.scheduling.observability import LOG_FIELDS, METRIC_FAMILIES, JobFacts, MetricFamily, Sample, log_fields
from detent.scheduling.placement import Remembered, place, recompute, stages
from detent.scheduling.policy import SchedulingPolicy
from detent.scheduling.pool_queues import PoolQueues
from detent.scheduling.queues import ADMISSION_POLICIES, ClassQueues, Head, Position
from detent.scheduling.scheduler import Scheduler
from detent.scheduling.sessions import Budgets, Sessions, Used
from detent.scheduling.types import ModelRequirements, Pin, PlacementInput, ReplicaStatus, TaskRequest, derive
from detent.scheduling.watchdog import Limits, Verdict, Watchdog, Watched, limits_of

__all__ = [
    "ADMISSION_POLICIES",
    "LOG_FIELDS",
    "METRIC_FAMILIES",
    "PRIORITY_NAMES",
    "STAGES",
    "Admitted",
    "Budgets",
    "Candidate",
    "ClassQueues",
    "Decision",
    "Enqueued",
    "Fleet",
    "GenerationRequest",
    "Head",
    "JobFacts",
    "Limits",
    "MetricFamily",
    "ModelRequirements",
    "NotAdmitted",
    "Pin",
    "PlacementInput",
    "PoolQueues",
    "Position",
    "ReferenceEngine",
    "Remembered",
    "ReplicaSet",
    "ReplicaStatus",
    "Sample",
    "Scheduler",
    "SchedulingPolicy",
    "Sessions",
    "TaskRequest",
    "TokenStream",
    "Used",
    "Verdict",
    "Watchdog",
    "Watched",
    "admit",
    "check_priority",
    "derive",
    "determinism_key",
    "explain_lines",
    "limits_of",
    "log_fields",
    "place",
    "recompute",
    "same_stream",
    "stages",
    "workflow_priority",
]
