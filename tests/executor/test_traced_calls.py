"""What `tools/trace_calls.py` takes from a trace."""

from __future__ import annotations

import runpy
from pathlib import Path

from detent.executor.sandbox.traced_calls import TRACED

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools/trace_calls.py"))
LOG = """\
10 ptrace(PTRACE_TRACEME) = 0
11 seccomp(SECCOMP_SET_MODE_FILTER, 0, {len=1, filter=0x1}) = 5
11 reboot() = -1
12 seccomp(SECCOMP_SET_MODE_FILTER, 0, {len=480, filter=0x1}) = 5
12 read(3, ""..., 1) = 1
12 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
77 openat(AT_FDCWD, ""..., O_RDONLY) = 3
12 <... clone resumed>) = 3 /* 77 in strace's PID NS */
77 getpid() = 3
12 memfd_create(""..., 0) = -1 ENOSYS (Function not implemented)
12 syscall_0xffff(0) = -1 ENOSYS
"""


def test_calls_count_from_the_filter_on_and_of_all_that_a_guest_starts() -> None:
    assert TOOL["calls_of"](LOG.splitlines()) == {"read", "clone", "openat", "getpid", "memfd_create"}


def test_the_data_file_is_what_the_tool_writes() -> None:
    module = TOOL["TARGET"].read_text()
    assert module == TOOL["written"]({runner: set(calls) for runner, calls in TRACED.items()})
    assert set(TRACED) == set(TOOL["TESTS"])
