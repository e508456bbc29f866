"""What a worker does: takes one task after the other from its socket, runs it, reports the result.

The user's code shares this process and is trusted, which does not mean that it is careful. Between two tasks the worker looks
at what the last one left: a changed environment, directory or standard stream is put back; processes are ended; threads, and
processes that had to be ended, mean that this worker is used up, and it says so and leaves.
"""

# pathlib would be the largest thing that a worker loads.
# ruff: noqa: PTH109, PTH110, PTH118, PTH123

from __future__ import annotations

import _thread
import atexit
import contextlib
import gc
import importlib
import io
import json
import mmap
import os
import resource
import select
import signal
import socket
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from detent.executor.plain import current, loading, processes, stored, telling, wire
from detent.executor.plain.capture import Taken

JOB_BYTES = 256
"""Of the file that names the running job; the name is ended by a line feed."""
SPECS_MAX = 1024
_MEMORY_STEP_BYTES = 4 << 20
_MEMORY_RESET = b"5"
_USER = "USER_CODE_ERROR"
_COROUTINE = types.CoroutineType


class Cancelled(BaseException):
    """Raised in the middle of the user's code when its task is to end. No ``except Exception`` catches it."""


class Spec:
    """What many tasks have in common."""

    __slots__ = ("alone", "base", "code", "cwd", "env", "inputs", "kind", "outputs", "shell", "target")

    def __init__(self, data: bytes, home: str) -> None:
        said = json.loads(data)
        self.kind, self.target, self.base, cwd, self.code, *more = said
        self.env, self.inputs, self.outputs, self.shell, self.alone = more
        self.cwd = os.path.join(self.base or home, cwd or "")


class Child:
    """One worker."""

    def __init__(
        self, end: socket.socket, shared: memoryview, taken: list[Taken], directory: str, settings: dict[str, Any]
    ) -> None:
        self.end = end
        self.shared = shared
        self.out, self.err = taken
        self.directory = directory
        self.content: str = settings["content"]
        current.work_for(self.content)
        self.value_bytes_max: int = settings["value_bytes_max"]
        self.to_preload: list[str] = settings["preload"]
        self.own_paths: list[str] = settings["own_paths"]
        self.pid = os.getpid()
        self.home = os.getcwd()
        self.specs: dict[bytes, Spec] = {}
        self.loader = loading.Loader()
        self.environment = dict(os.environ._data)  # type: ignore[attr-defined]  # noqa: SLF001 - a look at bytes
        self.is_calling = False
        self.is_used_up = False
        self.threads = 0
        self.token = b""
        self.number = self.last = -1
        """The task at hand, and the one before: a word to stop may come a moment late."""
        self.cpu = 0.0
        self.io = (0, 0)
        self.memory = self.child_peak = self.looked = 0
        try:
            self.counters = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.counters = -1  # This kernel does not count it.
        self._usage()
        handle = os.open(f"{directory}/job", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.posix_fallocate(handle, 0, JOB_BYTES)  # A mapping of what a full disk cannot give would end the process.
        self.job = mmap.mmap(handle, JOB_BYTES)
        os.close(handle)
        self._prepare()

    def serve(self) -> NoReturn:
        """Until the supervisor closes its end; never returns."""
        self._preload()
        buffer = bytearray(wire.MESSAGE_BYTES_MAX)
        view = memoryview(buffer)
        receive = self.end.recv_into
        while size := receive(buffer):
            message = bytes(view[:size])
            if message[0] == wire.IN_FILE:
                message = wire.read_file(os.fsdecode(message[wire.SHORT.size :]))
            task = wire.read_task(message)
            self.token = task.token
            spec = self._spec(task.spec)
            # What earlier tasks left in this process is not to count for one whose memory is limited.
            if (spec.alone and self.number >= 0) or self.loader.has_changed(spec.base, spec.target, spec.code):
                self._send(wire.SHORT.pack(wire.RETURNED, task.number))
                os._exit(0)
            (self._array if task.is_array else self._one)(task, spec)
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()  # noqa: SLF001 - this process leaves by _exit, which runs none
            sys.stdout.flush()
        os._exit(0)

    def _preload(self) -> None:
        """Load what most tasks ask for, as long as there is nothing else to do; from our own places, not from the user's."""
        paths, sys.path[:] = sys.path[:], self.own_paths
        try:
            for module in self.to_preload:
                if select.select([self.end], [], [], 0)[0]:
                    break
                importlib.import_module(module)
        finally:
            sys.path[:] = paths
        gc.freeze()  # What is ours stays to the end: the collector need not look at it for the user's tasks.

    def _prepare(self) -> None:
        for number, name in ((1, "stdout"), (2, "stderr")):
            raw = io.FileIO(number, "wb", closefd=False)
            stream = io.TextIOWrapper(
                io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
            )
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        self.streams = (sys.stdout, sys.stderr)
        self.descriptors = (os.dup(0), self.out.writing, self.err.writing)
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        sys.argv = [""]
        loading.distrust_young_bytecode()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, self._told_to_stop)

    def _told_to_stop(self, *_: object) -> None:
        """Our own supervisor means one task; any other sender means this process."""
        word = self.shared[wire.CANCEL]
        meant = word - 1
        # No word, no task is meant: at a worker's first task `last` is -1, and so is what a word of 0 would name.
        if word and os.getpid() == self.pid and meant in (self.number, self.last):
            if self.is_calling and meant == self.number:
                self.is_calling = False
                raise Cancelled
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _spec(self, data: bytes) -> Spec:
        spec = self.specs.get(data)
        if spec is None:
            if len(self.specs) >= SPECS_MAX:
                self.specs.clear()
            spec = self.specs[data] = Spec(data, self.home)
        return spec

    def _one(self, task: wire.TaskRead, spec: Spec) -> None:
        number, started, begun = self._begin(task)
        current.begin(current.Running(number, task.context, self.end, self.shared))
        value, error, files, pending = self._outcome(
            spec, partial(stored.arguments, task.arguments, task.values, self.content)
        )
        current.end()
        stdout, stderr, flags = self._tidy()
        wall = (time.perf_counter_ns() - begun) // 1000
        if not error:
            flags |= wire.OK
        self._end(number, flags, (started // 1000, wall), (value, error, stdout, stderr, files), pending)

    def _array(self, task: wire.TaskRead, spec: Spec) -> None:
        """Call a function once for each element. Each is written down as it ends: what is done stays done if this process goes.

        The rest is handed back when the time of a slice is over, when an element has used this process up, and when the
        message of its exception is still to be told, which may not return.
        """
        number, first, begun = self._begin(task)
        context = wire.ArrayContext(task.context)
        journal = os.open(
            f"{self.directory}/{wire.JOURNAL}",
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW,
            0o600,
        )
        ended: list[bytes] = []
        written = 0
        pending = None
        try:
            os.write(journal, wire.NUMBER.pack(number))
            arguments = stored.ArrayArguments(task.arguments, task.values, self.content)
            started, since = first, begun
            for place, index, positional, named in arguments.elements:
                self.shared[wire.STARTED] = started // 1000
                current.begin(current.Running(number, context.of_element(place, index), self.end, self.shared))
                value, error, _, pending = self._outcome(spec, partial(arguments.restored, positional, named))
                current.end()
                stdout, stderr, flags = self._tidy()
                now = time.perf_counter_ns()
                element = wire.write_element(
                    (place, flags | (0 if error else wire.OK), started // 1000, (now - since) // 1000),
                    (value, error, stdout, stderr),
                )
                os.write(journal, element)
                ended.append(element)
                written += len(element)
                is_over = now - begun > wire.SLICE_US * 1000 or written > wire.SLICE_BYTES
                if is_over or self.is_used_up or pending is not None:
                    break
                started, since = started + now - since, now
        finally:
            os.close(journal)
        wall = (time.perf_counter_ns() - begun) // 1000
        self._end(number, wire.OK, (first // 1000, wall), (b"".join(ended), b"", b"", b"", b""), pending)

    def _begin(self, task: wire.TaskRead) -> tuple[int, int, int]:
        """A task begins; its number, the time of day, and when by the clock that measures it."""
        number = task.number
        self.last, self.number = self.number, number
        self.shared[wire.RUNNING] = number + 1
        started = time.time_ns()
        begun = time.perf_counter_ns()
        self.shared[wire.STARTED] = started // 1000
        if task.wall_ms:
            self._send(wire.write_begun(number, time.monotonic_ns() // 1000))
        # Which job, and since when: a mapping does not change the time of its file.
        job = task.context[: task.context.find(b"\0")][: JOB_BYTES - 32] + b"\n%d\n" % started
        self.job[: len(job)] = job
        return number, started, begun

    def _end(
        self,
        number: int,
        flags: int,
        times: tuple[int, int],
        parts: tuple[bytes, ...],
        pending: BaseException | None,
    ) -> None:
        """A task is over: say so, and leave if this process is used up."""
        if pending is not None:
            flags |= wire.MESSAGE_FOLLOWS
        if self.is_used_up:
            flags |= wire.RETIRING
        if self.counters < 0:
            flags |= wire.IO_UNKNOWN
        numbers = (number, flags, *times, *self._usage())
        self.job[:1] = b"\n"
        self.shared[wire.RUNNING] = 0
        self._say(number, wire.write_done(numbers, parts))
        if pending is not None:
            self._send(wire.SHORT.pack(wire.MESSAGE, number) + telling.slow_message(pending).encode())
        if self.is_used_up:
            os._exit(0)

    def _outcome(
        self, spec: Spec, arguments: Callable[[], tuple[list[Any], dict[str, Any]]]
    ) -> tuple[bytes, bytes, bytes, BaseException | None]:
        """Value, error, files, and an exception whose message is still to be told."""
        source = None
        try:
            self._enter(spec)
            if spec.kind == "shell":
                return self._shell(spec)
            loaded = self.loader.load(spec.base, spec.target)
            source = loaded.source
            positional, named = arguments()
            self.threads = _thread._count()  # noqa: SLF001
            found = self._call(loaded.function, positional, named)
            value = stored.result(found, self.content, self.value_bytes_max)
            return value, b"", self._files(spec), None
        except stored.Unfit as exc:
            return b"", _error(exc.category, exc.code, exc.message), b"", None
        except loading.LoadFailed as exc:
            return self._load_failed(exc)
        except Cancelled:
            self._insist_on_being_the_worker()
            self.is_used_up = True
            return b"", _error(_USER, "CANCELLED", "it was told to stop"), b"", None
        except SystemExit as exc:
            return self._exited(exc)
        except BaseException as exc:  # noqa: BLE001 - any exception of the user's code is its outcome
            self._insist_on_being_the_worker()
            return self._raised(exc, source)

    def _call(self, function: Any, positional: list[Any], named: dict[str, Any]) -> Any:
        try:
            self._may_stop()
            found = function(*positional, **named)
            if type(found) is _COROUTINE:
                import asyncio  # noqa: PLC0415 - only where a function is async

                found = asyncio.run(found)
        finally:
            self.is_calling = False
        if os.getpid() != self.pid:
            os._exit(0)
        return found

    def _may_stop(self) -> None:
        """From now on the word to stop is an exception; if it has come before, this is."""
        self.is_calling = True
        if self.shared[wire.CANCEL] == self.number + 1:
            raise Cancelled

    def _insist_on_being_the_worker(self, status: int = 0) -> None:
        """A fork made by the user's code that comes back here is not the worker, and must not speak in its name."""
        if os.getpid() != self.pid:
            os._exit(status)

    def _enter(self, spec: Spec) -> None:
        try:
            os.chdir(spec.cwd)
        except OSError as exc:
            raise stored.Unfit(
                _USER, "DIRECTORY_MISSING", f"cannot work in the directory {spec.cwd}: {exc.strerror}"
            ) from exc
        for path in spec.inputs:
            if not os.path.exists(path):
                message = f"its input {path} is not there: {os.path.join(spec.cwd, path)}"
                raise stored.Unfit("DEPENDENCY_ERROR", "DEPENDENCY_MISSING", message)
        if spec.env and spec.kind != "shell":
            os.environ.update(spec.env)

    def _shell(self, spec: Spec) -> tuple[bytes, bytes, bytes, None]:
        from detent.executor.plain import shell  # noqa: PLC0415 - only where there is a command

        task = current.running()
        trace = None if task is None else task.parts.traceparent
        environment = {**os.environ, **({} if trace is None else {"TRACEPARENT": trace}), **spec.env}
        try:
            value = shell.run(spec.shell, spec.target, environment, self.out, self.err, self._may_stop)
        finally:
            self.is_calling = False
        files, value["outputs"] = b"", {}
        if spec.outputs:
            from detent.executor.plain import outputs  # noqa: PLC0415 - only where there are some

            made, value["outputs"] = outputs.collect(spec.outputs, self.content)
            files = json.dumps(made).encode()
        return stored.written(value), b"", files, None

    def _files(self, spec: Spec) -> bytes:
        if not spec.outputs:
            return b""
        from detent.executor.plain import outputs  # noqa: PLC0415 - only where there are some

        os.chdir(spec.cwd)
        return json.dumps(outputs.collect(spec.outputs, self.content)[0]).encode()

    def _raised(self, exc: BaseException, source: str | None) -> tuple[bytes, bytes, bytes, BaseException | None]:
        said = telling.story(exc, source)
        message = telling.quick_message(exc)
        error = _error(_USER, "PYTHON_EXCEPTION", message or "", **said)
        return b"", error, b"", exc if message is None else None

    def _load_failed(self, exc: loading.LoadFailed) -> tuple[bytes, bytes, bytes, None]:
        self._insist_on_being_the_worker()
        self.is_used_up = True  # Half of it may be loaded.
        if exc.cause is None:
            return b"", _error(_USER, "IMPORT_FAILED", exc.message), b"", None
        said = telling.story(exc.cause, exc.source)
        text = telling.quick_message(exc.cause) or telling.slow_message(exc.cause)
        message = telling.bounded(
            f"{exc.message}: {text}", telling.MESSAGE_BYTES_MAX
        )  # Its type is reported next to it.
        return b"", _error(_USER, "IMPORT_FAILED", message, text=text, **said), b"", None

    def _exited(self, exc: SystemExit) -> tuple[bytes, bytes, bytes, None]:
        code = SystemExit.__dict__["code"].__get__(exc)  # As it is held, not as a subclass may answer for it.
        status = 0 if code is None else code & 0xFF if type(code) is int else 1
        self._insist_on_being_the_worker(status)
        if status == 0:
            return b"null", b"", b"", None
        text = f": {telling.bounded(code, 1000)}" if type(code) is str else ""
        return b"", _error(_USER, "EXITED", f"the task ended itself with exit status {status}{text}"), b"", None

    def _tidy(self) -> tuple[bytes, bytes, int]:
        """Put back what the task changed, end what it left, and take what it wrote."""
        for number, stream in enumerate(self.streams, 1):
            try:
                stream.flush()
            except (OSError, ValueError):
                self.is_used_up = True  # It is closed, or it holds what the next task would be told to have written.
            os.dup2(self.descriptors[number], number)
        # A file that is opened gets the lowest number that is free. A task that closed these would give its successor one of
        # them, to be read and printed to by mistake. Putting them back takes less time than looking whether they are there.
        os.dup2(self.descriptors[0], 0)
        if _thread._count() > self.threads:  # noqa: SLF001
            self.is_used_up = True
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
            self.is_used_up = True
            processes.end_children()
        except ChildProcessError:
            pass
        if os.environ._data != self.environment:  # type: ignore[attr-defined]  # noqa: SLF001
            self._restore_environment()
        (stdout, out_cut), (stderr, err_cut) = self.out.take(), self.err.take()
        return stdout, stderr, (wire.OUT_CUT if out_cut else 0) | (wire.ERR_CUT if err_cut else 0)

    def _restore_environment(self) -> None:
        for name in list(os.environb):
            if name not in self.environment:
                del os.environb[name]
        for name, value in self.environment.items():
            if os.environb.get(name) != value:
                os.environb[name] = value

    def _usage(self) -> tuple[int, int, int, int]:
        """What was used since the last call: processor time in microseconds, peak of memory, bytes read and written."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        below = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = own[0] + own[1] + below[0] + below[1]
        moved = self._moved_bytes()
        # Of children the kernel keeps the largest of all: one that grew larger than any before was this task's.
        child = below[2] * 1024 if below[2] > self.child_peak else 0
        peak = own[2] * 1024
        used = int((cpu - self.cpu) * 1e6), max(peak, child), moved[0] - self.io[0], moved[1] - self.io[1]
        self.cpu, self.io, self.child_peak = cpu, moved, below[2]
        if peak > self.memory + _MEMORY_STEP_BYTES:
            # The kernel keeps the highest mark of a process's life; the next task shall not answer for this one.
            with contextlib.suppress(OSError), open("/proc/self/clear_refs", "wb", buffering=0) as file:
                file.write(_MEMORY_RESET)
                self.io = self.io[0], self.io[1] + len(_MEMORY_RESET)
            self.memory = resource.getrusage(resource.RUSAGE_SELF)[2] * 1024
        return used

    def _moved_bytes(self) -> tuple[int, int]:
        """Bytes read and written so far by system calls of this process and of the children that it waited for."""
        if self.counters < 0:
            return 0, 0
        try:
            said = os.pread(self.counters, 512, 0)
            words = said.split()
            read = int(words[1]) - self.looked
        except (OSError, IndexError, ValueError):
            self.counters = -1
            return self.io
        self.looked += len(said)  # The look itself is counted by the next one.
        return read, int(words[3])

    def _say(self, number: int, message: bytes) -> None:
        if len(message) + wire.TOKEN_BYTES > wire.MESSAGE_BYTES_MAX:
            try:
                wire.write_file(f"{self.directory}/done-{number}", message)
                message = wire.SHORT.pack(wire.DONE_IN_FILE, number)
            except OSError as exc:
                said = _error("INTERNAL_ERROR", "RESULT_NOT_PASSED", f"{self.directory}: {exc.strerror}")
                flags = wire.RETIRING if self.is_used_up else 0
                message = wire.write_done((number, flags, 0, 0, 0, 0, 0, 0), (b"", said, b"", b"", b""))
        self._send(message)

    def _send(self, message: bytes) -> None:
        try:
            self.end.send(message + self.token)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)  # The supervisor is gone.


def _error(category: str, code: str, message: str, **said: Any) -> bytes:
    return json.dumps({"category": category, "code": code, "message": message, **said}).encode()
