from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from detent.executor.sandbox import Capabilities, Profile, interpreter, probe, profile_of
from detent.executor.sandbox.capabilities import WORDS

EVERYTHING = dict.fromkeys(WORDS, "")


def machine(*missing: str, abi: int = 7) -> Capabilities:
    return Capabilities({**EVERYTHING, **dict.fromkeys(missing, "not here")}, abi, is_root=False)


@pytest.mark.parametrize(
    ("capabilities", "profile"),
    [
        (machine(), Profile.FULL),
        (machine("cgroup"), Profile.FULL_ROOTLESS),
        (machine("mounts"), Profile.KERNEL_FILTER),
        (machine("network_namespace", "cgroup"), Profile.KERNEL_FILTER),
        (machine("user_namespace", abi=5), Profile.NONE),
        (machine("landlock"), Profile.NONE),
        (machine("seccomp"), Profile.NONE),
        (machine("openat2"), Profile.NONE),
        (Capabilities(), Profile.NONE),
    ],
)
def test_a_profile_is_named_by_what_there_is(capabilities: Capabilities, profile: Profile) -> None:
    """JOB-080"""
    assert profile_of(capabilities) is profile


def test_taking_something_away_never_makes_a_profile_stronger() -> None:
    names = list(WORDS)
    for first, second in product(names, names):
        assert profile_of(machine(first, second)).strength <= profile_of(machine(first)).strength


def test_what_is_missing_is_said_with_its_reason() -> None:
    lines = {name: (works, text) for name, works, text in machine("cgroup").lines()}
    assert lines["cgroup"] == (False, "counting memory, processes and time of a whole tree: not here")
    assert lines["pidfd"] == (True, "handles on processes")


def test_the_probe_tries_everything_and_leaves_nothing() -> None:
    found = probe()
    assert set(found.missing) == set(WORDS)
    assert [profile.value for profile in sorted(Profile, key=lambda one: -one.strength)] == [
        "full",
        "full-rootless",
        "kernel-filter",
        "none",
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("echo 'python: error while loading shared libraries: libx.so' >&2; exit 127", "python: error while loading"),
        ("exit 3", "it ended with status 3"),
        ("kill -9 $$", "the trial was killed"),
    ],
)
def test_an_interpreter_that_does_not_start_is_said_to_be_what_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, why: str
) -> None:
    """Not the kernel: with the reason an operator can find the library or the setting that is missing."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{line}\n")
    script.chmod(0o755)
    monkeypatch.setattr(interpreter, "interpreter", lambda: str(script))
    found = probe.__wrapped__()
    assert profile_of(found) is Profile.NONE
    assert all(why in text for text in found.missing.values())
