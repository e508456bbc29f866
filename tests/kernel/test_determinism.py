"""The same commands give the same bytes: in any process, under any hash seed, with assertions on or off, without a clock."""

from __future__ import annotations

import datetime as dt
import os
import random
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from detent.kernel import Kernel, checkpoint
from tests.kernel.walk import walk_config, walked
from tests.kernel.walk_digest import digest

ROOT = Path(__file__).resolve().parents[2]


def digest_elsewhere(hash_seed: str, *options: str) -> str:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    command = [sys.executable, *options, "-m", "tests.kernel.walk_digest"]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize(("hash_seed", "options"), [("0", ()), ("1", ()), ("4711", ("-O",))])
def test_other_processes_decide_the_same_bytes(hash_seed: str, options: tuple[str, ...]) -> None:
    """PIPE-017, PIPE-118"""
    assert digest_elsewhere(hash_seed, *options) == digest()


def test_the_digest_notices_a_changed_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest that could not change would prove nothing."""
    before = digest()
    monkeypatch.setattr("detent.kernel.evidence.REASON_DISPATCHED", "DISPATCHEd")
    assert digest() != before


CLOCKS_AND_DICE: list[tuple[Any, str]] = [
    *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep", "gmtime")),
    *((random, name) for name in ("random", "randrange", "getrandbits", "choice", "shuffle", "Random", "SystemRandom")),
    *((uuid, name) for name in ("uuid1", "uuid4")),
    *((secrets, name) for name in ("token_bytes", "randbits", "choice")),
    (os, "urandom"),
    (os, "getpid"),
    (dt, "datetime"),
]


def test_the_kernel_reads_no_clock_and_throws_no_dice() -> None:
    """PIPE-016, X-009, X-052: with all of them forbidden it decides the same"""
    walk = walked(7, 200)
    forbidden: list[tuple[Any, str, Callable[..., Any]]] = []

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the kernel looked at the world")

    try:
        for module, name in CLOCKS_AND_DICE:
            forbidden.append((module, name, getattr(module, name)))
            setattr(module, name, refuse)
        kernel = Kernel(walk_config(7))
        outcomes = [kernel.apply(command) for command in walk.commands]
        data = checkpoint(kernel)
    finally:
        for module, name, original in forbidden:
            setattr(module, name, original)
    assert outcomes == walk.outcomes
    assert data == checkpoint(walk.kernel)


def test_two_runs_of_one_configuration_and_input_are_identical() -> None:
    """PIPE-011, PIPE-017, PIPE-094"""
    one, two = walked(3, 150), walked(3, 150)
    assert one.outcomes == two.outcomes
    assert checkpoint(one.kernel) == checkpoint(two.kernel)
    assert one.outcomes != walked(4, 150).outcomes
