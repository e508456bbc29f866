"""Attempts as the ledger's records tell them: when each was queued, dispatched and over, in the order of the records.

The same fold serves the log lines and the metrics of a home: it reads records and nothing else, so the same records
always give the same lines and the same numbers. It holds what is alive; an attempt that is over leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from detent.canon.late import dataclass
from detent.errors import InvalidInput
from detent.kernel.metrics import Metrics
from detent.kernel.records import SUBMITTED, TRANSITION
from detent.kernel.table import LEGAL, State
from detent.scheduling.observability import (
    DROP_REASONS,
    LATENCY_BUCKETS,
    METRIC_FAMILIES,
    JobFacts,
    MetricFamily,
    Sample,
)
from detent.words.states import JOB_STATES, word_of

OUTCOMES: Final = tuple(word_of(state) for state in (State.SUCCEEDED, State.FAILED, State.CANCELED, State.RETRYING))
"""How an attempt can end: the state that its job is in afterwards."""

LIFECYCLE_FAMILIES: Final = (
    MetricFamily("detent_jobs", "gauge", "jobs", "Jobs, by state.", {"state": JOB_STATES}),
    MetricFamily(
        "detent_job_success_ratio",
        "gauge",
        "job success rate",
        "Share of the ended jobs that succeeded; 0 before any has ended.",
        {},
    ),
    MetricFamily(
        "detent_transitions_total",
        "counter",
        "lifecycle transitions",
        "Recorded transitions of jobs.",
        {"from_state": JOB_STATES, "to_state": JOB_STATES},
    ),
    MetricFamily(
        "detent_ambiguous_transitions_total",
        "counter",
        "ambiguous transitions",
        "Requests for a transition that were refused or in conflict.",
        {},
    ),
    MetricFamily(
        "detent_job_queue_seconds",
        "histogram",
        "queue time",
        "From entering the queue to being given to a worker, for each attempt.",
        {},
        LATENCY_BUCKETS,
    ),
    MetricFamily(
        "detent_job_attempt_seconds",
        "histogram",
        "attempt time",
        "From being given to a worker to the end of the attempt, by the state of the job afterwards.",
        {"outcome": OUTCOMES},
        LATENCY_BUCKETS,
    ),
)
"""Queue and lifecycle metrics of the pipeline contract (0.I), beside those of the orchestrator core."""

ALL_FAMILIES: Final = (*METRIC_FAMILIES, *LIFECYCLE_FAMILIES)


def contract_map() -> dict[str, object]:
    """The metrics contract as the file holds it."""
    return {"version": 1, "requirement": "OC-CORE-1041", "families": [family.to_map() for family in ALL_FAMILIES]}


def lifecycle_samples(counted: Iterable[Metrics]) -> Iterator[Sample]:
    """What the kernels of all partitions have counted, as it stands: gauges and totals."""
    whole = Metrics()
    for one in counted:
        whole.states.update(one.states)
        whole.transitions.update(one.transitions)
        whole.ambiguous += one.ambiguous
    for state in State:
        yield Sample("detent_jobs", whole.states[state.value], {"state": word_of(state)})
    yield Sample("detent_job_success_ratio", whole.job_success_rate(), {})
    for source, target in sorted(LEGAL):
        labels = {"from_state": word_of(source), "to_state": word_of(target)}
        yield Sample("detent_transitions_total", whole.transitions[source, target], labels)
    yield Sample("detent_ambiguous_transitions_total", whole.ambiguous, {})


DISPATCH: Final = "dispatch"
FINISH: Final = "finish"


@dataclass(frozen=True, slots=True)
class AttemptEvent:
    """An attempt was dispatched or is over, or a queued job was dropped before it had one."""

    name: str
    """``dispatch`` or ``finish``."""
    facts: JobFacts
    run_id: str | None
    attempt: int
    """Counted from 1."""
    state: str
    reason_code: str
    tick: int

    @property
    def dropped(self) -> bool:
        """Whether a full queue dropped the job."""
        return self.reason_code in DROP_REASONS

    def samples(self) -> Iterator[Sample]:
        """What this adds to the durations."""
        queued_ms = self.facts.ms_between("queued_tick", "dispatched_tick")
        ran_ms = self.facts.ms_between("dispatched_tick", "ended_tick")
        if self.name == DISPATCH and queued_ms is not None:
            yield Sample("detent_job_queue_seconds", queued_ms / 1_000, {})
        if self.name == FINISH and ran_ms is not None:
            yield Sample("detent_job_attempt_seconds", ran_ms / 1_000, {"outcome": word_of(self.state)})


@dataclass(slots=True)
class OpenAttempt:
    """What is known of a job that waits or runs. A tick is None when it passed before the fold began."""

    queued_tick: int | None = None
    dispatched_tick: int | None = None
    replica_id: str | None = None
    run_id: str | None = None
    facts: Mapping[str, Any] | None = None

    def to_list(self) -> list[object]:
        """As plain JSON, for keeping; without the facts, which only a log line needs."""
        return [self.queued_tick, self.dispatched_tick, self.replica_id, self.run_id]


class Attempts:
    """Follows the records of a ledger, partition by partition."""

    def __init__(self, tick_ms: int = 1) -> None:
        self.tick_ms = tick_ms
        self.open: dict[str, OpenAttempt] = {}

    def hear(
        self, kind: str, run_id: str | None, fields: Mapping[str, Any], replica_id: str | None = None
    ) -> AttemptEvent | None:
        """Take in one record; ``replica_id`` is the one that its evidence names."""
        if kind == SUBMITTED:
            self.open[fields["job_id"]] = OpenAttempt(fields["tick"], run_id=run_id)
            return None
        if kind != TRANSITION:
            return None
        job_id, tick = fields["job_id"], fields["tick"]
        source, target = fields["from_state"], fields["to_state"]
        if target == State.QUEUED:
            known = self.open.get(job_id)
            self.open[job_id] = OpenAttempt(tick, run_id=None if known is None else known.run_id)
            return None
        attempt = self.open.setdefault(job_id, OpenAttempt())
        if target == State.RUNNING:
            if fields["dispatch"]:
                attempt.dispatched_tick, attempt.replica_id = tick, replica_id
                return self._event(DISPATCH, job_id, attempt, fields, None)
            return None  # The way of a queued job to its cancellation: no worker gets it.
        if source != State.RUNNING:
            raise InvalidInput(f"job {job_id} went from {source} to {target}, which no attempt does")
        del self.open[job_id]
        event = self._event(FINISH, job_id, attempt, fields, tick)
        if target == State.RETRYING:
            self.open[job_id] = OpenAttempt(run_id=attempt.run_id)
        return event if event.dropped or attempt.replica_id is not None else None

    def learn(self, job_id: str, facts: Mapping[str, Any]) -> None:
        """Note what a scheduler knows of a job that waits or runs: its session, its model, its pool."""
        if (attempt := self.open.get(job_id)) is not None:
            attempt.facts = facts

    def _event(
        self, name: str, job_id: str, attempt: OpenAttempt, fields: Mapping[str, Any], ended_tick: int | None
    ) -> AttemptEvent:
        facts = JobFacts(
            **{**(attempt.facts or {}), "job_id": job_id, "replica_id": attempt.replica_id},
            queued_tick=attempt.queued_tick,
            dispatched_tick=attempt.dispatched_tick,
            ended_tick=ended_tick,
            tick_ms=self.tick_ms,
        )
        number, reason = fields["attempt_id"] + 1, fields["reason_code"]
        return AttemptEvent(name, facts, attempt.run_id, number, fields["to_state"], reason, fields["tick"])
