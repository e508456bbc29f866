"""Where a machine cannot contain untrusted code it is not run, unless an operator says so, and then the record says so."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from detent.errors import Refused, RequestRefused
from detent.executor.sandbox import Capabilities, Execution, Job, Profile, Sandbox, probe, profile_of
from tests.hostile.payloads import NETWORK, PRIVILEGES, QUOTAS, REACHING_OUT, RESOURCES, SMALL, Payload
from tests.hostile.rig import STRONG, faults, job_of, run

WEAK = [profile for profile in (Profile.KERNEL_FILTER, Profile.NONE) if profile.strength <= STRONG.strength]
SIMPLE = Job(source="def main(): return 1", entry="main", limits=SMALL)


@pytest.mark.parametrize("profile", WEAK, ids=lambda profile: profile.value)
def test_untrusted_code_is_refused_below_the_required_profile(profile: Profile) -> None:
    """JOB-072, JOB-073"""
    with Sandbox(profile=profile) as supervisor:
        refused = supervisor.run(SIMPLE)
        assert isinstance(refused, Refused)
        assert refused.code == "SANDBOX_UNAVAILABLE"
        assert refused.details["required"] == "full-rootless"
        assert refused.details["profile"] == profile.value


@pytest.mark.parametrize("profile", WEAK, ids=lambda profile: profile.value)
def test_an_operator_may_lower_it_and_every_execution_says_so(profile: Profile) -> None:
    with Sandbox(profile=profile, required=Profile.NONE) as supervisor:
        execution = supervisor.run(SIMPLE)
        assert isinstance(execution, Execution)
        assert (execution.result, execution.profile, execution.lowered) == (b"1", profile, True)
        supervisor.settle()
        assert list(supervisor.staging.iterdir()) == []


def test_a_stronger_profile_than_the_machine_has_cannot_be_asked_for() -> None:
    nothing = Capabilities({}, 0, is_root=False)
    assert profile_of(nothing) is Profile.NONE
    with pytest.raises(RequestRefused) as caught:
        Sandbox(profile=Profile.FULL, capabilities=nothing)
    assert caught.value.code == "SANDBOX_UNAVAILABLE"


def test_a_machine_that_offers_nothing_refuses_and_says_what_is_lacking() -> None:
    with Sandbox(capabilities=Capabilities({"landlock": "turned off"}, 0, probe().is_root)) as supervisor:
        refused = supervisor.run(SIMPLE)
        assert isinstance(refused, Refused)
        assert any("turned off" in line for line in refused.details["lacking"])  # type: ignore[attr-defined]


# The filter holds without namespaces too: these end before the kernel does anything for them.
FILTERED = [
    *NETWORK,
    *(
        payload
        for payload in PRIVILEGES
        # Without a namespace of its own a guest may be root by name, where root's interpreter belongs to root alone.
        if payload.category == "SANDBOX_VIOLATION" and not payload.name.startswith(("trace", "become root"))
    ),
]


def test_the_filter_alone_stops_network_and_privileges() -> None:
    """JOB-072"""
    if Profile.KERNEL_FILTER not in WEAK:
        assert not probe().has("seccomp") or not probe().has("landlock")
        return
    found = {}
    with Sandbox(profile=Profile.KERNEL_FILTER, required=Profile.KERNEL_FILTER) as supervisor:
        for payload in FILTERED:
            if wrong := faults(payload, run(supervisor, job_of(payload))):
                found[payload.name] = wrong
        supervisor.settle()
    assert found == {}


def test_the_filter_alone_lets_a_guest_change_no_process_but_itself() -> None:
    """JOB-072, JOB-073"""
    if Profile.KERNEL_FILTER not in WEAK:
        assert not probe().has("seccomp") or not probe().has("landlock")
        return
    found: dict[str, list[str]] = {}
    victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with Sandbox(profile=Profile.KERNEL_FILTER, required=Profile.KERNEL_FILTER) as supervisor, victim:
        before = _state_of(victim.pid)
        for name, source in REACHING_OUT.items():
            payload = Payload(name, source.replace("PID", str(victim.pid)), "SANDBOX_VIOLATION")
            found[name] = [fault for _ in range(2) for fault in faults(payload, run(supervisor, job_of(payload)))]
        for payload in PRIVILEGES:
            if payload.name.endswith(" on itself"):
                found[payload.name] = faults(payload, run(supervisor, job_of(payload)))
            elif payload.name.endswith(" on its child"):
                # Its number may be another process's by the time of the call, so not even that goes on.
                source = payload.source.replace("ctypes.CDLL(None).syscall", "assert 0 <= ctypes.CDLL(None).syscall")
                refused = Payload(payload.name, source, "USER_CODE_ERROR")
                found[payload.name] = faults(refused, run(supervisor, job_of(refused)))
        for name in ("kill", "pidfd"):
            call = {"kill": "os.kill(PID, 9)", "pidfd": "signal.pidfd_send_signal(os.pidfd_open(PID), 9)"}[name]
            kill = Payload(
                name,
                "import os, signal\n" + call.replace("PID", str(victim.pid)),
                "USER_CODE_ERROR",
                raises="PermissionError",
            )
            found[name] = faults(kill, run(supervisor, job_of(kill)))
        assert _state_of(victim.pid) == before
        assert victim.poll() is None
        victim.communicate(b"\n")
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def _state_of(pid: int) -> tuple[object, ...]:
    """All that one process can do to another without a signal."""
    limits = tuple(resource.prlimit(pid, which) for which in range(16))
    return limits, os.sched_getaffinity(pid), os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)


def test_the_filter_alone_still_bounds_time_memory_processes_and_places() -> None:
    """JOB-037, JOB-073"""
    if Profile.KERNEL_FILTER not in WEAK:
        assert not probe().has("seccomp") or not probe().has("landlock")
        return
    outside = str(Path(__file__).resolve())
    payloads = [
        Payload("read outside", f"open({outside!r})", "USER_CODE_ERROR", raises="PermissionError"),
        Payload("write outside", f"open({outside + 'x'!r}, 'w')", "SANDBOX_VIOLATION"),
        Payload("memory", "keep = []\nwhile True:\n    keep.append(bytearray(b'x') * 1000000)", "RESOURCE_LIMIT", "LIMIT_MEMORY"),
        *(payload for payload in RESOURCES if payload.name.startswith(("memory, shared", "memory of the zero device", "huge", "processor, children")) and "/job" not in payload.source),
        *QUOTAS,
        Payload("the user's own queues", "import ctypes\ndef main():\n    return ctypes.CDLL(None).msgget(4711, 0o1666)", None, returns=-1),
        Payload(
            "threads",
            "import threading\nlock = threading.Lock()\nlock.acquire()\nfor _ in range(60):\n    threading.Thread(target=lock.acquire, daemon=True).start()\n",
            "RESOURCE_LIMIT",
            "LIMIT_PROCESSES",
        ),
        Payload("run a file it wrote", "import os\nopen('x', 'wb').write(b'\x7fELF')\nos.chmod('x', 0o755)\nos.execv('x', ['x'])", "USER_CODE_ERROR", raises="PermissionError"),
        Payload("link in the output", "import os\nos.symlink('/etc/passwd', 'out/x')", "SANDBOX_VIOLATION"),
        Payload("deep directories", "import os\nos.chdir('out')\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')", "RESOURCE_LIMIT", "LIMIT_ARTIFACTS"),
        Payload("a file", "open('out/x', 'w').write('abc')", None),
    ]  # fmt: skip
    with Sandbox(profile=Profile.KERNEL_FILTER, required=Profile.KERNEL_FILTER) as supervisor:
        found = {payload.name: faults(payload, run(supervisor, job_of(payload))) for payload in payloads}
        supervisor.settle()
        left = [path for path in supervisor.staging.iterdir() if path.name.startswith("job-")]
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert left == []
    assert not Path(outside + "x").exists()
