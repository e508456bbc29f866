"""No guest makes an INTERNAL_ERROR, which would be tried again: a jail that it ends is lost to that guest alone (JOB-066)."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from detent.canon.grammar import SANDBOX_MEMORY_MB_MIN
from detent.errors import InvalidInput
from detent.executor.sandbox import Job, Limits, Sandbox, linux, notify
from detent.executor.sandbox.model import MB
from detent.executor.sandbox.running import Running
from tests.cli.project import Project, detent_home, project
from tests.hostile.payloads import SMALL
from tests.hostile.rig import run

__all__ = ["detent_home", "project"]

MACHINE = linux.MACHINE
assert MACHINE is not None
PRLIMIT = """\
import ctypes
def main(pid, which, soft, hard):
    c = ctypes.CDLL(None, use_errno=True)
    pair = (ctypes.c_ulong * 2)(soft, hard)
    numbers = [ctypes.c_ulong(number) for number in (NUMBER, pid, which)]
    answer = c.syscall(*numbers, ctypes.byref(pair), None)
    return [answer, ctypes.get_errno()]
""".replace("NUMBER", str(MACHINE.numbers["prlimit64"]))
EINVAL = 22


@pytest.mark.parametrize("which", [0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 2**64 - 1, 16, 1000])
def test_a_limit_that_does_not_exist_is_the_kernels_to_refuse(supervisor: Sandbox, which: int) -> None:
    """C5: the number is the guest's; looking at it ends nothing."""
    parameters = {"pid": 0, "which": which, "soft": 0, "hard": 0}
    execution = run(supervisor, Job(source=PRLIMIT, entry="main", parameters=parameters, limits=SMALL))
    assert (execution.category, execution.result) == (None, b"[-1,%d]" % EINVAL), execution.message


@pytest.mark.parametrize("which", [0, 6, 7, 9, 15])
def test_limits_set_on_the_jails_init_are_a_violation(supervisor: Sandbox, which: int) -> None:
    """C5: processor time, processes, open files, address space: each could end init."""
    parameters: dict[str, Any] = {"pid": 1, "which": which, "soft": 0, "hard": 0}
    execution = run(supervisor, Job(source=PRLIMIT, entry="main", parameters=parameters, limits=SMALL))
    assert execution.code == "SANDBOX_VIOLATION", (execution.code, execution.message)


def test_the_least_memory_is_enough_for_a_jail_and_less_is_refused(supervisor: Sandbox) -> None:
    """JOB-036: the floor that `validate` knows is one at which a simple job runs, ready-made jail or not."""
    source = "def main(): return 1"
    for limits in (Limits(memory_bytes=SANDBOX_MEMORY_MB_MIN * MB), Limits(memory_bytes=SANDBOX_MEMORY_MB_MIN * MB)):
        execution = run(supervisor, Job(source=source, entry="main", limits=limits))
        assert (execution.category, execution.result) == (None, b"1"), execution.message
    with pytest.raises(InvalidInput, match="memory_bytes must be from 16777216"):
        Limits(memory_bytes=SANDBOX_MEMORY_MB_MIN * MB - 1)


def test_a_jail_that_is_lost_under_its_job_is_not_tried_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB-066: through the command line: one attempt, a code of its own."""

    def kill(self: Running, real: Any = Running._converse) -> Any:
        jail = self._jail
        assert jail._pidfd is not None
        signal.pidfd_send_signal(jail._pidfd, signal.SIGKILL)
        return real(self)

    monkeypatch.setattr(Running, "_converse", kill)
    code = "import time\\ntime.sleep(600)\\ndef main(): pass"
    project.write("lost.yaml", f'name: lost\nsteps:\n  - id: a\n    run: {{code: "{code}"}}\n')
    (failure,) = project.run("lost.yaml", code=1)["failures"]
    assert (failure["category"], failure["code"], failure["attempts"]) == ("RESOURCE_LIMIT", "SANDBOX_LOST", 1)


def test_a_call_that_cannot_be_judged_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """C5: a judge that stumbles over a guest's arguments gives evidence, and init goes on."""
    assert MACHINE is not None
    watch = object.__new__(notify.Watch)
    watch.listener, watch.machine = -1, MACHINE
    monkeypatch.setattr("fcntl.ioctl", lambda *_: 0)

    def stumble(*_: object) -> Any:
        raise OverflowError("too large")

    monkeypatch.setattr(notify.Watch, "_judge", stumble)
    found = watch.answer_one(None, lambda _: False)  # type: ignore[arg-type]
    notice = notify.Notice(bytes(80), MACHINE)
    assert found == notice.evidence(notify.VIOLATION, "make a call that cannot be judged")


PAYLOAD = """\
name: small
steps:
  - id: a
    run:
      job:
        job_type: object_execute
        limits:
          memory_mb: MEMORY
"""


@pytest.mark.parametrize("memory", [1, 2, 15])
def test_validate_refuses_a_payload_with_memory_in_which_no_jail_stands(project: Project, memory: int) -> None:
    """X-194: with file, line and column; nothing is run."""
    project.write("small.yaml", PAYLOAD.replace("MEMORY", str(memory)))
    result = project("validate", "small.yaml")
    assert result.code == 2
    assert f"small.yaml:8:11: memory_mb is {memory}, and a step in the sandbox needs at least 16" in result.out, (
        result.out
    )
