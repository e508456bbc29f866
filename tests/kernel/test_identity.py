"""What the kernel calls itself and its operators, and what an operator gives back."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from detent.errors import Refused
from detent.kernel import (
    OPERATORS,
    ORCHESTRATOR_VERSION,
    Cancel,
    Heartbeat,
    JobState,
    Kernel,
    Transition,
    checkpoint,
    run_header,
)
from detent.kernel.identity import EQC_COMPLIANCE, SPEC_AUTHOR, SPEC_DATE
from tests.kernel.builders import Scene, body_of, config

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_the_kernel_names_itself_as_the_contract_does() -> None:
    """PIPE-001"""
    assert ORCHESTRATOR_VERSION == "UML_OS.Pipeline.Orchestrator_v1"
    assert (SPEC_DATE, SPEC_AUTHOR) == ("2026-02-18", "Olejar Damir")
    assert run_header(config())["orchestrator_version"] == ORCHESTRATOR_VERSION


def test_there_are_exactly_six_operators() -> None:
    """PIPE-002, X-063: the contract lists them twice, alike"""
    assert set(OPERATORS) == {
        "UML_OS.Pipeline.JobSubmit_v1",
        "UML_OS.Pipeline.JobTransition_v1",
        "UML_OS.Pipeline.JobHeartbeat_v1",
        "UML_OS.Pipeline.JobCancel_v1",
        "UML_OS.Pipeline.JobQuery_v1",
        "UML_OS.Error.Emit_v1",
    }
    assert all(name == operator.name for name, operator in OPERATORS.items())


def test_operators_live_in_the_pipeline_namespace_and_errors_alone_in_theirs() -> None:
    """PIPE-003"""
    pipeline = [name for name in OPERATORS if re.fullmatch(r"UML_OS\.Pipeline\.[A-Za-z]+_v1", name)]
    assert set(OPERATORS) - set(pipeline) == {"UML_OS.Error.Emit_v1"}


def test_the_package_declares_the_specification_style_it_follows() -> None:
    """PIPE-005"""
    assert EQC_COMPLIANCE == "EQC v1.1 Option A (single merged specification)"
    assert EQC_COMPLIANCE in PROJECT.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("Pipeline.JobSubmit_v1", "tenant_id signed_manifest", "job_state submit_record"),
        (
            "Pipeline.JobTransition_v1",
            "tenant_id job_id attempt_id expected_transition_seq from_state to_state evidence_ref",
            "transition_record",
        ),
        ("Pipeline.JobHeartbeat_v1", "job_id lease_id tick", "heartbeat_record"),
        (
            "Pipeline.JobCancel_v1",
            "tenant_id job_id expected_transition_seq? reason_code evidence_ref",
            "transition_record",
        ),
        ("Pipeline.JobQuery_v1", "tenant_id job_id", "job_state"),
        ("Error.Emit_v1", "t failure_code failure_operator replay_token diagnostics", "error_record"),
    ],
)
def test_every_operator_has_its_signature(name: str, inputs: str, outputs: str) -> None:
    """PIPE-069, PIPE-072, PIPE-079, X-055"""
    operator = OPERATORS[f"UML_OS.{name}"]
    assert operator.inputs == tuple(inputs.split())
    assert operator.outputs == tuple(outputs.split())
    assert (operator.purity, operator.determinism) == ("IO", "deterministic")
    assert operator.category == ("Error" if name.startswith("Error") else "Orchestration")


@pytest.mark.parametrize(
    ("name", "command"),
    [("JobTransition_v1", Transition), ("JobHeartbeat_v1", Heartbeat), ("JobCancel_v1", Cancel)],
)
def test_a_command_carries_every_input_of_its_operator(name: str, command: type) -> None:
    """PIPE-044, PIPE-069, PIPE-072, PIPE-079"""
    carried = {entry.name for entry in fields(command)}
    wanted = {field.rstrip("?") for field in OPERATORS[f"UML_OS.Pipeline.{name}"].inputs}
    # The evidence of a cancellation is built by the kernel from the reason and the digest of the request.
    assert wanted - carried <= ({"evidence_ref"} if command is Cancel else set())


def test_operators_that_change_state_answer_with_job_state_and_record() -> None:
    """PIPE-034"""
    scene = Scene()
    submitted = scene.submit()
    started = scene.transition("job-1", "QUEUED", "RUNNING")
    canceled = scene.cancel()
    answers = [
        (outcome.job.state if outcome.job else None, body_of(outcome.record)["kind"], outcome.record)
        for outcome in (submitted, started, canceled)
    ]
    assert [answer[:2] for answer in answers] == [
        ("QUEUED", "submitted"),
        ("RUNNING", "transition"),
        ("CANCELED", "transition"),
    ]
    assert [answer[2] for answer in answers] == scene.records


def test_a_query_answers_with_the_state_and_changes_nothing() -> None:
    """PIPE-078"""
    scene = Scene()
    scene.start()
    before = checkpoint(scene.kernel)
    answer = scene.kernel.query("tenant-a", "job-1")
    assert isinstance(answer, JobState)
    assert (answer.state, answer.transition_seq, answer.attempt_id) == ("RUNNING", 1, 0)
    assert checkpoint(scene.kernel) == before


@pytest.mark.parametrize(
    ("tenant_id", "job_id", "code"),
    [("tenant-b", "job-1", "UNKNOWN_JOB"), ("tenant-a", "job-2", "UNKNOWN_JOB"), ("tenant-a", "", "INVALID_PARAMS")],
)
def test_a_query_for_what_the_tenant_does_not_have_is_refused(tenant_id: str, job_id: str, code: str) -> None:
    """PIPE-078"""
    scene = Scene()
    scene.submit()
    answer = scene.kernel.query(tenant_id, job_id)
    assert isinstance(answer, Refused)
    assert answer.code == code


def test_start_up_takes_queue_and_policies_then_trust_then_the_log() -> None:
    """PIPE-107..PIPE-109"""
    order: list[str] = []

    class Watched(Kernel):
        def __setattr__(self, name: str, value: object) -> None:
            order.append(name)
            super().__setattr__(name, value)

    kernel = Watched(config())
    steps = [name for name in order if name in {"config", "queue", "trust_version", "history", "jobs"}]
    assert steps == ["config", "queue", "trust_version", "history", "jobs"]
    assert (kernel.trust_version, kernel.jobs, len(kernel.queue), kernel.tick) == (0, {}, 0, 0)
