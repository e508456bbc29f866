"""What careless and unlucky code does to its process: each ends as one typed answer, and the next task runs as ever."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from detent.errors import InvalidInput
from detent.executor.plain.pool import PoolFailed
from detent.jobs.work import CANCELLED
from detent.store.content import marked_name
from tests.executor.plain import work
from tests.executor.plain.rig import OUTPUT_BYTES_MAX, SECONDS_MAX, Rig, failure, is_gone, marked, value

USER = "USER_CODE_ERROR"


@pytest.fixture(autouse=True)
def _works_afterwards(rig: Rig) -> Iterator[None]:
    yield
    assert value(rig.run("same", 1)) == [[1], {}]


def test_an_exception_names_line_and_column_of_the_users_code(rig: Rig) -> None:
    done = rig.run("raise_from_library")
    assert failure(done) == (USER, "PYTHON_EXCEPTION")
    assert done.failure is not None
    first = work.raise_from_library.__code__.co_firstlineno
    assert (done.failure.type, done.failure.line, done.failure.column) == ("JSONDecodeError", first + 4, 12)
    assert done.failure.message.startswith("Expecting property name")
    assert done.failure.traceback is not None
    assert "return json.loads(text)" in done.failure.traceback
    assert done.failure.traceback.endswith(f"JSONDecodeError: {done.failure.message}")
    assert "executor/plain/child.py" not in done.failure.traceback


def test_an_exception_is_told_with_its_message_and_its_cause(rig: Rig) -> None:
    done = rig.run("raise_plain")
    assert done.failure is not None
    assert (done.failure.type, done.failure.message) == ("ValueError", "('no: é', 3)")
    done = rig.run("raise_chained")
    assert done.failure is not None
    assert done.failure.traceback is not None
    assert "KeyError: 'first'\n\nwhich led to:" in done.failure.traceback


@pytest.mark.parametrize("kind", ["raising", "endless", "stubborn"])
def test_a_message_that_never_comes_costs_the_message_only(rig: Rig, kind: str) -> None:
    done = rig.run("raise_odd", kind)
    assert failure(done) == (USER, "PYTHON_EXCEPTION")
    assert done.failure is not None
    assert done.failure.type == {"raising": "RaisingText", "endless": "EndlessText", "stubborn": "StubbornText"}[kind]
    assert done.failure.message == "<no message: it could not be formatted>"
    assert done.failure.line == work.raise_odd.__code__.co_firstlineno + 1
    assert (rig.run("pid").process == done.process) == (kind != "stubborn")


def test_a_long_message_is_cut_between_characters(rig: Rig) -> None:
    done = rig.run("raise_odd", "long")
    assert done.failure is not None
    assert done.failure.message == "é" * 2046 + "..."


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("exit", "EXITED", "exit status 3"),
        ("exit text", "EXITED", "that is all"),
        ("at once", "PROCESS_EXITED", "exit status 7"),
        ("segfault", "PROCESS_CRASHED", "SIGSEGV"),
        ("abort", "PROCESS_CRASHED", "SIGABRT"),
    ],
)
def test_leaving_the_process_is_the_tasks_own_failure(rig: Rig, how: str, code: str, said: str) -> None:
    done = rig.run("leave_process", how)
    assert failure(done) == (USER, code)
    assert done.failure is not None
    assert said in done.failure.message
    assert not done.lost
    assert done.started_ms > 0


def test_leaving_with_status_0_is_no_failure(rig: Rig) -> None:
    assert value(rig.run("leave_process", "exit well")) is None


def test_import_errors_say_what_and_where(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ny = (2 +\n")
    (tmp_path / "raises.py").write_text("import os\nos.nonsense\n")
    cases = {
        "nowhere_at_all:f": f"cannot import 'nowhere_at_all' from {tmp_path}: No module named 'nowhere_at_all'",
        "broken:f": "'(' was never closed",
        "raises:f": "no attribute 'nonsense'",
        "work:nope": "work.py has no 'nope'",
        "work:LOADED_AS": "cannot be called",
        "missing.py:f": f"there is no file {tmp_path}/missing.py",
        ":": "names no function",
    }
    for target, said in cases.items():
        done = rig.run(target, base=None if target.startswith("work") else str(tmp_path), env={})
        if target.startswith("work"):
            done = rig.run(target)
        assert failure(done) == (USER, "IMPORT_FAILED"), target
        assert done.failure is not None
        assert said in done.failure.message
    error = rig.run("broken:f", base=str(tmp_path)).failure
    assert error is not None
    assert (error.type, error.line, error.column) == ("SyntaxError", 2, 5)
    error = rig.run("raises:f", base=str(tmp_path)).failure
    assert error is not None
    assert (error.line, error.type) == (2, "AttributeError")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_killed_is_lost_and_its_task_has_not_failed(rig: Rig, number: int) -> None:
    """X-163"""
    task = rig.submit("begin_and_wait")
    rig.begun()
    holder = rig.holder(task)
    os.kill(holder.pid, number)
    done = rig.result(task)
    assert (done.lost, done.ok, done.status == CANCELLED) == (True, False, False)
    assert failure(done) == ("INTERNAL_ERROR", "WORKER_LOST")
    assert done.process == holder.name
    assert is_gone(holder.pid)


@pytest.mark.parametrize("tasks_before", [0, 1, 2])
def test_a_worker_listens_to_a_stranger_from_its_first_task_on(tmp_path: Path, tasks_before: int) -> None:
    """X-163"""
    rig = Rig(tmp_path, workers=1)
    with rig.pool:
        for _ in range(tasks_before):
            rig.run("nothing")
        task = rig.submit("begin_and_wait")
        rig.begun()
        os.kill(rig.holder(task).pid, signal.SIGTERM)
        assert rig.result(task).lost


def test_what_waits_behind_a_killed_worker_is_given_to_others(rig: Rig) -> None:
    """X-163"""
    rig.pool._dealer.task_us = 100.0  # As after many short tasks: several wait in each worker's socket.
    held = [rig.submit("begin_and_wait", f"held {place}") for place in range(2)]
    behind = [rig.submit("same", place) for place in range(20)]
    for place in range(2):
        rig.begun(f"held {place}")
    assert all(len(slot.entries) > 1 for slot in rig.pool._slots.values())
    for number in held:
        os.kill(rig.holder(number).pid, signal.SIGKILL)
    assert [rig.result(number).lost for number in held] == [True] * 2
    assert [value(rig.result(number)) for number in behind] == [[[place], {}] for place in range(20)]


def test_an_idle_worker_takes_what_waits_behind_a_long_task(rig: Rig) -> None:
    rig.pool._dealer.task_us = 100.0
    held = rig.submit("begin_and_wait")
    behind = [rig.submit("same", place) for place in range(30)]
    assert [value(rig.result(number))[0] for number in behind] == [[place] for place in range(30)]
    rig.pool.cancel(held)
    assert rig.result(held).status == CANCELLED


def test_the_host_is_replaced_when_it_is_killed(rig: Rig) -> None:
    """X-179"""
    rig.pool._dealer.task_us = 100.0
    held = [rig.submit("begin_and_wait", f"held {place}") for place in range(2)]
    behind = [rig.submit("same", place) for place in range(6)]
    for place in range(2):
        rig.begun(f"held {place}")
    before, workers = rig.pool.host_pid, rig.pool.worker_pids
    os.kill(before, signal.SIGKILL)
    assert [rig.result(number).lost for number in held] == [True] * 2
    assert [value(rig.result(number))[0] for number in behind] == [[place] for place in range(6)]
    assert rig.pool.host_pid != before
    assert all(is_gone(pid) for pid in workers)


def test_a_task_that_prints_forever_fills_nothing_and_goes_on(rig: Rig) -> None:
    task = rig.submit("print_forever", 4 << 20)
    rig.begun("much")
    sizes = [path.stat().st_size for path in rig.live.glob("*/stdout")]
    assert max(sizes) == OUTPUT_BYTES_MAX // 2
    assert max(path.stat().st_size for path in rig.live.glob("*/stdout.end")) <= OUTPUT_BYTES_MAX // 2
    rig.pool.cancel(task)
    done = rig.result(task)
    assert OUTPUT_BYTES_MAX - 70 <= len(done.stdout.data) <= OUTPUT_BYTES_MAX
    assert (done.stdout.truncated, done.stderr.truncated) == (True, False)
    assert rig.run("speak", "short", "").stdout.data == b"short\n"


def test_the_running_job_can_be_read_in_the_workers_directory(rig: Rig) -> None:
    task = rig.submit("begin_and_wait", job_id="job-77")
    rig.begun()
    holder = rig.holder(task)
    assert (holder.directory / "job").read_text().splitlines()[0] == "job-77"
    rig.pool.cancel(task)
    rig.result(task)


@pytest.mark.parametrize("twice", [False, True])
def test_processes_left_behind_are_ended_and_so_is_the_worker(rig: Rig, twice: bool) -> None:
    done = rig.run("fork_and_leave", twice)
    assert is_gone(value(done))
    assert done.process not in {rig.run("pid").process for _ in range(4)}


def test_a_fork_that_comes_back_is_not_heard(rig: Rig, tmp_path: Path) -> None:
    assert value(rig.run("fork_and_return", str(tmp_path / "x"))) == "the worker's"
    assert value(rig.run("fork_and_raise")) == "0"


def test_a_thread_left_behind_ends_the_worker(rig: Rig) -> None:
    done = rig.run("leave_thread")
    assert is_gone(value(done))


@pytest.mark.parametrize("how", ["close", "close with a rest", "redirect", "close the objects"])
def test_standard_streams_that_a_task_lost_are_there_for_the_next(tmp_path: Path, how: str) -> None:
    rig = Rig(tmp_path, workers=1)
    with closing(rig.pool):
        assert value(rig.run("lose_streams", how, str(tmp_path / "stolen"))) is None
        done = rig.run("use_streams", str(tmp_path / "used"))
    assert value(done) == [True, "", ""]
    assert (done.stdout.data, done.stderr.data, (tmp_path / "used").read_text()) == (b"to stdout\n", b"to stderr\n", "")


def test_a_limit_holds_against_code_that_holds_the_interpreter(rig: Rig) -> None:
    """X-162, X-179"""
    done = rig.run("hold_interpreter", wall_ms=50)
    assert failure(done) == ("RESOURCE_LIMIT", "LIMIT_WALL")
    assert done.usage.wall_ms >= 50
    done = rig.run("begin_and_wait", wall_ms=50)
    assert failure(done) == ("RESOURCE_LIMIT", "LIMIT_WALL")
    assert done.failure is not None
    assert "50 ms" in done.failure.message


def test_a_limit_counts_from_the_tasks_own_beginning(rig: Rig) -> None:
    """X-162"""
    rig.pool._dealer.task_us = 100.0
    held = [rig.submit("begin_and_wait", f"held {place}") for place in range(2)]
    for place in range(2):
        rig.begun(f"held {place}")
    behind = rig.submit("same", 1, wall_ms=5000)
    assert rig.pool.due() is None
    for number in held:
        rig.pool.cancel(number)
    assert value(rig.result(behind)) == [[1], {}]


def test_cancelling_ends_a_running_task_after_its_own_clean_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "home", workers=1, grace_ms=60_000)
    task = rig.submit("clean_up", str(tmp_path / "cleaned"))
    rig.begun()
    rig.pool.cancel(task)
    done = rig.result(task)
    assert (done.status, done.failure, done.lost) == (CANCELLED, None, False)
    assert (tmp_path / "cleaned").read_text() == "cancelled: True"
    rig.pool.close()


@pytest.mark.parametrize("target", ["hold_interpreter", "refuse_to_stop"])
def test_cancelling_ends_what_does_not_listen(rig: Rig, target: str) -> None:
    task = rig.submit(target)
    rig.begun()
    rig.pool.cancel(task)
    done = rig.result(task)
    assert (done.status, done.failure, done.lost) == (CANCELLED, None, False)


def test_cancelling_what_waits_never_begins_it(rig: Rig, tmp_path: Path) -> None:
    rig.pool._dealer.task_us = 100.0
    held = [rig.submit("begin_and_wait", f"held {place}") for place in range(2)]
    noted = str(tmp_path / "noted")
    behind = [rig.submit("note_number", noted, place, False) for place in range(300)]
    for place in range(2):
        rig.begun(f"held {place}")
    for number in behind[::2] + held:
        rig.pool.cancel(number)
    ended = [rig.result(number) for number in behind]
    assert [done.status == CANCELLED for done in ended] == [True, False] * 150
    assert [done.started_ms for done in ended[::2]] == [0] * 150
    assert sorted(map(int, Path(noted).read_text().split())) == list(range(1, 300, 2))
    assert all(rig.result(number).status == CANCELLED for number in held)


def test_cancelling_what_is_done_or_unknown_changes_nothing(rig: Rig) -> None:
    task = rig.submit("nothing")
    assert rig.result(task).ok
    rig.pool.cancel(task)
    rig.pool.cancel(10**9)
    rig.look(0)


def test_a_word_to_stop_that_comes_late_does_not_hit_the_next_task(tmp_path: Path) -> None:
    rig = Rig(tmp_path, workers=2)
    os.mkfifo(tmp_path / "go")
    first = rig.submit("nothing")
    rig.result(first)
    second = rig.submit("wait_for", str(tmp_path / "go"))
    rig.begun()
    busy, idle = sorted(rig.pool._slots.values(), key=lambda slot: not slot.entries)
    rig.pool._link.stop(busy.worker, first, 0)
    rig.pool._link.stop(idle.worker, None, 0)
    rig.until(lambda: idle.worker not in rig.pool._slots)  # Words are heard in their order: the first one was, too.
    (tmp_path / "go").write_text("on")
    assert value(rig.result(second)) == "on"
    rig.pool.close()


def test_a_number_that_is_under_way_is_refused(rig: Rig) -> None:
    task = rig.task("begin_and_wait")
    rig.pool.submit(task)
    with pytest.raises(InvalidInput, match="under way already"):
        rig.pool.submit(task)
    rig.begun()
    rig.pool.cancel(task.number)
    assert rig.result(task.number).status == CANCELLED


def test_a_changed_source_is_loaded_anew(rig: Rig, tmp_path: Path) -> None:
    from detent.executor.plain import loading

    (tmp_path / "changing.py").write_text("import helper\ndef f(): return helper.VALUE\n")
    (tmp_path / "helper.py").write_text("VALUE = 1\n")
    one = Rig(tmp_path / "home", workers=1)
    try:
        first = one.run("changing:f", base=str(tmp_path))
        assert value(first) == 1
        (tmp_path / "helper.py").write_text("VALUE = 22\n")
        since = one.run("nothing").finished_ms
        while value(last := one.run("changing:f", base=str(tmp_path))) != 22:
            assert last.started_ms - since < 1000 * (loading.CHECK_SECONDS + SECONDS_MAX)
        assert last.process != first.process
    finally:
        one.pool.close()


def test_a_result_that_finds_no_room_on_the_disk_is_not_the_tasks_failure(tmp_path: Path) -> None:
    """X-163"""
    rig = Rig(tmp_path, workers=1)
    rig.run("nothing")
    (slot,) = rig.pool._slots.values()
    shutil.rmtree(slot.directory)
    assert failure(rig.run("long_list")) == ("INTERNAL_ERROR", "RESULT_NOT_PASSED")
    assert rig.run("nothing").ok
    rig.pool.close()


def test_closing_ends_everything_and_tells_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, workers=2)
    rig.pool._dealer.task_us = 100.0
    tasks = [
        rig.submit("refuse_to_stop"),
        rig.submit("fork_and_leave", False),
        *(rig.submit("pid") for _ in range(200)),
    ]
    rig.begun()
    left = rig.pool.close()
    told = sorted([*rig.done, *(number for number, _ in left)])
    assert told == tasks
    assert all(done.ok or done.status == CANCELLED for done in [*rig.done.values(), *(result for _, result in left)])
    assert marked(rig.live) == []
    assert list(rig.live.iterdir()) == []
    assert rig.pool.close() == []
    with pytest.raises(PoolFailed):
        rig.submit("nothing")


def test_closing_works_although_the_host_is_halted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.executor.plain.pool.CLOSE_SECONDS_MAX", 0.0)
    rig = Rig(tmp_path, workers=1)
    rig.submit("begin_and_wait")
    rig.begun()
    os.kill(rig.pool.host_pid, signal.SIGSTOP)
    assert [result.status for _, result in rig.pool.close()] == [CANCELLED]
    assert marked(rig.live) == []
    assert list(rig.live.iterdir()) == []


def test_a_python_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(PoolFailed, match="cannot start /nowhere/python"):
        Rig(tmp_path, python="/nowhere/python")
    assert list((tmp_path / "live").iterdir()) == []


def test_workers_that_cannot_be_started_are_given_up_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path, python="/bin/false")
    rig.submit("nothing")
    for _ in range(2):
        with pytest.raises(PoolFailed, match="cannot be started"):
            rig.until(lambda: False)
    assert [result.status for _, result in rig.pool.close()] == [CANCELLED]
    assert list(rig.live.iterdir()) == []


def test_waking_and_the_descriptor_end_a_wait(tmp_path: Path) -> None:
    import select
    import threading

    rig = Rig(tmp_path, workers=1)
    threading.Thread(target=rig.pool.wake).start()
    assert rig.pool.wait() == []
    task = rig.submit("nothing")
    while task not in rig.done:
        assert select.select([rig.pool], [], [], 30)[0]
        rig.look(0)
    rig.pool.close()


@pytest.mark.parametrize("killed", ["worker", "host"])
def test_half_a_file_of_a_worker_that_was_killed_is_removed_at_once_and_that_of_a_living_process_stays(
    rig: Rig, killed: str
) -> None:
    number = rig.submit("begin_to_keep", str(rig.content))
    rig.begun()
    of_the_living = rig.content / f"new-{marked_name()}"
    of_the_living.touch()
    assert len(list(rig.content.glob("new-*"))) == 2
    os.kill(rig.pool.host_pid if killed == "host" else rig.holder(number).pid, signal.SIGKILL)
    assert failure(rig.result(number)) == ("INTERNAL_ERROR", "WORKER_LOST")
    assert list(rig.content.glob("new-*")) == [of_the_living]
    of_the_living.unlink()
