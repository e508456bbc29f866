"""The filter of both machines, asked call by call."""

from __future__ import annotations

import pytest

from detent.executor.sandbox import filter_rules, seccomp
from detent.executor.sandbox.linux import (
    AUDIT_ARCH_AARCH64,
    AUDIT_ARCH_X86_64,
    CLONE_NEWNET,
    CLONE_NEWTIME,
    CLONE_NEWUSER,
    MACHINES,
    Machine,
)
from detent.executor.sandbox.seccomp import ALLOW, EINVAL, ENOMEM, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM, ERRNO, NOTIFY
from detent.executor.sandbox.traced_calls import TRACED
from tests.executor.bpf import answer

MB = 1024 * 1024
SPECIAL = frozenset(seccomp._special(True, True, 1)) - {"mmap", "mremap"}
PUBLISHED = {
    "x86_64": {"code": 182, "render": 73, "export": 78, "thumbnail": 75},
    "aarch64": {"code": 149, "render": 64, "export": 66, "thumbnail": 65},
}
machines = pytest.mark.parametrize("machine", list(MACHINES.values()), ids=list(MACHINES))


def asked(machine: Machine, name: str, *arguments: int, counted: bool = True, runner: str = "code") -> int:
    code = seccomp.program(
        machine, runner=runner, memory_counted=counted, processes_counted=counted, file_bytes_max=8 * MB
    )
    return answer(code, number=machine.numbers[name], arch=machine.audit_arch, arguments=arguments)


@machines
@pytest.mark.parametrize("runner", filter_rules.RUNNERS)
def test_every_call_has_exactly_one_answer(machine: Machine, runner: str) -> None:
    """The filter is what the lists say: what is on none is answered as if the kernel had never heard of it."""
    lists = (filter_rules.allowed(runner), filter_rules.NEVER, filter_rules.EXAMINED)
    names = [name for one in lists for name in one]
    assert len(names) == len(set(names))
    for name in machine.numbers:
        if name in SPECIAL:
            continue
        allowed = name in filter_rules.allowed(runner) | {"mmap"}
        refused = ERRNO | (EPERM if name in filter_rules.DENIED else ENOSYS)
        reported = name in filter_rules.NEVER | filter_rules.EXAMINED
        assert asked(machine, name, runner=runner) == (ALLOW if allowed else NOTIFY if reported else refused), name


@machines
@pytest.mark.parametrize("runner", filter_rules.RUNNERS)
def test_what_a_runner_was_seen_to_call_is_let_through_or_refused_for_a_reason(machine: Machine, runner: str) -> None:
    """Compares the data file with the filter."""
    for name in TRACED[runner] & set(machine.numbers):
        code = seccomp.program(machine, runner=runner, memory_counted=True, processes_counted=True, file_bytes_max=MB)
        blocked = ERRNO | ENOSYS, ERRNO | EPERM
        assert (answer(code, number=machine.numbers[name], arch=machine.audit_arch) in blocked) == (
            name in filter_rules.REFUSED
        ), name


@machines
@pytest.mark.parametrize("runner", filter_rules.RUNNERS)
def test_special_calls_outside_the_list_are_refused_or_reported(machine: Machine, runner: str) -> None:
    for name in SPECIAL & set(machine.numbers) - filter_rules.allowed(runner):
        for counted in (True, False):
            for arguments in ((), (0, 1), (1, 1), (17,), (0, 0, 1, 5)):
                assert asked(machine, name, *arguments, counted=counted, runner=runner) != ALLOW, name


def test_every_reason_beyond_the_trace_is_needed_and_said() -> None:
    everywhere = frozenset.intersection(*TRACED.values())
    assert set(filter_rules.BEYOND) & everywhere == set()
    assert all(len(reason) > 10 or reason.startswith("the same") for reason in filter_rules.BEYOND.values())
    assert set(filter_rules.REFUSED) <= set().union(*TRACED.values())


def test_every_name_on_the_lists_exists_on_some_machine() -> None:
    known = {name for one in MACHINES.values() for name in one.numbers}
    lists = (
        filter_rules.NEVER,
        filter_rules.EXAMINED,
        filter_rules.DENIED,
        *map(filter_rules.allowed, filter_rules.RUNNERS),
    )
    assert set().union(*lists) - known == set()
    for machine in MACHINES.values():
        assert len(machine.names) == len(machine.numbers)


@machines
def test_the_number_of_calls_that_go_through_is_the_published_one(machine: Machine) -> None:
    """With no arguments, where nothing else counts processes; docs/sandbox.md has the figures."""
    counts = {
        runner: sum(asked(machine, name, runner=runner) == ALLOW for name in machine.numbers)
        for runner in filter_rules.RUNNERS
    }
    assert counts == PUBLISHED[machine.name]


def test_the_calls_of_the_list_are_never_allowed() -> None:
    """JOB-060"""
    wanted = (
        "mount umount2 pivot_root chroot open_tree move_mount setns add_key request_key keyctl bpf perf_event_open "
        "userfaultfd kexec_load init_module finit_module clock_settime adjtimex reboot sethostname swapon syslog ptrace "
        "process_vm_readv process_vm_writev io_uring_setup open_by_handle_at bind listen setgroups capset seccomp"
    )
    assert set(wanted.split()) <= filter_rules.NEVER


@machines
def test_another_instruction_set_is_reported(machine: Machine) -> None:
    code = seccomp.program(machine, runner="code", memory_counted=True, processes_counted=True, file_bytes_max=1)
    for arch in {AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64, 0x40000003} - {machine.audit_arch}:
        assert answer(code, number=machine.numbers["read"], arch=arch) == NOTIFY
    if machine.name == "x86_64":
        assert answer(code, number=0x40000000, arch=machine.audit_arch) == NOTIFY
    assert answer(code, number=9999, arch=machine.audit_arch) == ERRNO | ENOSYS


@machines
def test_new_namespaces_are_reported_and_new_processes_are_not(machine: Machine) -> None:
    """JOB-060"""
    assert asked(machine, "clone", 17) == ALLOW
    assert asked(machine, "clone", CLONE_NEWUSER | 17) == NOTIFY
    assert asked(machine, "clone", 17, counted=False) == NOTIFY
    for name in ("fork", "vfork", "exit"):
        if name in machine.numbers:
            assert [asked(machine, name, counted=one) for one in (True, False)] == [ALLOW, NOTIFY]
    for number, action, expected in ((17, 0, ALLOW), (17, 1, NOTIFY), (17, 1 << 40, NOTIFY), (2, 1, ALLOW)):
        assert asked(machine, "rt_sigaction", number, action, counted=False) == expected
        assert asked(machine, "rt_sigaction", number, action) == ALLOW
    assert asked(machine, "clone3", 0, 88) == ERRNO | ENOSYS
    assert asked(machine, "unshare", 0x400) == ERRNO | EPERM
    assert [asked(machine, "unshare", flag) for flag in (CLONE_NEWNET, CLONE_NEWTIME)] == [NOTIFY, NOTIFY]


@machines
@pytest.mark.parametrize("name", ["socket", "socketpair"])
def test_only_local_streams_come_to_be(machine: Machine, name: str) -> None:
    """JOB-072"""
    allowed = {(1, 1), (1, 5)}
    for family in range(46):
        for kind in range(1, 11):
            expected = ALLOW if (family, kind) in allowed else NOTIFY
            assert asked(machine, name, family, kind | 0o2000000) == expected, (family, kind)


@machines
def test_a_message_may_not_name_its_receiver(machine: Machine) -> None:
    assert asked(machine, "sendto", 3, 0, 1, 0, 0) == ALLOW
    assert asked(machine, "sendto", 3, 0, 1, 0, 0x7FFF0000) == NOTIFY
    assert asked(machine, "sendto", 3, 0, 1, 0, 1 << 40) == NOTIFY


@machines
def test_opening_to_write_is_reported_and_to_read_is_not(machine: Machine) -> None:
    """JOB-073"""
    assert asked(machine, "openat", 0, 0, 0o2000000) == ALLOW
    assert [asked(machine, "openat", 0, 0, flag) for flag in (0o1, 0o2, 0o100, 0o1000)] == [NOTIFY] * 4
    assert asked(machine, "openat2") == ERRNO | ENOSYS
    if machine.name == "x86_64":
        assert [asked(machine, "open", 0, flag) for flag in (0, 0o1)] == [ALLOW, NOTIFY]
        assert asked(machine, "creat") == NOTIFY


@machines
def test_files_beyond_the_quota_are_reported(machine: Machine) -> None:
    """JOB-037"""
    most = 8 * MB
    for size, expected in ((0, ALLOW), (most, ALLOW), (most + 1, NOTIFY), (1 << 32, NOTIFY), (1 << 40, NOTIFY)):
        assert asked(machine, "ftruncate", 3, size) == expected
        assert asked(machine, "truncate", 3, size) == expected
        assert asked(machine, "pwrite64", 3, 0, 1, size) == expected
        assert asked(machine, "lseek", 3, size) == expected
        assert asked(machine, "fallocate", 3, 0, size, 0) == expected
        assert asked(machine, "fallocate", 3, 0, 0, size) == expected
    assert asked(machine, "lseek", 3, -10, 2) == ALLOW


@machines
def test_memory_calls_are_notified_where_no_control_group_counts_memory(machine: Machine) -> None:
    """JOB-037"""
    large, writable = 65 * MB, 3
    assert asked(machine, "mmap", 0, large, writable) == ALLOW
    assert asked(machine, "mmap", 0, large, writable, counted=False) == NOTIFY
    assert asked(machine, "mmap", 0, MB, writable, counted=False) == ALLOW
    assert asked(machine, "mmap", 0, large, 1, counted=False) == ALLOW
    assert asked(machine, "mremap", 0, 1, large, counted=False) == NOTIFY
    for size in (1, large):
        assert asked(machine, "mmap", 0, size, 0, 0x21) == ALLOW
        assert asked(machine, "mmap", 0, size, 0, 0x21, counted=False) == NOTIFY
    assert asked(machine, "mmap", 0, MB, writable, 0x22, counted=False) == ALLOW
    assert asked(machine, "mmap", 0, MB, writable, 0x01, counted=False) == ALLOW
    assert [asked(machine, "mmap", 0, 1, 0, 0x40022, counted=one) for one in (True, False)] == [ERRNO | ENOMEM] * 2
    assert [asked(machine, "madvise", 0, 1, 21, counted=one) for one in (True, False)] == [ALLOW, ERRNO | EINVAL]
    assert asked(machine, "madvise", 0, 1, 4, counted=False) == ALLOW
    assert [asked(machine, "memfd_create", counted=one) for one in (True, False)] == [ERRNO | ENOSYS] * 2


@machines
def test_arguments_decide_about_devices_terminals_limits_and_filters(machine: Machine) -> None:
    assert [asked(machine, "mknodat", 0, 0, mode) for mode in (0o100644, 0o10644, 0o20644, 0o60644)] == [
        ALLOW,
        ALLOW,
        NOTIFY,
        NOTIFY,
    ]
    assert [asked(machine, "ioctl", 0, command) for command in (0x5401, 0x5412, 0x541C)] == [ALLOW, NOTIFY, NOTIFY]
    # The kernel reads the low half of a command alone, so the filter must not be fooled by the other.
    assert asked(machine, "ioctl", 0, 0x5412 | 1 << 40) == NOTIFY
    assert [asked(machine, "prctl", option) for option in (1, 15, 22)] == [ALLOW, ALLOW, NOTIFY]
    # A subreaper, memory under another name, an option of tomorrow; network interfaces; leases, notices, locks of no process.
    assert [asked(machine, "prctl", option) for option in (0, 36, 0x53564D41, 999)] == [ERRNO | EINVAL] * 4
    assert [asked(machine, "ioctl", 0, command) for command in (0x8912, 0x40049409, 0)] == [ERRNO | ENOTTY] * 3
    assert [asked(machine, "fcntl", 0, command) for command in (8, 37, 1024, 1026, 1033)] == [ERRNO | EINVAL] * 5
    assert [asked(machine, "fcntl", 0, command) for command in (5, 6, 7)] == [NOTIFY] * 3
    assert [asked(machine, "fcntl", 0, command) for command in (0, 3, 1030)] == [ALLOW] * 3
    assert [asked(machine, "preadv2", 0, 0, 0, 0, 0, flags) for flags in (0, 8)] == [ALLOW, ERRNO | EOPNOTSUPP]
    assert [asked(machine, "prctl", 4, value) for value in (0, 1, 2)] == [ERRNO | EPERM, ALLOW, ERRNO | EPERM]
    assert [asked(machine, "prlimit64", 0, 7, pointer) for pointer in (0, 1, 1 << 40)] == [ALLOW, NOTIFY, NOTIFY]
    assert asked(machine, "prlimit64", 1, 7, 0) == NOTIFY
    assert asked(machine, "personality", 0x0040000) == ERRNO | EPERM


@machines
def test_calls_that_change_another_process_are_reported_and_about_oneself_are_not(machine: Machine) -> None:
    """JOB-073"""
    for name in filter_rules.NAMES_A_PROCESS:
        # The kernel reads the low half of a process's number alone.
        own = ERRNO | EPERM if name in filter_rules.DENIED else ALLOW
        assert [asked(machine, name, pid) for pid in (0, 1, 0xFFFFFFFF, 1 << 40)] == [own, NOTIFY, NOTIFY, own]
    for name, one in filter_rules.NAMES_PROCESSES.items():
        own = ERRNO | EPERM if name in filter_rules.DENIED else ALLOW
        assert [asked(machine, name, one + kind, 0) for kind in range(4)] == [own, own, NOTIFY, NOTIFY]
        assert [asked(machine, name, one + kind, 1) for kind in range(4)] == [NOTIFY] * 4


@machines
def test_calls_that_no_runner_needs_are_refused(machine: Machine) -> None:
    """JOB-073"""
    denied = "shmget semget msgget timer_create mlock mlockall ioprio_get personality syncfs accept"
    unknown = (
        "memfd_create execveat remap_file_pages vmsplice splice tee mbind set_mempolicy get_mempolicy mincore cachestat readahead sync "
        "pkey_alloc mseal landlock_create_ruleset capget rt_sigqueueinfo signalfd4 futex_waitv sendmmsg get_robust_list fadvise64"
    )
    for runner in filter_rules.RUNNERS:
        assert {asked(machine, name, runner=runner) for name in denied.split()} == {ERRNO | EPERM}
        assert {asked(machine, name, runner=runner) for name in unknown.split()} == {ERRNO | ENOSYS}
    for runner in filter_rules.RUNNERS[1:]:
        assert {asked(machine, name, runner=runner) for name in ("execve", "kill", "pipe2", "wait4")} == {
            ERRNO | ENOSYS
        }


@machines
def test_calls_that_spend_quotas_of_the_user_are_unknown(machine: Machine) -> None:
    """JOB-073"""
    for name in ("inotify_init", "inotify_init1", "inotify_add_watch", "mq_open", "mq_notify", "io_setup"):
        if name in machine.numbers:
            assert asked(machine, name) == ERRNO | ENOSYS
