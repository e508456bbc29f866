"""The thin process that owns all forks: started by path, once, before any job is known.

It imports the standard library's small modules and the files beside it, nothing else, so that a fork is cheap and a
child's peak memory is its own. It never learns what a job is: a request is a number and a socket, and the child reads
the rest from that socket itself. So what a guest could find in the memory it was forked with is the same for all.

Run as ``python -P -s -S spawner.py NUMBER`` with the control socket's descriptor. The rooms it lives in are entered
without their ``__init__`` files, which would load half the house.
"""

# pathlib would be the largest thing that the spawner loads. The rooms are entered before they are imported.
# ruff: noqa: E402, PTH100, PTH120

from __future__ import annotations

import os
import sys
import types


def _enter_rooms() -> None:
    """Make `detent.executor.sandbox` importable as a bare directory."""
    here = os.path.dirname(os.path.abspath(__file__))
    for name, levels in (("detent", 2), ("detent.executor", 1), ("detent.executor.sandbox", 0)):
        module = types.ModuleType(name)
        path = here
        for _ in range(levels):
            path = os.path.dirname(path)
        module.__path__ = [path]
        sys.modules[name] = module


if __name__ == "__main__":
    _enter_rooms()

import contextlib
import gc
import importlib
import json
import resource
import select
import signal
import socket
from typing import Any

from detent.executor.sandbox import cgroup, channel, init, jail, linux

REQUEST_BYTES_MAX = 1 << 20
REMOVALS_TRIED_MAX = 200
JAILS_MAX = 4096


class BecomeInit(BaseException):
    """Raised in a jail's first process to leave every frame of the spawner behind."""

    def __init__(self, settings: dict[str, Any], end: int, group: str) -> None:
        super().__init__()
        self.settings = settings
        self.end = end
        self.group = group


class Spawner:
    """Makes jails on request, and clears away what they leave."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        _, data, _ = channel.receive(control, bytes_max=REQUEST_BYTES_MAX)
        self.settings: dict[str, Any] = json.loads(data)
        self.jails: dict[int, tuple[int, str]] = {}
        """For each init's pid: the descriptor that reports its end, and its control group."""
        self.leftover: list[str] = []
        self.identity = (os.getuid(), os.getgid())
        for name in self.settings["preload"]:
            importlib.import_module(name)
        self.bell, self.ringer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.ringer, warn_on_full_buffer=False)
        # What is there now stays shared with every child as long as the collector does not touch it.
        gc.collect()
        gc.freeze()
        channel.send(control, channel.READY)

    def serve(self) -> None:
        """Until the supervisor closes its end; then end every jail and leave nothing behind."""
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        poll.register(self.bell, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(20 if self.leftover else None)]
            if self.bell in ready or self.leftover:
                self._reap()
            if self.control.fileno() in ready and not self._request():
                break
        self._close()

    def _request(self) -> bool:
        try:
            kind, data, descriptors = channel.receive(self.control, bytes_max=REQUEST_BYTES_MAX)
        except channel.Closed:
            return False
        if kind == channel.SPEC and len(descriptors) == 1:
            number, memory_bytes, processes, network = (int(word) for word in data.split())
            self._spawn(descriptors[0], number, memory_bytes, processes, network=bool(network))
        elif kind == channel.REPORT:
            self._settle()
        return True

    def _settle(self) -> None:
        """Answer with the pids of the jails that are there, once all that ended are cleared away."""
        self._reap()
        channel.send_json(self.control, channel.REPORT, {"jails": sorted(self.jails), "leftover": self.leftover})

    def _spawn(self, end: int, number: int, memory_bytes: int, processes: int, *, network: bool) -> None:
        group = f"{self.settings['group']}-{number}"
        if len(self.jails) >= JAILS_MAX:
            self._tell(end, channel.FAILED, b"too many jails")
            return
        try:
            if self.settings["cgroup"] is not None:
                cgroup.make(self.settings["cgroup"], group, memory_bytes=memory_bytes, processes=processes)
        except OSError as exc:
            self.leftover.append(group)
            self._tell(end, channel.FAILED, f"its control group: {exc}".encode())
            return
        uid_base = self.settings["uid_base"]
        namespaces = self.settings["namespaces"]
        go_read, go_write = os.pipe2(os.O_CLOEXEC)
        try:
            pid = linux.clone(jail.namespaces(network=network) if namespaces else 0)
        except OSError as exc:
            for descriptor in (go_read, go_write):
                os.close(descriptor)
            self.leftover.append(group)
            self._tell(end, channel.FAILED, f"{exc.strerror}".encode())
            return
        if pid == 0:
            os.close(go_write)  # Else the other side would never learn that the spawner has ended.
            self._be_born(end, go_read, group)
        os.close(go_read)
        try:
            if namespaces and uid_base is not None:
                jail.map_other_identity(pid, uid_base + number % self.settings["uid_count"])
            os.write(go_write, b"1")
            pidfd = os.pidfd_open(pid)
            try:
                with socket.socket(fileno=os.dup(end)) as borrowed:
                    channel.send(borrowed, channel.SPAWNED, b"%d" % pid, (pidfd,))
            finally:
                os.close(pidfd)
        except (OSError, channel.Closed):
            os.kill(pid, signal.SIGKILL)
        finally:
            os.close(go_write)
        self.jails[pid] = (end, group)

    def _be_born(self, end: int, go_read: int, group: str) -> None:
        """In the child: wait until its identity is mapped, forget everything else, and become a jail's init."""
        settings, control = self.settings, self.control.detach()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            if not os.read(go_read, 1):
                os._exit(1)
            kept = os.dup2(end, control, inheritable=False)
            os.closerange(3, kept)
            os.closerange(kept + 1, 1 << 20)
            if settings["namespaces"] and settings["uid_base"] is None:
                jail.map_own_identity(*self.identity)
        except OSError as exc:
            self._tell(control, channel.FAILED, str(exc).encode())
            os._exit(1)
        raise BecomeInit(settings, control, group)

    def _tell(self, end: int, kind: bytes, data: bytes) -> None:
        with socket.socket(fileno=end) as last, contextlib.suppress(channel.Closed):
            channel.send(last, kind, data)

    def _reap(self) -> None:
        try:
            while os.read(self.bell, 512):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            end, group = self.jails.pop(pid, (-1, ""))
            if group and self.settings["cgroup"] is not None:
                self.leftover.append(group)
            if end >= 0:
                self._tell(end, channel.ENDED, json.dumps(self._last_words(status, usage, group)).encode())
        place = self.settings["cgroup"]
        if place is not None:
            self.leftover = [group for group in self.leftover if not cgroup.remove(place, group)]

    def _last_words(self, status: int, usage: resource.struct_rusage, group: str) -> dict[str, Any]:
        """What is known of a jail whose init has gone: needed when it went without a report.

        Out of memory, the kernel takes the guest first; but what it frees may come too late to save init.
        """
        place = self.settings["cgroup"]
        oom_kills, refusals = (0, 0) if place is None else cgroup.read_counters(place, group)
        return {
            "init_status": status,
            "cpu_ms": round((usage.ru_utime + usage.ru_stime) * 1000),
            "resident_bytes": usage.ru_maxrss * 1024,
            "oom_kills": oom_kills,
            "process_refusals": refusals,
        }

    def _close(self) -> None:
        for pid in self.jails:
            os.kill(pid, signal.SIGKILL)
        for _ in range(REMOVALS_TRIED_MAX):
            self._reap()
            if not self.jails and not self.leftover:
                return
            select.select([self.bell], [], [], 0.02)


def main(control: int) -> None:
    """Serve; in a jail's first process, become its init; in the guest, wait for the job."""
    try:
        Spawner(socket.socket(fileno=control)).serve()
        return
    except BecomeInit as born:
        settings, end, group = born.settings, born.end, born.group
    try:
        init.live(settings, socket.socket(fileno=end), group)
        return
    except init.BecomeGuest as born:
        order, result = born.order, born.result
    del settings, end, group
    init.await_job(order, result)


if __name__ == "__main__":
    main(int(sys.argv[1]))
