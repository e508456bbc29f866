"""The processes that a server starts beside itself, and starts again when they die.

Code of users, long computations and large plans never run in the server's process: a child does that, and reaches the home over
``owner.sock`` like any other process. A child that dies is started again, after a pause that doubles while it keeps dying; a server
whose workers cannot start goes on serving and says so on standard error.

A child that does nothing but answer is started by the first request: most servers are never asked to look at a contract or to drive a
run, and each such child takes as long to start as a command.

Each child has a *lifeline*, a socket that ends with the server, see `detent.runs.ending`. So a server that is killed leaves no
children behind for long, and those of the next server need not know of them. A child that takes requests gets them over its lifeline:
one JSON document a line, answered by another with the same number. What was asked of a child that died is asked of the next one, so a
request has to be safe to repeat.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from detent.errors import DetentError
from detent.owner.socket_messages import error_from_map

PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 30.0
SETTLED_SECONDS: Final = 60.0
"""A child that lived so long did not die of what it was started with: the next one starts after the shortest pause."""
LOOK_SECONDS: Final = 0.05
"""How often a request looks for the next child when one has died."""
KILL_SECONDS: Final = 15.0
"""How long after its drain time a child may take to end before it is killed."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to start: a name for people, and the command line behind the interpreter."""

    name: str
    words: Sequence[str]
    directory: str | None = None
    on_demand: bool = False
    """Whether it starts when something is asked of it for the first time, not with the server."""


def pause_after(lived_seconds: float, before_seconds: float) -> float:
    """How long to wait before a child is started again, by how long it lived and how long the last pause was."""
    if lived_seconds >= SETTLED_SECONDS or not before_seconds:
        return PAUSE_SECONDS
    return min(2 * before_seconds, PAUSE_SECONDS_MAX)


class Child:
    """One process, kept alive by a thread of its own."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._thread = threading.Thread(target=self._keep, name=f"detent-{spec.name}", daemon=True)

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def start(self) -> None:
        """Begin to keep it alive, unless that has begun or the end was asked for. Safe from any thread."""
        with self._guard:
            if not self._thread.ident and not self._stopping.is_set():
                self._thread.start()

    def ask_to_end(self) -> None:
        """Have it end in order, and start no other; once more does nothing."""
        with self._guard:
            if not self._stopping.is_set() and self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
            self._stopping.set()

    def wait(self, deadline: float) -> None:
        """Wait for its end; after the deadline it is killed."""
        if not self._thread.ident:
            return  # It was never started.
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            with self._guard:
                if self._process is not None and self._process.poll() is None:
                    self._process.kill()
            self._thread.join()

    def _keep(self) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = self._run_once()
            if self._stopping.is_set():
                return
            pause = pause_after(time.monotonic() - began, pause)
            ended = "could not be started" if code is None else _ended(code)
            sys.stderr.write(f"{self.spec.name} {ended}; starting again in {pause:g} s\n")
            self._stopping.wait(pause)

    def _run_once(self) -> int | None:
        """Run it to its end; gives its exit code, or None when it could not be started."""
        ours, theirs = socket.socketpair()
        try:
            with self._guard:
                if self._stopping.is_set():
                    return 0
                self._process = process = subprocess.Popen(  # noqa: S603 - our own interpreter and commands
                    [sys.executable, "-m", *self.spec.words, "--lifeline", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    cwd=self.spec.directory,
                    start_new_session=True,  # Ctrl-C in the terminal is for the server, which ends its children in order.
                )
                self._link = ours
            theirs.close()
            threading.Thread(
                target=self._hear, args=(ours,), name=f"detent-{self.spec.name}-heard", daemon=True
            ).start()
            return process.wait()
        except OSError:
            return None
        finally:
            with self._guard:
                self._link = None
                waiting, self._waiting = self._waiting, {}
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
            ours.close()
            theirs.close()
            for future in waiting.values():
                future.set_exception(ConnectionResetError())

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(self, asked: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """What the child answers. Starts it, and waits for the next one when it has died. Raises what it refused by, or `NOT_READY`."""
        self.start()
        deadline = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := deadline - time.monotonic()) > 0:
            future = self._sent(asked)
            if future is None:
                self._stopping.wait(min(left, LOOK_SECONDS))
                continue
            try:
                said = future.result(left)
            except (TimeoutError, ConnectionResetError):
                continue
            if "error" in said:
                raise error_from_map(said["error"])
            answer: dict[str, Any] = said["answer"]
            return answer
        raise DetentError(
            f"the {self.spec.name} of the server does not answer", code="NOT_READY", hint="send the request again"
        )

    def _sent(self, asked: Mapping[str, Any]) -> Future[dict[str, Any]] | None:
        """Send a request to the child that runs now; None when there is none."""
        number, future = next(self._numbers), Future[dict[str, Any]]()
        data = json.dumps({**asked, "id": number}).encode() + b"\n"
        with self._guard:
            if self._link is None:
                return None
            self._waiting[number] = future
            try:
                self._link.sendall(data)
            except OSError:
                self._waiting.pop(number, None)
                return None
        return future

    def _hear(self, link: socket.socket) -> None:
        """Take answers until the child hangs up."""
        with contextlib.suppress(OSError, ValueError), link.makefile("rb") as lines:
            for line in lines:
                said = json.loads(line)
                future = self._waiting.pop(said["id"], None)
                if future is not None:
                    future.set_result(said)


class Children:
    """All children of a server. `start` begins, `stop` ends them in order while the owner still answers."""

    def __init__(self, specs: Sequence[ChildSpec], *, drain_seconds: float) -> None:
        self._children = [Child(spec) for spec in specs]
        self._drain_seconds = drain_seconds

    def start(self) -> None:
        """Start all of them that do not wait to be asked."""
        for child in self._children:
            if not child.spec.on_demand:
                child.start()

    def __getitem__(self, name: str) -> Child:
        """The child of a name."""
        return next(child for child in self._children if child.spec.name == name)

    def pids(self) -> dict[str, int | None]:
        """The processes that run now, by their names."""
        return {child.spec.name: child.pid for child in self._children}

    def ask_to_end(self) -> None:
        """Have all of them end in order; does not wait."""
        for child in self._children:
            child.ask_to_end()

    def stop(self) -> None:
        """Wait until all have ended."""
        self.ask_to_end()
        deadline = time.monotonic() + self._drain_seconds + KILL_SECONDS
        for child in self._children:
            child.wait(deadline)


def _ended(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
