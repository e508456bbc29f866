"""Every payload of the list, in every profile that claims to contain it, as root or the user who runs the tests.

On a machine that offers no such profile there is nothing to run: `test_refused` says what happens there instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from detent.executor.sandbox import Job, Profile, Running, Sandbox
from tests.hostile import as_user
from tests.hostile.payloads import ALL, MB, SMALL, Payload
from tests.hostile.rig import CONTAINED, STRONG, faults, job_of, run


@pytest.mark.parametrize("payload", ALL, ids=lambda payload: payload.name)
def test_a_payload_has_no_effect_and_ends_in_its_category_each_time(supervisor: Sandbox, payload: Payload) -> None:
    """JOB-037, JOB-072, JOB-073, X-146, X-160"""
    for _ in range(1 if payload.slow else 2):
        execution = run(supervisor, job_of(payload))
        supervisor.discard(execution)
        assert faults(payload, execution) == []


@pytest.mark.slow
@pytest.mark.parametrize("payload", ALL, ids=lambda payload: payload.name)
def test_a_payload_ends_alike_again_and_again(supervisor: Sandbox, payload: Payload) -> None:
    """X-160"""
    for _ in range(6):
        execution = run(supervisor, job_of(payload))
        supervisor.discard(execution)
        assert faults(payload, execution) == []


def test_no_payload_ends_as_an_error_of_ours() -> None:
    """JOB-066: what is retried by itself must not be for a guest to choose."""
    assert {payload.category for payload in ALL} == {
        None,
        "SANDBOX_VIOLATION",
        "RESOURCE_LIMIT",
        "USER_CODE_ERROR",
        "VALIDATION_ERROR",
    }


def as_an_ordinary_user(*arguments: str) -> dict[str, object]:
    """All payloads in a process without privilege; in this one when it has none."""
    if os.geteuid() != 0:
        return as_user.run_all("best", twice=arguments == ("twice",))
    script = Path(as_user.__file__)
    answer = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, timeout=600, check=False)
    assert answer.returncode == 0, answer.stderr.decode()
    found: dict[str, object] = json.loads(answer.stdout)
    assert found.pop("uid") == as_user.USER
    return found


def test_every_payload_ends_alike_for_an_ordinary_user() -> None:
    """JOB-072, JOB-073, X-160"""
    found = as_an_ordinary_user()
    found.pop("uid", None)
    profile = found.pop("profile")
    assert profile in {"full", "full-rootless"} if Profile.FULL_ROOTLESS in CONTAINED else True
    assert {name: fault for name, fault in found.items() if fault} == {}


@pytest.mark.slow
def test_every_payload_ends_alike_twice_for_an_ordinary_user() -> None:
    """X-160"""
    found = as_an_ordinary_user("twice")
    found.pop("uid", None)
    found.pop("profile")
    assert {name: fault for name, fault in found.items() if fault} == {}


def test_what_one_job_leaves_in_files_and_queues_is_gone_for_the_next(supervisor: Sandbox) -> None:
    """JOB-073"""
    shared = "import ctypes\nlibc = ctypes.CDLL(None)\nseen = [libc.msgget(4711, 0)]\nkey = libc.msgget(4711, 0o1666)\n"
    leave = (
        shared
        + """
import os
def main():
    before = [os.path.exists(p) for p in ('/tmp/x', '/job/x', '/dev/shm/x', '/job/sitecustomize.py')]
    for p in ('/tmp/x', '/job/x', '/dev/shm/x', '/job/sitecustomize.py'):
        open(p, 'w').write('raise SystemExit(9)')
    return [before, seen, key >= 0]
"""
    )
    for _ in range(2):
        execution = run(supervisor, Job(source=leave, entry="main", limits=SMALL))
        assert json.loads(execution.result or b"") == [[False] * 4, [-1], False]


PLACES = """
import gc, json, os, sys, sysconfig, types

def main(secrets):
    places = [*sys.path, *sys.orig_argv, *map(str, os.environ.values())]
    for module in list(sys.modules.values()):
        places += [str(getattr(module, "__file__", "")), str(getattr(module, "__cached__", "")), *getattr(module, "__path__", ())]
    places += [one.__code__.co_filename for one in gc.get_objects() if isinstance(one, types.FunctionType)]
    places += [str(value) for value in sysconfig.get_config_vars().values()]
    for directory, _, names in os.walk("/runtime/python/lib"):
        places += [directory, *(os.path.realpath(f"{directory}/{name}") for name in names)]
    try:
        json.loads("{")
    except ValueError as exc:
        place = exc.__traceback__
        while place:
            places.append(place.tb_frame.f_code.co_filename)
            place = place.tb_next
    return sorted({place for place in places if any(secret in place for secret in secrets)})[:20]
"""


def test_a_job_meets_no_path_of_the_host_wherever_the_interpreter_is_installed(supervisor: Sandbox) -> None:
    """JOB-073: its own place, its modules, tracebacks and the record of its build all name /runtime."""
    installed = {sys.base_prefix, sys.prefix, str(Path(__file__).parents[2]), str(Path.home())}
    secrets = sorted(installed - {"/", "/usr", "/usr/local"})
    assert secrets
    execution = run(supervisor, Job(source=PLACES, entry="main", parameters={"secrets": secrets}, limits=SMALL))
    assert execution.ok, execution.message
    assert json.loads(execution.result or b"") == []


def test_violation_is_told_with_the_call_its_arguments_and_the_path(supervisor: Sandbox) -> None:
    """JOB-060"""
    execution = run(supervisor, Job(source="open('/var/lib/secret', 'w')", limits=SMALL))
    (evidence,) = execution.evidence
    assert (evidence.kind, evidence.syscall, evidence.path) == ("violation", "openat", "/var/lib/secret")
    execution = run(supervisor, Job(source="import socket\nsocket.socket(socket.AF_INET6)", limits=SMALL))
    (evidence,) = execution.evidence
    assert (evidence.syscall, evidence.arguments[0]) == ("socket", 10)


def test_a_stream_is_cut_between_two_characters_and_the_job_goes_on(supervisor: Sandbox) -> None:
    """JOB-056, X-147"""
    source = (
        "import sys\nprint('x' + 'é' * 4000, end='')\nprint('y' * 4096, end='', file=sys.stderr)\ndef main(): return 1"
    )
    execution = run(supervisor, Job(source=source, entry="main", limits=SMALL))
    assert execution.ok
    assert (execution.result, execution.stdout.truncated, execution.stderr.truncated) == (b"1", True, False)
    assert execution.stdout.data == ("x" + "é" * 2047).encode()
    assert execution.stderr.data == b"y" * 4096


def test_children_who_together_hold_too_much_are_ended_not_awaited(supervisor: Sandbox) -> None:
    """JOB-037"""
    payload = next(one for one in ALL if one.name == "memory of many children")
    execution = run(supervisor, job_of(payload))
    assert (execution.code, execution.status) == ("LIMIT_MEMORY", 9)


def test_memory_files_are_refused(supervisor: Sandbox) -> None:
    """JOB-037: nothing maps them, so only a control group could count them."""
    execution = run(supervisor, Job(source="import os\nos.memfd_create('x')", limits=SMALL))
    assert execution.raised is not None
    assert execution.raised.type == "OSError"


def test_shared_memory_is_reported_although_no_process_seems_to_hold_it(supervisor: Sandbox) -> None:
    """JOB-037, JOB-049"""
    source = (
        "import mmap, time\nm = mmap.mmap(-1, 64_000_000)\nfor place in range(0, 64_000_000, 4096):\n    m[place] = 1\n"
        "m.madvise(mmap.MADV_DONTNEED)\nn = mmap.mmap(-1, 20_000_000)\nn[:] = bytes(20_000_000)\ntime.sleep(0.3)"
    )
    execution = run(supervisor, Job(source=source, limits=replace(SMALL, memory_bytes=160 * MB)))
    assert execution.ok, execution.message
    assert 84_000_000 <= execution.usage.memory_bytes_peak < 160 * MB


def test_usage_is_measured_outside_whatever_the_job_claims(supervisor: Sandbox) -> None:
    """JOB-049"""
    source = (
        "keep = bytearray(b'x') * 40_000_000\nsum(range(3_000_000))\nopen('/job/out/x', 'wb').write(bytes(1_000_000))"
    )
    execution = run(supervisor, Job(source=source, limits=SMALL))
    assert execution.ok, execution.message
    assert 38 * MB < execution.usage.memory_bytes_peak < SMALL.memory_bytes
    assert 10 <= execution.usage.cpu_ms <= 10_000
    assert execution.usage.wall_ms >= 10
    assert execution.usage.io_bytes_written >= 1_000_000
    supervisor.discard(execution)


def test_the_time_of_children_is_counted_although_their_parent_does_not_wait(supervisor: Sandbox) -> None:
    """JOB-037, JOB-049"""
    source = (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(100):\n    if os.fork() == 0:\n"
        "        while time.process_time() < 0.005: pass\n        os._exit(0)\n"
        "    try:\n        os.wait()\n    except ChildProcessError:\n        pass"
    )
    execution = run(supervisor, Job(source=source, limits=SMALL))
    assert execution.ok, execution.message
    assert 500 <= execution.usage.cpu_ms <= 10_000


def test_escapes_in_output_are_kept_as_they_are(supervisor: Sandbox) -> None:
    execution = run(supervisor, Job(source="print('\\x1b]52;c;x\\x07\\r\\x1b[2J</script>=cmd()')", limits=SMALL))
    assert execution.stdout.data == b"\x1b]52;c;x\x07\r\x1b[2J</script>=cmd()\n"


def test_a_message_that_never_comes_leaves_type_and_place(supervisor: Sandbox) -> None:
    """JOB-059"""
    source = "class Odd(Exception):\n    def __str__(self):\n        while True: pass\n\ndef main():\n    raise Odd"
    execution = run(supervisor, Job(source=source, entry="main", limits=SMALL))
    assert execution.raised is not None
    assert (execution.raised.type, execution.raised.line, execution.raised.column) == ("Odd", 6, 5)
    assert execution.code == "PYTHON_EXCEPTION"


def test_an_endless_writer_slows_no_other_job(supervisor: Sandbox) -> None:
    """JOB-006: another job's result comes while one floods its output."""
    flood = supervisor.start(
        Job(source="import os\nwhile True:\n    os.write(1, b'x' * 65536)", limits=replace(SMALL, wall_ms=60_000))
    )
    assert isinstance(flood, Running)
    execution = run(supervisor, Job(source="def main(): return 'there'", entry="main", limits=SMALL))
    assert execution.result == b'"there"'
    flood.cancel()
    assert flood.wait().cancelled


def test_the_strongest_profile_here_is_the_one_tests_ran_in() -> None:
    """A machine that offers less makes these tests fewer, not greener: the profile is named."""
    assert STRONG in CONTAINED or not CONTAINED
