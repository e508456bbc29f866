"""`detent` in a process of its own without the time that Python takes to load Detent: forked from a process that has loaded it.

A server takes about a second of processor time to start, nearly all of it for imports. The tests start hundreds, and what most of them
show begins when the server listens. Such a server is a fork of one process that each test process has, with an environment, a directory,
descriptors and a session of its own; what it starts itself is exec'd as always. Tests of start-up itself use `subprocess`.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOADED: Final = (
    "detent.cli.app",
    "detent.cli.serve",
    "detent.serve.server",
    "detent.runs.runtime",
    "asyncio.selector_events",
)
REQUEST_BYTES_MAX: Final = 1 << 17


class Warm:
    """As much of `subprocess.Popen` as tests use: a forked `detent` whose output comes through pipes as text."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], directory: Path | None = None) -> None:
        out, theirs_out = os.pipe()
        err, theirs_err = os.pipe()
        self._end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked = {"words": list(words), "environment": dict(environment), "directory": str(directory or Path.cwd())}
        try:
            _ask(json.dumps(asked).encode(), [theirs_out, theirs_err, theirs.fileno()])
        finally:
            os.close(theirs_out)
            os.close(theirs_err)
            theirs.close()
        self.stdout: IO[str] = os.fdopen(out)
        self.stderr: IO[str] = os.fdopen(err)
        self.pid = int(self._end.recv(16))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self.returncode is None and select.select([self._end], [], [], 0)[0]:
            self.returncode = int(self._end.recv(16) or -signal.SIGKILL)
            self._end.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended."""
        if self.returncode is None and not select.select([self._end], [], [], timeout)[0]:
            late = subprocess.TimeoutExpired("detent", timeout or 0.0)
            late.add_note(self._stacks())
            raise late
        code = self.poll()
        assert code is not None
        return code

    def _stacks(self) -> str:
        """Where each of its threads is, behind what it has said: for a test that waits in vain."""
        os.kill(self.pid, signal.SIGUSR2)
        said = b""
        while select.select([self.stderr], [], [], 1.0)[0] and (piece := os.read(self.stderr.fileno(), 65536)):
            said += piece
        return said.decode(errors="replace")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)  # It is reaped only after its code was sent.

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What is left of its output, and its end."""
        said = ["", ""]

        def read(number: int, pipe: IO[str]) -> None:
            if not pipe.closed:
                with pipe:
                    said[number] = pipe.read()

        readers = [
            threading.Thread(target=read, args=one, daemon=True) for one in enumerate((self.stdout, self.stderr))
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return said[0], said[1]


@cache
def _forker() -> socket.socket:
    """The process that has loaded Detent, by the socket to it. It ends with this one, and all that it has forked with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * REQUEST_BYTES_MAX)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        start_new_session=True,
    )
    theirs.close()

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


def _ask(asked: bytes, descriptors: list[int]) -> None:
    _forker().sendmsg([asked], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])


def _serve(control: socket.socket) -> None:
    """Fork what is asked for and tell how each ended, until the test process has gone; then end all that was forked."""
    bell, ringer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ends: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), bell], [], [])
        if bell in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(bell, 4096)
            _tell_ended(ends)
        if control.fileno() in ready:
            data, ancillary, _, _ = control.recvmsg(REQUEST_BYTES_MAX, socket.CMSG_SPACE(12))
            if not data:
                break
            out, err, end = array.array("i", ancillary[0][2])
            pid = os.fork()
            if pid == 0:
                _become(json.loads(data), out, err)
            os.close(out)
            os.close(err)
            ends[pid] = socket.socket(fileno=end)
            ends[pid].send(str(pid).encode())
    for pid in ends:
        os.kill(pid, signal.SIGKILL)


def _tell_ended(ends: dict[int, socket.socket]) -> None:
    for pid in list(ends):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            end = ends.pop(pid)
            with contextlib.suppress(OSError):
                end.send(str(os.waitstatus_to_exitcode(status)).encode())
            end.close()


def _become(asked: dict[str, object], out: int, err: int) -> None:
    """In the fork: be `detent` with these words. Never returns."""
    code = 70
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, 256)
        faulthandler.register(signal.SIGUSR2, file=2)
        sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc] # noqa: SIM115
        sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # type: ignore[misc] # noqa: SIM115
        environment, words = asked["environment"], asked["words"]
        assert isinstance(environment, dict)
        assert isinstance(words, list)
        own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ.clear()
        os.environ.update(environment)
        given = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[1:] = [*given, *(path for path in sys.path[1:] if path not in own)]
        time.tzset()
        os.chdir(str(asked["directory"]))
        sys.path[0] = os.getcwd()  # noqa: PTH109 - as `python -m` does
        sys.argv = ["detent", *words]
        from detent.cli import main

        main(words)
    except BaseException:  # noqa: BLE001 - it must not go on as a second process that forks
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # A collection in a fork would copy every page that holds an object.
    _serve(socket.socket(fileno=int(sys.argv[1])))
