"""The system calls that each runner's tests make inside the jail. Written by tools/trace_calls.py; do not edit by hand.

`filter_rules` says what is allowed beyond these, and why.
"""

from __future__ import annotations

TRACED: dict[str, frozenset[str]] = {
    "code": frozenset(
        "access alarm arch_prctl brk chdir chmod chown clock_gettime clock_nanosleep clone clone3 "
        "close close_range connect copy_file_range dup2 dup3 epoll_create1 epoll_ctl epoll_wait "
        "eventfd2 execve exit exit_group fallocate fchdir fchmod fchown fcntl fdatasync flock fsync "
        "ftruncate futex getcwd getdents64 getegid geteuid getgid getgroups getitimer getpeername "
        "getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrusage getsid "
        "getsockname getsockopt gettid getuid ioctl kill lchown link listxattr lseek madvise mkdir "
        "mkdirat mknodat mmap mprotect mremap msync munmap newfstatat open openat pause pidfd_open "
        "pidfd_send_signal pipe2 poll pread64 preadv2 prlimit64 pselect6 pwrite64 pwritev2 read "
        "readlink readv recvfrom recvmsg rename renameat restart_syscall rmdir rseq rt_sigaction "
        "rt_sigpending rt_sigprocmask rt_sigreturn rt_sigtimedwait sched_get_priority_max "
        "sched_get_priority_min sched_getaffinity sched_getparam sched_getscheduler sched_yield "
        "sendfile sendmsg sendto set_robust_list set_tid_address setitimer setpgid setpriority setsid "
        "setsockopt shutdown sigaltstack socket socketpair statfs symlink sysinfo tgkill "
        "timerfd_create timerfd_gettime timerfd_settime times truncate umask uname unlink unlinkat "
        "utimensat vfork wait4 waitid write writev".split()
    ),
    "render": frozenset(
        "brk chdir close exit exit_group futex getdents64 getrandom getsockname getsockopt ioctl lseek "
        "mmap mprotect munmap newfstatat openat read recvmsg rt_sigaction sendmsg write".split()
    ),
    "export": frozenset(
        "brk chdir clone clone3 close exit exit_group futex getcwd getdents64 getrandom getsockname "
        "getsockopt ioctl lseek mkdir mmap mprotect mremap munmap newfstatat openat read readlink "
        "recvmsg rseq rt_sigaction rt_sigprocmask sched_getaffinity sched_yield sendmsg "
        "set_robust_list statx write".split()
    ),
    "thumbnail": frozenset(
        "brk chdir close exit exit_group fcntl getcwd getdents64 getrandom getsockname getsockopt "
        "ioctl lseek mkdir mmap mprotect mremap munmap newfstatat openat read readlink recvmsg "
        "rt_sigaction sendmsg write".split()
    ),
}
