"""Tries, inside the jail, every system call that is not on a runner's list."""

from __future__ import annotations

import errno
import json

from detent.executor.sandbox import Job, Profile, Sandbox, filter_rules, linux, seccomp
from tests.hostile import rig
from tests.hostile.payloads import SMALL

SOURCE = """
import ctypes
def main(calls):
    libc, wrong = ctypes.CDLL(None, use_errno=True), []
    for name, number, expected in calls:
        ctypes.set_errno(0)
        answer = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6)
        if (answer, ctypes.get_errno()) != (-1, expected):
            wrong.append([name, answer, ctypes.get_errno()])
    return wrong
"""
_REPORTED_ANYWAY = frozenset(seccomp._special(True, True, 1))
"""Judged by their arguments; tests/executor/test_seccomp.py asks the filter about them."""


def calls(runner: str) -> list[tuple[str, int, int]]:
    """What a runner may not call and is not ended for: name, number, and the error it must see."""
    assert linux.MACHINE is not None
    listed = filter_rules.allowed(runner) | filter_rules.NEVER | filter_rules.EXAMINED | _REPORTED_ANYWAY
    found = [
        (name, number, errno.EPERM if name in filter_rules.DENIED else errno.ENOSYS)
        for name, number in linux.MACHINE.numbers.items()
        if name not in listed
    ]
    return [*found, ("a call of tomorrow", 999, errno.ENOSYS)]


def let_through(profile: Profile) -> dict[str, object]:
    """For each runner, the calls that were not refused in this profile; must be none."""
    found: dict[str, object] = {}
    with Sandbox(profile=profile, required=Profile.KERNEL_FILTER) as supervisor:
        for runner in filter_rules.RUNNERS:
            job = Job(
                source=SOURCE,
                entry="main",
                parameters={"calls": [list(one) for one in calls(runner)]},
                limits=SMALL,
                runner=runner,
            )
            execution = rig.run(supervisor, job)
            found[runner] = json.loads(execution.result) if execution.result else execution.message
    return found
