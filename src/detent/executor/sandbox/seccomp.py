"""The guest's seccomp filter: built here instruction by instruction, installed with a listener.

Classic BPF over (number, machine, arguments). First the machine: code that switches to another instruction set would
be read with the wrong table, so that is reported like any forbidden call. Then the calls whose arguments decide, each
in its own block; then the fixed answers, neighbours of one answer joined into a range; last, ENOSYS. A block of a call that
is not on the runner's list reports what it would report anyway, and refuses the rest.

The kernel caches calls that are allowed with any arguments, so the long list costs a job nothing.
"""

from __future__ import annotations

import ctypes
import struct

from detent.executor.sandbox import filter_rules, linux
from detent.executor.sandbox.linux import Machine

ALLOW = 0x7FFF0000
NOTIFY = 0x7FC00000
ERRNO = 0x00050000
EPERM, EAGAIN, ENOMEM, EINVAL, ENOTTY, ENOLCK, ENOSYS, EOPNOTSUPP = 1, 11, 12, 22, 25, 37, 38, 95
EAFNOSUPPORT = 97

SECCOMP_SET_MODE_FILTER = 1
FLAG_NEW_LISTENER = 8
FLAG_WAIT_KILLABLE = 32

X32_BIT = 0x40000000
LARGE_MAPPING_BYTES = 64 * 1024 * 1024
"""A writable mapping of this size is worth asking about where no cgroup counts memory."""

SHARED_ANONYMOUS = 0x01 | 0x20
"""The flags of a mapping whose pages outlive their place in a process (see `tree`)."""

_LD, _JEQ, _JGT, _JGE, _JSET, _AND, _RET = 0x20, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

Instruction = tuple[int, int, int, int]
"""Operation, steps to skip when true, steps to skip when false, operand."""


def program(
    machine: Machine,
    *,
    runner: str,
    memory_counted: bool,
    processes_counted: bool,
    file_bytes_max: int,
    network: bool = False,
) -> bytes:
    """The filter of a runner's guests as the kernel takes it.

    Where no cgroup counts memory, large and shared mappings are reported; where none counts processes, every new one is.
    ``file_bytes_max`` is the size beyond which a file may not even seem to reach. ``network``: sockets of the internet may be made and
    connected. A call that is looked at could be changed behind the look, so none is: a guest with a network gets no AF_UNIX socket
    that is not half of a pair, and every socket that it can connect is one of the internet.
    """
    code: list[Instruction] = [
        (_LD, 0, 0, _ARCH),
        (_JEQ, 1, 0, machine.audit_arch),
        (_RET, 0, 0, NOTIFY),
        (_LD, 0, 0, _NUMBER),
    ]
    if machine.name == "x86_64":
        code += [(_JGE, 0, 1, X32_BIT), (_RET, 0, 0, NOTIFY)]
    allowed = filter_rules.allowed(runner)
    fixed = dict.fromkeys(filter_rules.DENIED, ERRNO | EPERM)
    fixed |= dict.fromkeys(allowed, ALLOW)
    fixed |= dict.fromkeys(filter_rules.NEVER | filter_rules.EXAMINED, NOTIFY)
    blocks = _special(memory_counted, processes_counted, file_bytes_max)
    if network:
        blocks |= {"socket": _internet(), "sendto": [_ret(ALLOW)]}
        fixed |= dict.fromkeys(filter_rules.NETWORK, ALLOW)
    for name, block in blocks.items():
        answer = fixed.pop(name, ERRNO | ENOSYS)
        if name in machine.numbers:
            shown = block if name in allowed else _narrowed(block, answer)
            code += [(_JEQ, 0, len(shown), machine.numbers[name]), *shown]
    answers = sorted((machine.numbers[name], answer) for name, answer in fixed.items() if name in machine.numbers)
    for first, last, answer in _ranges(answers):
        code += [(_JGE, 0, 2, first), (_JGT, 1, 0, last), (_RET, 0, 0, answer)]
    code.append((_RET, 0, 0, ERRNO | ENOSYS))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _narrowed(block: list[Instruction], refusal: int) -> list[Instruction]:
    """The block of a call that is not on the list. A filter that reports every call only refuses it."""
    if _ret(ALLOW) not in block:
        return [_ret(refusal)]
    return [_ret(refusal) if one == _ret(ALLOW) else one for one in block]


def install(code: bytes) -> tuple[int, bool]:
    """Put the filter on this process, for good.

    Returns the descriptor on which its reports arrive, and whether a process whose call was reported stands still until
    it is answered or killed; on older kernels a signal may wake it.
    """
    body = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(body))
    try:
        return linux.call("seccomp", SECCOMP_SET_MODE_FILTER, FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE, head), True
    except OSError:
        return linux.call("seccomp", SECCOMP_SET_MODE_FILTER, FLAG_NEW_LISTENER, head), False


def _special(memory_counted: bool, processes_counted: bool, file_bytes_max: int) -> dict[str, list[Instruction]]:
    """The blocks for calls whose arguments decide."""
    new_process = ALLOW if processes_counted else NOTIFY
    blocks = {
        "clone": [_low(0), *_if_any(linux.CLONE_NEW_ANY, NOTIFY), _ret(new_process)],
        "unshare": [_low(0), *_if_any(linux.CLONE_NEW_ANY | linux.CLONE_NEWTIME, NOTIFY), _ret(ALLOW)],
        "open": [_low(1), *_if_any(_WRITING, NOTIFY), _ret(ALLOW)],
        "openat": [_low(2), *_if_any(_WRITING, NOTIFY), _ret(ALLOW)],
        "socket": _local_stream(),
        "socketpair": _local_stream(),
        "sendto": [_low(4), (_JEQ, 0, 3, 0), _high(4), (_JEQ, 0, 1, 0), _ret(ALLOW), _ret(NOTIFY)],
        "ioctl": [
            _low(1),
            *_if_is(_TIOCSTI, NOTIFY),
            *_if_is(_TIOCLINUX, NOTIFY),
            *(one for command in _IOCTL_COMMANDS for one in _if_is(command, ALLOW)),
            _ret(ERRNO | ENOTTY),
        ],
        "fcntl": [
            _low(1),
            *(one for command in _FCNTL_LOCKS for one in _if_is(command, NOTIFY)),
            *(one for command in _FCNTL_COMMANDS for one in _if_is(command, ALLOW)),
            _ret(ERRNO | EINVAL),
        ],
        # Flags ask whether a page of a file is in memory, which another job may have brought there.
        **{name: [*_if_not(5, 0, ERRNO | EOPNOTSUPP), _ret(ALLOW)] for name in ("preadv2", "pwritev2")},
        "mknod": _no_device(1),
        "mknodat": _no_device(2),
        "prctl": [
            _low(0),
            *_if_is(linux.PR_SET_SECCOMP, NOTIFY),
            # A process that is not dumpable cannot be looked into: not for the path of a call, nor for the memory it holds.
            (_JEQ, 0, 4, linux.PR_SET_DUMPABLE),
            *_if_not(1, 1, ERRNO | EPERM),
            _ret(ALLOW),
            *(one for option in _PRCTL_OPTIONS for one in _if_is(option, ALLOW)),
            _ret(ERRNO | EINVAL),
        ],
        **{name: [*_if_not(0, 0, NOTIFY), _ret(ALLOW)] for name in filter_rules.NAMES_A_PROCESS},
        "prlimit64": [*_if_not(0, 0, NOTIFY), *_if_not(2, 0, NOTIFY), _high(2), *_if_is(0, ALLOW), _ret(NOTIFY)],
        **{
            # The caller, or the group it is in; all of a user is for init to judge.
            name: [*_if_not(1, 0, NOTIFY), _low(0), *_if_is(one, ALLOW), *_if_is(one + 1, ALLOW), _ret(NOTIFY)]
            for name, one in filter_rules.NAMES_PROCESSES.items()
        },
        # Backwards from the end is negative, and harmless.
        "lseek": [_high(1), (_JGE, 0, 1, 1 << 31), _ret(ALLOW), *_above((1,), file_bytes_max)],
        "truncate": _above((1,), file_bytes_max),
        "ftruncate": _above((1,), file_bytes_max),
        "pwrite64": _above((3,), file_bytes_max),
        "fallocate": _above((2, 3), file_bytes_max),
    }
    if not processes_counted:
        blocks |= {name: [_ret(NOTIFY)] for name in ("fork", "vfork", "exit")}
        # A job that sets what happens at a child's end can keep the child's time from being counted.
        blocks["rt_sigaction"] = [
            *_if_not(0, linux.SIGCHLD, ALLOW),
            *_if_not(1, 0, NOTIFY),
            _high(1),
            *_if_is(0, ALLOW),
            _ret(NOTIFY),
        ]
    # Huge pages come from a pool of the whole machine, and neither a process nor a control group of ours counts them.
    no_huge_pages = [_low(3), *_if_any(_MAP_HUGETLB, ERRNO | ENOMEM)]
    if memory_counted:
        blocks |= {"mmap": [*no_huge_pages, _ret(ALLOW)], "mremap": [_ret(ALLOW)]}
    else:
        blocks["mmap"] = [
            *no_huge_pages,
            (_AND, 0, 0, SHARED_ANONYMOUS),
            *_if_is(SHARED_ANONYMOUS, NOTIFY),
            # The third argument says whether it may be written; a large read-only view of a data set takes no memory.
            _low(2),
            (_JSET, 1, 0, 2),
            _ret(ALLOW),
            *_above((1,), LARGE_MAPPING_BYTES),
        ]
        blocks["mremap"] = _above((2,), LARGE_MAPPING_BYTES)
        # Pages that a process sends to swap are not among those it holds.
        blocks["madvise"] = [_low(2), *_if_is(_MADV_PAGEOUT, ERRNO | EINVAL), _ret(ALLOW)]
    return blocks


_WRITING = 0o1 | 0o2 | 0o100 | 0o1000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_MAP_HUGETLB = 0x40000
_MADV_PAGEOUT = 21
_IOCTL_COMMANDS = (
    *(0x5401, 0x802C542A),  # TCGETS, TCGETS2: whether it is a terminal
    *(0x540F, 0x5413),  # TIOCGPGRP, TIOCGWINSZ
    *(0x541B, 0x5421, 0x5450, 0x5451),  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
)
"""The rest asks about network interfaces, clones files or speaks to devices that a job does not have."""
_FCNTL_LOCKS = (5, 6, 7)
"""F_GETLK, F_SETLK, F_SETLKW."""
_FCNTL_COMMANDS = (
    *(0, 1, 2, 3, 4),  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL
    *(1030, 1031, 1032),  # F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ
)
"""The rest are leases, notices of changes, signals to others, seals, and locks that belong to no process."""
_PRCTL_OPTIONS = (
    *(1, 2),  # PR_SET_PDEATHSIG, PR_GET_PDEATHSIG: children that end with their parent
    3,  # PR_GET_DUMPABLE
    *(15, 16),  # PR_SET_NAME, PR_GET_NAME
    *(38, 39),  # PR_SET_NO_NEW_PRIVS, which holds already, and PR_GET_NO_NEW_PRIVS
)


def _low(argument: int) -> Instruction:
    return (_LD, 0, 0, _ARGUMENTS + 8 * argument)


def _high(argument: int) -> Instruction:
    return (_LD, 0, 0, _ARGUMENTS + 8 * argument + 4)


def _ret(answer: int) -> Instruction:
    return (_RET, 0, 0, answer)


def _if_any(bits: int, answer: int) -> list[Instruction]:
    return [(_JSET, 0, 1, bits), _ret(answer)]


def _if_is(value: int, answer: int) -> list[Instruction]:
    return [(_JEQ, 0, 1, value), _ret(answer)]


def _if_not(argument: int, value: int, answer: int) -> list[Instruction]:
    """Answer when the low half of an argument is another value."""
    return [_low(argument), (_JEQ, 1, 0, value), _ret(answer)]


def _local_stream() -> list[Instruction]:
    """AF_UNIX and a kind that cannot name a peer in a message; everything else is the network, or a way around."""
    return [
        _low(0),
        (_JEQ, 0, 5, 1),
        _low(1),
        (_AND, 0, 0, 0xF),
        (_JEQ, 1, 0, 1),  # SOCK_STREAM
        (_JEQ, 0, 1, 5),  # SOCK_SEQPACKET
        _ret(ALLOW),
        _ret(NOTIFY),
    ]


def _internet() -> list[Instruction]:
    """Streams and datagrams of AF_INET and AF_INET6. Resolvers try other families, too, and do without them."""
    return [
        _low(0),
        (_JEQ, 1, 0, 2),
        (_JEQ, 0, 5, 10),
        _low(1),
        (_AND, 0, 0, 0xF),
        (_JEQ, 1, 0, 1),  # SOCK_STREAM
        (_JEQ, 0, 1, 2),  # SOCK_DGRAM
        _ret(ALLOW),
        _ret(ERRNO | EAFNOSUPPORT),
    ]


def _no_device(argument: int) -> list[Instruction]:
    block = [_low(argument), (_AND, 0, 0, 0o170000)]
    for kind in (0, 0o100000, 0o010000):
        block += _if_is(kind, ALLOW)
    return [*block, _ret(NOTIFY)]


def _above(arguments: tuple[int, ...], most: int) -> list[Instruction]:
    """Report when one of these 64-bit arguments is above ``most``."""
    block: list[Instruction] = []
    for left, argument in zip(range(len(arguments), 0, -1), arguments, strict=True):
        block += [
            _high(argument),
            (_JGT, 5 * left - 1, 0, most >> 32),
            (_JEQ, 0, 2, most >> 32),
            _low(argument),
            (_JGT, 5 * left - 4, 0, most & 0xFFFFFFFF),
        ]
    return [*block, _ret(ALLOW), _ret(NOTIFY)]


def _ranges(answers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    joined: list[tuple[int, int, int]] = []
    for number, answer in answers:
        if joined and joined[-1][1] == number - 1 and joined[-1][2] == answer:
            joined[-1] = (joined[-1][0], number, answer)
        else:
            joined.append((number, number, answer))
    return joined
