"""Which system calls a guest may make: for each runner an allow list, and the calls that no honest job makes.

A runner's list is what its own tests were seen to call (`traced_calls`), the same things under the names that other C libraries and
machines have for them (`FAMILIES`), and the few calls of `BEYOND`, each with its reason. What is on no list is refused: with
ENOSYS, on which the C library and most programs fall back to another call, so a call that a future kernel invents is refused before it is
known here; calls of `DENIED`, which every kernel has, with EPERM, which a program reports as what it is. A call of `NEVER` is
reported to the jail's init, which keeps it as evidence and ends the job (C5). Calls whose arguments decide have their own few
instructions in `seccomp`.
"""

from __future__ import annotations

from detent.executor.sandbox.traced_calls import TRACED

CODE = "code"
"""The runner of code in contracts and of `object_execute`; the others draw formulas, make documents and thumbnails."""
RUNNERS = tuple(TRACED)

FAMILIES = tuple(
    frozenset(line.split())
    for line in (
        "open openat",
        "stat lstat fstat newfstatat statx",
        "access faccessat faccessat2",
        "poll ppoll",
        "select pselect6",
        "dup dup2 dup3",
        "pipe pipe2",
        "mkdir mkdirat",
        "rmdir unlink unlinkat",
        "rename renameat renameat2",
        "link linkat",
        "symlink symlinkat",
        "readlink readlinkat",
        "chmod fchmod fchmodat fchmodat2",
        "chown fchown lchown fchownat",
        "mknod mknodat",
        "utime utimes futimesat utimensat",
        "getdents getdents64",
        "statfs fstatfs",
        "epoll_create epoll_create1",
        "epoll_wait epoll_pwait epoll_pwait2",
        "eventfd eventfd2",
        "clone fork vfork",
        "wait4 waitid",
        "tkill tgkill",
        "getpgid getpgrp",
        "getrlimit prlimit64",
        "pause rt_sigsuspend",
        "alarm setitimer getitimer",
        "time gettimeofday clock_gettime",
        "nanosleep clock_nanosleep",
        "readv preadv preadv2",
        "writev pwritev pwritev2",
        # shutil.copystat lists attributes, then reads and sets those that a file has.
        "listxattr llistxattr flistxattr getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr",
    )
)
"""One thing under several names: which of them is called depends on the C library, its age and the machine."""

BEYOND = {
    "rt_sigreturn": "the end of every signal handler",
    "restart_syscall": "made by the kernel when a stopped process goes on",
    "rt_sigprocmask": "the C library, around abort and threads",
    "sigaltstack": "faulthandler and Rust give signal handlers a stack of their own",
    "getpid": "abort of the C library before 2.36, and musl",
    "gettid": "abort of the C library",
    "tgkill": "abort of the C library",
    "mremap": "realloc of large blocks",
    "madvise": "allocators give pages back",
    "futex": "locks that are contended",
    "set_robust_list": "the C library, for each thread",
    "rseq": "the C library, for each thread",
    "prctl": "threads give themselves names; the options are listed in seccomp",
    "sched_yield": "locks of Rust's thread pools",
    "sched_getaffinity": "thread pools count processors",
    "prlimit64": "the C library asks for the size of the stack",
    "sysinfo": "qsort of the C library, and allocators, ask for the size of memory",
    "uname": "the C library asks for the kernel's version",
    "clock_gettime": "every look at a clock where the kernel's page for that does not serve it",
    "clock_getres": "Python asks for the resolution of a clock",
    "clock_nanosleep": "back-off in locks and pools",
    "getuid": "the C library, to find a home directory",
    "geteuid": "the same",
    "getgid": "the same",
    "getegid": "the same",
    "getcwd": "relative paths are made absolute",
    "readlink": "links in paths are resolved",
    "access": "the loader asks for its settings, tools for files that may be there",
    "pread64": "the loader, for libraries of a certain layout",
    "fcntl": "file objects; the commands are listed in seccomp",
    "dup": "file objects that share a descriptor",
    "poll": "Rust looks at its descriptors",
    "readv": "the C library of Alpine (musl) reads files with it",
    "writev": "the same, to write",
}
"""Calls of every runner that no trace has to show, and why."""
BEYOND_CODE = {
    "select": "time.sleep of Python 3.10 and older, and select",
    "getcpu": "numeric libraries ask which processor they run on",
    "clock_getres": "time.get_clock_info",
    "sched_setaffinity": "os.sched_setaffinity, for the caller itself",
    "sched_setscheduler": "os.sched_setscheduler, for the caller itself",
    "sched_setparam": "os.sched_setparam, for the caller itself",
    "timerfd_create": "os.timerfd_create, from Python 3.13 on",
    "timerfd_settime": "the same",
    "timerfd_gettime": "the same",
    "membarrier": "thread pools of numeric libraries",
}
"""Calls of untrusted code alone that no trace has to show, and why."""

REFUSED = {
    "clone3": "its flags lie in memory, which a filter cannot read; the C library falls back to clone",
}
"""Calls that a trace shows and that are refused all the same, and why."""

DENIED = frozenset(
    "mlock mlock2 mlockall munlock munlockall unshare personality ioprio_set ioprio_get sched_setattr accept accept4 syncfs "
    "timer_create timer_settime timer_gettime timer_getoverrun timer_delete "
    "semget semop semctl semtimedop msgget msgsnd msgrcv msgctl shmget shmat shmctl shmdt".split()
)
"""Refused with EPERM."""

NEVER = frozenset(
    # Mounts, roots, namespaces.
    "mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr open_tree_attr "
    "setns statmount listmount open_by_handle_at "
    # Other processes' memory, and the kernel's own insides.
    "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd bpf perf_event_open userfaultfd io_uring_setup "
    "io_uring_enter io_uring_register kexec_load kexec_file_load init_module finit_module delete_module create_module "
    "fanotify_init seccomp "
    # Keys, identity, clocks, the machine.
    "add_key request_key keyctl setgroups capset clock_settime settimeofday adjtimex clock_adjtime reboot sethostname "
    "setdomainname swapon swapoff syslog acct quotactl quotactl_fd iopl ioperm vhangup nfsservctl "
    # The network. A socket of another family than AF_UNIX never comes to be; these are for those that do.
    "bind listen".split()
)

EXAMINED = frozenset(
    "exit_group connect creat setrlimit setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid flock".split()
)
"""Always reported; init looks at the arguments and decides."""

NETWORK = frozenset("connect sendmmsg recvmmsg".split())
"""Allowed beyond the list to a job that was granted a network."""

NAMES_A_PROCESS = frozenset("sched_setparam sched_setscheduler sched_setaffinity sched_setattr prlimit64".split())
"""The first argument is the process they change: 0 is the caller, any other is reported, and init judges it. Signals are not
among them: a pid namespace or Landlock says whom those reach."""

NAMES_PROCESSES = {"setpriority": 0, "ioprio_set": 1}
"""The same for one process, a group or all of a user, which is the second argument. The number of "one process" in the first."""


def allowed(runner: str) -> frozenset[str]:
    """The calls that a runner's guests may make, some of them with certain arguments only."""
    named = TRACED[runner] | set(BEYOND) | (set(BEYOND_CODE) if runner == CODE else set())
    for family in FAMILIES:
        if named & family:
            named |= family
    return frozenset(named - NEVER - EXAMINED - set(REFUSED))
