"""Same arguments, same answer: in any process, on any thread, without a clock, chance, files or a network."""

from __future__ import annotations

import builtins
import datetime as dt
import os
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from detent.workflow import (
    EnumExecutionMode,
    defaults,
    facade,
    get_execution_order,
    plan_workflow,
    validate_workflow_definition,
)
from tests.workflow.builders import MODES, WORKFLOW, definition, execute
from tests.workflow.plan_digest import digest, planned, random_steps, text_of

ROOT = Path(__file__).resolve().parents[2]


def digest_elsewhere(hash_seed: str, *options: str) -> str:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    command = [sys.executable, *options, "-m", "tests.workflow.plan_digest"]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize(("hash_seed", "options"), [("0", ()), ("1", ()), ("4711", ("-O",))])
def test_other_processes_plan_the_same_bytes(hash_seed: str, options: tuple[str, ...]) -> None:
    """WF-047, WF-113, X-097"""
    assert digest_elsewhere(hash_seed, *options) == digest()


@pytest.fixture
def nothing_but_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever could bring something else into a plan raises, on the thread that plans: others may go on with their work."""
    planning = threading.get_ident()

    def forbidden(real: Callable[..., Any]) -> Callable[..., Any]:
        def reach(*arguments: Any, **named: Any) -> Any:
            assert threading.get_ident() != planning, "the planner reached for the world"
            return real(*arguments, **named)

        return reach

    class NoClock(dt.datetime):
        now = forbidden(dt.datetime.now)

    for module, name in (
        *((time, name) for name in ("time", "monotonic", "perf_counter", "time_ns", "sleep")),
        *((uuid, name) for name in ("uuid1", "uuid4", "getnode")),
        *((random, "random"), (secrets, "token_bytes"), (os, "urandom"), (builtins, "open"), (builtins, "print")),
        *((socket, "socket"), (sqlite3, "connect"), (threading, "Thread"), (subprocess, "Popen")),
        *((defaults, "new_id"), (defaults, "utc_now"), (facade, "utc_now")),
    ):
        monkeypatch.setattr(module, name, forbidden(getattr(module, name)))
    monkeypatch.setattr(dt, "datetime", NoClock)


def test_planning_works_where_everything_else_raises(nothing_but_arguments: None) -> None:
    """WF-001, WF-033, WF-063, WF-067, WF-113, X-011"""
    steps = random_steps(3, 40)
    for mode in MODES:
        assert execute(steps, mode) == execute(steps, mode)
    unmade = [one for one in steps if one.timeout_ms == 1]
    assert len(validate_workflow_definition(definition(), steps)) == len(unmade)
    assert len(get_execution_order(steps)) == 40


def test_two_equal_calls_are_equal_in_every_field() -> None:
    """WF-113, X-011"""
    for mode in MODES:
        assert planned(5, mode) == planned(5, mode)


def test_sixteen_threads_plan_the_same() -> None:
    """WF-113, WF-223, WF-261, WF-262"""
    steps = random_steps(8, 40)
    made = definition()
    barrier = threading.Barrier(16)

    def work(_: int) -> tuple[str, list[uuid.UUID], list[str]]:
        barrier.wait()
        result = plan_workflow(made, steps, WORKFLOW, EnumExecutionMode.PARALLEL)
        return text_of(result), get_execution_order(steps), validate_workflow_definition(made, steps)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(work, range(16)))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0] == (
        text_of(plan_workflow(made, steps, WORKFLOW, EnumExecutionMode.PARALLEL)),
        get_execution_order(steps),
        validate_workflow_definition(made, steps),
    )
