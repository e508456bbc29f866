"""The jail's first process: starts the guest, watches it, ends it, and tells the supervisor what happened.

It is the only process in the jail that is ours while the user's code runs, so it does everything that a hostile job could
make expensive: it drains the output, answers reported system calls, adds up the tree. A job that floods slows only
itself. What it says goes over its own socket, which the guest never had; the guest cannot signal it (first process
of the namespace), look into it (not dumpable) or outlive it (the kernel ends a namespace with its first process).
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
from typing import Any, NoReturn

from detent.executor.sandbox import channel, guest, jail, linux, notify, seccomp, tree
from detent.executor.sandbox.watcher import Ward, Watcher

SPEC_BYTES_MAX = 4 << 20
OPEN_FILES_MAX = 256
PENDING_SIGNALS_MAX = 256
"""Queued signals and timers together."""
_RLIMIT_SIGPENDING, _RLIMIT_MSGQUEUE = 11, 12
_LIMITS = (
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_MEMLOCK, 0),
    (resource.RLIMIT_NOFILE, OPEN_FILES_MAX),
    # The kernel counts these for the user outside, too: what a job holds, the user's other processes lack.
    (_RLIMIT_SIGPENDING, PENDING_SIGNALS_MAX),
    (_RLIMIT_MSGQUEUE, 0),
)


class BecomeGuest(BaseException):
    """Raised in the guest's process to leave every frame of init behind before the job is read."""

    def __init__(self, order: int, result: int) -> None:
        super().__init__()
        self.order = order
        self.result = result


def live(settings: dict[str, Any], end: socket.socket, group: str) -> None:
    """Build the jail, run one job in it, report. Raises BecomeGuest in the guest; in init it ends the process."""
    try:
        _, data, _ = channel.receive(end, bytes_max=SPEC_BYTES_MAX)
        spec = json.loads(data)
        watcher = _set_up(settings, spec, end, group)
    except channel.Closed:
        os._exit(0)
    except BecomeGuest:
        raise
    except BaseException as exc:  # noqa: BLE001  # every failure is reported to the supervisor
        _fail(end, f"{type(exc).__name__}: {exc}")
    try:
        channel.send(end, channel.READY)
        _, data, _ = channel.receive(end, bytes_max=channel.PAYLOAD_BYTES_MAX)
        order, _, payload = data.partition(b"\n")
        del data
        report = watcher.run(json.loads(order), payload)
        channel.send(end, channel.REPORT, json.dumps(report).encode() + b"\n" + watcher.result)
        # The supervisor reads the counters of our control group now; it lets us go by closing its end.
        channel.receive(end, bytes_max=SPEC_BYTES_MAX)
    except channel.Closed:
        os._exit(0)
    except BaseException as exc:  # noqa: BLE001  # the same
        _fail(end, f"{type(exc).__name__}: {exc}")
    os._exit(0)


def _fail(end: socket.socket, why: str) -> NoReturn:
    with contextlib.suppress(channel.Closed):
        channel.send(end, channel.FAILED, why.encode("utf-8", "backslashreplace")[:1000])
    os._exit(1)


def _set_up(settings: dict[str, Any], spec: dict[str, Any], end: socket.socket, group: str) -> Watcher:
    os.setsid()
    namespaces = settings["namespaces"]
    gauges = jail.enter_groups(settings, group)
    if namespaces:
        proc = jail.build(settings, spec)
        directory = jail.JOB
    else:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        directory = spec["directory"]
        if settings["uid_base"] is not None:
            os.setgroups([])
            os.setresgid(settings["uid_base"], settings["uid_base"], settings["uid_base"])
            os.setresuid(settings["uid_base"], settings["uid_base"], settings["uid_base"])
    code = None
    if settings["seccomp"]:
        assert linux.MACHINE is not None
        code = seccomp.program(
            linux.MACHINE,
            runner=spec["runner"],
            memory_counted=bool(gauges),
            processes_counted=bool(gauges),
            file_bytes_max=spec["disk_bytes"],
            network=spec["network"] is not None,
        )
    ours, theirs = channel.pair()
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
    void = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        # Objects that own a descriptor would close the file that has its number by then.
        end.detach()
        ours.detach()
        _arm(settings, spec, theirs, (void, *(write for _, write in pipes)), code)
    theirs.close()
    for descriptor in (void, *(write for _, write in pipes)):
        os.close(descriptor)
    listener, stands_still = _await_guest(ours)
    channel.send(ours, channel.PAYLOAD, bytes(1000))
    _await_guest(ours)
    _raise_oom_score(proc, child)
    if namespaces:
        # Of all it had while it built the jail, init keeps what it needs to see and to end its guests.
        linux.set_capabilities((linux.CAP_DAC_READ_SEARCH, linux.CAP_KILL, linux.CAP_SYS_PTRACE))
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    # A process that changes its identity or its rights loses this, so it comes last.
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    watch = None
    if listener is not None:
        assert linux.MACHINE is not None
        writable = (*jail.WRITABLE, "/dev/shm") if namespaces else (directory,)  # noqa: S108
        watch = notify.Watch(
            listener,
            linux.MACHINE,
            proc,
            writable=tuple(os.fsencode(path) for path in writable),
            harmless=b"/dev/",
            shared_files=os.fsencode(f"{directory}/inputs"),
        )
    readers = tuple(read for read, _ in pipes)
    for reader in readers:
        os.set_blocking(reader, False)
    ward = Ward(child, ours, readers, stands_still and namespaces)
    watcher = Watcher(end, ward, watch, gauges, tree.Tree(proc, own=namespaces), directory)
    watcher.rehearse()
    return watcher


def _await_guest(ours: socket.socket) -> tuple[int | None, bool]:
    kind, data, descriptors = channel.receive(ours, bytes_max=SPEC_BYTES_MAX)
    if kind != channel.READY:
        raise RuntimeError(data.decode("utf-8", "replace"))
    return (descriptors[0] if descriptors else None), data == b"1"


def _raise_oom_score(proc: int, child: int) -> None:
    """When memory runs out, a guest is to go first, and its init last."""
    try:
        file = os.open(f"{child}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return
    try:
        os.write(file, b"1000")
    except OSError:
        pass
    finally:
        os.close(file)


def _arm(
    settings: dict[str, Any], spec: dict[str, Any], end: socket.socket, streams: tuple[int, ...], code: bytes | None
) -> None:
    """In the guest's process: descriptors, privileges, walls. Raises BecomeGuest; nothing of ours is left open."""
    try:
        order = os.dup(end.fileno())
        placed = [os.dup(number) for number in streams] + [order]
        end.detach()
        # Copies high up first, so that no number is overwritten before it was copied.
        high = [_dup_from(number, 50) for number in placed]
        for number, descriptor in enumerate(high):
            os.dup2(descriptor, number, inheritable=number < 3)
        os.closerange(5, 1 << 20)
        os.setsid()
        for which, value in _LIMITS:
            hard = resource.getrlimit(which)[1]
            least = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (least, least))
        linux.prctl(linux.PR_SET_DUMPABLE, 1)
        if settings["namespaces"] or os.geteuid() == 0:
            linux.set_capabilities(())
        if not settings["namespaces"]:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        ours = socket.socket(fileno=4)
        if settings["landlock_abi"]:
            _wall(settings, spec)
        if code is None:
            channel.send(ours, channel.READY)
        else:
            listener, stands_still = seccomp.install(code)
            channel.send(ours, channel.READY, b"1" if stands_still else b"", (listener,))
            os.close(listener)
        ours.detach()
    except BaseException as exc:  # noqa: BLE001  # every failure is reported to init
        _report_unarmed(f"{type(exc).__name__}: {exc}")
    raise BecomeGuest(order=4, result=3)


def _report_unarmed(why: str) -> None:
    try:
        channel.send(socket.socket(fileno=4), channel.FAILED, why.encode("utf-8", "backslashreplace")[:1000])
    finally:
        os._exit(1)


def _dup_from(number: int, least: int) -> int:
    import fcntl  # noqa: PLC0415  # loaded by the spawner already

    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, least)


def _wall(settings: dict[str, Any], spec: dict[str, Any]) -> None:
    if settings["namespaces"]:
        read, write = ["/"], list(jail.WRITABLE)
    else:
        read = [*settings["binds"], *(entry[1] for entry in (*spec["inputs"], *(spec["network"] or ())))]
        write = [spec["directory"]]
    read.append(_ZERO)
    jail.restrict(
        settings["landlock_abi"],
        read=read,
        run=settings["programs"],
        write=write,
        devices=_DEVICES,
        network=spec["network"] is not None,
    )


# The zero device may only be read: mapped for writing, it gives memory that no process and no quota of files accounts for.
_DEVICES = [f"/dev/{name}" for name in ("null", "full", "random", "urandom")]
_ZERO = "/dev/zero"


def await_job(order: int, result: int) -> None:
    """The guest's life: wait for the one job, run it. Nothing of init is on the stack any more."""
    end = socket.socket(fileno=order)
    guest.prepare()
    try:
        channel.receive(end, bytes_max=channel.PAYLOAD_BYTES_MAX)  # Part of the rehearsal.
        channel.send(end, channel.READY)
        _, data, _ = channel.receive(end, bytes_max=channel.PAYLOAD_BYTES_MAX)
    except channel.Closed:
        os._exit(0)
    end.close()
    guest.run(data, result)
