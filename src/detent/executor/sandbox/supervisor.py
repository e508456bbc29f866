"""Runs untrusted jobs: asks the spawner for jails, hands each one job, listens, and gives the verdict.

A jail serves one job and is gone. Some wait ready-made (``warm``), with an interpreter inside that waits for its job; a
job that needs more than they offer gets one built for it. The supervisor itself never forks: the spawner does, which was
exec'd with an empty environment and never sees a job. Each execution is watched by the thread that waits for it; several
threads may run jobs at once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from detent.canon.grammar import first_alike
from detent.errors import DetentError, InvalidInput, Refused, RequestRefused
from detent.executor.sandbox import cgroup, channel, collect, enter, filter_rules, interpreter
from detent.executor.sandbox.capabilities import Capabilities, group_place, probe, profile_of
from detent.executor.sandbox.collect import Staging, name_fault
from detent.executor.sandbox.interpreter import RUNTIME, AsOnHost, Inside, Interpreter, readable_by_others
from detent.executor.sandbox.model import CERTIFICATES, DEFAULT_REQUIRED, Execution, Job, Limits, Profile
from detent.executor.sandbox.running import Jail, OnOutput, Running

START_SECONDS_MAX: Final = 30
WARM_MAX: Final = 256
UID_BASE: Final = 2_000_000_000
UID_COUNT: Final = 100_000
_NOBODY: Final = 65_534
_PRELOADED: Final = ("traceback", "linecache", "math", "re", "collections", "functools", "threading")
NETWORK_FILES: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", CERTIFICATES)
"""Files of the machine that a job with a network may read."""


class SandboxFailed(DetentError):
    """The spawner could not be started or has gone; no job was harmed, the next supervisor may do better."""

    code = "SANDBOX_FAILED"


class Sandbox:
    """Owns a spawner and its jails. Use it as a context manager, or close it: nothing is left behind then.

    ``required`` is what untrusted code needs; lowering it is the operator's decision and is recorded in every execution.
    ``profile`` chooses a weaker way than the machine offers, for tests and for machines that lie about themselves.
    """

    def __init__(
        self,
        *,
        required: Profile = DEFAULT_REQUIRED,
        profile: Profile | None = None,
        warm: int = 0,
        warm_limits: Limits | None = None,
        library_paths: tuple[Path, ...] = (),
        capabilities: Capabilities | None = None,
    ) -> None:
        if not 0 <= warm <= WARM_MAX:
            raise InvalidInput(f"warm must be from 0 to {WARM_MAX}, not {warm}")
        self.capabilities = probe() if capabilities is None else capabilities
        best = profile_of(self.capabilities)
        if profile is not None and profile.strength > best.strength:
            raise RequestRefused(f"this machine offers {best.value}, not {profile.value}", code="SANDBOX_UNAVAILABLE")
        self.required = required
        self.profile = best if profile is None else profile
        self.warm_limits = Limits() if warm_limits is None else warm_limits
        self._interpreter = Interpreter(tuple(path.resolve() for path in library_paths))
        namespaces = self.profile in {Profile.FULL, Profile.FULL_ROOTLESS}
        self.runtime = Inside(self._interpreter) if namespaces else AsOnHost(self._interpreter)
        """The interpreter as jobs see it."""
        self._staging = Staging()
        self.staging = self._staging.path
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._ready: deque[Jail] = deque()
        self._closed = False
        self.group = f"{cgroup.PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self._warm = warm
        self._served: queue.Queue[Jail | None] = queue.Queue()
        self._keeper = threading.Thread(target=self._keep, name="detent-jails", daemon=True)
        try:
            self._settings = self._make_settings()
            self._sweep()
            self._process, self._control = self._start()
        except BaseException:
            self._staging.close()
            raise
        self._keeper.start()
        try:
            for _ in range(warm if self._refusal() is None else 0):
                self._ready.append(self._spawn(self._spec(self.warm_limits, [])))
        except BaseException:
            self.close()
            raise

    def run(self, job: Job) -> Execution | Refused:
        """Run a job to its end. Refuses untrusted code where the profile is weaker than required."""
        running = self.start(job)
        return running if isinstance(running, Refused | Execution) else running.wait()

    def start(self, job: Job, *, on_output: OnOutput | None = None) -> Running | Execution | Refused:
        """Hand a job over and return at once. A job that cannot start has its Execution already.

        ``on_output`` gets what it prints while a caller waits for it, never more than the job's limit lets it keep.
        """
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        inputs = self._open_inputs(job)
        if isinstance(inputs, Refused):
            return inputs
        jail = self._take(job, inputs)
        jail.copies = tuple(Path(entry[1]) for entry in inputs if Path(entry[1]).parent == self.staging)
        return Running(self, jail, job, self.staging, on_output)

    def await_warm(self) -> None:
        """Wait until every jail that is to be built ahead waits for its job."""
        self._served.join()
        with self._lock:
            jails = list(self._ready)
        for jail in jails:
            jail.await_ready()

    def settle(self) -> None:
        """Wait until every jail that has served is gone, its control groups and directories included.

        Raises SandboxFailed when that takes too long: then something is left that cannot be cleared away.
        """
        self._served.join()
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            with self._lock:
                channel.send(self._control, channel.REPORT)
                _, data, _ = channel.receive(self._control, bytes_max=1 << 20)
                answer = channel.decode(data)
                waiting = {jail.pid for jail in self._ready if jail.pid is not None}
                unknown = sum(jail.pid is None for jail in self._ready)
            if not answer["leftover"] and len(set(answer["jails"]) - waiting) <= unknown:
                return
            threading.Event().wait(0.002)
        raise SandboxFailed("jails that have served do not go away")

    def discard(self, execution: Execution) -> None:
        """Remove an execution's copies of its output files."""
        for directory in {file.path.parent for file in execution.files}:
            if directory.parent == self.staging:
                shutil.rmtree(directory)

    def close(self) -> None:
        """End everything at once and wait until it is gone."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._control.close()
        self._served.put(None)
        # First the keeper: it may be making a jail at this moment, which then waits with the others.
        self._keeper.join()
        with self._lock:
            jails = list(self._ready)
            self._ready.clear()
        for jail in jails:
            jail.close()
        try:
            self._process.wait(timeout=START_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # The spawner has cleared away what it made, unless it was killed.
        self._sweep(self.group)
        self._staging.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # For `Running`, in the thread that waits for the job.

    def finished(self, jail: Jail) -> None:
        """A jail has served. What follows need not keep the caller waiting."""
        with self._lock:
            if not self._closed:
                self._served.put(jail)
                return
        self._clear(jail)

    def _keep(self) -> None:
        """In a thread of its own: let served jails go, clear their directories, have the next ones built."""
        while (jail := self._served.get()) is not None:
            with contextlib.suppress(SandboxFailed, OSError):
                self._replace(jail)
            self._served.task_done()

    def _clear(self, jail: Jail) -> None:
        jail.close()
        for copy in jail.copies:
            copy.unlink(missing_ok=True)
        if jail.directory is not None:
            collect.remove_tree(jail.directory)

    def _replace(self, jail: Jail) -> None:
        self._clear(jail)
        with self._lock:
            lacking = not self._closed and len(self._ready) < self._warm
        if lacking:
            fresh = self._spawn(self._spec(self.warm_limits, []))
            with self._lock:
                self._ready.append(fresh)

    @property
    def has_gone(self) -> bool:
        """Whether the spawner was killed: every jail went with it, and this supervisor starts no more."""
        return not self._closed and self._process.poll() is not None

    @property
    def place(self) -> dict[str, Any] | None:
        """Where the jails' control groups are; None when there are none."""
        place: dict[str, Any] | None = self._settings["cgroup"]
        return place

    @property
    def library_paths(self) -> tuple[Path, ...]:
        """Directories of packages that every job may import, as the host names them."""
        return self._interpreter.packages

    def _refusal(self) -> Refused | None:
        if self.profile.strength >= self.required.strength:
            return None
        lacking = [f"{name} ({why})" for name, works, why in self.capabilities.lines() if not works]
        return Refused(
            "SANDBOX_UNAVAILABLE",
            f"untrusted code needs the profile {self.required.value}; this is {self.profile.value}",
            {"required": self.required.value, "profile": self.profile.value, "lacking": lacking},
        )

    def _make_settings(self) -> dict[str, Any]:
        runtime = self.runtime
        namespaces = isinstance(runtime, Inside)
        filtered = self.profile is not Profile.NONE
        binds = (*self._interpreter.system, RUNTIME) if isinstance(runtime, Inside) else runtime.readable
        drops = self.capabilities.is_root and (namespaces or readable_by_others(binds))
        return {
            "namespaces": namespaces,
            "landlock_abi": self.capabilities.landlock_abi if filtered else 0,
            "seccomp": filtered,
            "cgroup": group_place() if self.profile is Profile.FULL else None,
            "group": self.group,
            "uid_base": (UID_BASE if _maps_all_ids() else _NOBODY) if drops else None,
            "uid_count": UID_COUNT if _maps_all_ids() else 1,
            "scratch": enter.JAIL,
            "outside": enter.HOST if namespaces else "",
            "runtime": RUNTIME,
            "binds": list(binds),
            "programs": list(runtime.programs),
            "preload": list(_PRELOADED),
        }

    def _make_plan(self, runtime: Inside) -> dict[str, Any]:
        """What the spawner's own root shows, and how the spawner is started there."""
        return {
            "scratch": _mount_point(),
            "directories": list(runtime.directories),
            "mounts": [*runtime.mounts, (str(interpreter.HOUSE), enter.HOUSE)],
            "masks": runtime.masks,
            "texts": runtime.texts,
            "links": runtime.links,
            "argv": [
                runtime.executable,
                *interpreter.OPTIONS,
                f"{enter.HOUSE}/{interpreter.HERE.relative_to(interpreter.HOUSE)}/spawner.py",
            ],
            "environment": interpreter.ENVIRONMENT | runtime.environment,
        }

    def _sweep(self, own: str | None = None) -> None:
        if self.place is not None:
            with contextlib.suppress(OSError):
                cgroup.sweep(self.place, own=own)

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        runtime = self.runtime
        plan = self._make_plan(runtime) if isinstance(runtime, Inside) else None
        script = "spawner.py" if plan is None else "enter.py"
        ours, theirs = channel.pair()
        process = interpreter.start(script, str(theirs.fileno()), descriptors=(theirs.fileno(),))
        theirs.close()
        ours.settimeout(START_SECONDS_MAX)
        why = "it ended at once"
        try:
            with contextlib.suppress(channel.Closed):  # It may have said why before it ended.
                if plan is not None:
                    channel.send_json(ours, channel.SETTINGS, plan)
                channel.send_json(ours, channel.SETTINGS, self._settings)
            kind, data = _first_words(ours)
            if kind == channel.READY:
                return process, ours
            why = data.decode("utf-8", "replace")
        except (channel.Closed, TimeoutError) as exc:
            why = "it did not answer in time" if isinstance(exc, TimeoutError) else why
        process.kill()
        process.wait()
        ours.close()
        raise SandboxFailed(f"the spawner did not start: {why}")

    def _open_inputs(self, job: Job) -> list[list[Any]] | Refused:
        """Each input as name, real path, device and inode; refused when it is missing or has another digest."""
        if alike := first_alike(job.inputs):
            raise InvalidInput(f"inputs {alike[0]!r} and {alike[1]!r} cannot be told apart; rename one of them")
        found = []
        for name, given in job.inputs.items():
            fault = name_fault(name)
            if fault is not None or "/" in name:
                raise InvalidInput(f"input {name!r}: its name {fault.why if fault else 'has more than one part'}")
            path = given.path.resolve()
            try:
                facts = path.stat()
                plain = stat.S_ISREG(facts.st_mode) or (stat.S_ISDIR(facts.st_mode) and given.digest is None)
                if not plain or (given.digest is not None and collect.file_digest(path) != given.digest):
                    return _dependency("DEPENDENCY_MISMATCH", name, "does not have the declared digest")
            except OSError as exc:
                return _dependency("DEPENDENCY_MISSING", name, f"cannot be read: {exc.strerror}")
            if self._settings["uid_base"] is not None and not facts.st_mode & stat.S_IROTH:
                path = self._readable_copy(path)
                facts = path.stat()
            found.append([name, str(path), facts.st_dev, facts.st_ino])
        return found

    def _readable_copy(self, path: Path) -> Path:
        """A copy that the jail's user may read of a file that only root may. Named by a number, gone with the jail."""
        copy = self.staging / f"input-{next(self._numbers)}"
        if not path.is_file():
            raise InvalidInput(f"{path.name}: only root may enter this directory, and the job does not run as root")
        with path.open("rb") as source, copy.open("xb") as target:
            shutil.copyfileobj(source, target, collect.COPY_BYTES)
        copy.chmod(0o444)
        return copy

    def _take(self, job: Job, inputs: list[list[Any]]) -> Jail:
        """A waiting jail if one fits, else one built for this job."""
        limits, warm = job.limits, self.warm_limits
        fits = (limits.disk_bytes, limits.disk_files) == (warm.disk_bytes, warm.disk_files)
        with self._lock:
            if fits and not inputs and not job.network and job.runner == filter_rules.CODE and self._ready:
                return self._ready.popleft()
        return self._spawn(self._spec(limits, inputs, job.runner, network=job.network))

    def _spec(
        self, limits: Limits, inputs: list[list[Any]], runner: str = filter_rules.CODE, *, network: bool = False
    ) -> dict[str, Any]:
        return {
            "runner": runner,
            "network": network_files() if network else None,
            "disk_bytes": limits.disk_bytes,
            "disk_files": limits.disk_files,
            "memory_bytes": limits.memory_bytes,
            "processes": limits.processes,
            "inputs": inputs,
            "directory": None,
        }

    def _spawn(self, spec: dict[str, Any]) -> Jail:
        number = next(self._numbers)
        directory = None
        if not self._settings["namespaces"]:
            directory = self._make_directory(number, spec["inputs"])
            spec["directory"] = str(directory)
        ours, theirs = channel.pair()
        try:
            with self._lock:
                if self._closed:
                    raise SandboxFailed("the supervisor is closed")
                request = b"%d %d %d %d" % (
                    number,
                    spec["memory_bytes"],
                    spec["processes"] + 1,
                    spec["network"] is not None,
                )
                channel.send(self._control, channel.SPEC, request, (theirs.fileno(),))
            channel.send_json(ours, channel.SPEC, spec)
        except channel.Closed as exc:
            ours.close()
            raise SandboxFailed("the spawner has gone") from exc
        except SandboxFailed:
            ours.close()
            raise
        finally:
            theirs.close()
        return Jail(number, ours, f"{self.group}-{number}", spec["memory_bytes"], spec["processes"], directory)

    def _make_directory(self, number: int, inputs: list[list[Any]]) -> Path:
        """A job's directory on the host, for the profiles that have no root of their own."""
        directory = self.staging / f"job-{number}"
        directory.mkdir(mode=0o700)
        for name in ("out", "inputs", "tmp"):
            (directory / name).mkdir()
        for name, path, _, _ in inputs:
            (directory / "inputs" / name).symlink_to(path)
        if self._settings["uid_base"] is not None:
            self.staging.chmod(0o711)
            for path in (directory, directory / "out", directory / "tmp"):
                os.chown(path, self._settings["uid_base"], self._settings["uid_base"])
        return directory


def network_files() -> list[list[Any]]:
    """What a resolver and TLS read, as far as the machine has it: the path, where it really lies, device and inode."""
    found: list[list[Any]] = []
    for name in NETWORK_FILES:
        with contextlib.suppress(OSError):
            path = Path(name).resolve(strict=True)
            facts = path.stat()
            if stat.S_ISREG(facts.st_mode) and facts.st_mode & stat.S_IROTH:
                found.append([name, str(path), facts.st_dev, facts.st_ino])
    return found


def _first_words(end: socket.socket) -> tuple[bytes, bytes]:
    """What a spawner says first. If it ended with settings unread, the kernel reports that before what it said."""
    try:
        kind, data, _ = channel.receive(end, bytes_max=1 << 20)
    except channel.Closed:
        kind, data, _ = channel.receive(end, bytes_max=1 << 20)
    return kind, data


def _dependency(code: str, name: str, why: str) -> Refused:
    return Refused(code, f"input {name!r} {why}", {"input": name})


def _mount_point() -> str:
    """A directory to mount a jail's root over. The folder for temporary files may be closed to the jail's identity."""
    temporary = tempfile.gettempdir()
    places = (temporary, "/tmp", "/usr")  # noqa: S108 - nothing is written there
    return next((place for place in places if readable_by_others((f"{place}/x",))), temporary)


def _maps_all_ids() -> bool:
    """Whether identities far up can be given away: not so inside a container that was given a few."""
    try:
        first, _, count = (int(word) for word in Path("/proc/self/uid_map").read_text().split()[:3])
    except (OSError, ValueError):
        return False
    return first <= UID_BASE < first + count
