"""One runner per type of platform job, behind one door.

A payload is checked, turned into work, given its dependencies, run in the sandbox, judged, and answered with one result.
The types differ in two pure steps (`prepare`, `judge`); everything with effects is here. What a guest or a payload does
ends in a result, always; where untrusted code may not run at all, the answer is a refusal.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from detent.artifacts.api import Stored
from detent.canon import digest_text
from detent.errors import InvalidInput, Refused, StoreCorrupt
from detent.executor.runners import model, tools
from detent.executor.runners.execute import Execute
from detent.executor.runners.model import Artifacts, Need, Outcome, Prepared, Runner, RunnerFailure, unsupported
from detent.executor.runners.tool_jobs import Export, Render, Thumbnail
from detent.executor.sandbox import (
    Execution,
    Input,
    Job,
    Limits,
    OnOutput,
    Running,
    Sandbox,
    SandboxFailed,
    limits_of,
)
from detent.jobs.bounds import DEFAULT_BOUNDS, Bounds
from detent.jobs.complete import missing_field
from detent.jobs.fields import version_fault
from detent.jobs.payload import JobPayload
from detent.jobs.result import JobResult
from detent.jobs.status import ErrorCategory, category_of

COPY_BYTES: Final = 1 << 20
NETWORKED: Final = "object_execute"
"""The one type of jobs that may have a network; the tools of the others use none."""

RUNNERS: Final[Mapping[str, Runner]] = {
    "object_execute": Execute(),
    "object_render": Render(),
    "document_export": Export(),
    "thumbnail_generate": Thumbnail(),
}


class Runners:
    """Runs platform jobs in a supervisor's jails and keeps their files in a store. Threads may run jobs side by side."""

    def __init__(self, supervisor: Sandbox, artifacts: Artifacts, *, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self._bounds = bounds
        self._supervisor = supervisor
        self._artifacts = artifacts
        self._lock = threading.Lock()
        self._attempts: dict[str, list[Attempt]] = {}

    def env_version(self, job_type: str) -> str:
        """What a payload of this type has to ask for to run here."""
        return tools.env_version(job_type, self._supervisor.library_paths)

    def run(
        self, payload: JobPayload, *, now: Callable[[], str], nonce: str, attempt: Attempt | None = None
    ) -> JobResult | Refused:
        """Run a complete payload to its end; ``attempt`` receives what it prints meanwhile, and may be cancelled before it begins.

        ``now`` gives the time as ISO 8601 in UTC, read off the caller's ticks. Refuses with SANDBOX_UNAVAILABLE where
        untrusted code may not run. Raises only when the store of artifacts does.
        """
        started_at = now()
        attempt = attempt or Attempt()
        with self._lock:
            self._attempts.setdefault(payload.job_id, []).append(attempt)
        try:
            outcome, execution, stored = self._attempt(payload, attempt)
        except _RefusedHere as exc:
            return exc.refused
        finally:
            with self._lock:
                self._attempts[payload.job_id].remove(attempt)
                if not self._attempts[payload.job_id]:
                    del self._attempts[payload.job_id]
        times = model.Times(started_at, now())
        if attempt.cancelled:
            return model.cancelled(payload, execution, times=times, nonce=nonce)
        return model.envelope(payload, outcome, execution, stored, times=times, nonce=nonce, bounds=self._bounds)

    def cancel(self, job_id: str) -> bool:
        """End a running job's whole tree now; False when no such job runs here."""
        with self._lock:
            attempts = list(self._attempts.get(job_id, ()))
        for attempt in attempts:
            attempt.cancel()
        return bool(attempts)

    def _attempt(self, payload: JobPayload, attempt: Attempt) -> tuple[Outcome, Execution | None, tuple[Stored, ...]]:
        runner = RUNNERS[payload.job_type]
        prepared = self._check(payload) or runner.prepare(payload)
        if isinstance(prepared, RunnerFailure):
            return Outcome(prepared), None, ()
        with contextlib.ExitStack() as stack:
            execution = self._execute(payload, prepared, attempt, stack)
            if execution is None or isinstance(execution, RunnerFailure):
                return Outcome(execution), None, ()
        try:
            outcome = runner.judge(payload, execution)
            stored = (
                ()
                if attempt.cancelled
                else tuple(self._artifacts.put(made.file.path, digest=made.file.digest) for made in outcome.made)
            )
        finally:
            self._supervisor.discard(execution)
        return outcome, execution, stored

    def _check(self, payload: JobPayload) -> RunnerFailure | None:
        """What every job type asks of a payload."""
        if fault := version_fault(payload.schema_version):
            return unsupported("schema_version", fault)
        if path := missing_field(payload):
            return unsupported(path, "is missing; an executor takes complete payloads only")
        if lacking := tools.missing_tools(payload.job_type):
            return unsupported(
                "job_type",
                f"{payload.job_type} is not supported here: {', '.join(lacking)} not installed; install detent[render]",
            )
        here, asked = self.env_version(payload.job_type), payload.environment.env_version
        if asked != here:
            return unsupported("environment.env_version", f"asks for {asked!r}; this executor is {here!r}")
        if payload.environment.network_access != "disabled" and payload.job_type != NETWORKED:
            return unsupported("environment.network_access", f"only jobs of the type {NETWORKED} get a network")
        return None

    def _execute(
        self, payload: JobPayload, prepared: Prepared, attempt: Attempt, stack: contextlib.ExitStack
    ) -> Execution | RunnerFailure | None:
        """Run the work; a RunnerFailure when it could not even begin, None when it was cancelled before it did."""
        try:
            inputs = self._inputs(prepared, stack)
            if isinstance(inputs, RunnerFailure):
                return inputs
            job = Job(
                source=prepared.source,
                entry=prepared.entry,
                parameters=prepared.parameters,
                inputs=inputs,
                limits=self._limits(payload),
                filename=prepared.filename,
                runner=prepared.runner,
                network=payload.environment.network_access == "enabled",
            )
            if attempt.cancelled:
                return None
            started = self._supervisor.start(job, on_output=attempt.on_output)
        except InvalidInput as exc:
            return unsupported("inputs", str(exc))
        except (SandboxFailed, OSError) as exc:
            # The spawner is gone, or the machine has no room for the inputs: neither is the job's doing.
            return RunnerFailure(ErrorCategory.INTERNAL_ERROR, SandboxFailed.code, str(exc))
        if isinstance(started, Refused):
            category = category_of(started.code)
            if category is None:
                raise _RefusedHere(started)
            return RunnerFailure(category, started.code, started.message)
        return started if isinstance(started, Execution) else attempt.see_through(started)

    def _limits(self, payload: JobPayload) -> Limits:
        """The payload's limits, with the space that the jails built ahead have, so that one of them fits."""
        warm = self._supervisor.warm_limits
        return limits_of(
            payload.limits, disk_bytes=warm.disk_bytes, disk_files=warm.disk_files, processes=warm.processes
        )

    def _inputs(self, prepared: Prepared, stack: contextlib.ExitStack) -> dict[str, Input] | RunnerFailure:
        found = {name: Input(path) for name, path in prepared.libraries.items()}
        if not prepared.needs and not prepared.texts:
            return found
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="needs-", dir=self._supervisor.staging))
        )
        # A job that is not root reaches its inputs through here where it has no root directory of its own.
        directory.chmod(0o711)
        for need in prepared.needs:
            failure = self._fetch(need, directory / need.name)
            if failure is not None:
                return failure
        for name, text in prepared.texts.items():
            (directory / name).write_text(text, encoding="utf-8")
        for path in directory.iterdir():
            path.chmod(0o444)
            found[path.name] = Input(path)
        return found

    def _fetch(self, need: Need, target: Path) -> RunnerFailure | None:
        """Copy what a job needs to where only we write. The store's stream ends only if it had the digest."""
        category, name = ErrorCategory.DEPENDENCY_ERROR, digest_text(need.digest)
        stream = self._artifacts.open(need.digest)
        if stream is None:
            return RunnerFailure(category, "DEPENDENCY_MISSING", f"nothing is stored under {name}")
        buffer = memoryview(bytearray(COPY_BYTES))
        try:
            with target.open("xb") as file:
                while count := stream.readinto(buffer):
                    file.write(buffer[:count])
        except StoreCorrupt:
            return RunnerFailure(category, "DEPENDENCY_MISMATCH", f"what is stored under {name} has another digest")
        finally:
            if isinstance(stream, io.IOBase):
                stream.close()
        return None


class _RefusedHere(Exception):
    """Carries a refusal out of the middle of an attempt."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.code)
        self.refused = refused


class Attempt:
    """One run that can be cancelled, also before its jail exists."""

    def __init__(self, on_output: OnOutput | None = None) -> None:
        self.on_output = on_output
        self.cancelled = False
        self._running: Running | None = None
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """End it now, or keep it from beginning; from any thread."""
        with self._lock:
            self.cancelled = True
            if self._running is not None:
                self._running.cancel()

    def see_through(self, running: Running) -> Execution:
        """Wait for the end of what has been started."""
        with self._lock:
            self._running = running
            if self.cancelled:
                running.cancel()
        try:
            return running.wait()
        finally:
            with self._lock:
                self._running = None
