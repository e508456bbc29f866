"""`detent.Client`: durable when `submit` returns, done once, and told apart when it failed."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import detent
from detent.errors import CODES, EXIT_REFUSED, IdempotencyKeysFull, InvalidInput, StoreCorrupt, StoreUnavailable
from detent.inspect.replay import replay_home
from detent.jobs.dedupe import IDEMPOTENCY_WINDOW_MS
from detent.jobs.status import JobStatus
from detent.kernel import Job
from detent.owner.wiring import Parts
from detent.runs import runtime
from detent.runs.erase import erase_job
from detent.runs.submit import submitter
from detent.sdk.client import Client
from detent.sdk.outcomes import TaskCancelled, TaskFailed
from detent.store.api import JobRow
from detent.store.sqlite import SqliteStore
from detent.testing import FakeClock, Faults, InlineLane, TemporaryHome, faulty
from detent.testing.plugin import detent_clock, detent_home
from tests.homes import retry_at_once
from tests.runs.rig import eventually, in_thread
from tests.sdk import work_functions as functions

__all__ = ["detent_clock", "detent_home"]


@pytest.fixture
def home(detent_home: TemporaryHome) -> Iterator[TemporaryHome]:
    """A home whose history is verified and replayed when the test is over."""
    yield detent_home
    assert detent_home.verify().ok
    assert replay_home(detent_home.home).ok


@pytest.fixture
def client(home: TemporaryHome) -> Iterator[Client]:
    """A client with real workers."""
    with Client(home.path, workers=2) as made:
        yield made


@pytest.fixture
def lane(home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> InlineLane:
    """Clients of this test do their work in this process."""
    made = InlineLane(content=home.path / "content", clock_ms=home.parts.clock.wall_ms)
    inline = partial(runtime.Runtime, parts=home.parts, executors=made.executors)
    monkeypatch.setattr(runtime, "Runtime", inline)
    return made


@pytest.fixture
def inline(home: TemporaryHome, lane: InlineLane) -> Iterator[Client]:
    """A client without processes."""
    assert lane.began == []
    with Client(home.path) as made:
        yield made


def jobs(home: TemporaryHome) -> list[JobRow]:
    reader = SqliteStore.open_reader(home.home.ledger_file)
    try:
        return list(reader.jobs())
    finally:
        reader.close()


# -- with real workers -------------------------------------------------------------------------------------------------


def test_a_call_gives_its_result(client: Client, home: TemporaryHome) -> None:
    """X-186, JOB-085: a `task` job of the workspace of this home."""
    handle = client.submit(functions.square, 7)
    assert handle.result(60) == 49
    assert handle.status is JobStatus.SUCCEEDED
    assert (handle.done(), handle.deduplicated, handle.exception()) == (True, False, None)
    (row,) = jobs(home)
    assert (Job.decode(row.body).job_kind, row.tenant_id) == ("task", "local")


def test_an_async_function_is_awaited(client: Client) -> None:
    assert client.submit(functions.later, 1).result(60) == 2


def test_a_failure_says_what_was_raised_and_where(client: Client) -> None:
    """Category, code and traceback, and the exception by its name."""
    handle = client.submit(functions.boom, "no luck")
    with pytest.raises(TaskFailed, match="ValueError: no luck") as raised:
        handle.result(60)
    assert raised.value.details["category"] == "USER_CODE_ERROR"
    assert raised.value.details["job_id"] == handle.job_id
    assert "work_functions.py" in str(raised.value.details["traceback"])
    (place,) = (note for note in raised.value.__notes__ if note.startswith("at "))
    line = functions.boom.__code__.co_firstlineno + 1
    assert place.endswith(f"work_functions.py:{line} in boom: raise ValueError(message)")
    assert isinstance(handle.exception(), TaskFailed)
    assert handle.status is JobStatus.FAILED


def test_files_travel_by_digest(client: Client, tmp_path: Path) -> None:
    """X-170: bytes go in and out as files of the content store."""
    path = tmp_path / "quiet.txt"
    path.write_bytes(b"quiet")
    given = client.submit(functions.shout, detent.File(path)).result(60)
    assert isinstance(given, detent.File)
    assert (given.read_bytes(), given.name) == (b"QUIET", "loud.txt")
    again = client.submit(functions.same, {"files": [given]}).result(60)
    assert again["files"][0].read_bytes() == b"QUIET"


@pytest.mark.door("setting: [content] url")
def test_files_travel_through_a_directory_that_machines_share(home: TemporaryHome, tmp_path: Path) -> None:
    shared = tmp_path / "a volume"
    shared.mkdir()
    with (home.path / "config.toml").open("a") as settings:
        settings.write(f'\n[content]\nurl = "{shared.as_uri()}"\n')
    with Client(home.path, workers=1) as client:
        given = client.submit(functions.shout, detent.File.from_bytes(b"quiet", name="quiet.txt")).result(60)
        assert given.read_bytes() == b"QUIET"
        assert given.path.is_relative_to(shared)
        (again,) = client.map(functions.same, [given])
        assert again.read_bytes() == b"QUIET"


def test_a_result_that_is_too_large_is_a_failure_of_its_own_kind(client: Client) -> None:
    """X-147 for tasks: RESOURCE_LIMIT, with the way out in the message."""
    with pytest.raises(TaskFailed, match=r"detent\.File") as raised:
        client.submit(functions.large).result(60)
    assert raised.value.details["category"] == "RESOURCE_LIMIT"


def test_retries_of_a_task_are_its_own(home: TemporaryHome, tmp_path: Path) -> None:
    """X-164: `@task(retries=, retry_on=)`; the second attempt knows that it is one."""
    retry_at_once(home.home)
    with Client(home.path, workers=1) as client:
        assert client.submit(functions.flaky, str(tmp_path / "tries")).result(60) == 2


def test_a_closed_client_leaves_no_thread_behind(home: TemporaryHome, tmp_path: Path) -> None:
    """A job that is retried is followed on a thread of its own, which has nothing to follow afterwards."""
    retry_at_once(home.home)
    before = set(threading.enumerate())
    with Client(home.path, workers=1) as client:
        client.submit(functions.flaky, str(tmp_path / "tries")).result(60)
        eventually(lambda: client._tasks._follower is not None, "the retry was not followed")
    assert set(threading.enumerate()) <= before


def test_a_running_job_is_ended_when_it_is_cancelled(client: Client, tmp_path: Path) -> None:
    """X-157, JOB-068: at once, with its process."""
    marker = tmp_path / "pid"
    handle = client.submit(functions.forever, str(marker))
    eventually(lambda: marker.exists() and bool(marker.read_text()), "it did not begin")
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
        handle.result(0.01)
    for none in (0, -1):
        with pytest.raises(TimeoutError, match=r"^job \S+ has not ended yet$"):
            handle.result(timeout=none)
    assert handle.cancel()
    with pytest.raises(TaskCancelled):
        handle.result(60)
    assert handle.status is JobStatus.CANCELLED
    assert repr(handle) == f"<job {handle.job_id}: CANCELLED>"
    assert not handle.cancel()
    pid = int(marker.read_text())
    eventually(lambda: not _is_alive(pid), "its process was not ended")


def test_map_gives_results_in_order(client: Client) -> None:
    assert list(client.map(functions.square, range(50))) == [x * x for x in range(50)]


def test_a_handle_can_be_had_again_by_its_job(client: Client) -> None:
    first = client.submit(functions.square, 3)
    first.result(60)
    again = client.handle(first.job_id)
    assert (again.done(), again.result(0)) == (True, 9)
    with pytest.raises(InvalidInput, match="no job") as refused:
        client.handle("nobody")
    assert refused.value.code == "UNKNOWN_JOB"


def test_closing_leaves_what_runs_in_the_queue_for_the_next(home: TemporaryHome, tmp_path: Path) -> None:
    """X-163: given up, not failed; the next client goes on with it."""
    marker = tmp_path / "pid"
    client = Client(home.path, workers=1)
    handle = client.submit(functions.forever, str(marker))
    eventually(lambda: marker.exists() and bool(marker.read_text()), "it did not begin")
    client.close(now=True)
    client.close()
    (row,) = jobs(home)
    assert row.state == "QUEUED"
    with pytest.raises(StoreUnavailable, match="was closed"):
        handle.result(5)
    marker.unlink()
    with Client(home.path, workers=1) as other:
        eventually(lambda: marker.exists() and bool(marker.read_text()), "no worker took it up")
        assert other.handle(handle.job_id).cancel()
    (row,) = jobs(home)
    assert (row.state, Job.decode(row.body).interruptions) == ("CANCELED", 1)


# -- without processes -------------------------------------------------------------------------------------------------


def test_equal_submissions_at_once_are_one_execution(inline: Client, lane: InlineLane, home: TemporaryHome) -> None:
    """X-186, X-190: where reuse is asked for."""
    handles = inline.submit_many(functions.square, [(4,), (4,), (5,), (4,)], reuse=True)
    assert [handle.result(60) for handle in handles] == [16, 16, 25, 16]
    assert [handle.deduplicated for handle in handles] == [False, True, False, True]
    assert len(lane.began) == len(jobs(home)) == 2
    assert inline.submit(functions.square, 4, reuse=True).result(60) == 16
    assert len(lane.began) == 2


def test_a_submission_joins_what_is_under_way(inline: Client, lane: InlineLane) -> None:
    """X-186: also after the submission that it joins."""
    target = "tests.sdk.work_functions:square"
    lane.held = {target}
    first = inline.submit(functions.square, 6)
    eventually(lambda: lane.waiting(target) == 1, "it was not taken")
    second = inline.submit(functions.square, 6, reuse=True)
    assert (second.job_id, second.deduplicated) == (first.job_id, True)
    lane.release()
    assert (first.result(60), second.result(60)) == (36, 36)


def test_force_and_salt_do_it_again(home: TemporaryHome, lane: InlineLane) -> None:
    """Issue 6.3 for single tasks."""
    with Client(home.path) as client:
        client.submit(functions.square, 2).result(60)
    for more, began in (({}, 1), ({"salt": "other"}, 2), ({"force": True}, 3)):
        with Client(home.path, **more) as client:
            assert client.submit(functions.square, 2, reuse=True).result(60) == 4
        assert len(lane.began) == began


@pytest.mark.parametrize(
    ("value", "said", "hint"),
    [
        ({1j, 2j}, r"same\(value=\.\.\.\)\[0\] is a complex", "pass [z.real, z.imag]"),
        ([{"a": object()}], r"same\(value=\.\.\.\)\[0\]\['a'\] is an object", "pass a dict of what matters in it"),
        (float("nan"), r"same\(value=\.\.\.\) is nan", "pass None in its place"),
        ({(1,): 2}, r"same\(value=\.\.\.\) has the key \(1,\)", "pass text keys"),
        (b"bytes", r"same\(value=\.\.\.\) is a bytes", "pass detent.File.from_bytes("),
    ],
)
def test_a_value_that_is_not_json_is_refused_by_its_argument(inline: Client, value: Any, said: str, hint: str) -> None:
    """X-170: before anything is submitted, and with what to do instead."""
    with pytest.raises(InvalidInput, match=said) as refused:
        inline.submit(functions.same, value)
    assert hint in str(refused.value.hint)


def test_a_value_that_holds_itself_is_refused(inline: Client) -> None:
    """X-170: with a file in it or without."""
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(InvalidInput, match=r"same\("):
        inline.submit(functions.same, knot)
    knot.insert(0, detent.File.from_bytes(b"a"))
    with pytest.raises(InvalidInput, match=r"same\("):
        inline.submit(functions.same, knot)


def test_keys_that_look_like_references_are_data(inline: Client) -> None:
    """X-177."""
    strange = {"$result": "x", "$file": [1], "$$": {"$param": None}}
    assert inline.submit(functions.same, strange).result(60) == strange
    assert inline.submit_call(functions.same, [1], {"$k": 2}).result(60) == [1, {"$k": 2}]


def test_submissions_wait_for_room_in_a_full_queue(inline: Client, lane: InlineLane, home: TemporaryHome) -> None:
    """X-187: the queue holds 256, the caller a thousand."""
    handles = inline.submit_many(functions.square, [(x,) for x in range(1000)])
    assert sum(handle.result(60) for handle in handles) == sum(x * x for x in range(1000))
    assert len(jobs(home)) == 1000


def test_waiting_for_room_has_an_end(inline: Client, lane: InlineLane, home: TemporaryHome) -> None:
    """X-187, X-006: bounded; what was submitted before stays, and the refused ones left no job behind."""
    target = "tests.sdk.work_functions:square"
    lane.held, lane.slots = {target}, 1
    with pytest.raises(detent.QueueFull, match="no room in time") as refused:
        inline.submit_many(functions.square, [(x,) for x in range(400)], timeout=0.2)
    assert (refused.value.code, refused.value.retryable) == ("QUEUE_FULL", True)
    assert CODES["QUEUE_FULL"].exit_code == EXIT_REFUSED
    assert isinstance(refused.value, detent.RequestRefused)
    assert not isinstance(refused.value, InvalidInput)
    assert 256 <= len(jobs(home)) < 400
    assert {row.state for row in jobs(home)} <= {"QUEUED", "RUNNING"}
    lane.release()
    assert inline.submit(functions.square, 1000).result(60) == 1_000_000


@pytest.mark.parametrize("how", ["fail", "lose", "hide"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_submission_with_an_unknown_outcome_is_made_once(
    home: TemporaryHome, lane: InlineLane, monkeypatch: pytest.MonkeyPatch, how: str, after: int
) -> None:
    """X-173."""
    faults = Faults()
    parts = Parts(open_store=lambda path: faulty(SqliteStore.open(path), faults))
    real: Callable[..., Any] = runtime.Runtime.func  # type: ignore[attr-defined]
    monkeypatch.setattr(runtime, "Runtime", partial(real, parts=parts, executors=lane.executors))
    with Client(home.path) as client:
        getattr(faults, how)("append", after=after)
        handles = client.submit_many(functions.square, [(1,), (2,), (3,)])
        assert [handle.result(60) for handle in handles] == [1, 4, 9]
    assert len(jobs(home)) == 3


def test_a_task_over_the_operators_limit_timed_out(home: TemporaryHome, tmp_path: Path) -> None:
    """X-146: no worker reports it, so the ledger's own code says what it was."""
    path = home.path / "config.toml"
    line = 'placement_order = "least-loaded"\n'
    path.write_text(path.read_text().replace(line, f"{line}watchdog_wall_ms = 300\n"))
    with Client(home.path, workers=1) as client:
        handle = client.submit(functions.forever, str(tmp_path / "marker"))
        with pytest.raises(TaskFailed, match="WATCHDOG_WALL: it ran longer than watchdog_wall_ms") as failed:
            handle.result(60)
        assert failed.value.details == {
            "job_id": handle.job_id,
            "category": "RESOURCE_LIMIT",
            "code": "WATCHDOG_WALL",
        }
        assert handle.status is JobStatus.TIMED_OUT


# -- idempotency keys --------------------------------------------------------------------------------------------------


def test_the_same_key_and_call_is_the_same_job(inline: Client, lane: InlineLane, home: TemporaryHome) -> None:
    """JOB-029, JOB-031, X-150: also when its function must not be reused."""
    first = inline.submit_call(functions.pid, [1], idempotency_key="k")
    second = inline.submit_call(functions.pid, [1], idempotency_key="k")
    assert first.job_id == second.job_id
    assert first.result(60) == second.result(60) == os.getpid()
    assert len(jobs(home)) == len(lane.began) == 1
    with Client(home.path, workers=0) as other:
        assert other.submit_call(functions.pid, [1], idempotency_key="k").job_id == first.job_id


def test_the_same_key_with_another_call_is_refused(inline: Client, home: TemporaryHome) -> None:
    """JOB-032, X-150: nothing is submitted."""
    inline.submit_call(functions.pid, [1], idempotency_key="k").result(60)
    for function, args in ((functions.pid, [2]), (functions.square, [1])):
        with pytest.raises(InvalidInput) as refused:
            inline.submit_call(function, args, idempotency_key="k")
        assert refused.value.code == "IDEMPOTENCY_KEY_REUSED"
    assert len(jobs(home)) == 1


def test_erasing_a_job_forgets_the_key_it_was_submitted_under(
    inline: Client, lane: InlineLane, home: TemporaryHome
) -> None:
    """X-171: neither the digest of the request nor the job behind the key can be had any more; the key is unused."""
    first = inline.submit_call(functions.pid, [1], idempotency_key="k")
    other = inline.submit_call(functions.pid, [2], idempotency_key="l")
    assert (first.result(60), other.result(60)) == (os.getpid(), os.getpid())
    erase_job(home.home, first.job_id, environment=home.environment, parts=home.parts)
    assert inline.submit_call(functions.pid, [1], idempotency_key="k").job_id != first.job_id
    assert inline.submit_call(functions.pid, [2], idempotency_key="l").job_id == other.job_id


def test_an_answer_that_names_the_job_of_another_request_is_refused(inline: Client, home: TemporaryHome) -> None:
    """X-196: answers are not signed; swapping them gives no caller the result of another call."""
    inline.submit_call(functions.square, [2], idempotency_key="k").result(60)
    inline.submit_call(functions.square, [3], idempotency_key="l").result(60)
    _swap_answers(home)
    assert set(home.verify().codes) == {"ANSWER_WRONG"}
    for argument, key in ((2, "k"), (3, "l")):
        with pytest.raises(StoreCorrupt, match="was asked to do something else"):
            inline.submit_call(functions.square, [argument], idempotency_key=key)
    _swap_answers(home)


def _swap_answers(home: TemporaryHome) -> None:
    with closing(apsw.Connection(str(home.home.ledger))) as database:
        (first, one), (second, two) = database.execute("SELECT answer_no, response FROM answers").fetchall()
        for number, response in ((first, two), (second, one)):
            database.execute("UPDATE answers SET response = ? WHERE answer_no = ?", (response, number))


def test_another_key_is_another_submission(inline: Client, home: TemporaryHome) -> None:
    """JOB-033: a key counts within its scope alone."""
    first = inline.submit_call(functions.pid, [1], idempotency_key="k")
    assert inline.submit_call(functions.pid, [1], idempotency_key="l").job_id != first.job_id
    assert len(jobs(home)) == 2


def test_after_a_day_a_key_is_unused(
    detent_clock: FakeClock, home: TemporaryHome, lane: InlineLane, inline: Client
) -> None:
    """JOB-030: twice, because the first answer is gone by then."""
    seen = set()
    for _ in range(3):
        handle = inline.submit_call(functions.pid, [1], idempotency_key="k")
        handle.result(60)  # A lease would not outlast the day, and its job would wait for a clock that stands still.
        seen.add(handle.job_id)
        detent_clock.jump(IDEMPOTENCY_WINDOW_MS)
    assert len(seen) == len(jobs(home)) == 3


def limited(home: TemporaryHome, **limits: int) -> None:
    """Have a home remember fewer idempotency keys, or for a shorter time."""
    path = home.path / "config.toml"
    text = path.read_text()
    for name, value in limits.items():
        text, changed = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert changed == 1
    path.write_text(text)


def test_a_full_store_of_keys_refuses_new_ones_and_forgets_none(
    detent_clock: FakeClock, home: TemporaryHome, lane: InlineLane
) -> None:
    """JOB-030: every key counts for its day, so at the limit a new one is refused: typed, and worth another try."""
    limited(home, keys_max=3)
    with Client(home.path) as client:
        first = client.submit(functions.square, 2)
        assert first.result(60) == 4
        made = [client.submit_call(functions.pid, [number], idempotency_key=f"k{number}").job_id for number in range(3)]
        for function, argument in ((functions.pid, 7), (functions.square, 2)):  # New work, and work that is done.
            with pytest.raises(IdempotencyKeysFull, match="3 idempotency keys") as refused:
                client.submit_call(function, [argument], idempotency_key="new")
            assert (refused.value.code, refused.value.retryable) == ("IDEMPOTENCY_KEYS_FULL", True)
            assert (CODES[refused.value.code].exit_code, CODES[refused.value.code].http_status) == (EXIT_REFUSED, 429)
            assert "idempotency.keys_max" in (refused.value.hint or "")
        again = [
            client.submit_call(functions.pid, [number], idempotency_key=f"k{number}").job_id for number in range(3)
        ]
        assert again == made
        assert client.submit(functions.square, 5).result(60) == 25, "work without a key goes on"
        assert len(jobs(home)) == 5
    with Client(home.path) as reopened:
        with pytest.raises(IdempotencyKeysFull):
            reopened.submit_call(functions.pid, [7], idempotency_key="new")
        detent_clock.jump(IDEMPOTENCY_WINDOW_MS)
        assert reopened.submit_call(functions.pid, [7], idempotency_key="new").result(60) == os.getpid()


def test_a_full_store_of_keys_is_said_to_a_client_of_another_owner(home: TemporaryHome, lane: InlineLane) -> None:
    """JOB-030, X-172: also through the owner's socket, for work to be done and for work that is done."""
    limited(home, keys_max=1)
    with Client(home.path) as owner, Client(home.path, workers=0) as client:
        assert owner.submit(functions.square, 2).result(60) == 4
        owner.submit_call(functions.pid, [1], idempotency_key="k")
        for function, argument in ((functions.pid, 7), (functions.square, 2)):
            with pytest.raises(IdempotencyKeysFull):
                client.submit_call(function, [argument], idempotency_key="new")


def test_room_for_keys_comes_back_when_the_oldest_has_had_its_time(
    detent_clock: FakeClock, home: TemporaryHome, lane: InlineLane
) -> None:
    """JOB-030: the settings say how long a key counts."""
    limited(home, keys_max=2, window_ms=1_000)
    with Client(home.path) as client:
        first = client.submit_call(functions.pid, [1], idempotency_key="a").job_id
        detent_clock.jump(600)
        client.submit_call(functions.pid, [2], idempotency_key="b")
        with pytest.raises(IdempotencyKeysFull) as refused:
            client.submit_call(functions.pid, [3], idempotency_key="c")
        assert refused.value.details["retry_at_ms"] == detent_clock.wall_ms() + 400
        detent_clock.jump(400)
        client.submit_call(functions.pid, [3], idempotency_key="c")
        with pytest.raises(IdempotencyKeysFull):
            client.submit_call(functions.pid, [1], idempotency_key="a")
        detent_clock.jump(600)
        assert client.submit_call(functions.pid, [1], idempotency_key="a").job_id != first


def test_a_key_over_work_that_is_done_stands_for_that_job(
    inline: Client, lane: InlineLane, home: TemporaryHome
) -> None:
    """JOB-026, JOB-031: with reuse there is no second execution, and the key is taken."""
    first = inline.submit(functions.square, 9)
    assert first.result(60) == 81
    keyed = inline.submit_call(functions.square, [9], idempotency_key="k", reuse=True)
    assert (keyed.job_id, keyed.result(60), keyed.deduplicated) == (first.job_id, 81, True)
    with pytest.raises(InvalidInput):
        inline.submit_call(functions.square, [8], idempotency_key="k", reuse=True)
    assert len(jobs(home)) == len(lane.began) == 1


def test_one_key_at_once_from_many_threads_is_one_job(inline: Client, home: TemporaryHome) -> None:
    """JOB-031: the first caller submits; the others get the same answer."""
    gate = threading.Barrier(8)

    def submit() -> str:
        gate.wait(60)
        return inline.submit_call(functions.pid, [5], idempotency_key="at once").job_id

    results = [in_thread(submit) for _ in range(8)]
    assert len({result() for result in results}) == 1
    assert len(jobs(home)) == 1


def test_a_key_must_be_printable(inline: Client) -> None:
    """JOB-029."""
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        inline.submit_call(functions.pid, [1], idempotency_key=" ")


def test_map_needs_something_to_go_through(inline: Client) -> None:
    with pytest.raises(InvalidInput, match="something to go through"):
        next(inline.map(functions.square))


def test_map_stops_at_the_first_failure(inline: Client) -> None:
    results = inline.map(functions.boom, ["a", "b"])
    with pytest.raises(TaskFailed, match="ValueError: a"):
        next(results)


def test_a_timeout_in_waiting_for_a_result_leaves_the_job(inline: Client, lane: InlineLane) -> None:
    lane.held = {"tests.sdk.work_functions:square"}
    handle = inline.submit(functions.square, 12)
    with pytest.raises(TimeoutError):
        handle.exception(0)
    assert not handle.done()
    lane.release()
    assert handle.result(60) == 144


def test_a_job_of_a_client_and_a_step_of_a_run_share_their_work(
    inline: Client, lane: InlineLane, home: TemporaryHome
) -> None:
    """X-186: single flight across both, by key."""
    assert inline.submit(functions.square, 21).result(60) == 441
    before = len(lane.began)
    from detent.runs.handle import RunHandle
    from detent.runs.record.inputs import RunInputs
    from detent.sdk.flow import flow
    from detent.sdk.task import task

    @flow
    def once() -> Any:
        return task(functions.square)(21)

    result = RunHandle(inline._work, RunInputs(once.contract(), {})).run()
    assert result.value == 441
    assert len(lane.began) == before
    assert submitter.BATCH == 200


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_a_client_whose_workers_are_gone_says_so_instead_of_waiting_for_room(home: TemporaryHome) -> None:
    with Client(home.path, workers=1) as client:
        client._work.supervisor._failure = RuntimeError("the workers are gone")
        with pytest.raises(RuntimeError, match="the workers are gone"):
            client._tasks._submitter.wait_for_room(None)


@pytest.mark.parametrize("given", ["abc", "", True, [1], float("nan")])
def test_a_timeout_that_is_none_is_refused_where_it_is_written(inline: Client, home: TemporaryHome, given: Any) -> None:
    """Before anything is submitted, and not when the wait begins."""
    for wait in (
        lambda: inline.submit_call(functions.square, (1,), timeout=given),
        lambda: inline.submit_many(functions.square, [(1,)], timeout=given),
        lambda: inline.map(functions.square, [1], timeout=given),
    ):
        with pytest.raises(InvalidInput, match="timeout=") as refused:
            wait()
        assert refused.value.hint
    assert jobs(home) == []
    handle = inline.submit(functions.square, 3)
    for ask in (handle.result, handle.exception):
        with pytest.raises(InvalidInput, match="timeout="):
            ask(given)
    assert handle.result("1m") == 9
    assert list(inline.map(functions.square, [1, 2], timeout="1m")) == [1, 4]
