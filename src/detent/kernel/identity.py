"""What the kernel is called, and the six operators it is made of (PIPE-001 to PIPE-003)."""

from __future__ import annotations

from collections.abc import Mapping

from detent.canon.late import dataclass

ORCHESTRATOR_VERSION = "UML_OS.Pipeline.Orchestrator_v1"
SPEC_DATE = "2026-02-18"
SPEC_AUTHOR = "Olejar Damir"
EQC_COMPLIANCE = "EQC v1.1 Option A (single merged specification)"

JOB_SUBMIT = "UML_OS.Pipeline.JobSubmit_v1"
JOB_TRANSITION = "UML_OS.Pipeline.JobTransition_v1"
JOB_HEARTBEAT = "UML_OS.Pipeline.JobHeartbeat_v1"
JOB_CANCEL = "UML_OS.Pipeline.JobCancel_v1"
JOB_QUERY = "UML_OS.Pipeline.JobQuery_v1"
ERROR_EMIT = "UML_OS.Error.Emit_v1"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as its contract describes it: what goes in, what comes out, how it behaves."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    category: str = "Orchestration"
    purity: str = "IO"
    determinism: str = "deterministic"


OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator(JOB_SUBMIT, ("tenant_id", "signed_manifest"), ("job_state", "submit_record")),
        Operator(
            JOB_TRANSITION,
            (
                "tenant_id",
                "job_id",
                "attempt_id",
                "expected_transition_seq",
                "from_state",
                "to_state",
                "evidence_ref",
            ),
            ("transition_record",),
        ),
        Operator(JOB_HEARTBEAT, ("job_id", "lease_id", "tick"), ("heartbeat_record",)),
        Operator(
            JOB_CANCEL,
            ("tenant_id", "job_id", "expected_transition_seq?", "reason_code", "evidence_ref"),
            ("transition_record",),
        ),
        Operator(JOB_QUERY, ("tenant_id", "job_id"), ("job_state",)),
        Operator(
            ERROR_EMIT,
            ("t", "failure_code", "failure_operator", "replay_token", "diagnostics"),
            ("error_record",),
            category="Error",
        ),
    )
}
