"""The time that one item may take: who takes longer fails alone, with a code of its own, on every run alike."""

from __future__ import annotations

from typing import Any

import pytest

from detent.executor.plain import stored
from detent.jobs.order import Retries
from detent.owner.wiring import Parts
from detent.runs.ordered import timed_chunk
from detent.runs.ordered.handle import OrderedResult
from detent.runs.ordered.timed_chunk import ItemDeadline, Judge, in_turn
from tests.homes import retry_at_once
from tests.runs.ordered.rig import ListTarget, OrderedRig, lines
from tests.runs.rig import Child

LIMIT_MS = 200
CLOCK = f"""
import mmap, os, struct, time
from detent.executor.plain import current
from detent.runs.ordered import timed_chunk

STOPPED_US = time.monotonic_ns() // 1000 + 3_600_000_000
PASSED = mmap.mmap(-1, 8)
WORKER = os.getpid() if current.running() is not None else None
told, begun = [], current.Running.begun

def now_us(): return STOPPED_US + struct.unpack("q", PASSED[:])[0]

def passes(us): PASSED[:] = struct.pack("q", now_us() - STOPPED_US + us)

def note(self, at_us):
    told[:] = [at_us]
    begun(self, at_us)

def hangs():
    passes({2 * LIMIT_MS * 1000})
    if os.getpid() == WORKER:
        begun(current.running(), told[0] - (now_us() - time.monotonic_ns() // 1000))

if WORKER is not None:
    timed_chunk._now_us, current.Running.begun = now_us, note
"""
"""The clock of a worker and its forks. It stands still, an hour ahead, until an item hangs: `hangs` lets more than an item's limit
pass, and tells the supervisor, which has the real clock, what the worker told it last as if that had passed there too. So only an
item that hangs can meet the limit, however long the machine takes for the others."""
STUCK = '''
import signal

def waits():
    while True:
        hangs()
        time.sleep(0.02)

def sticks(x):
    """Never comes back from 5 and 6."""
    if x in (5, 6): waits()
    return x * x

def holds_out(x):
    """Nor does this, and no exception ends it."""
    while x in (5, 6):
        try: waits()
        except BaseException: pass
    return x * x

async def awaits(x):
    import asyncio
    while x in (5, 6):
        hangs()
        await asyncio.sleep(0.02)
    return x * x

def counted(x):
    with open(f"called-{x}", "a") as file: file.write("x")
    return sticks(x)

def crashes(x):
    """Sticks at 5; 7 ends its process."""
    if x == 7: os.kill(os.getpid(), signal.SIGSEGV)
    return x if x != 5 else waits()

def speaks(x):
    print(f"item {x}", flush=True)
    if x == 5: waits()
    if x == 6: raise ValueError("six")
    if x == 7: import detent; return detent.SKIP
    return x * x
'''
SLOW_TO_LOAD = f"""
import sys

class Slow:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "asyncio": passes({LIMIT_MS * 1500})

sys.meta_path.insert(0, Slow)
async def later(x): return x * x
"""
MESSAGE = f"took longer than its limit of {LIMIT_MS} ms"


@pytest.fixture
def project(rig: OrderedRig) -> OrderedRig:
    path = rig.project / "steps.py"
    path.write_text(path.read_text() + CLOCK + STUCK)
    retry_at_once(rig.home.home)
    return rig


def mapped(rig: OrderedRig, compute: str, target: ListTarget | None = None, **said: Any) -> OrderedResult:
    """Ten items in chunks of five, with real workers."""
    said = {"item_ms": LIMIT_MS, "chunk": 5, "window": 10, "on_error": "continue", **said}
    with rig.pool(parts=Parts()) as work:
        return rig.ordered(work, range(10), compute, target or ListTarget(), new=True, **said).run()


def told(result: OrderedResult) -> list[tuple[int, str, str]]:
    return [(one.seq, one.code, one.message) for one in result.failures]


@pytest.mark.parametrize("compute", ["sticks", "holds_out", "awaits"])
def test_items_that_take_too_long_fail_alone_however_they_are_stuck(project: OrderedRig, compute: str) -> None:
    """A.6: a wall limit is LIMIT_WALL, of the category RESOURCE_LIMIT"""
    target = ListTarget()
    result = mapped(project, compute, target)
    assert told(result) == [(5, "LIMIT_WALL", MESSAGE), (6, "LIMIT_WALL", MESSAGE)]
    assert (result.status, result.summary.success, result.summary.fail) == ("failed", 8, 2)
    assert (target.seqs, target.values) == ([0, 1, 2, 3, 4, 7, 8, 9], [0, 1, 4, 9, 16, 49, 64, 81])


def test_what_an_async_function_needs_is_loaded_before_the_time_of_its_first_item(project: OrderedRig) -> None:
    """On a busy machine that alone can take longer than an item may."""
    path = project.project / "steps.py"
    path.write_text(path.read_text() + SLOW_TO_LOAD)
    result = mapped(project, "later")
    assert (told(result), result.status, result.summary.success) == ([], "completed", 10)


def test_every_run_comes_to_the_same(project: OrderedRig) -> None:
    digests = {
        mapped(project, compute, chunk=chunk).summary.digest() for compute, chunk in (("sticks", 5), ("holds_out", 3))
    }
    assert len(digests) == 1


def test_with_stop_the_run_ends_behind_the_windows_of_the_first_one(project: OrderedRig) -> None:
    target = ListTarget()
    result = mapped(project, "sticks", target, on_error="stop", window=2, chunk=2)
    assert (result.status, result.summary.fail, result.summary.cancel) == ("failed", 2, 2)
    assert target.values == [0, 1, 4, 9, 16, 49]


def test_it_is_not_tried_again_for_that_and_the_rest_of_its_chunk_is_recorded_once(project: OrderedRig) -> None:
    """A.7: only failures of the function are tried again; the second call is the one that finds out who it was"""
    result = mapped(project, "counted", retries=Retries(1, ("USER_CODE_ERROR",)))
    assert [seq for seq, _, _ in told(result)] == [5, 6]
    calls = [len((project.project / f"called-{x}").read_text()) for x in range(10)]
    assert calls == [1, 1, 1, 1, 1, 2, 1, 1, 1, 1]


def test_what_else_items_do_after_one_that_was_too_late_is_theirs(project: OrderedRig) -> None:
    """What they print, raise and skip is told as ever, though they run in a process that was forked for them."""
    result = mapped(project, "speaks")
    assert [(seq, code) for seq, code, _ in told(result)] == [(5, "LIMIT_WALL"), (6, "PYTHON_EXCEPTION")]
    assert (result.summary.skip, result.summary.success) == (1, 7)
    with project.work() as work:
        report = project.report(work, next(one.job_id for one in result.failures))
    assert b"item 6\nitem 7\nitem 8\nitem 9\n" in report.result.stdout.data


def test_a_function_that_ends_its_process_ends_the_chunk_as_ever(project: OrderedRig) -> None:
    result = mapped(project, "crashes")
    assert {(seq, code) for seq, code, _ in told(result)} == {(seq, "PROCESS_CRASHED") for seq in range(5, 10)}


def test_without_a_slow_item_nothing_is_computed_twice(project: OrderedRig) -> None:
    result = mapped(project, "square")
    assert (result.status, result.summary.success) == ("completed", 10)
    with project.reader() as reader:
        assert {row.attempt_id for row in reader.jobs(run_id=result.run_id)} == {0}


# -- which item was too late ---------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Microseconds that move only when a test adds to them."""
    now = [1_000_000_000]
    monkeypatch.setattr(timed_chunk, "_now_us", lambda: now[0])
    return now


def judged(now: list[int], spent_us: list[int], **work: Any) -> list[tuple[str, Any]]:
    """How items end that take so long."""

    def one(item: int) -> bytes:
        now[0] += item
        return b"1"

    give_up = work.pop("give_up", True)
    judge = Judge(one, lambda exc: {"message": str(exc)}, {"item_ms": 100, **work}, give_up=give_up)
    return list(in_turn(spent_us, judge, ItemDeadline(100)))


def test_an_item_that_ends_by_itself_but_too_late_has_failed_too(clock: list[int]) -> None:
    codes = [code for code, _ in judged(clock, [100_000, 100_001, 1])]
    assert codes == ["3", "5", "3"]


def test_an_item_that_failed_in_time_has_its_own_error_however_long_that_takes_to_tell(clock: list[int]) -> None:
    def boom(_item: int) -> bytes:
        raise ValueError("boom")

    def told(exc: BaseException) -> dict[str, Any]:
        clock[0] += 200_000
        return {"message": str(exc)}

    judge = Judge(boom, told, {"item_ms": 100}, give_up=True)
    assert judge(1) == ("5", {"message": "boom"})


def test_only_who_asks_for_another_try_after_a_limit_gets_one(clock: list[int]) -> None:
    with pytest.raises(stored.Unfit) as caught:
        judged(clock, [100_001], over_time_again=True, give_up=False)
    assert (caught.value.category, caught.value.code) == ("RESOURCE_LIMIT", "LIMIT_WALL")
    assert [code for code, _ in judged(clock, [100_001], over_time_again=True)] == ["5"]
    assert [code for code, _ in judged(clock, [100_001], give_up=False)] == ["5"]


def test_the_supervisor_is_told_in_time_and_not_of_every_item(clock: list[int]) -> None:
    """No item is ended before its time: what the supervisor was told last leaves each of them its whole limit."""
    now = clock
    heard: list[tuple[int, int]] = []

    class Running:
        def begun(self, at_us: int) -> None:
            heard.append((now[0], at_us + timed_chunk.wall_ms(100) * 1000))

    patience = ItemDeadline(100)
    patience._running = Running()  # type: ignore[assignment]
    patience.load()
    for spent in [1_000] * 200:
        began = patience.begin()
        assert began + 100_000 <= heard[-1][1] <= began + 125_000
        now[0] += spent
    assert len(heard) == 1 + 8


# -- as a step of a workflow, and killed ---------------------------------------------------------------------------------

STEP = """
    name: flow
    params: {limit: 200ms, after: stop}
    steps:
      - id: squares
        run:
          map:
            items: [3, 4, 5, 7]
            compute: steps.py:sticks
            commit: jsonl:squares.jsonl
            window: 2
            chunk: 2
            on_error: {$param: after}
            item_timeout: {$param: limit}
    result: {$from: squares}
    """


def test_a_step_fails_with_the_limit_of_its_item(project: OrderedRig) -> None:
    with project.pool(parts=Parts()) as work:
        result = project.handle(work, STEP).run()
        assert result.failed[0].message == f"ITEMS_FAILED: 1 of 4 items failed; item 2: LIMIT_WALL: {MESSAGE}"
        error = project.report(work, result.failed[0].job_id).result.failure
    assert error is not None
    assert (error.category, error.code) == ("RESOURCE_LIMIT", "ITEMS_FAILED")


def test_killed_and_run_again_it_comes_to_what_it_would_have_come_to(project: OrderedRig) -> None:
    """X-183: the command is killed while the chunk with the slow item is tried, with its workers."""
    text = STEP.replace("after: stop", "after: continue")
    with project.pool(parts=Parts()) as work:
        whole = project.handle(work, text).run().value
    assert (whole["succeeded"], whole["failed"]) == (3, 1)
    (project.project / "squares.jsonl").unlink()
    kills = 0
    written = text.replace("{$param: after}", "continue").replace("{$param: limit}", "200ms")
    said: dict[str, Any] = {}
    for times in (6, 5, 4, 1_000_000):
        child = Child(project, written, pool=True, point="appended", times=times)
        child.line()
        said = child.line()
        child.end()
        if said:
            break
        kills += 1
    assert kills >= 2
    assert (said["status"], said["value"]["digest"]) == ("completed", whole["digest"])
    assert lines(project.project / "squares.jsonl") == [9, 16, 49]
