"""The one process that a supervisor starts: forks the workers, buries them, and leaves nothing behind.

It is exec'd, never forked from the caller, so no lock, no database connection and no key of the caller's can be in its memory
or in that of its workers (X-179). It has one thread and imports little, so that a fork is cheap and safe.

It ends with its supervisor: when the control socket is closed, or when the supervisor's process is gone although a process
forked from it still holds the socket. Its workers end with it (`PR_SET_PDEATHSIG`). Everything below a worker becomes the
worker's child when its parent goes, and the host's when the worker goes; what the host does not know it kills.
"""

# pathlib would be the largest thing that the host loads.
# ruff: noqa: PTH102

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import mmap
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from detent.executor.plain import capture, child, processes, wire

REQUEST_BYTES_MAX = 1 << 16
LAST_ROUNDS_MAX = 16
"""Looks at the pipes of a worker that is gone; something that cannot be killed may still write to them."""
LOOK_SECONDS = 0.02
"""How often the memory of tasks is looked at that may use so much and no more."""
STOP_SECONDS_MAX = 0.2
"""How long a worker may take to stand still before it is killed without a second look."""


class Worker:
    """A worker as the host knows it."""

    def __init__(self, number: int, directory: str, bytes_max: int) -> None:
        self.number = number
        self.directory = directory
        self.pid = 0
        self.memory = mmap.mmap(-1, wire.SHARED_BYTES)
        self.shared = memoryview(self.memory).cast("Q")
        self.drains = [
            capture.Drain(f"{directory}/{name}", self.shared, place, bytes_max) for place, name in capture.STREAMS
        ]
        self.stopped = False
        """Whether its end is our doing."""
        self.over_memory: int | None = None
        """The task for whose memory it was ended."""


class Host:
    """Takes requests from the supervisor and tells it what becomes of the workers."""

    def __init__(self, control: socket.socket, supervisor: int, settings: dict[str, Any]) -> None:
        self.control = control
        self.supervisor = supervisor
        self.settings = settings
        self.workers: dict[int, Worker] = {}
        self.by_pid: dict[int, Worker] = {}
        self.stops: list[tuple[float, int, int]] = []
        """When which worker is to be killed if it still runs which task."""
        self.limits: dict[int, int] = {}
        """How much memory a task may use, by its number; looked at while there is any."""
        self.next_look = 0.0
        self.bell, self.ringer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.ringer, warn_on_full_buffer=False)
        self.poll = select.poll()
        for descriptor in (control.fileno(), self.bell, self.supervisor):
            self.poll.register(descriptor, select.POLLIN)
        self.pipes: dict[int, capture.Drain] = {}

    def serve(self) -> None:
        """Until the supervisor has gone; then end everything below and return."""
        control = self.control.fileno()
        while True:
            ready = self.poll.poll(self._patience_ms())
            for descriptor, _ in ready:
                if descriptor in self.pipes:
                    self._pump(descriptor)
                elif descriptor == self.bell:
                    self._reap()
                elif descriptor == self.supervisor or (descriptor == control and not self._request()):
                    self._end(0.0)
                    return
            if self.stops:
                self._stop_late()
            if self.limits:
                self._look_at_memory()

    def _patience_ms(self) -> int | None:
        due = [self.stops[0][0]] if self.stops else []
        if self.limits:
            due.append(self.next_look)
        return max(0, int((min(due) - time.monotonic()) * 1000) + 1) if due else None

    def _look_at_memory(self) -> None:
        """End the tasks that use more memory than they may: at once, because the machine may be short of it."""
        now = time.monotonic()
        if now < self.next_look:
            return
        for worker in self.workers.values():
            task = worker.shared[wire.RUNNING] - 1
            most = self.limits.get(task)
            if most is None or worker.stopped or not processes.uses_more(worker.pid, most):
                continue
            if self._stands_still_in(worker, task):
                worker.stopped, worker.over_memory = True, task
                processes.kill(worker.pid, signal.SIGKILL)
        self.next_look = time.monotonic() + LOOK_SECONDS

    def _pump(self, descriptor: int) -> None:
        if not self.pipes[descriptor].pump():
            self.poll.unregister(descriptor)
            del self.pipes[descriptor]

    def _request(self) -> bool:
        try:
            data, ancillary, _, _ = self.control.recvmsg(
                REQUEST_BYTES_MAX, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return False
        if not data:
            return False
        request = json.loads(data)
        if request["do"] == "spawn":
            handles = array.array("i", ancillary[0][2])
            self._spawn(request, socket.socket(fileno=handles[0]))
        elif request["do"] == "stop":
            self._stop(request["worker"], request["number"], request["grace_ms"])
        elif request["do"] == "limit":
            self.limits[request["number"]] = request["bytes"]
            if request["bytes"] is None:
                del self.limits[request["number"]]
        elif request["do"] == "end":
            self._end(request["grace_ms"] / 1000)
            return False
        return True

    def _spawn(self, request: dict[str, Any], end: socket.socket) -> None:
        number = request["worker"]
        try:
            os.mkdir(request["directory"], 0o700)
            worker = Worker(number, request["directory"], self.settings["output_bytes_max"])
            pid = os.fork()
        except OSError as exc:
            end.close()
            self._tell({"died": number, "failed": f"{exc.strerror}: {request['directory']}"})
            return
        if pid == 0:
            self._be_born(worker, end)
        end.close()
        worker.pid = pid
        self.workers[number] = self.by_pid[pid] = worker
        for drain in worker.drains:
            os.close(drain.writing)
            self.pipes[drain.reading] = drain
            self.poll.register(drain.reading, select.POLLIN)
        pidfd = os.pidfd_open(pid)
        try:
            self._tell({"born": number, "pid": pid}, pidfd)
        finally:
            os.close(pidfd)

    def _be_born(self, worker: Worker, end: socket.socket) -> None:
        """In the fork: forget the host, and become a worker. Never returns."""
        try:
            processes.die_with_parent(self.settings["host"])
            processes.adopt_orphans()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            for known in self.workers.values():
                for drain in known.drains:
                    drain.close()
            self.control.close()
            for descriptor in (self.bell, self.ringer, self.supervisor):
                os.close(descriptor)
            taken = [capture.Taken(drain) for drain in worker.drains]
            for drain, target in zip(worker.drains, (1, 2), strict=True):
                os.dup2(drain.writing, target)
                os.close(drain.reading)
            child.Child(end, worker.shared, taken, worker.directory, self.settings).serve()
        except BaseException:  # noqa: BLE001 - on any exception: it must not go on as a second host
            import traceback  # noqa: PLC0415 - only where we have failed

            traceback.print_exc()
        finally:
            os._exit(wire.CRASH_STATUS)

    def _tell(self, message: dict[str, Any], *descriptors: int) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.control.sendmsg([json.dumps(message).encode()], ancillary)

    def _stop(self, number: int, task: int | None, grace_ms: int) -> None:
        """End a task, or the worker when no task is named: politely if there is time for that."""
        worker = self.workers.get(number)
        if worker is None:
            return
        if task is None:
            worker.stopped = True
            processes.kill(worker.pid, signal.SIGKILL)
            return
        # First the word, then the look: a worker that begins the task now looks for the word after it has begun.
        worker.shared[wire.CANCEL] = task + 1
        if grace_ms > 0 and worker.shared[wire.RUNNING] == task + 1:
            processes.kill(worker.pid, signal.SIGTERM)
        self.stops.append((time.monotonic() + grace_ms / 1000, number, task))
        self.stops.sort()
        self._stop_late()

    def _stop_late(self) -> None:
        now = time.monotonic()
        while self.stops and self.stops[0][0] <= now:
            _, number, task = self.stops.pop(0)
            worker = self.workers.get(number)
            if worker is not None and self._stands_still_in(worker, task):
                worker.stopped = True
                processes.kill(worker.pid, signal.SIGKILL)

    def _stands_still_in(self, worker: Worker, task: int) -> bool:
        """Whether a worker still runs a task. It is halted for the look, so that no other task is killed in its place."""
        if worker.shared[wire.RUNNING] != task + 1:
            return False
        processes.kill(worker.pid, signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        flags = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, worker.pid, flags) is None and time.monotonic() < deadline:
            time.sleep(0.0005)
        if worker.shared[wire.RUNNING] == task + 1:
            return True
        processes.kill(worker.pid, signal.SIGCONT)
        return False

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.bell, 512):
                pass
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self.by_pid.pop(pid, None)
            if worker is not None:
                self._bury(worker, status, usage)

    def _bury(self, worker: Worker, status: int, usage: Any) -> None:
        """Tell of a worker's end once nothing of it is left and all that it wrote is in its files."""
        processes.end_children(set(self.by_pid))
        del self.workers[worker.number]
        for drain in worker.drains:
            for _ in range(LAST_ROUNDS_MAX):
                before = worker.shared[drain.place + 1]
                if drain.reading in self.pipes:
                    self._pump(drain.reading)
                if worker.shared[drain.place + 1] == before:
                    break
            if self.pipes.pop(drain.reading, None) is not None:
                self.poll.unregister(drain.reading)
            drain.close()
        self._tell(
            {
                "died": worker.number,
                "status": status,
                "stopped": worker.stopped,
                "over_memory": worker.over_memory,
                "written": [worker.shared[place + 1] - worker.shared[place + 2] for place, _ in capture.STREAMS],
                "started_us": worker.shared[wire.STARTED],
                "cpu_us": int((usage.ru_utime + usage.ru_stime) * 1e6),
                "memory": usage.ru_maxrss * 1024,
            }
        )

    def _end(self, grace: float) -> None:
        """End every worker and what is below it; those that see the end of their socket may leave by themselves first."""
        deadline = time.monotonic() + grace
        while self.by_pid and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in self.poll.poll(max(1, int(left * 1000))):
                if descriptor in self.pipes:
                    self._pump(descriptor)
                elif descriptor == self.bell:
                    self._reap()
                else:
                    deadline = 0.0  # The supervisor is gone: there is no reason to wait.
        for pid in self.by_pid:
            processes.kill(pid, signal.SIGKILL)
        processes.end_children()


def main(control: str, supervisor: str, preload: str) -> None:
    """Be the host: load what it needs, wait to be told for which home it is, and serve."""
    end = socket.socket(fileno=int(control))
    end.set_inheritable(False)
    owner = os.pidfd_open(int(supervisor))
    if os.getppid() != int(supervisor):
        return
    settings = _told(end, owner, json.loads(preload))
    if settings is None:
        return
    processes.mark(wire.MARKER, settings["marker"])
    settings["own_paths"] = list(sys.path)
    if settings["paths"] is not None:
        sys.path[:] = settings["paths"]
    settings["host"] = os.getpid()
    processes.adopt_orphans()
    host = Host(end, owner, settings)
    # What is there now stays shared with every worker as long as the collector does not touch it.
    gc.collect()
    gc.freeze()
    host.serve()
    os._exit(0)  # There is nothing to tidy up, and the supervisor waits.


def _told(end: socket.socket, owner: int, preload: list[str]) -> dict[str, Any] | None:
    """What the supervisor wants, as soon as it says so; modules are loaded meanwhile. None when it is gone."""
    both = [end.fileno(), owner]
    for module in preload:
        if select.select(both, [], [], 0)[0]:
            break
        importlib.import_module(module)
    select.select(both, [], [])
    try:
        data = end.recv(REQUEST_BYTES_MAX, socket.MSG_DONTWAIT)
    except (BlockingIOError, ConnectionResetError):
        return None
    return json.loads(data) if data else None
