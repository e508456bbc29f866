"""Children of a server without the time that Python takes to load: forked from a process that has loaded all they need.

Before a server begins, it forks a *nursery*, which has one thread and knows all modules. What the server would start as a process
of its own, the nursery forks and runs as if it had been exec'd: its own session, the descriptors it was given, its words in `sys.argv`.
A server that is killed leaves its children behind as it always does; the nursery ends with it.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import types
import warnings
from collections.abc import Sequence
from pathlib import Path

PR_SET_NAME = 15
MODULES = (
    *("detent.serve.server", "detent.cli.serve", "detent.cli.worker", "detent.runs.driver_host"),
    *("detent.runs.local_workers", "detent.inspect.contract_checker"),
)
"""What servers and their children load."""


class ForkedProcess:
    """As much of `subprocess.Popen` as `detent.serve.children` uses, for a process that the nursery forks."""

    nursery: socket.socket
    lock = threading.Lock()

    def __init__(self, line: Sequence[str], *, pass_fds: Sequence[int], cwd: str | None, **_: object) -> None:
        self._end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (lifeline,) = pass_fds
        asked = json.dumps({"words": list(line[2:]), "cwd": cwd, "lifeline": lifeline}).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno(), lifeline]))]
        with self.lock:
            self.nursery.sendmsg([asked], rights)
        theirs.close()
        self.pid = int(self._end.recv(16))
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self._code is None and select.select([self._end], [], [], 0)[0]:
            self.wait()
        return self._code

    def wait(self) -> int:
        """The exit code, once it has ended."""
        if self._code is None:
            said = self._end.recv(16)
            if self._code is None:
                self._code = int(said or b"-9")
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def install() -> None:
    """Have the children of the server that this process becomes forked. Called while it has one thread."""
    from detent.serve import children

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _nurse(theirs)
    theirs.close()
    ForkedProcess.nursery = ours
    setattr(children, "subprocess", types.SimpleNamespace(Popen=ForkedProcess, DEVNULL=-3))  # noqa: B010 - for mypy it is a module


def _nurse(control: socket.socket) -> None:
    """Fork what is asked for, and tell how each ended, until the server has gone. Never returns."""
    _call_itself("nursery")
    bell, ringer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ends: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), bell], [], [])
        if bell in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(bell, 4096)
            _reap(ends)
        if control.fileno() in ready:
            data, ancillary, _, _ = control.recvmsg(1 << 16, socket.CMSG_SPACE(8))
            if not data:
                os._exit(0)
            end, lifeline = array.array("i", ancillary[0][2])
            if (pid := os.fork()) == 0:
                _become(json.loads(data), lifeline)
            os.close(lifeline)
            ends[pid] = socket.socket(fileno=end)
            ends[pid].send(str(pid).encode())


def _reap(ends: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            end = ends.pop(found[0], None)
            if end is not None:
                with contextlib.suppress(OSError):
                    end.send(str(os.waitstatus_to_exitcode(found[1])).encode())
                end.close()


def _become(asked: dict[str, object], lifeline: int) -> None:
    """Be a child of the server. Never returns."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        words, number = [str(word) for word in asked["words"]], int(str(asked["lifeline"]))  # type: ignore[attr-defined]
        os.dup2(lifeline, number)
        os.closerange(3, number)
        os.closerange(number + 1, 256)
        silent = os.open(os.devnull, os.O_RDWR)
        os.dup2(silent, 0)
        os.dup2(silent, 1)
        if asked["cwd"] is not None:
            os.chdir(str(asked["cwd"]))
        _call_itself(words[1] if words[0] == "detent" else words[0].rpartition(".")[2])
        sys.argv = words
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # That the module is loaded already.
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 0
    except BaseException:  # noqa: BLE001 - it must not go on as a second nursery
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _call_itself(name: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def offspring(pid: int, name: str) -> list[int]:
    """The processes of a server that its nursery forked under a name."""
    children = [child for one in _children(pid) for child in _children(one)]
    return [child for child in children if _read(f"/proc/{child}/comm").strip() == name[:15]]


def _children(pid: int) -> list[int]:
    """The children that the first thread of a process started, as the nursery and its children are."""
    return [int(word) for word in _read(f"/proc/{pid}/task/{pid}/children").split()]


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # The process has ended.
        return ""
