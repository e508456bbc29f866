"""The kernel: one job lifecycle, decided by one pure reducer.

Start reading at `table` (which moves are legal), then `reducer` (how a command is applied), then `handlers` and
`transition` (how each command is decided).
"""

from __future__ import annotations

from detent.kernel.checkpoint import checkpoint, checkpoint_digest, restore
from detent.kernel.commands import (
    AdvanceTick,
    Cancel,
    ChangeTrust,
    Claim,
    Command,
    Dispatch,
    EndRun,
    EnrollWorker,
    Erase,
    Finish,
    Heartbeat,
    Operate,
    Order,
    RaiseEpoch,
    ReportUsage,
    Resume,
    RetireWorker,
    ReuseRun,
    ReuseStep,
    StartRun,
    Submit,
    Transition,
    commands_digest,
    decode_commands,
    encode_commands,
)
from detent.kernel.evidence import Evidence, evidence_ref
from detent.kernel.history import History, MemoryHistory, Record
from detent.kernel.identity import (
    OPERATORS,
    ORCHESTRATOR_VERSION,
    Operator,
    chain_genesis,
    lease_key,
    partition_of,
    request_digest,
    transition_key,
    transition_log_hash,
)
from detent.kernel.job import Job, Usage
from detent.kernel.manifest import MANIFEST_LABEL, Manifest, RefusedManifest, VerifiedManifest, open_envelope
from detent.kernel.metrics import Metrics
from detent.kernel.outcome import ErrorRecord, Grant, HeartbeatRecord, JobState, Outcome, emit_error
from detent.kernel.policy import (
    BackoffSchedule,
    KernelConfig,
    LeasePolicy,
    QueuePolicy,
    QuotaPolicy,
)
from detent.kernel.queue import Arrival, Due, Enqueued, JobQueue, Placed, PriorityFifo, plain_queue
from detent.kernel.records import RECORD_FIELDS
from detent.kernel.reducer import Kernel
from detent.kernel.run import RUN_STATUSES, Run
from detent.kernel.table import LEGAL, TABLE_DIGEST, TABLE_MAJOR, TERMINAL, TRANSITIONS, State
from detent.kernel.trace import IterEvent, LogComparison, LogDifference, LogEntry, compare_logs, run_end, run_header

__all__ = [
    "LEGAL",
    "MANIFEST_LABEL",
    "OPERATORS",
    "ORCHESTRATOR_VERSION",
    "RECORD_FIELDS",
    "RUN_STATUSES",
    "TABLE_DIGEST",
    "TABLE_MAJOR",
    "TERMINAL",
    "TRANSITIONS",
    "AdvanceTick",
    "Arrival",
    "BackoffSchedule",
    "Cancel",
    "ChangeTrust",
    "Claim",
    "Command",
    "Dispatch",
    "Due",
    "EndRun",
    "Enqueued",
    "EnrollWorker",
    "Erase",
    "ErrorRecord",
    "Evidence",
    "Finish",
    "Grant",
    "Heartbeat",
    "HeartbeatRecord",
    "History",
    "IterEvent",
    "Job",
    "JobQueue",
    "JobState",
    "Kernel",
    "KernelConfig",
    "LeasePolicy",
    "LogComparison",
    "LogDifference",
    "LogEntry",
    "Manifest",
    "MemoryHistory",
    "Metrics",
    "Operate",
    "Operator",
    "Order",
    "Outcome",
    "Placed",
    "PriorityFifo",
    "QueuePolicy",
    "QuotaPolicy",
    "RaiseEpoch",
    "Record",
    "RefusedManifest",
    "ReportUsage",
    "Resume",
    "RetireWorker",
    "ReuseRun",
    "ReuseStep",
    "Run",
    "StartRun",
    "State",
    "Submit",
    "Transition",
    "Usage",
    "VerifiedManifest",
    "chain_genesis",
    "checkpoint",
    "checkpoint_digest",
    "commands_digest",
    "compare_logs",
    "decode_commands",
    "emit_error",
    "encode_commands",
    "evidence_ref",
    "lease_key",
    "open_envelope",
    "partition_of",
    "plain_queue",
    "request_digest",
    "restore",
    "run_end",
    "run_header",
    "transition_key",
    "transition_log_hash",
]
