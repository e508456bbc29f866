"""Starts `detent` as often as it is told to, without loading Python each time, and sees what is left when one has ended.

One line of JSON for each request, one for each answer. A command is a fork that becomes a session of its own, so SIGKILL and
SIGSTOP do to it what they do to any other process; everything it runs below itself is exec'd as always.

This process adopts every descendant whose own parent goes. Whatever a command leaves behind therefore ends up right below
this process, whether it forked twice, began a session of its own or lost its environment.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from detent.executor.plain import processes
from tests.faults import points

LOADED = (
    *("detent.cli.app", "detent.cli.run", "detent.cli.summary", "detent.cli.progress", "detent.cli.progress"),
    *(
        "detent.runs.handle",
        "detent.runs.runtime",
        "detent.runs.steps.driver",
        "detent.runs.record.outcome",
        "detent.contract",
    ),
    *("detent.workers.sandbox_executor", "detent.executor.plain", "detent.executor.sandbox", "detent.executor.runners"),
    *("detent.sdk.flow_file", "detent.workflow.executor", "yaml", "pydantic"),
    *(
        f"detent.cli.{name}"
        for name in ("cancel", "doctor", "explain", "list", "logs", "replay", "retry", "show", "verify")
    ),
)
"""What a command loads at its start anyway."""
STRAY_SECONDS = 5.0
"""How long what was left may take to go: the host of a killed command is still tidying up."""


class Server:
    """Commands by the numbers they were asked for under."""

    def __init__(self) -> None:
        self.by_pid: dict[int, int] = {}
        self.bell, ringer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        processes.adopt_orphans()

    def serve(self) -> None:
        """Until there are no more requests; then everything below ends."""
        poll = select.poll()
        for descriptor in (0, self.bell):
            poll.register(descriptor, select.POLLIN)
        waiting = b""
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self.bell in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.bell, 4096)
                self.reap()
            if 0 in ready:
                data = os.read(0, 1 << 16)
                if not data:
                    break
                *lines, waiting = (waiting + data).split(b"\n")
                for line in lines:
                    self.answer(json.loads(line))
        processes.end_children()

    def answer(self, request: dict[str, Any]) -> None:
        """Do what a line says."""
        if request["do"] == "strays":
            say(strays=self.strays())
            return
        pid = os.fork()
        if pid == 0:
            become(request)
        self.by_pid[pid] = request["number"]
        say(started=request["number"], pid=pid)

    def reap(self) -> None:
        """Reap ended processes, and report ended commands."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.by_pid.pop(pid, None)
            if number is not None:
                say(ended=number, code=os.waitstatus_to_exitcode(status))

    def strays(self) -> list[str]:
        """What is below this process and is no command, nor below one, once it has had the time to go; then it is ended."""
        deadline = time.monotonic() + STRAY_SECONDS
        while True:
            self.reap()
            left = [pid for pid in processes.children() if pid not in self.by_pid]
            if not left or time.monotonic() > deadline:
                break
            select.select([self.bell], [], [], 0.01)
        found = [describe(pid) for pid in left]
        if left:
            processes.end_children(set(self.by_pid))
        return found


def describe(pid: int) -> str:
    """A process as far as it can still be seen."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        words = ""
    fields = processes.stat_fields(pid)
    return f"{pid} {fields[0] if fields else '?'} {words[:120]}"


def become(request: dict[str, Any]) -> None:
    """In the fork: be the command. Never returns."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        silent = os.open(os.devnull, os.O_RDONLY)
        out = os.open(request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        err = os.open(request["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((silent, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        os.closerange(3, 64)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        for limit, name in ((resource.RLIMIT_FSIZE, "file_bytes_max"), (resource.RLIMIT_AS, "memory_bytes_max")):
            if request.get(name) is not None:
                resource.setrlimit(limit, (request[name],) * 2)
        points.arm(request.get("point"), request.get("times", 1))
        for where, value in request.get("settings", {}).items():
            module, _, setting = where.rpartition(".")
            setattr(importlib.import_module(module), setting, value)
        if request.get("forks"):
            from tests.faults import forks

            forks.install()
        if request.get("patience_seconds") is not None:
            from detent.owner.session import ask_again

            assert ask_again.__kwdefaults__ is not None
            ask_again.__kwdefaults__["seconds"] = request["patience_seconds"]
        from detent.cli.app import run

        lines = request.get("lines")
        code = run(request["words"]) if lines is None else answer_all(run, lines, request["seconds_max"])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - it must not go on as a second server
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


class Endless(BaseException):
    """A line took longer than it may. No error that a command could take for its own."""


def answer_all(run: Callable[[list[str]], int], lines: list[list[str]], seconds_max: int) -> int:
    """Run several lines one after the other in this process; for each, print what it answered, within its time."""

    def ring(*_: object) -> None:
        raise Endless

    signal.signal(signal.SIGALRM, ring)
    for words in lines:
        out, err = io.StringIO(), io.StringIO()
        code: int | None = None
        signal.alarm(seconds_max)
        begun = time.monotonic()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run(words)
        except Endless:
            err.write(f"not answered within {seconds_max} s")
        finally:
            signal.alarm(0)
        peak_bytes = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        took_ms = round((time.monotonic() - begun) * 1000)
        say(code=code, out=out.getvalue(), err=err.getvalue(), peak_bytes=peak_bytes * 1024, took_ms=took_ms)
    return 0


def say(**fields: Any) -> None:
    """Print one line, at once."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for name in (*LOADED, *sys.argv[1:]):
        importlib.import_module(name)
    gc.freeze()  # A collection in a fork would copy every page that holds an object.
    Server().serve()
