"""Cut anywhere, restore, go on: the records are those of a kernel that never stopped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.kernel import (
    Command,
    Kernel,
    Outcome,
    checkpoint,
    decode_commands,
    encode_commands,
    restore,
)
from tests.kernel.walk import NUMBER_MAX, NUMBERS_PER_STEP, Numbers, Walk, walk_config, walked

STEPS = st.lists(st.tuples(*[st.integers(0, NUMBER_MAX)] * NUMBERS_PER_STEP), min_size=1, max_size=40)


def replayed(config_of: Kernel, commands: list[Command]) -> tuple[Kernel, list[Outcome]]:
    """A fresh kernel after some commands, and what it answered."""
    kernel = Kernel(config_of.config)
    return kernel, [kernel.apply(command) for command in commands]


def assert_cuts_do_not_show(walk: Walk, settings_number: int) -> None:
    """Restore before every command; with the same past each answer must be the same, and so must the end."""
    first = Kernel(walk_config(settings_number))
    kernel = first
    for command, expected in zip(walk.commands, walk.outcomes, strict=True):
        kernel = restore(checkpoint(kernel), history=first.history)
        outcome = kernel.apply(command)
        assert outcome == expected, command
        kernel.check()
    assert checkpoint(kernel) == checkpoint(walk.kernel)


@given(st.integers(0, 15), STEPS)
def test_a_kernel_restored_before_every_command_answers_as_one_that_never_stopped(
    settings_number: int, steps: list[Numbers]
) -> None:
    """PIPE-121..PIPE-123, X-022"""
    walk = Walk(walk_config(settings_number), with_runs=True)
    for numbers in steps:
        walk.step(numbers)
    assert_cuts_do_not_show(walk, settings_number)


@pytest.mark.parametrize("seed", range(24))
def test_long_walks_can_be_cut_anywhere(seed: int) -> None:
    """PIPE-123, X-168"""
    assert_cuts_do_not_show(walked(seed, 120), seed)


@pytest.mark.parametrize("seed", range(24))
def test_recorded_commands_replay_to_the_same_bytes(seed: int) -> None:
    """PIPE-010, PIPE-094, PIPE-105, PIPE-118, X-009, X-165"""
    walk = walked(seed, 120)
    commands = decode_commands(encode_commands(walk.commands))
    assert commands == walk.commands
    kernel = Kernel(walk_config(seed))
    outcomes = [kernel.apply(command) for command in commands]
    assert outcomes == walk.outcomes
    assert checkpoint(kernel) == checkpoint(walk.kernel)


@pytest.mark.parametrize("seed", range(48))
def test_commands_that_need_not_be_recorded_can_be_left_out(seed: int) -> None:
    """X-165, X-182: a refusal that left nothing behind is no input of what follows."""
    walk = walked(seed, 120)
    recorded = [
        (command, outcome) for command, outcome in zip(walk.commands, walk.outcomes, strict=True) if outcome.recorded
    ]
    assert len(recorded) < len(walk.commands)
    kernel = Kernel(walk_config(seed))
    for command, expected in recorded:
        assert kernel.apply(command) == expected, command
    assert checkpoint(kernel) == checkpoint(walk.kernel)
