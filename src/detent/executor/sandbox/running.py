"""One execution as the supervisor sees it: what its init says, what the kernel counted, and the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from detent.canon.grammar import look
from detent.executor.sandbox import cgroup, channel, collect
from detent.executor.sandbox import classify as story
from detent.executor.sandbox import jail as layout
from detent.executor.sandbox.classify import Facts, Verdict, classify
from detent.executor.sandbox.collect import alike_fault, link_fault, name_fault
from detent.executor.sandbox.interpreter import AsOnHost, Inside
from detent.executor.sandbox.model import CERTIFICATES, Evidence, Execution, Job, OutputFile, Profile, Raised, Stream
from detent.executor.sandbox.walk import TOO_MANY, UNREADABLE
from detent.jobs.status import ErrorCategory
from detent.jobs.work import Usage

OnOutput = Callable[[str, bytes], None]
"""Told of what a job prints as it comes, by the thread that waits for the job: ``stdout`` or ``stderr``, and the bytes."""

BUILD_SECONDS_MAX: Final = 30
OVERTIME_SECONDS: Final = 5.0
"""How long init may be late with its report before the supervisor ends the jail itself."""
MESSAGE_BYTES_MAX: Final = 1 << 20
ANSWER_BYTES_MAX: Final = 80 << 20
EVIDENCE_MAX: Final = 16
LAST_WORDS_TRIES: Final = 3
"""A socket that was reset says so once, and then gives what it holds."""


class Jail:
    """A handle on one jail: the socket to its init and, once it said who it is, its process."""

    def __init__(
        self, number: int, end: socket.socket, group: str, memory_bytes: int, processes: int, directory: Path | None
    ) -> None:
        self.number = number
        self.end = end
        self.group = group
        self.memory_bytes = memory_bytes
        self.processes = processes
        self.directory = directory
        self.copies: tuple[Path, ...] = ()
        """Inputs that were copied for it alone."""
        self.pid: int | None = None
        self._pidfd: int | None = None
        self._lock = threading.Lock()
        self._killed = False
        self._building = threading.Lock()
        self._built = False
        self._why: str | None = None

    def await_ready(self) -> str | None:
        """Wait until its guest waits; returns why that will not happen, or nothing."""
        with self._building:
            if not self._built:
                self._why = self._await_ready()
                self._built = True
            return self._why

    def _await_ready(self) -> str | None:
        self.end.settimeout(BUILD_SECONDS_MAX)
        try:
            while True:
                kind, data, descriptors = channel.receive(self.end, bytes_max=MESSAGE_BYTES_MAX)
                if kind == channel.SPAWNED:
                    self._spawned(int(data), descriptors)
                elif kind == channel.READY:
                    return None
                elif kind == channel.FAILED:
                    return data.decode("utf-8", "replace")
                else:
                    return "its first process ended while it was built"
        except (channel.Closed, TimeoutError):
            return "it was not built in time"

    def kill(self) -> None:
        """End everything in it at once."""
        with self._lock:
            self._killed = True
            if self._pidfd is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Let it go; its init ends when it sees this."""
        self.end.close()
        with self._lock:
            if self._pidfd is not None:
                os.close(self._pidfd)
                self._pidfd = None

    def _spawned(self, pid: int, descriptors: list[int]) -> None:
        with self._lock:
            self.pid, self._pidfd = pid, descriptors[0]
            killed = self._killed
        if killed:
            self.kill()


class Supervises(Protocol):
    """What an execution asks of the supervisor whose jail it runs in."""

    required: Profile
    profile: Profile
    runtime: Inside | AsOnHost

    @property
    def place(self) -> dict[str, Any] | None: ...

    def finished(self, jail: Jail) -> None: ...


class Running:
    """A job in its jail. One thread waits; any other may cancel."""

    def __init__(
        self, supervisor: Supervises, jail: Jail, job: Job, staging: Path, on_output: OnOutput | None = None
    ) -> None:
        self._supervisor = supervisor
        self._jail = jail
        self._job = job
        self._staging = staging
        self._on_output = on_output
        self._cancelled = False
        self._streams = {channel.OUT: bytearray(), channel.ERR: bytearray()}
        self._said = b""
        self._evidence: list[Evidence] = []
        self._files: list[OutputFile] = []
        self._looks: dict[str, str] = {}
        """The names of output files by what a reader sees of them."""
        self._directory: Path | None = None
        self._bytes_left = job.limits.disk_bytes
        self._fault: dict[str, Any] | None = None
        self._overtime = False
        self._last_words: dict[str, Any] = {}
        """What the spawner knows of an init that went without a report."""
        self._why: str | None = None
        self._lost_running = False
        """Whether init ended under the job; the spawner, which says so, was alive."""

    def cancel(self) -> None:
        """End the whole tree now. The waiting thread gets an execution that says it was cancelled."""
        self._cancelled = True
        self._jail.kill()

    def wait(self) -> Execution:
        """See the job to its end. Call it once."""
        try:
            why = self._jail.await_ready()
            report = None
            peak = 0
            if why is None:
                report = self._converse()
                peak = self._peak()
                if report is None:
                    why = self._why or "its first process was lost while the job ran"
            return self._conclude(report, why, peak)
        finally:
            self._supervisor.finished(self._jail)

    def _converse(self) -> dict[str, Any] | None:
        """Send the job, take in what init says; its report, or None when it was lost."""
        limits, jail, place = self._job.limits, self._jail, self._supervisor.place
        deadline = None if limits.wall_ms is None else time.monotonic() + limits.wall_ms / 1000 + OVERTIME_SECONDS
        try:
            if place is not None and (limits.memory_bytes, limits.processes) != (jail.memory_bytes, jail.processes):
                try:
                    cgroup.limit(place, jail.group, memory_bytes=limits.memory_bytes, processes=limits.processes + 1)
                except OSError as exc:
                    self._why = f"its limits could not be set: {exc.strerror}"
                    return None
            order, payload = json.dumps(self._order()), json.dumps(self._payload())
            channel.send(jail.end, channel.ORDER, f"{order}\n{payload}".encode())
            poll = select.poll()
            poll.register(jail.end, select.POLLIN)
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
                if not poll.poll(left):
                    self._overtime = True
                    jail.kill()
                    return None
                kind, data, descriptors = channel.receive(jail.end, bytes_max=ANSWER_BYTES_MAX)
                if kind == channel.REPORT:
                    told, _, self._said = data.partition(b"\n")
                    report: dict[str, Any] = json.loads(told)
                    return report
                if kind == channel.FAILED:
                    self._why = f"its first process failed: {data.decode('utf-8', 'replace')}"
                    self._lost_running = True
                    return None
                if kind == channel.ENDED:
                    self._last_words = json.loads(data)
                    self._lost_running = True
                    return None
                self._hear(kind, data, descriptors)
        except (channel.Closed, OSError):
            self._hear_last_words()
            return None

    def _hear_last_words(self) -> None:
        """The spawner's word about an init that went before it was spoken to may still be on its way, or wait here."""
        for _ in range(LAST_WORDS_TRIES):
            with contextlib.suppress(channel.Closed, OSError):
                kind, data, descriptors = channel.receive(self._jail.end, bytes_max=ANSWER_BYTES_MAX)
                for descriptor in descriptors:
                    os.close(descriptor)
                if kind == channel.ENDED:
                    self._last_words = json.loads(data)
                    self._lost_running = True
                    return

    def _order(self) -> dict[str, Any]:
        limits = self._job.limits
        return {
            "wall_ms": limits.wall_ms,
            "cpu_ms": limits.cpu_ms,
            "memory_bytes": limits.memory_bytes,
            "output_bytes": limits.output_bytes,
            "result_bytes": max(limits.output_bytes, story.STORY_BYTES_MAX) + 2,
            "disk_bytes": limits.disk_bytes,
            "processes": limits.processes,
            "artifacts_max": limits.artifacts_max,
            "python": self._job.source is not None,
        }

    def _payload(self) -> dict[str, Any]:
        job, runtime = self._job, self._supervisor.runtime
        directory = layout.JOB if self._jail.directory is None else str(self._jail.directory)
        temporary = layout.TEMPORARY if self._jail.directory is None else f"{directory}{layout.TEMPORARY}"
        return {
            "source": job.source,
            "entry": job.entry,
            "parameters": dict(job.parameters),
            "argv": None if job.argv is None else list(job.argv),
            "filename": job.filename,
            "directory": directory,
            "library_paths": list(runtime.packages),
            "env": {
                "HOME": directory,
                "TMPDIR": temporary,
                "LANG": "C.UTF-8",
                "USER": "job",
                "LOGNAME": "job",
                "PATH": f"{Path(runtime.executable).parent}:/usr/bin:/bin",
                **runtime.environment,
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONHASHSEED": "0",
                "DETENT_INPUTS": f"{directory}/inputs",
                "DETENT_OUT": f"{directory}/out",
                **({"SSL_CERT_FILE": CERTIFICATES} if job.network else {}),
                **job.env,
            },
        }

    def _hear(self, kind: bytes, data: bytes, descriptors: list[int]) -> None:
        """Take in one message. Init keeps to its bounds; they are kept here once more."""
        try:
            if kind in self._streams:
                stream = self._streams[kind]
                kept = data[: self._job.limits.output_bytes - len(stream)]
                stream += kept
                if kept and self._on_output is not None:
                    self._on_output("stdout" if kind == channel.OUT else "stderr", kept)
            elif kind == channel.EVIDENCE and len(self._evidence) < EVIDENCE_MAX:
                facts = json.loads(data)
                facts["arguments"] = tuple(facts["arguments"])
                self._evidence.append(Evidence(**facts))
            elif kind == channel.FILE and descriptors and self._fault is None:
                self._take_file(json.loads(data)["name"], descriptors[0])
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _take_file(self, name: str, descriptor: int) -> None:
        fault = name_fault(name) or link_fault(descriptor)
        earlier = self._looks.setdefault(look(name), name)
        if fault is None and earlier != name:
            fault = alike_fault(earlier)
        if fault is not None:
            self._fault = {"name": name, "fault": fault.why, "category": fault.category}
            return
        if len(self._files) >= self._job.limits.artifacts_max:
            self._fault = {"name": name, "fault": TOO_MANY}
            return
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="out-", dir=self._staging))
        target = self._directory / f"{len(self._files):06d}"
        copied = collect.copy_regular(descriptor, target, bytes_max=self._bytes_left)
        if copied is None or not copied.whole:
            self._fault = {"name": name, "fault": "not a file" if copied is None else TOO_MANY}
            return
        self._bytes_left -= copied.size_bytes
        self._files.append(OutputFile(name, copied.size_bytes, copied.digest, target))

    def _peak(self) -> int:
        place = self._supervisor.place
        return 0 if place is None else cgroup.peak_bytes(place, self._jail.group)

    def _conclude(self, report: dict[str, Any] | None, why: str | None, peak: int) -> Execution:
        job, limits = self._job, self._job.limits
        report = report or self._last_words
        cut = set(report.get("cut", ()))
        said = self._said
        if job.source is None:
            told = story.read_value(said)
        else:
            told = story.read_python(said, source=job.source, filename=job.filename)
        too_long = said[:1] != b"E" and len(said) > limits.output_bytes + (job.source is not None)
        fault = told.fault
        status = report.get("status")
        if job.entry is not None and status == 0 and told == (None, None, None):
            fault = "the code ended without a result"
        too_long = too_long or ("result" in cut and said[:1] != b"E")
        verdict = classify(self._facts(report, why, None if too_long else fault, told.raised, too_long=too_long))
        if self._cancelled:
            verdict = Verdict(None, None, "cancelled")
        failed = verdict.category is not None or self._cancelled
        usage = Usage(
            cpu_ms=report.get("cpu_ms", 0),
            wall_ms=round(report.get("wall_ms", 0)),
            memory_bytes_peak=max(peak, 0 if peak else report.get("resident_bytes", 0)),
            io_bytes_read=report.get("io_read", 0),
            io_bytes_written=report.get("io_written", 0),
        )
        return Execution(
            profile=self._supervisor.profile,
            profile_required=self._supervisor.required,
            category=verdict.category,
            code=verdict.code,
            message=verdict.message,
            status=status,
            timed_out=verdict.timed_out,
            cancelled=self._cancelled,
            stdout=self._stream(channel.OUT, "stdout" in cut),
            stderr=self._stream(channel.ERR, "stderr" in cut),
            result=None if failed else told.result,
            raised=told.raised,
            files=tuple(self._files),
            usage=usage,
            evidence=tuple(self._evidence),
            oom_kills=report.get("oom_kills", 0),
        )

    def _facts(
        self, report: dict[str, Any], why: str | None, fault: str | None, raised: Raised | None, *, too_long: bool
    ) -> Facts:
        found = self._fault or report.get("file_fault")
        category = None if found is None else found.get("category")
        kind = None if found is None else found["fault"]
        escaping = kind == "not a file" or category is ErrorCategory.SANDBOX_VIOLATION
        invalid = kind == UNREADABLE or category is ErrorCategory.VALIDATION_ERROR
        name = None if found is None else str(found["name"])[:200]
        counted = self._supervisor.place is not None
        return Facts(
            status=report.get("status"),
            stop="wall" if self._overtime else report.get("stop"),
            evidence=tuple(self._evidence),
            oom_kills=report.get("oom_kills", 0),
            process_refusals=report.get("process_refusals", 0),
            memory_bytes_peak=report.get("resident_bytes", 0),
            memory_bytes_max=None if counted else self._job.limits.memory_bytes,
            disk_full=report.get("disk_full", False),
            result_cut=too_long,
            too_many_files=kind == TOO_MANY,
            escaping_file=name if escaping else None,
            invalid_file=f"output file {name!r}: its name {kind}" if invalid else None,
            result_fault=fault,
            raised=raised,
            lost=None if self._overtime else why,
            lost_running=self._lost_running,
        )

    def _stream(self, kind: bytes, cut: bool) -> Stream:
        return story.cut_stream(bytes(self._streams[kind]), bytes_max=self._job.limits.output_bytes, truncated=cut)
