"""A worker on another machine, wired together: pool, executors, supervisor and turns.

It needs no home. Content is cached below the worker's own directory, where its jobs run as well. Code comes from the project that it was
started for; it is compared with what a job names before it runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detent.canon.grammar import CPU
from detent.errors import DetentError
from detent.executor.plain.pool import Pool
from detent.executor.plain.sweep import sweep_orphans
from detent.remote.address import parse_address
from detent.remote.bench import Machine, RemoteBench
from detent.remote.heads import compare_head
from detent.remote.http import Http
from detent.remote.signed import SignedRequests
from detent.remote.turns import TurnTaker
from detent.remote.worker_state import Enrolled, WorkerState
from detent.runs.ahead import LOADED_BY_TASKS
from detent.runs.ending import Ending
from detent.runs.runtime import LIVE
from detent.store.content import ContentFiles
from detent.workers.executor import Executor, LazyExecutor
from detent.workers.plain_executor import PlainExecutor
from detent.workers.resources import ResourceGate, Resources
from detent.workers.work_loop import WorkLoop

LOOK_SECONDS: Final = 0.2
FLUSH_SECONDS: Final = 10.0
"""How long the last results may take to be told."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works."""

    slots: int
    project: Path
    drain_seconds: float = 10.0
    resources: Mapping[str, int] | None = None
    pool: str | None = None
    labels: tuple[str, ...] = ()


def work_for(
    state: WorkerState, enrolled: Enrolled, settings: WorkerSettings, ending: Ending, tell: Callable[[str], None]
) -> None:
    """Run jobs of a server until the end is asked for, by a signal or by the server. Raises why the worker cannot go on."""
    with ending.caught():
        turns = _worked(state, enrolled, settings, ending, tell)
    if turns.failure is not None:
        raise turns.failure


def _worked(
    state: WorkerState, enrolled: Enrolled, settings: WorkerSettings, ending: Ending, tell: Callable[[str], None]
) -> TurnTaker:
    work, live, key = state.work, state.work / LIVE, state.key()
    live.mkdir(mode=0o700, exist_ok=True)
    sweep_orphans(live)
    files = ContentFiles(work / "content")
    files.sweep_abandoned()
    bench = RemoteBench(
        enrolled.worker_id,
        key,
        files,
        Machine(
            settings.slots,
            frozenset({"python", "shell", "code", "job"}),
            settings.project,
            work,
            settings.resources or {},
            settings.pool,
            settings.labels,
        ),
    )
    plain = PlainExecutor(Pool(settings.slots, live=live, content=work / "content", preload=LOADED_BY_TASKS))
    with Http(parse_address(enrolled.url, pin=enrolled.pin), agent="detent-worker") as http:
        requests = SignedRequests(http, enrolled.worker_id, key, enrolled.origin)
        http.greet = lambda _: compare_head(requests)
        turns = TurnTaker(bench, requests, tell=tell)
        loop = WorkLoop(bench)
        loop.start(_executors(plain, bench, work, settings), plain)
        turns.start()
        tell(f"worker {enrolled.worker_id} takes jobs of {enrolled.url} with {settings.slots} slots")
        try:
            _run(loop, turns, ending, settings.drain_seconds)
        finally:
            bench.is_draining = True
            loop.close()
            turns.flush(FLUSH_SECONDS)
            turns.stop()
    return turns


def _executors(
    plain: PlainExecutor, bench: RemoteBench, work: Path, settings: WorkerSettings
) -> Mapping[str, Executor]:
    sandboxed = LazyExecutor(lambda: _sandbox(bench.files, work, settings.slots, plain.wake), settings.slots)
    executors: dict[str, Executor] = {"python": plain, "shell": plain, "code": sandboxed, "job": sandboxed}
    totals = {CPU: settings.slots, **(settings.resources or {})}
    gate = ResourceGate(executors, Resources(work, totals, settings.slots), bench.now_ms, {})
    return dict.fromkeys(executors, gate)


def _run(loop: WorkLoop, turns: TurnTaker, ending: Ending, drain_seconds: float) -> None:
    while not ending.asked.wait(LOOK_SECONDS) and not turns.asked_to_drain.is_set():
        _check(loop, turns)
        if turns.failure is not None:
            return
    deadline = time.monotonic() + drain_seconds
    while not ending.at_once.is_set() and not loop.drain(LOOK_SECONDS):
        _check(loop, turns)
        # A server that asked for it asks for no hurry; a signal does.
        if turns.failure is not None or (ending.signal and time.monotonic() > deadline):
            return


def _check(loop: WorkLoop, turns: TurnTaker) -> None:
    if loop.failure is not None:
        raise loop.failure
    if turns.failure is not None and not isinstance(turns.failure, DetentError):
        raise turns.failure


def _sandbox(files: ContentFiles, work: Path, slots: int, wake: Callable[[], None]) -> Executor:
    from detent.executor.sandbox import Sandbox  # noqa: PLC0415 - most workers never need it
    from detent.workers.sandbox_executor import HomeFiles, SandboxExecutor  # noqa: PLC0415

    return SandboxExecutor(
        lambda: Sandbox(warm=1),
        HomeFiles(files),
        threads=slots,
        wake=wake,
        clock_ms=lambda: time.time_ns() // 1_000_000,
        random=os.urandom,
        live=work / LIVE,
    )
