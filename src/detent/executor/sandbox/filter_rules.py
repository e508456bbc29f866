"""Which system calls a guest may make: an allow list, and the calls no honest job makes.

What is in neither list answers ENOSYS, so a call that a future kernel invents is refused before anybody here has heard
of it. A call of `NEVER` is reported to the jail's init, which keeps it as evidence and ends the job (C5). Calls whose
arguments decide have their own few instructions in `seccomp`.
"""

from __future__ import annotations

ALLOWED = frozenset(
    # Descriptors and files. Where they may be is the mount tree's and Landlock's business.
    "read write close stat fstat lstat poll pread64 readv writev preadv pwritev preadv2 pwritev2 access pipe pipe2 "
    "select pselect6 ppoll dup dup2 dup3 fcntl flock fsync fdatasync getdents getdents64 getcwd chdir fchdir rename "
    "renameat renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat readlink readlinkat chmod "
    "fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask utime utimes utimensat futimesat statfs fstatfs statx "
    "newfstatat faccessat faccessat2 sendfile splice tee vmsplice copy_file_range sync_file_range syncfs sync "
    "readahead fadvise64 getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr "
    "removexattr lremovexattr fremovexattr close_range cachestat epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 "
    "signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime "
    # Memory.
    "mprotect munmap brk msync mincore madvise mlock mlock2 munlock mlockall munlockall remap_file_pages mbind "
    "get_mempolicy set_mempolicy membarrier pkey_mprotect pkey_alloc pkey_free mseal "
    "map_shadow_stack "
    # Processes, threads, signals. The pid namespace says whom they reach. Not execveat: it runs files in memory, which
    # lie on no mount that could forbid it.
    "fork vfork execve exit wait4 waitid kill tkill tgkill pidfd_open pidfd_send_signal "
    "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo "
    "rt_sigsuspend sigaltstack pause alarm getitimer setitimer getpid getppid gettid getuid geteuid getgid getegid "
    "getresuid getresgid getgroups getpgid getpgrp setpgid getsid setsid capget set_tid_address set_robust_list "
    "get_robust_list futex futex_waitv futex_wake futex_wait futex_requeue sched_yield sched_getparam "
    "sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_getaffinity "
    "sched_getattr getpriority ioprio_get getcpu rseq arch_prctl restart_syscall set_thread_area get_thread_area "
    # Time and facts.
    "nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times timer_create timer_settime "
    "timer_gettime timer_getoverrun timer_delete uname sysinfo getrusage getrlimit getrandom "
    # What runs between a job's own processes: pairs of sockets, and, in `OWN_IPC`, System V queues.
    "sendmsg recvmsg recvfrom sendmmsg recvmmsg shutdown getsockname getpeername getsockopt setsockopt accept accept4 "
    "landlock_create_ruleset landlock_add_rule landlock_restrict_self".split()
)

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
    "exit_group connect creat setrlimit setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid".split()
)
"""Always reported; init looks at the arguments and decides."""

NAMES_A_PROCESS = frozenset("sched_setparam sched_setscheduler sched_setaffinity sched_setattr prlimit64".split())
"""The first argument is the process they change: 0 is the caller, any other is reported, and init judges it. Signals are not
among them: a pid namespace or Landlock says whom those reach."""

NAMES_PROCESSES = {"setpriority": 0, "ioprio_set": 1}
"""The same for one process, a group or all of a user, which is the second argument. The number of "one process" in the first."""

OWN_IPC = frozenset("semget semop semctl semtimedop msgget msgsnd msgrcv msgctl shmat shmctl shmdt".split())
"""System V objects; allowed in an ipc namespace of the job's own, for elsewhere they are the user's."""

MEMORY_UNCOUNTED = frozenset(("memfd_create", "shmget"))
"""Memory that no process maps; allowed where a cgroup counts it."""
