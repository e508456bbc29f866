"""The executor of the sandbox: code written in a contract, and platform jobs. Untrusted, contained, limited.

The sandbox is started when the first such order comes: most runs have none. Each execution is watched by a thread of the
executor's own; the supervisor never waits for one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from detent.artifacts.api import DirectoryStore
from detent.artifacts.content_type import examine
from detent.canon import digest_text, json_decode, json_encode, parse_digest, tick_to_iso
from detent.canon.grammar import SANDBOX_MEMORY_MB_MIN
from detent.errors import DetentError, InvalidInput, Refused, error_of
from detent.executor.assignment import Assignment, variables
from detent.executor.plain.sweep import Presence
from detent.executor.sandbox import Execution, Input, Job, Limits, OnOutput, Running, Sandbox, SandboxFailed
from detent.executor.sandbox.classify import message_of
from detent.jobs.bounds import DEFAULT_BOUNDS, Bounds
from detent.jobs.complete import complete_payload, read_complete_payload
from detent.jobs.order import Order
from detent.jobs.payload import LOCAL_USER, MB, JobPayload, read_payload
from detent.jobs.payload import Limits as PayloadLimits
from detent.jobs.plans import NO_PLANS, Plans, check_plan, within_plan
from detent.jobs.platform_order import is_platform_order
from detent.jobs.result import JobResult, ResourceUsage, encode_result
from detent.jobs.values import FILE, escaped, escaped_key, file_reference, restored
from detent.jobs.work import (
    CANCELLED,
    FAILED,
    SUCCEEDED,
    Failure,
    Result,
    Usage,
    WorkFile,
    WorkStream,
    failed,
    status_after,
)
from detent.kernel import QuotaPolicy
from detent.kernel.policy import UNLIMITED
from detent.store.content import ContentFiles
from detent.workers.live_output import LiveOutput

if TYPE_CHECKING:
    from detent.executor.runners import Runners

_T = TypeVar("_T")

DEFAULT_LIMITS: Final = PayloadLimits()
INPUTS: Final = "/job/inputs"
CPU_MS_MAX: Final = 2**53
PAGE_BYTES: Final = 4096
CODE_LIMITS: Final = Limits(wall_ms=None, cpu_ms=None)
"""What code in a contract gets unless its step says otherwise: no limit of time, the sandbox's own for the rest (X-162)."""


class HomeFiles:
    """The files of a home: what guests leave is copied there and named by its content; its type is looked at, not believed."""

    def __init__(self, content: ContentFiles) -> None:
        self._content = content
        self.store = DirectoryStore(content)

    def keep(self, path: Path) -> tuple[bytes, int, str]:
        """Keep a file; its digest, size and type."""
        found = examine(path)
        stored = self.store.put(path)
        return stored.digest, stored.size_bytes, found.content_type

    def path(self, digest: bytes) -> Path | None:
        """Where a file lies; None when it is gone."""
        return self._content.path(digest) if self._content.has(digest) else None


class SandboxExecutor:
    """Runs orders of kind ``code`` in jails."""

    def __init__(  # noqa: PLR0913 - the parts that it is wired from
        self,
        start: Callable[[], Sandbox],
        files: HomeFiles,
        *,
        bounds: Bounds = DEFAULT_BOUNDS,
        plans: Plans = NO_PLANS,
        threads: int,
        wake: Callable[[], None],
        clock_ms: Callable[[], int],
        random: Callable[[int], bytes],
        live: Path | None = None,
    ) -> None:
        """``live`` is where its jobs can be watched while they run; None: nowhere."""
        self._start = start
        self._presence = None if live is None else Presence(live)
        self._files = files
        self._bounds, self._plans = bounds, plans
        self._wake = wake
        self._clock_ms = clock_ms
        self._random = random
        self._runners: Runners | None = None
        self._threads_max = threads
        self._threads: list[threading.Thread] = []
        self._orders: SimpleQueue[Assignment | None] = SimpleQueue()
        self._done: deque[tuple[int, Result]] = deque()
        self._lock = threading.Lock()
        self._running: dict[int, Callable[[], object]] = {}
        self._cancelled: set[int] = set()
        self._under_way = 0
        self._closing = False
        self._supervisor: Sandbox | None = None
        self._retired: list[Sandbox] = []
        """Those whose spawner was killed. What came out of them before may still be read, so they are closed at the end."""

    def wanted(self) -> int:
        """Enough for every thread and as many again, so that none of them waits for a claim."""
        return max(0, 2 * self._threads_max - self._under_way)

    def take(self, assignment: Assignment) -> None:
        """Queue an order for a thread."""
        self._under_way += 1
        if len(self._threads) < self._threads_max:
            place = len(self._threads)
            thread = threading.Thread(target=self._work, args=(place,), name="detent-sandbox", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._orders.put(assignment)

    def cancel(self, number: int) -> None:
        """End an execution with its whole tree, or keep it from beginning."""
        with self._lock:
            self._cancelled.add(number)
            running = self._running.get(number)
        if running is not None:
            running()

    def finished(self) -> Sequence[tuple[int, Result]]:
        """What has come back."""
        back: list[tuple[int, Result]] = []
        while self._done:
            back.append(self._done.popleft())
            self._under_way -= 1
        return back

    def close(self) -> None:
        """End every execution and the sandbox; what has not begun does not."""
        with self._lock:
            self._closing = True
            running = list(self._running.values())
        for cancel in running:
            cancel()
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()
        for supervisor in (*self._retired, *([self._supervisor] if self._supervisor is not None else ())):
            supervisor.close()
        if self._presence is not None:
            self._presence.close()

    def _work(self, place: int) -> None:
        presence = self._presence
        live = None if presence is None else LiveOutput(presence.live / f"{presence.tag}.sandbox-{place}")
        while (assignment := self._orders.get()) is not None:
            try:
                if live is not None:
                    live.begin(assignment.job_id)
                result = self._run(assignment, None if live is None else live.printed)
            except DetentError as exc:
                result = self._failed(Failure("INTERNAL_ERROR", exc.code, str(exc)))
            except Exception as exc:  # noqa: BLE001 - a bug of ours must not leave a job without an end
                result = self._failed(Failure("INTERNAL_ERROR", "EXECUTOR_FAILED", f"{type(exc).__name__}: {exc}"))
            finally:
                if live is not None:
                    live.end()
            with self._lock:
                self._cancelled.discard(assignment.number)
            self._done.append((assignment.number, result))
            self._wake()
        if live is not None:
            live.close()

    def _sandbox(self) -> Sandbox:
        with self._lock:
            if self._supervisor is not None and self._supervisor.has_gone:
                self._retired.append(self._supervisor)
                self._supervisor = self._runners = None
            if self._supervisor is None:
                self._supervisor = self._start()
            return self._supervisor

    def _run(self, assignment: Assignment, on_output: OnOutput | None) -> Result:
        with self._lock:
            if self._closing or assignment.number in self._cancelled:
                return Result(status=CANCELLED)
        if assignment.order.call.kind == "job":
            return self._platform_job(assignment, on_output)
        started_ms = self._clock_ms()
        try:
            job = self._job(assignment)
        except InvalidInput as exc:  # A limit that the sandbox does not take, in an order of before that was checked.
            job = Failure("VALIDATION_ERROR", "VALIDATION_ERROR", str(exc))
        if isinstance(job, Failure):
            return self._failed(job)
        supervisor = self._sandbox()
        try:
            outcome = supervisor.start(job, on_output=on_output)
        except SandboxFailed as exc:
            return self._failed(Failure("INTERNAL_ERROR", exc.code, str(exc)), lost=supervisor.has_gone)
        if isinstance(outcome, Refused):
            return self._failed(Failure("VALIDATION_ERROR", outcome.code, outcome.message))
        execution = (
            self._watched(assignment.number, outcome.cancel, outcome.wait) if isinstance(outcome, Running) else outcome
        )
        if execution.code == SandboxFailed.code and not execution.cancelled and supervisor.has_gone:
            # The spawner was killed: its jails are provably gone with it, and no user code is to blame.
            return self._failed(Failure("INTERNAL_ERROR", SandboxFailed.code, execution.message), lost=True)
        try:
            return _whole_memory(self._result(execution, started_ms), job.limits)
        finally:
            supervisor.discard(execution)

    def _watched(self, number: int, cancel: Callable[[], object], wait: Callable[[], _T]) -> _T:
        """Wait for something that can be cancelled meanwhile, at any moment."""
        with self._lock:
            self._running[number] = cancel
            cancelled = self._closing or number in self._cancelled
        if cancelled:
            cancel()
        try:
            return wait()
        finally:
            with self._lock:
                del self._running[number]

    def _platform_job(self, assignment: Assignment, on_output: OnOutput | None) -> Result:
        """A whole payload: run, and its result read back."""
        from detent.executor.runners import Attempt  # noqa: PLC0415 - most runs have no platform jobs

        runners = self._job_runners()
        try:
            payload = self._payload(assignment, runners)
        except DetentError as exc:
            return self._failed(Failure("VALIDATION_ERROR", "VALIDATION_ERROR", str(exc)))
        started_ms = self._clock_ms()
        attempt = Attempt(on_output)
        result = self._watched(
            assignment.number,
            attempt.cancel,
            lambda: runners.run(payload, now=self._now, nonce=self._nonce(), attempt=attempt),
        )
        if isinstance(result, Refused):
            return self._failed(Failure("VALIDATION_ERROR", result.code, result.message))
        return result_of(result, started_ms, self._clock_ms())

    def _payload(self, assignment: Assignment, runners: Runners) -> JobPayload:
        """The complete payload: as it was submitted, or the draft of a step with what the platform fills in (X-152)."""
        order = assignment.order
        if is_platform_order(order):
            return read_complete_payload(order.call.target)
        given = restored(order.call.target, assignment.load, lambda file: file)
        name, plan = self._plans.of(str(given.get("workspace_id")))
        draft = limited(within_plan(given, plan), order)
        payload = read_payload({**draft, "job_id": assignment.job_id})
        if refused := check_plan(payload.limits, payload.environment, plan, name=name):
            raise error_of(refused)
        return complete_payload(
            payload,
            created_at=self._now(),
            user_id=LOCAL_USER,
            env_version=runners.env_version(str(draft.get("job_type"))),
            nonce=self._nonce(),
        )

    def _job_runners(self) -> Runners:
        from detent.executor.runners import Runners  # noqa: PLC0415 - most runs have no platform jobs

        supervisor = self._sandbox()
        with self._lock:
            if self._runners is None:
                self._runners = Runners(supervisor, self._files.store, bounds=self._bounds)
            return self._runners

    def _now(self) -> str:
        return tick_to_iso(self._clock_ms(), 1, 0)

    def _nonce(self) -> str:
        return self._random(16).hex()

    def _job(self, assignment: Assignment) -> Job | Failure:
        """The order as a job of the sandbox; files it is given are mounted, and stand as their paths."""
        order = assignment.order
        inputs: dict[str, Input] = {}
        missing: list[str] = []

        def mounted(file: dict[str, Any]) -> str:
            digest = parse_digest(file[FILE])
            path = self._files.path(digest)
            name = f"{digest.hex()[:16]}"
            if path is None:
                missing.append(file[FILE])
            else:
                inputs[name] = Input(path, digest)
            return f"{INPUTS}/{name}"

        load = assignment.load
        keywords = restored(dict(order.call.keywords), load, mounted)
        env = variables({name: restored(value, load, mounted) for name, value in order.call.env.items()})
        if missing:
            return Failure("DEPENDENCY_ERROR", "INPUT_MISSING", f"the file {missing[0]} is gone")
        if unfit := [name for name, value in env.items() if "\0" in value]:
            return Failure(
                "VALIDATION_ERROR", "VALIDATION_ERROR", f"env {unfit[0]!r} must not hold the character U+0000"
            )
        return Job(
            source=order.call.target,
            entry=order.call.entrypoint,
            parameters=keywords,
            inputs=inputs,
            env=env,
            limits=limits_of_order(order, assignment.left),
            filename=f"{order.origin.step or 'code'}.py",
        )

    def _result(self, execution: Execution, started_ms: int) -> Result:
        files = []
        for made in execution.files:
            digest, size, content_type = self._files.keep(made.path)
            files.append(WorkFile(made.name, digest, size, content_type))
        failure = None
        if execution.category is not None and not execution.cancelled:
            raised = execution.raised
            failure = Failure(
                execution.category.value,
                execution.code or FAILED,
                message_of(execution),
                None if raised is None else raised.type,
                None if raised is None else raised.traceback,
                None if raised is None else raised.line,
                None if raised is None else raised.column,
            )
        status = CANCELLED if execution.cancelled else SUCCEEDED
        if failure is not None:
            status = status_after(failure)
        return Result(
            status=status,
            value=_value(execution.result, files) if status == SUCCEEDED else None,
            failure=failure,
            stdout=WorkStream(execution.stdout.data, None, execution.stdout.truncated),
            stderr=WorkStream(execution.stderr.data, None, execution.stderr.truncated),
            files=tuple(files),
            usage=execution.usage,
            sandbox=execution.profile.value,
            started_ms=started_ms,
            finished_ms=self._clock_ms(),
        )

    def _failed(self, failure: Failure, *, lost: bool = False) -> Result:
        return failed(failure, self._clock_ms(), lost=lost)


def result_of(result: JobResult, started_ms: int, finished_ms: int) -> Result:
    """A platform job's result as every other attempt's."""
    files = [
        WorkFile(
            str(artifact.metadata.get("name", artifact.artifact_id)),
            parse_digest(artifact.digest),
            artifact.size_bytes,
            artifact.content_type,
        )
        for artifact in result.artifacts
    ]
    failure = None
    if result.error is not None:
        details = result.error.details
        failure = Failure(
            result.error.category.value,
            result.error.code,
            result.error.message,
            None,
            details.traceback,
            details.line,
            details.column,
        )
    used = result.resource_usage or ResourceUsage()
    value = None
    if result.status.value == SUCCEEDED:
        returned = result.outputs.result_json
        value = _value(None if returned is None else json_encode(returned), files)
    return Result(
        status=result.status.value,
        value=value,
        failure=failure,
        stdout=WorkStream(result.outputs.stdout.encode(), None, "stdout" in result.outputs.truncated),
        stderr=WorkStream(result.outputs.stderr.encode(), None, "stderr" in result.outputs.truncated),
        files=tuple(files),
        usage=Usage(used.cpu_ms, 0, used.memory_mb_peak * MB, used.io_bytes_read, used.io_bytes_written),
        sandbox=result.environment.sandbox or "none",
        started_ms=started_ms,
        finished_ms=finished_ms,
        env_version=result.environment.env_version,
        envelope=encode_result(result),
    )


def limited(draft: dict[str, Any], order: Order) -> dict[str, Any]:
    """A payload with the limits that its step adds: of each limit the smaller one holds (X-019)."""
    limits = draft.get("limits", {})
    if type(limits) is not dict:
        return draft  # Refused where it is read.
    asked = {"timeout_ms": order.limits.wall_ms, "memory_mb": order.limits.memory_mb}
    own = {name: limits.get(name, getattr(DEFAULT_LIMITS, name)) for name in asked}
    smaller = {
        name: most for name, most in asked.items() if most is not None and type(own[name]) is int and most < own[name]
    }
    return {**draft, "limits": {**limits, **smaller}} if smaller else draft


def limits_of_order(order: Order, left: QuotaPolicy | None = None) -> Limits:
    """The limits of code in a contract, and what is left of its job's budgets.

    A budget allows equality, so a limit that ends what goes over it lies just above: one millisecond, one page.
    """
    memory_bytes = CODE_LIMITS.memory_bytes if order.limits.memory_mb is None else order.limits.memory_mb * MB
    limits = replace(CODE_LIMITS, wall_ms=order.limits.wall_ms, memory_bytes=memory_bytes)
    if left is None:
        return limits
    cpu_ms = min(left.cpu_time_budget_ms + 1, CPU_MS_MAX)
    memory_bytes = min(memory_bytes, max(SANDBOX_MEMORY_MB_MIN * MB, left.memory_bytes_budget + PAGE_BYTES))
    return replace(limits, cpu_ms=None if left.cpu_time_budget_ms == UNLIMITED else cpu_ms, memory_bytes=memory_bytes)


def _whole_memory(result: Result, limits: Limits) -> Result:
    """An attempt that was ended because it asked for more memory than there was needed at least all of that."""
    if result.failure is None or result.failure.code != "LIMIT_MEMORY":
        return result
    peak = max(result.usage.memory_bytes_peak, limits.memory_bytes)
    return replace(result, usage=replace(result.usage, memory_bytes_peak=peak))


def _value(result: bytes | None, files: Sequence[WorkFile]) -> bytes:
    """What the code returned, as it is stored; code that only leaves files behind gives those."""
    value = None if result is None else json_decode(result)
    if value is None and files:
        return json_encode(
            {
                escaped_key(file.name): file_reference(
                    digest_text(file.digest), size=file.size_bytes, name=file.name, content_type=file.content_type
                )
                for file in files
            }
        )
    return json_encode(escaped(value))
