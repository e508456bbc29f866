"""Commands survive their recorded form, and no argument, however wrong, makes the kernel raise."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any

import pytest

from detent.canon import encode, sha256
from detent.errors import InvalidInput, Refused
from detent.kernel import (
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
    Kernel,
    Operate,
    Order,
    RaiseEpoch,
    RefusedManifest,
    ReportUsage,
    Resume,
    RetireWorker,
    ReuseRun,
    ReuseStep,
    StartRun,
    Submit,
    Transition,
    checkpoint,
    commands_digest,
    decode_commands,
    encode_commands,
)
from detent.kernel.commands import command_from_list, command_to_list, stamped
from tests.kernel.builders import NO_LEASE, OWNER_KEY_ID, TENANT, Scene, code_of, config, verified
from tests.kernel.walk import walked

DIGEST = b"\x08" * 32
KEY_ID = b"\x09" * 32
COMMANDS: list[Command] = [
    Submit(1, verified("job-2"), "run-1"),
    Submit(1, verified("job-3")),
    Submit(1, verified("job-4"), None, b"\xa0"),
    Transition(2, TENANT, "job-1", 0, 1, "RUNNING", "FAILED", b"\xa0", "sha256:00", 3),
    Transition(2, TENANT, "job-1", 0, 1, "RUNNING", "FAILED"),
    Heartbeat(3, "job-1", DIGEST),
    Heartbeat(3, "job-1", DIGEST, progress=True),
    Heartbeat(3, "job-1", DIGEST, lease="remote"),
    Cancel(4, TENANT, "job-1", "SUPERSEDED", 7, DIGEST),
    Claim(5, "worker-1", 9),
    Claim(5, "worker-1", 9, ("team-a", "team-b")),
    Claim(5, "worker-1", 9, None, ("task",)),
    Claim(5, "worker-1", 9, ("team-a",), ("action", "task")),
    Claim(5, "worker-1", 9, None, None, ("job-1",)),
    Claim(5, "worker-1", 9, ("team-a",), None, None, ("a100", "pool:gpu"), "remote"),
    Dispatch(5, 3),
    Order(5, "replica", b"\xa0"),
    Finish(6, "job-1", DIGEST, "result", ok=False, reason_code="BAD", category="ValueError", detail_digest=DIGEST),
    Finish(6, "job-1", DIGEST, used=(1, 2, 3, 4, 5)),
    ReportUsage(7, "job-1", DIGEST, 6, -1, 2, 3, 4, 5),
    AdvanceTick(8),
    AdvanceTick(8, 3),
    Resume(9, (("job-1", DIGEST), ("job-2", NO_LEASE)), 7),
    Resume(9, (("job-1", DIGEST, "remote"),)),
    Resume(9),
    StartRun(10, TENANT, "run-1", "nightly", DIGEST, DIGEST, DIGEST, "op"),
    ReuseStep(11, "run-1", "step-1", "job-1", DIGEST),
    ReuseStep(11, "run-1", "step-1[2]", "job-1", DIGEST, 0),
    ReuseRun(11, "run-2", "run-1", ("step-1", "step-2"), DIGEST),
    ReuseRun(11, "run-2", "run-1", (), DIGEST),
    EndRun(12, "run-1", "completed"),
    EndRun(12, "run-1", "failed", "RUN_TIMEOUT"),
    RaiseEpoch(13, 2, OWNER_KEY_ID, config().encode()),
    ChangeTrust(14, 1, DIGEST, b"signed"),
    Erase(15, (DIGEST, NO_LEASE), 2, "ERASED_BY_USER"),
    Operate(16, "p_ann", "dtk_7ab", "job.cancel", "job", "job-1", "OK", DIGEST, TENANT, encode({"reason": "late"})),
    Operate(16, "p_ann", "local", "server.started", "server", "here", "OK", DIGEST),
    EnrollWorker(17, "gpu-2", KEY_ID, sha256(b"cert"), encode({"certificate": b"cert", "proof": b"proof"})),
    RetireWorker(18, "gpu-1", "RETIRED_BY_USER"),
]


def test_every_command_survives_its_recorded_form() -> None:
    """X-165"""
    assert {type(command) for command in COMMANDS} == set(Command.__args__)
    blob = encode_commands(COMMANDS)
    assert decode_commands(blob) == COMMANDS
    assert encode_commands(decode_commands(blob)) == blob


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_stamped_command_differs_in_its_tick_alone(command: Command) -> None:
    assert stamped(command, command.tick + 5) == replace(command, tick=command.tick + 5)
    assert stamped(command, command.tick + 5) != command


@pytest.mark.parametrize("seed", range(6))
def test_the_commands_of_a_walk_survive_their_recorded_form(seed: int) -> None:
    """X-026, X-165: ids, ticks and digests come back as they were recorded"""
    commands = walked(seed, 100).commands
    assert decode_commands(encode_commands(commands)) == commands


def test_the_digest_of_commands_is_labelled() -> None:
    """X-165"""
    blob = encode_commands(COMMANDS)
    assert commands_digest(blob) == hashlib.sha256(b"detent/commands/v1\0" + blob).digest()
    assert commands_digest(blob) != commands_digest(encode_commands(COMMANDS[1:]))


def test_the_end_of_a_run_without_a_reason_is_recorded_as_it_always_was() -> None:
    """X-116, X-165: commands of ledgers from before there were reasons are read, and written, byte for byte."""
    before = ["run_end", 12, "run-1", "completed"]
    assert command_to_list(EndRun(12, "run-1", "completed")) == before
    assert command_from_list(before) == EndRun(12, "run-1", "completed")
    with pytest.raises(InvalidInput, match="reason"):
        command_from_list([*before, None])


def test_no_commands_are_a_list_too() -> None:
    assert decode_commands(encode_commands([])) == []


GOOD: list[Any] = ["tick", 5, 1]
SUBMIT: list[Any] = ["submit", 1, verified().body, DIGEST, bytes(64), None, None]


@pytest.mark.parametrize(
    "recorded",
    [
        {},
        "tick",
        [5],
        [[]],
        [[5]],
        [["tick"]],
        [["tick", 1, 2, 3]],
        [["unknown", 1]],
        [["query", TENANT, "job-1"]],
        [GOOD, None],
        [["submit", 1]],
        [["submit", 1, b"junk", DIGEST, bytes(64), None, None]],
        [["submit", 1, None, DIGEST, bytes(64), None, None]],
        [["submit", 1, verified().body, None, bytes(64), None, None]],
        [["submit", 1, verified().body, DIGEST, "sig", None, None]],
    ],
)
def test_what_was_not_recorded_so_is_refused(recorded: Any) -> None:
    """X-165"""
    assert decode_commands(encode([GOOD, SUBMIT]))[0] == AdvanceTick(5, 1)
    with pytest.raises(InvalidInput):
        decode_commands(encode(recorded))


def test_bytes_that_are_not_canonical_are_refused() -> None:
    """PIPE-033"""
    with pytest.raises(InvalidInput):
        decode_commands(b"\x81\x82\x64tick\x18\x05")


def test_a_submission_refused_at_the_border_is_recorded_as_the_time_it_let_pass() -> None:
    """X-165, X-182: read back it must not look like one that was granted"""
    refused = RefusedManifest(Refused("MANIFEST_SIGNATURE_INVALID", "no"), "job-2")
    scenes = Scene(), Scene()
    for scene in scenes:
        scene.start()
    outcome = scenes[0].apply(Submit(100, refused))
    assert (code_of(outcome), outcome.recorded) == ("MANIFEST_SIGNATURE_INVALID", True)
    assert [record.job_id for record in outcome.records] == ["job-1"]
    (read,) = decode_commands(encode_commands([Submit(100, refused)]))
    assert read == AdvanceTick(100, 2**64 - 1)
    assert scenes[1].apply(read).records == outcome.records
    assert checkpoint(scenes[0].kernel) == checkpoint(scenes[1].kernel)


# -- wrong arguments -----------------------------------------------------------------------------------------------

WRONG: list[Any] = [
    None, True, -1, 2**64, 10**5000, 1.5, float("nan"), "", "\n", "x" * 300, "\ud800", b"", b"\x00" * 33,
    [], ["x"], {}, {"a": 1}, (), ((),), (("a",),), ((1, 2),), (("a", b""), None), object(),
]  # fmt: skip


def changed(command: Command, name: str, value: Any) -> Command:
    fields_of: dict[str, Any] = {name: value}
    return replace(command, **fields_of)


def busy_kernel() -> tuple[Kernel, bytes]:
    """A kernel in which ``job-1`` runs in an open run, and its lease."""
    scene = Scene()
    scene.apply(StartRun(0, TENANT, "run-1", "nightly", DIGEST, DIGEST, DIGEST, "op"))
    scene.submit("job-1")
    (grant,) = scene.claim()
    return scene.kernel, grant.lease_id


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_no_argument_however_wrong_makes_the_kernel_raise(command: Command) -> None:
    """PIPE-018, PIPE-023, PIPE-033, PIPE-037: what a stranger sends, or a tampered ledger holds, is answered"""
    kernel, lease_id = busy_kernel()
    if any(entry.name == "lease_id" for entry in fields(command)):
        command = changed(command, "lease_id", lease_id)
    for entry in fields(command):
        for wrong in WRONG:
            before = checkpoint(kernel)
            outcome = kernel.apply(changed(command, entry.name, wrong))
            kernel.check()
            if not outcome.recorded:
                assert checkpoint(kernel) == before
            if not outcome.ok:
                assert outcome.refusal is not None
                assert outcome.error is not None
                assert len(outcome.refusal.message) < 1000
                assert outcome.error.encode()
            if outcome.recorded:
                encode_commands([changed(command, entry.name, wrong)])
                kernel, lease_id_now = busy_kernel()
                assert lease_id_now == lease_id


@pytest.mark.parametrize("stranger", [None, object(), ("tick", 1)])
def test_what_is_no_command_is_refused_before_anything_happens(stranger: Any) -> None:
    """PIPE-033"""
    scene = Scene()
    scene.start()
    before = checkpoint(scene.kernel)
    with pytest.raises(InvalidInput, match="not a command"):
        scene.kernel.apply(stranger)
    assert checkpoint(scene.kernel) == before
