"""Watches one guest: hands it the job, keeps it to its limits, ends it, and looks at what it left.

One loop over everything that can happen: output, reported calls, a child's end, the supervisor gone, and a regular look at
the limits that nothing else enforces.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NamedTuple

from detent.executor.plain.processes import cpu_ms_of
from detent.executor.sandbox import cgroup, channel, guest, notify, tree, walk
from detent.executor.sandbox.tree import HiddenTime

READ_BYTES = 60_000
SAMPLE_SECONDS = 0.02
"""Between two looks where the kernel does not count memory for us."""
GAUGE_SECONDS = 0.05
MESSAGE_GRACE_SECONDS = 1.0
"""How long an exception's message may take to come once it was said that one was raised."""
FILE_SLACK_BYTES = 2 << 20
DATA_SLACK_BYTES = 64 << 20
ADDRESS_SLACK_BYTES = 4 << 30
DRAINS_MAX = 64


class Ward(NamedTuple):
    """The guest, armed and waiting: its pid, the socket for its job, the pipes it writes to."""

    pid: int
    end: socket.socket
    readers: tuple[int, ...]
    stands_still: bool
    """Whether a process whose call was reported cannot be woken by a signal."""


class Watcher:
    """Everything init knows about its guest, and the loop that learns it."""

    def __init__(
        self,
        end: socket.socket,
        ward: Ward,
        watch: notify.Watch | None,
        gauges: list[int],
        below: tree.Tree,
        directory: str,
    ) -> None:
        self.end = end
        self.guest_end = ward.end
        self.child = ward.pid
        self.kinds = dict(zip(ward.readers, (channel.OUT, channel.ERR, channel.RESULT), strict=True))
        self.stands_still = ward.stands_still
        self.watch = watch
        self.gauges = gauges
        self.tree = below
        self.directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.void = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        # Opened while the guest lives: for a process that has ended, this file has an unknown owner.
        self.counters = os.open(f"{ward.pid}/io", os.O_RDONLY | os.O_CLOEXEC, dir_fd=below.proc)
        self.result = bytearray()
        self.rooms: dict[int, int] = {}
        self.cut: set[str] = set()
        self.stop: str | None = None
        self.status: int | None = None
        self.raised = False
        self.grace: float | None = None
        """When an exception's message is given up; set once it was said that one was raised."""
        self.disk_used = 0
        self.order: dict[str, Any] = {}
        self.disk_full = False
        self.resident_peak = 0
        self.io = (0, 0)
        self.begun = 0.0
        self.cpu_before_ms = 0.0
        # A child that ends must wake the loop, or what it leaves behind would count against the job's processes.
        self.bell, self.ringer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.ringer, warn_on_full_buffer=False)
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(getattr(signal, name), signal.SIG_IGN)

    def rehearse(self) -> None:
        """Do once what every job's end needs, so that the memory it writes is our own by then (see `guest.prepare`)."""
        gc.disable()
        self._look_at_disk()
        self.tree.sample()
        if self.gauges:
            cgroup.read_gauges(self.gauges)
        for _ in walk.walk(self.directory, b"out", files_max=0):
            pass
        poll = select.poll()
        poll.register(self.bell, select.POLLIN)
        poll.poll(0)
        self._reap()
        for which in (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_NPROC):
            resource.prlimit(self.child, which)
        cpu_ms_of(self.child)
        self._io_bytes()
        self.tree.is_alone(self.child)
        json.loads(json.dumps(self._report(self._usage_standing(), 0.0, (0, 0), None)))

    def run(self, order: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Hand the job over, see it to its end, look at what it left; returns the report."""
        self.order = order
        readers = list(self.kinds)
        self.rooms = dict(
            zip(readers, (order["output_bytes"], order["output_bytes"], order["result_bytes"]), strict=True)
        )
        self._limit_guest()
        self.cpu_before_ms = self._usage_standing()[0]
        io_before = self._io_bytes()
        self.begun = time.monotonic()
        channel.send(self.guest_end, channel.PAYLOAD, payload)
        self.guest_end.close()
        self._loop()
        ended = time.monotonic()
        usage = self._usage_standing() if self._stands() else self._usage_ended()
        for descriptor in list(self.rooms):
            self._drain(descriptor)
        self._look_at_disk()
        oom_kills, refusals = cgroup.read_gauges(self.gauges) if self.gauges else (0, 0)
        fault = None if self.stop == "violation" else self._pass_files()
        self.io = self.io[0] - io_before[0], self.io[1] - io_before[1]
        return self._report(usage, ended, (oom_kills, refusals), fault)

    def _stands(self) -> bool:
        return self.watch is not None and self.watch.exit_status is not None

    def _usage_standing(self) -> tuple[float, int]:
        """Processor time and peak of a guest that is about to exit and never had a child."""
        if self.gauges:
            return cgroup.read_cpu_ms(self.gauges), 0
        return cpu_ms_of(self.child) + time.process_time() * 1000, self.tree.peak_bytes(self.child)

    def _usage_ended(self) -> tuple[float, int]:
        """The same once all processes have ended, by the kernel's sum over all of them."""
        hidden_ms = self._hidden_ms()
        self._end_all()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_ms = cgroup.read_cpu_ms(self.gauges) if self.gauges else self._reaped_cpu_ms(usage)
        return max(cpu_ms, hidden_ms), usage.ru_maxrss * 1024

    def _report(
        self, usage: tuple[float, int], ended: float, met: tuple[int, int], fault: dict[str, Any] | None
    ) -> dict[str, Any]:
        return {
            "status": self.status,
            "stop": self.stop,
            "wall_ms": round((ended - self.begun) * 1000, 3),
            "cpu_ms": max(0, round(usage[0] - self.cpu_before_ms)),
            "resident_bytes": max(usage[1], self.resident_peak, self.watch.shared.peak_bytes if self.watch else 0),
            "io_read": max(0, self.io[0]),
            "io_written": max(0, self.io[1]),
            "oom_kills": met[0],
            "process_refusals": met[1],
            "disk_full": self.disk_full,
            "cut": sorted(self.cut),
            "file_fault": fault,
        }

    def _limit_guest(self) -> None:
        order = self.order
        # Above what fits: a file that grows is to meet the end of the space, which can be seen afterwards.
        limits = [(resource.RLIMIT_FSIZE, order["disk_bytes"] + FILE_SLACK_BYTES)]
        if order["cpu_ms"] is not None:
            # Only a second line: per process, and in whole seconds. The tree's own sum decides.
            limits.append((resource.RLIMIT_CPU, -(-order["cpu_ms"] // 1000) + 2))
        if self.tree.own:
            # One more for init. Where a control group counts, it is to be met first, since it keeps count of refusals.
            limits.append((resource.RLIMIT_NPROC, order["processes"] + (64 if self.gauges else 1)))
        if not self.gauges and order["memory_bytes"] is not None:
            base = os.sysconf("SC_PAGE_SIZE") * int(self.tree.read(f"{self.child}/statm").split()[0])
            limits.append((resource.RLIMIT_DATA, base + order["memory_bytes"] + DATA_SLACK_BYTES))
            limits.append((resource.RLIMIT_AS, base + 4 * order["memory_bytes"] + ADDRESS_SLACK_BYTES))
        for which, value in limits:
            hard = resource.prlimit(self.child, which)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(self.child, which, (most, most))
        if self.watch is not None and not self.gauges:
            self.watch.processes_max = order["processes"]
            self.watch.memory_max = order["memory_bytes"]

    def _loop(self) -> None:
        poll = select.poll()
        for descriptor in (*self.rooms, self.bell, self.end.fileno()):
            poll.register(descriptor, select.POLLIN)
        if self.watch is not None:
            poll.register(self.watch.listener, select.POLLIN)
        period = GAUGE_SECONDS if self.gauges else SAMPLE_SECONDS
        next_look = self.begun + period
        wall_ms = self.order["wall_ms"]
        deadline = None if wall_ms is None else self.begun + wall_ms / 1000
        while self.status is None:
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                self._stop("message" if self.raised and self.grace == deadline else "wall")
                deadline = None
            if now >= next_look:
                self._look()
                next_look = time.monotonic() + period
            due = next_look if deadline is None else min(next_look, deadline)
            for descriptor, _ in poll.poll(max(0, due - time.monotonic()) * 1000):
                if descriptor == self.bell:
                    self._reap()
                elif descriptor == self.end.fileno():
                    os._exit(0)  # No caller waits for this job any more.
                elif self.watch is not None and descriptor == self.watch.listener:
                    self._answer(self.watch, poll)
                elif not self._take(descriptor):
                    poll.unregister(descriptor)
            if self.raised and self.grace is None:
                self.grace = time.monotonic() + MESSAGE_GRACE_SECONDS
                deadline = self.grace if deadline is None else min(deadline, self.grace)

    def _answer(self, watch: notify.Watch, poll: select.poll) -> None:
        if self.stop is not None:
            poll.unregister(watch.listener)
            return
        evidence = watch.answer_one(self.tree, self._leaving)
        if watch.hides_children and watch.hidden is None:
            self._keep_own_sum(watch)
        if watch.exit_status is not None:
            self.io = self._io_bytes()
            self.status = watch.exit_status
            return
        if evidence is not None:
            channel.send_json(self.end, channel.EVIDENCE, evidence)
            self._stop("violation" if evidence["kind"] == notify.VIOLATION else evidence["what"])

    def _leaving(self, pid: int) -> bool:
        """Whether a guest that calls exit may be left standing: then nothing of the job can run any more.

        That saves waiting until the kernel has taken its memory apart. With other threads or processes about, or where
        a signal could wake it, it goes on, and its end is awaited.
        """
        return self.stands_still and pid == self.child and self.stop is None and self.tree.is_alone(pid)

    def _stop(self, why: str) -> None:
        """End the job for a reason; the first one counts."""
        if self.stop is None:
            self.stop = why
        self._kill()

    def _kill(self) -> None:
        if self.tree.own:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return
        for number in self.tree.pids():
            try:
                os.kill(number, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def _reap(self) -> None:
        try:
            while os.read(self.bell, 512):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid == self.child:
                self.io = self._io_bytes()
                self.status = os.wait4(self.child, 0)[1]
                return
            os.wait4(ended.si_pid, 0)

    def _end_all(self) -> None:
        """No process of the job is left when this returns."""
        while True:
            self._kill()
            try:
                if os.wait4(-1, 0 if self.tree.own else os.WNOHANG)[0] == 0:
                    time.sleep(0.001)
            except ChildProcessError:
                return

    def _read(self, descriptor: int) -> bool:
        """Take what a pipe holds, pass on what there is room for; False at its end."""
        room = self.rooms[descriptor]
        kind = self.kinds[descriptor]
        if room == 0:
            moved = os.splice(descriptor, self.void, 1 << 20)
            if moved:
                self.cut.add(_STREAM_NAMES[kind])
            return moved > 0
        data = os.read(descriptor, READ_BYTES)
        if not data:
            return False
        if kind == channel.RESULT and self.order["python"] and self.rooms[descriptor] == self.order["result_bytes"]:
            self.raised = data[:1] == guest.RAISED
        if len(data) > room:
            self.cut.add(_STREAM_NAMES[kind])
        self.rooms[descriptor] = max(0, room - len(data))
        if kind == channel.RESULT:
            # Kept until the end: a message now would wake the supervisor before it has anything to decide.
            self.result += data[:room]
        else:
            channel.send(self.end, kind, data[:room])
        return True

    def _take(self, descriptor: int) -> bool:
        try:
            return self._read(descriptor)
        except BlockingIOError:
            return True

    def _drain(self, descriptor: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(DRAINS_MAX):
                if not self._read(descriptor):
                    return

    def _io_bytes(self) -> tuple[int, int]:
        """What the guest and its reaped children read and wrote through system calls."""
        try:
            lines = os.pread(self.counters, 512, 0).split()
        except OSError:
            return 0, 0
        return int(lines[1]), int(lines[3])

    def _look(self) -> None:
        """One look at the limits that need polling."""
        self._look_at_disk()
        sample = self.tree.sample()
        if self.gauges:
            oom_kills, refusals = cgroup.read_gauges(self.gauges)
            if oom_kills or refusals:
                self._stop("memory" if oom_kills else "processes")
        elif self.order["memory_bytes"] is not None:
            held = self._held_bytes(sample)
            self.resident_peak = max(self.resident_peak, held)
            if held > self.order["memory_bytes"]:
                self._stop("memory")
        cpu_ms = cgroup.read_cpu_ms(self.gauges) if self.gauges else max(self._seen_ms(sample), self._hidden_ms())
        if self.order["cpu_ms"] is not None and cpu_ms - self.cpu_before_ms >= self.order["cpu_ms"]:
            self._stop("cpu")

    def _held_bytes(self, sample: tree.Sample) -> int:
        """What the whole tree holds now, where no control group counts it."""
        shared = None if self.watch is None else self.watch.shared
        if shared is not None and shared.sizes:
            shared.settle(self.tree.shared_objects())
        beside = self.disk_used + (shared.charged_bytes if shared else 0)
        held = sample.resident_bytes + beside
        if (shared is not None and shared.sizes) or held > self.order["memory_bytes"]:
            # Pages of files in memory and of shared mappings are in what is counted beside already.
            held = self.tree.proportional_bytes(files_in_memory=shared is None) + beside
        return held

    def _seen_ms(self, sample: tree.Sample) -> float:
        """Processor time of the living and of those whose parent waited for them."""
        return sample.cpu_ms + self._reaped_cpu_ms(resource.getrusage(resource.RUSAGE_CHILDREN))

    def _hidden_ms(self) -> float:
        """The same by a sum of our own, for a job whose parents may not wait; 0 for any other."""
        hidden = None if self.watch is None else self.watch.hidden
        if hidden is None:
            return 0.0
        hidden.look(time.monotonic() * 1000, self.tree.lives())
        return hidden.total_ms

    def _keep_own_sum(self, watch: notify.Watch) -> None:
        """From now on: a parent may ignore what its children used."""
        lives = self.tree.lives()
        before_ms = max(0.0, self._seen_ms(self.tree.sample()) - sum(life.used_ms for life in lives.values()))
        watch.hidden = HiddenTime(before_ms, time.monotonic() * 1000)
        watch.hidden.lives = lives

    def _reaped_cpu_ms(self, usage: resource.struct_rusage) -> float:
        return (usage.ru_utime + usage.ru_stime + time.process_time()) * 1000

    def _look_at_disk(self) -> None:
        if not self.tree.own:
            return
        found = os.fstatvfs(self.directory)
        self.disk_used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self.disk_full |= found.f_bavail == 0 or found.f_ffree == 0

    def _pass_files(self) -> dict[str, Any] | None:
        """Hand every output file to the supervisor, open; returns what ended the walk early, if anything did."""
        for name, descriptor, fault in walk.walk(self.directory, b"out", files_max=self.order["artifacts_max"]):
            text = os.fsdecode(name)[:8192]
            if descriptor is None:
                return {"name": text, "fault": fault}
            channel.send_json(self.end, channel.FILE, {"name": text}, (descriptor,))
            os.close(descriptor)
        return None


_STREAM_NAMES = {channel.OUT: "stdout", channel.ERR: "stderr", channel.RESULT: "result"}
