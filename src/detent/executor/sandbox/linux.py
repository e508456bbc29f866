"""The system calls that Python does not offer, by number, through ctypes.

Loaded in the spawner and everything it forks, so it imports nothing heavy. The library is a ``PyDLL``: the processes that
use it have one thread, and a raw ``clone`` must not return into a child that waits for a lock that is never released.

Names and numbers of system calls on the two machines the jail knows, in the order of their numbers.

A number without a call is written ``-``. From 424 on both machines count alike.
"""

from __future__ import annotations

import ctypes
import os

_X86_64 = (
    "read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask "
    "rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise "
    "shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile socket connect accept "
    "sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt "
    "getsockopt clone fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv "
    "msgctl fcntl flock fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat "
    "link unlink symlink readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit getrusage sysinfo "
    "times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid getppid getpgrp setsid setreuid "
    "setregid getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid setfsgid getsid capget "
    "capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib "
    "personality ustat statfs fstatfs sysfs getpriority setpriority sched_setparam sched_getparam "
    "sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval "
    "mlock munlock mlockall munlockall vhangup modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit "
    "chroot sync acct settimeofday mount umount2 swapon swapoff reboot sethostname setdomainname iopl ioperm "
    "create_module init_module delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg "
    "afs_syscall tuxcall security gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr "
    "listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex sched_setaffinity "
    "sched_getaffinity set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area "
    "lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old remap_file_pages getdents64 set_tid_address "
    "restart_syscall semtimedop fadvise64 timer_create timer_settime timer_gettime timer_getoverrun timer_delete "
    "clock_settime clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes "
    "vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify "
    "mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init "
    "inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat newfstatat "
    "unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll unshare set_robust_list "
    "get_robust_list splice tee sync_file_range vmsplice move_pages utimensat epoll_pwait signalfd timerfd_create "
    "eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 "
    "inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark "
    "prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu process_vm_readv "
    "process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create "
    "kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect "
    "pkey_alloc pkey_free statx io_pgetevents rseq "
)
_AARCH64 = (
    "io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr lgetxattr "
    "fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd lookup_dcookie "
    "eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl inotify_init1 inotify_add_watch inotify_rm_watch "
    "ioctl ioprio_set ioprio_get flock mknodat mkdirat unlinkat symlinkat linkat renameat umount2 mount "
    "pivot_root nfsservctl statfs fstatfs truncate ftruncate fallocate faccessat chdir fchdir chroot fchmod "
    "fchmodat fchownat fchown openat close vhangup pipe2 quotactl getdents64 lseek read write readv writev "
    "pread64 pwrite64 preadv pwritev sendfile pselect6 ppoll signalfd4 vmsplice splice tee readlinkat newfstatat "
    "fstat sync fsync fdatasync sync_file_range timerfd_create timerfd_settime timerfd_gettime utimensat acct "
    "capget capset personality exit exit_group waitid set_tid_address unshare futex set_robust_list "
    "get_robust_list nanosleep getitimer setitimer kexec_load init_module delete_module timer_create "
    "timer_gettime timer_getoverrun timer_settime timer_delete clock_settime clock_gettime clock_getres "
    "clock_nanosleep syslog ptrace sched_setparam sched_setscheduler sched_getscheduler sched_getparam "
    "sched_setaffinity sched_getaffinity sched_yield sched_get_priority_max sched_get_priority_min "
    "sched_rr_get_interval restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend rt_sigaction "
    "rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn setpriority getpriority reboot "
    "setregid setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid setfsgid times setpgid "
    "getpgid getsid setsid getgroups setgroups uname sethostname setdomainname getrlimit setrlimit getrusage "
    "umask prctl getcpu gettimeofday settimeofday adjtimex getpid getppid getuid geteuid getgid getegid gettid "
    "sysinfo mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd "
    "semget semctl semtimedop semop shmget shmctl shmat shmdt socket socketpair bind listen accept connect "
    "getsockname getpeername sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead brk munmap "
    "mremap add_key request_key keyctl clone execve mmap fadvise64 swapon swapoff mprotect msync mlock munlock "
    "mlockall munlockall mincore madvise remap_file_pages mbind get_mempolicy set_mempolicy migrate_pages "
    "move_pages rt_tgsigqueueinfo perf_event_open accept4 recvmmsg - - - - - - - - - - - - - "
    "- - - wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at open_by_handle_at clock_adjtime syncfs setns sendmmsg process_vm_readv "
    "process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create bpf "
    "execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free "
    "statx io_pgetevents rseq kexec_file_load "
)
_COMMON = (
    "pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig "
    "fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2 "
    "mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret "
    "process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait "
    "futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat "
    "getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr "
)

COMMON_FROM = 424

AUDIT_ARCH_X86_64 = 0xC000003E
AUDIT_ARCH_AARCH64 = 0xC00000B7


class Machine:
    """One kind of processor: its audit code and its table."""

    def __init__(self, name: str, audit_arch: int, words: str) -> None:
        self.name = name
        self.audit_arch = audit_arch
        pairs = [*enumerate(words.split()), *enumerate(_COMMON.split(), COMMON_FROM)]
        self.numbers = {word: number for number, word in pairs if word != "-"}
        self.names = {number: word for word, number in self.numbers.items()}


MACHINES = {
    "x86_64": Machine("x86_64", AUDIT_ARCH_X86_64, _X86_64),
    "aarch64": Machine("aarch64", AUDIT_ARCH_AARCH64, _AARCH64),
}


def machine_named(name: str) -> Machine | None:
    """The table of a machine as ``uname -m`` names it; None where the jail cannot be built."""
    return MACHINES.get(name)


MACHINE = machine_named(os.uname().machine)

CLONE_NEWTIME = 0x80
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_NEW_ANY = (
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
)
SIGCHLD = 17

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

CAP_DAC_READ_SEARCH = 2
CAP_KILL = 5
CAP_SYS_PTRACE = 19
CAP_LAST = 40

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
AT_FDCWD = -100

_libc = ctypes.PyDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """One system call; raises OSError with its name. Bytes and buffers are passed by address."""
    if MACHINE is None:
        raise OSError(38, f"{name}: no table of system calls for this machine")
    values = [
        ctypes.c_char_p(value)
        if isinstance(value, bytes)
        else ctypes.c_long(value)
        if isinstance(value, int)
        else value
        for value in arguments
    ]
    result = int(_syscall(ctypes.c_long(MACHINE.numbers[name]), *values))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def clone(flags: int) -> int:
    """Fork into new namespaces; answers 0 in the child, its pid in the parent. Only for a process with one thread."""
    # The interpreter has locks of its own to hold over a fork, and state to renew in the child.
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = -1
    try:
        pid = call("clone", flags | SIGCHLD, 0, 0, 0, 0)
    finally:
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
        else:
            ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount or remount, in the words of the system call."""
    call("mount", os.fsencode(source), os.fsencode(target), kind.encode(), flags, data.encode())


def umount(target: str) -> None:
    """Take a mount out of the tree at once; processes that hold it open may go on using it."""
    call("umount2", os.fsencode(target), MNT_DETACH)


def pivot_here() -> None:
    """Make the working directory the root and drop everything else from the tree."""
    call("pivot_root", b".", b".")
    umount(".")
    os.chdir("/")


def prctl(option: int, *arguments: int) -> int:
    """Set or ask something about this process; unused arguments are zero, as newer options insist."""
    return call("prctl", option, *(*arguments, 0, 0, 0, 0)[:4])


def set_capabilities(capabilities: tuple[int, ...]) -> None:
    """Keep these capabilities, effective and permitted; empty the bounding set of all others and the ambient set."""
    for capability in range(CAP_LAST + 1):
        if capability not in capabilities:
            try:
                prctl(PR_CAPBSET_DROP, capability)
            except OSError:
                break  # An older kernel counts fewer; without CAP_SETPCAP there is nothing to drop either.
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    mask = sum(1 << capability for capability in capabilities)
    header = (0x20080522).to_bytes(4, "little") + bytes(4)
    low, high = (mask & 0xFFFFFFFF).to_bytes(4, "little"), (mask >> 32).to_bytes(4, "little")
    call("capset", ctypes.create_string_buffer(header, 8), (low + low + bytes(4)) + (high + high + bytes(4)))


def open_beneath(directory: int, name: bytes, flags: int) -> int:
    """Open a name below a directory without following any link out of it or anywhere else (openat2)."""
    resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
    how = (flags | os.O_CLOEXEC).to_bytes(8, "little") + bytes(8) + resolve.to_bytes(8, "little")
    return call("openat2", directory, name, how, len(how))
