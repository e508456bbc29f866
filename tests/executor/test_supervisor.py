"""The supervisor with real jails: what goes in, what comes out, and that it can be ended."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from detent.errors import InvalidInput, Refused
from detent.executor.sandbox import (
    Execution,
    Input,
    Job,
    Limits,
    Profile,
    Running,
    Sandbox,
    SandboxFailed,
    bare_interpreter,
    cgroup,
    interpreter,
    limits_of,
)
from detent.executor.sandbox.collect import sweep
from detent.executor.sandbox.interpreter import Inside
from detent.executor.sandbox.running import Jail
from detent.jobs import ErrorCategory
from detent.jobs import Limits as ContractLimits
from tests.hostile.payloads import SMALL
from tests.hostile.rig import CONTAINED, run, traces

SIMPLE = Job(source="def main(): return 1", entry="main", limits=SMALL)


@pytest.fixture(scope="module", params=CONTAINED, ids=lambda profile: profile.value)
def shared(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(profile=request.param, warm=1, warm_limits=SMALL) as made:
        yield made


@pytest.fixture
def supervisor(shared: Sandbox) -> Iterator[Sandbox]:
    yield shared
    assert traces(shared) == []


def test_an_entry_is_called_with_the_parameters_by_name(supervisor: Sandbox) -> None:
    """JOB-007"""
    job = Job(source="def f(x, y): return {'sum': x + y}", entry="f", parameters={"x": 1, "y": 2.5}, limits=SMALL)
    execution = run(supervisor, job)
    assert (execution.ok, execution.result, execution.status) == (True, b'{"sum":3.5}', 0)
    assert execution.profile is supervisor.profile
    assert not execution.lowered


def test_an_exception_names_line_and_column_of_the_users_code(supervisor: Sandbox) -> None:
    """JOB-058, JOB-059"""
    source = "import json\ndef main(text):\n    return json.loads(text)\n"
    execution = run(supervisor, Job(source=source, entry="main", parameters={"text": "{"}, limits=SMALL))
    assert execution.category is ErrorCategory.USER_CODE_ERROR
    assert execution.raised is not None
    assert (execution.raised.type, execution.raised.line, execution.raised.column) == ("JSONDecodeError", 3, 12)
    assert "return json.loads(text)" in execution.raised.traceback
    assert "guest.py" not in execution.raised.traceback


def test_a_syntax_error_names_its_place(supervisor: Sandbox) -> None:
    """JOB-059"""
    execution = run(supervisor, Job(source="x = 1\ny = (2 +\n", limits=SMALL))
    assert execution.raised is not None
    assert (execution.raised.type, execution.raised.line, execution.raised.column) == ("SyntaxError", 2, 5)


def test_a_missing_entry_is_the_users_error(supervisor: Sandbox) -> None:
    execution = run(supervisor, Job(source="x = 1", entry="main", limits=SMALL))
    assert (execution.code, execution.message) == ("PYTHON_EXCEPTION", "NameError: the code defines no 'main'")


def test_leaving_with_a_status_is_told(supervisor: Sandbox) -> None:
    assert run(supervisor, Job(source="import sys; sys.exit()", limits=SMALL)).ok
    execution = run(supervisor, Job(source="import sys; sys.exit('no')", limits=SMALL))
    assert (execution.code, execution.status, execution.stderr.data) == ("EXITED", 256, b"no\n")


def test_output_files_are_copied_and_named_by_their_bytes(supervisor: Sandbox) -> None:
    """JOB-074"""
    source = "import os\nos.mkdir('/job/out/d')\nopen('/job/out/d/a.txt', 'w').write('abc')\nopen('/job/out/b', 'w')"
    execution = run(supervisor, Job(source=source, limits=SMALL))
    files = {file.name: file for file in execution.files}
    assert set(files) == {"d/a.txt", "b"}
    assert files["d/a.txt"].digest == hashlib.sha256(b"abc").digest()
    assert files["d/a.txt"].path.read_bytes() == b"abc"
    assert files["d/a.txt"].path.parent.parent == supervisor.staging
    supervisor.discard(execution)
    assert not files["b"].path.exists()


def test_files_a_job_forgot_to_close_are_written(supervisor: Sandbox) -> None:
    execution = run(supervisor, Job(source="f = open('/job/out/x', 'w')\nf.write('abc')", limits=SMALL))
    assert [file.size_bytes for file in execution.files] == [3]
    supervisor.discard(execution)


def test_inputs_are_there_to_read_and_nothing_else(supervisor: Sandbox, tmp_path: Path) -> None:
    """JOB-071"""
    (tmp_path / "data").write_bytes(b"points")
    (tmp_path / "secret").write_bytes(b"secret")
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "inner").write_bytes(b"in")
    source = """
import os
def main():
    seen = [open('/job/inputs/points.csv').read(), open('/job/inputs/d/inner').read(), sorted(os.listdir('/job/inputs'))]
    for path in ('/job/inputs/d/new', '/job/inputs/points.csv'):
        try:
            os.open(path, os.O_WRONLY | os.O_CREAT)
            seen.append('written')
        except OSError as exc:
            seen.append('refused')
    return seen
"""
    digest = hashlib.sha256(b"points").digest()
    inputs = {"points.csv": Input(tmp_path / "data", digest), "d": Input(directory)}
    execution = run(supervisor, Job(source=source, entry="main", inputs=inputs, limits=SMALL))
    assert json.loads(execution.result or b"") == ["points", "in", ["d", "points.csv"], *["refused"] * 2]
    assert (tmp_path / "data").read_bytes() == b"points"


def test_an_input_that_only_its_owner_may_read_is_readable_inside(supervisor: Sandbox, tmp_path: Path) -> None:
    """JOB-071"""
    (tmp_path / "data").write_bytes(b"points")
    (tmp_path / "data").chmod(0o600)
    job = Job(
        source="def main(): return open('/job/inputs/x').read()",
        entry="main",
        inputs={"x": Input(tmp_path / "data", hashlib.sha256(b"points").digest())},
        limits=SMALL,
    )
    assert run(supervisor, job).result == b'"points"'


def test_a_missing_or_altered_input_is_refused_before_the_start(supervisor: Sandbox, tmp_path: Path) -> None:
    """JOB-060, JOB-065, JOB-071"""
    (tmp_path / "data").write_bytes(b"other")
    for given, code in (
        (Input(tmp_path / "none"), "DEPENDENCY_MISSING"),
        (Input(tmp_path / "data", bytes(32)), "DEPENDENCY_MISMATCH"),
        (Input(tmp_path, bytes(32)), "DEPENDENCY_MISMATCH"),
    ):
        refused = supervisor.run(replace(SIMPLE, inputs={"x": given}))
        assert isinstance(refused, Refused)
        assert refused.code == code


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "a\n"])
def test_an_input_with_an_odd_name_is_refused(supervisor: Sandbox, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        supervisor.run(replace(SIMPLE, inputs={name: Input(tmp_path)}))


def test_an_input_that_was_swapped_meanwhile_is_not_mounted(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x")
    with Sandbox() as supervisor:
        spec = supervisor._spec(SMALL, [["data", str(tmp_path / "data"), 1, 2]])
        jail = supervisor._spawn(spec)
        why = jail.await_ready()
        jail.close()
    assert why is not None
    assert "InputChanged" in why


def test_a_program_is_run_and_writes_its_result_to_descriptor_3(supervisor: Sandbox) -> None:
    code = "import os, sys; os.write(3, b'[1]'); print('out'); sys.exit(0)"
    job = Job(argv=(supervisor.runtime.executable, "-S", "-c", code), limits=SMALL)
    execution = run(supervisor, job)
    assert (execution.ok, execution.result, execution.stdout.data) == (True, b"[1]", b"out\n")
    execution = run(supervisor, Job(argv=("/bin/sh", "-c", "true"), limits=SMALL))
    assert (execution.code, execution.status) == ("EXITED", 127 << 8)


def test_equal_jobs_see_sets_in_equal_order(supervisor: Sandbox) -> None:
    job = Job(source="def main(): return list({'a', 'b', 'c', 'd', 'e'})", entry="main", limits=SMALL)
    assert run(supervisor, job).result == run(supervisor, job).result


def test_random_numbers_differ_between_jobs(supervisor: Sandbox) -> None:
    """Forked from one process, and yet not with one state."""
    job = Job(
        source="import random, uuid\ndef main(): return [random.random(), str(uuid.uuid4())]",
        entry="main",
        limits=SMALL,
    )
    first, second = (json.loads(run(supervisor, job).result or b"") for _ in range(2))
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_cancelling_ends_the_whole_tree(supervisor: Sandbox) -> None:
    """JOB-068"""
    source = "import os, time\nfor _ in range(3):\n    os.fork()\nprint('there', flush=True)\ntime.sleep(600)"
    running = supervisor.start(Job(source=source, limits=replace(SMALL, wall_ms=None)))
    assert isinstance(running, Running)
    answer: list[Execution] = []
    thread = threading.Thread(target=lambda: answer.append(running.wait()))
    thread.start()
    while thread.is_alive() and b"there" not in bytes(running._streams[b"o"]):
        time.sleep(0.002)
    running.cancel()
    thread.join()
    assert answer[0].cancelled
    assert not answer[0].ok
    assert answer[0].category is None


def test_a_job_cancelled_before_its_jail_is_ready_never_runs() -> None:
    with Sandbox() as supervisor:
        running = supervisor.start(replace(SIMPLE, source="import time\ntime.sleep(600)", entry=None))
        assert isinstance(running, Running)
        running.cancel()
        assert running.wait().cancelled
        assert traces(supervisor) == []


def await_ends(handles: list[int]) -> bool:
    """Whether all these processes end; they are closed."""
    ended = [bool(select.select([handle], [], [], 20)[0]) for handle in handles]
    for handle in handles:
        os.close(handle)
    return all(ended)


def facts_of(pid: int | str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_a_waiting_guest_seen_from_outside_has_no_rights_at_all(supervisor: Sandbox) -> None:
    """JOB-070, JOB-080: what the kernel itself says about the process that will run the user's code."""
    supervisor.await_warm()
    init = supervisor._ready[0].pid
    (guest,) = Path(f"/proc/{init}/task/{init}/children").read_text().split()
    facts = facts_of(guest)
    assert (facts["NoNewPrivs"], facts["Seccomp"], facts["NSpid"].split()[-1]) == ("1", "2", "2")
    assert {facts[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    outside = int(facts["Uid"].split()[0])
    assert outside != 0
    assert outside == os.getuid() or outside >= 65_534
    for name in ("user", "pid", "mnt", "net", "ipc", "uts"):
        assert Path(f"/proc/{guest}/ns/{name}").readlink() != Path(f"/proc/self/ns/{name}").readlink()
    # The processes of two jobs are strangers to each other, too.
    if os.geteuid() == 0:
        other = supervisor._spawn(supervisor._spec(SMALL, []))
        other.await_ready()
        identity = facts_of(other.pid or 0)["Uid"]
        other.close()
        assert identity != facts["Uid"]


def test_init_keeps_three_rights_and_cannot_be_looked_into(supervisor: Sandbox) -> None:
    supervisor.await_warm()
    facts = facts_of(supervisor._ready[0].pid or 0)
    assert int(facts["CapEff"], 16) == 1 << 2 | 1 << 5 | 1 << 19
    assert facts["NoNewPrivs"] == "1"
    # The kernel gives the files of a process that must not be looked into to root, whichever user runs the process.
    assert Path(f"/proc/{supervisor._ready[0].pid}/mem").stat().st_uid == 0


def test_limits_of_a_contract_are_taken_over() -> None:
    """JOB-036"""
    limits = limits_of(
        ContractLimits(timeout_ms=5, cpu_ms=6, memory_mb=17, max_output_kb=8, max_artifacts=9), processes=3
    )
    assert (limits.wall_ms, limits.cpu_ms, limits.memory_bytes) == (5, 6, 17 * 1024 * 1024)
    assert (limits.output_bytes, limits.artifacts_max, limits.processes) == (8192, 9, 3)


def test_several_threads_run_jobs_at_once(supervisor: Sandbox) -> None:
    results: list[bytes | None] = []

    def work(number: int) -> None:
        job = replace(SIMPLE, source=f"def main(): return {number}")
        results.extend(run(supervisor, job).result for _ in range(3))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result or b"" for result in results) == sorted([b"0", b"1", b"2", b"3"] * 3)


def test_limits_of_a_job_hold_in_a_jail_that_waited_with_others(supervisor: Sandbox) -> None:
    """JOB-037"""
    source = "keep = bytearray(b'x') * 60_000_000"
    assert run(supervisor, Job(source=source, limits=SMALL)).ok
    supervisor.await_warm()
    tight = replace(SMALL, memory_bytes=40 * 1024 * 1024)
    assert run(supervisor, Job(source=source, limits=tight)).code == "LIMIT_MEMORY"


def test_closing_ends_jails_that_run_and_jails_that_wait() -> None:
    supervisor = Sandbox(warm=2, warm_limits=SMALL)
    running = supervisor.start(Job(source="import time\ntime.sleep(600)", limits=SMALL))
    assert isinstance(running, Running)
    thread = threading.Thread(target=running.wait)
    thread.start()
    pid = supervisor._process.pid
    supervisor.close()
    thread.join()
    assert not Path(f"/proc/{pid}").exists()
    assert not supervisor.staging.exists()
    place = supervisor.place
    if place is not None:
        assert not list(Path(place["memory"]).glob(f"{supervisor.group}*"))
    supervisor.close()
    with pytest.raises(SandboxFailed):
        supervisor.run(SIMPLE)


def test_closing_closes_a_jail_that_is_being_made_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that makes the next jail is in the middle of it when the supervisor is told to close."""
    supervisor = Sandbox(warm=1, warm_limits=SMALL)
    begun, closing = threading.Event(), threading.Event()
    spawn, put = supervisor._spawn, supervisor._served.put
    made: list[Jail] = []

    def held(spec: dict[str, object]) -> Jail:
        jail = spawn(spec)
        made.append(jail)
        begun.set()
        closing.wait()
        return jail

    def told(jail: Jail | None) -> None:
        put(jail)
        if jail is None:
            closing.set()

    monkeypatch.setattr(supervisor, "_spawn", held)
    monkeypatch.setattr(supervisor._served, "put", told)
    run(supervisor, SIMPLE)
    begun.wait()
    supervisor.close()
    assert [jail.end.fileno() for jail in made] == [-1]
    assert list(supervisor._ready) == []


def test_a_supervisor_whose_first_jail_cannot_be_made_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Sandbox] = []

    def fail(supervisor: Sandbox, _spec: dict[str, object]) -> Jail:
        made.append(supervisor)
        raise SandboxFailed("the spawner has gone")

    monkeypatch.setattr(Sandbox, "_spawn", fail)
    with pytest.raises(SandboxFailed):
        Sandbox(warm=1, warm_limits=SMALL)
    (supervisor,) = made
    assert supervisor._process.returncode is not None
    assert not supervisor._keeper.is_alive()
    assert not supervisor.staging.exists()


@pytest.mark.skipif(not CONTAINED, reason="no profile of this machine has a root of its own")
def test_a_spawner_whose_place_cannot_be_made_says_why_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    monkeypatch.setattr(Inside, "mounts", [(str(gone), "/runtime/gone")])
    with pytest.raises(SandboxFailed, match=r"its place could not be made: .*No such file or directory: .*gone"):
        Sandbox()


def test_a_lost_init_has_a_code_of_its_own_and_is_not_tried_again(supervisor: Sandbox) -> None:
    """JOB-066: what is retried by itself is a failure of ours; a jail that ends under its job may be the job's doing."""
    running = supervisor.start(Job(source="import time\ntime.sleep(600)", limits=SMALL))
    assert isinstance(running, Running)
    running._jail.await_ready()
    running._jail.kill()
    execution = running.wait()
    assert (execution.category, execution.code) == (ErrorCategory.RESOURCE_LIMIT, "SANDBOX_LOST")


def test_an_init_lost_to_the_memory_limit_is_the_jobs_failure(supervisor: Sandbox) -> None:
    """JOB-037, JOB-066: out of memory, the kernel may take init as well; the counter still says why."""
    running = supervisor.start(Job(source="import time\ntime.sleep(600)", limits=SMALL))
    assert isinstance(running, Running)
    running._jail.await_ready()
    running._jail.kill()
    running._converse()
    assert set(running._last_words) >= {"oom_kills", "process_refusals", "resident_bytes"}
    assert running._conclude(None, "gone", 0).code == "SANDBOX_LOST"
    for words, code in (({"oom_kills": 1}, "LIMIT_MEMORY"), ({"process_refusals": 1}, "LIMIT_PROCESSES")):
        running._last_words |= words
        assert running._conclude(None, "gone", 0).code == code
        running._last_words |= dict.fromkeys(words, 0)
    supervisor.finished(running._jail)


def test_a_spawner_that_was_killed_takes_its_jails_along_and_the_supervisor_says_so() -> None:
    """X-179"""
    supervisor = Sandbox(warm=2, warm_limits=SMALL)
    supervisor.await_warm()
    inits = [os.pidfd_open(jail.pid or 0) for jail in supervisor._ready]
    supervisor._process.kill()
    supervisor._process.wait()
    assert await_ends(inits)
    execution = run(supervisor, SIMPLE)
    assert execution.code == "SANDBOX_FAILED"
    with pytest.raises(SandboxFailed):
        supervisor.run(replace(SIMPLE, limits=Limits()))
    supervisor.close()
    place = supervisor.place
    if place is not None:
        assert not list(Path(place["memory"]).glob(f"{supervisor.group}*"))


def test_groups_of_supervisors_that_are_gone_are_swept_away() -> None:
    with Sandbox() as supervisor:
        place = supervisor.place
        if place is None:
            assert supervisor.profile is not Profile.FULL
            return
        dead = f"{cgroup.PREFIX}4194304-x-1"  # One more than the largest process id there can be.
        cgroup.make(place, dead, memory_bytes=1 << 20, processes=1)
    with Sandbox():
        assert not (Path(place["memory"]) / dead).exists()
        assert not (Path(place["pids"]) / dead).exists()


def test_when_the_caller_dies_everything_dies() -> None:
    script = (
        "import os, sys, time\n"
        "from detent.executor.sandbox import Sandbox, Job\n"
        "s = Sandbox(warm=1)\n"
        "s.await_warm()\n"
        "print(s._process.pid, s._ready[0].pid, s.staging, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(interpreter.__file__).resolve().parents[3])}
    caller = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, env=environment)
    spawner, init, staging = caller.stdout.decode().split()
    handles = []
    for pid in (spawner, init):
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(int(pid)))
    assert await_ends(handles)
    sweep()
    assert not Path(staging).exists()


@pytest.mark.parametrize(
    "arguments",
    [
        {"source": "x", "argv": ("a",)},
        {},
        {"argv": ()},
        {"argv": ("a",), "entry": "main"},
        {"source": "x" * (9 * 1024 * 1024)},
        {"source": "x", "parameters": {"a": float("nan")}},
        {"source": "x", "parameters": {"a": object()}},
    ],
)
def test_a_job_that_makes_no_sense_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Job(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"wall_ms": 0},
        {"memory_bytes": 1},
        {"processes": 0},
        {"disk_bytes": 0},
        {"output_bytes": None},
        {"artifacts_max": 1001},
    ],
)
def test_limits_out_of_range_are_refused(change: dict[str, int]) -> None:
    """JOB-036"""
    with pytest.raises(InvalidInput):
        replace(Limits(), **change)


def test_the_spawner_loads_next_to_nothing_and_nothing_of_the_house() -> None:
    """X-179: it is exec'd, and thin."""
    script = (
        "import sys, types\n"
        f"here = {str(interpreter.HERE)!r}\n"
        "for name, path in (('detent', here + '/../..'), ('detent.executor', here + '/..'), ('detent.executor.sandbox', here)):\n"
        "    module = types.ModuleType(name); module.__path__ = [path]; sys.modules[name] = module\n"
        "import detent.executor.sandbox.spawner\n"
        "print(' '.join(sorted(sys.modules)))\n"
    )
    out = subprocess.run(
        [bare_interpreter(), "-P", "-s", "-S", "-c", script],
        capture_output=True,
        check=True,
        env=interpreter.ENVIRONMENT,
    ).stdout.decode()
    modules = set(out.split())
    assert {
        "pydantic",
        "dataclasses",
        "inspect",
        "pathlib",
        "subprocess",
        "asyncio",
        "detent.errors",
    } & modules == set()
    ours = {name for name in modules if name.startswith("detent.executor.sandbox.")}
    assert {name.rpartition(".")[2] for name in ours} == {
        *("cgroup", "channel", "filter_rules", "guest", "init", "jail", "linux", "notify", "seccomp"),
        *("spawner", "traced_calls", "tree", "walk", "watcher"),
    }


def test_profiles_are_ordered() -> None:
    assert [profile.strength for profile in Profile] == sorted((profile.strength for profile in Profile), reverse=True)


def test_what_a_job_prints_is_told_line_by_line_while_it_runs(supervisor: Sandbox) -> None:
    """Without a flush of the guest's own; it ends only because it is cancelled, so nothing here came at its end."""
    source = "import sys\nprint('first')\nprint('told', file=sys.stderr)\nprint('second')\nwhile True: pass\n"
    heard: list[tuple[str, bytes]] = []
    seen = threading.Event()

    def hear(stream: str, data: bytes) -> None:
        heard.append((stream, data))
        told = {name: b"".join(data for one, data in heard if one == name) for name, _ in heard}
        if told == {"stdout": b"first\nsecond\n", "stderr": b"told\n"}:
            seen.set()

    running = supervisor.start(Job(source=source, limits=SMALL), on_output=hear)
    assert isinstance(running, Running)
    answer: list[Execution] = []
    waiting = threading.Thread(target=lambda: answer.append(running.wait()))
    waiting.start()
    assert seen.wait(60)
    running.cancel()
    waiting.join()
    assert answer[0].cancelled
    supervisor.settle()


def test_what_is_told_is_what_is_kept(supervisor: Sandbox) -> None:
    heard = bytearray()
    job = Job(source="print('é' * 10000)", limits=replace(SMALL, output_bytes=4096))
    running = supervisor.start(job, on_output=lambda _stream, data: heard.extend(data))
    assert isinstance(running, Running)
    execution = running.wait()
    assert execution.stdout.truncated
    assert len(heard) <= 4096
    assert bytes(heard).startswith(execution.stdout.data)
    supervisor.discard(execution)
    supervisor.settle()
