"""`Client.map`: short calls share a job, and each of them has an outcome of its own all the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import detent
from detent.errors import InvalidInput
from detent.inspect.replay import replay_home
from detent.jobs.order import Order
from detent.kernel import Job
from detent.sdk.client import Client
from detent.sdk.outcomes import TaskFailed
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_home
from tests.homes import retry_at_once
from tests.runs.rig import eventually, in_thread
from tests.sdk import work_functions as functions

__all__ = ["detent_clock", "detent_home"]


@pytest.fixture
def home(detent_home: TemporaryHome) -> Iterator[TemporaryHome]:
    """A home whose history is verified and replayed when the test is over."""
    retry_at_once(detent_home.home)
    yield detent_home
    assert detent_home.verify().ok
    assert replay_home(detent_home.home).ok


@pytest.fixture
def client(home: TemporaryHome) -> Iterator[Client]:
    with Client(home.path, workers=2) as made:
        yield made


def orders(client: Client) -> list[tuple[Job, Order]]:
    """Each job with what it was asked to do, in the order of submission."""
    backend = client._work.backend
    rows = [Job.decode(row.body) for row in backend.reader.jobs()]
    return [(job, backend.submitted([job.job_id])[job.job_id].order) for job in rows]


def sizes(client: Client) -> list[int]:
    return sorted(len(order.elements) for _, order in orders(client))


def calls(directory: Path) -> dict[str, str]:
    """How often each element was called again."""
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_short_calls_share_jobs(client: Client) -> None:
    assert list(client.map(functions.square, range(2000))) == [x * x for x in range(2000)]
    assert len(orders(client)) < 1000
    assert max(sizes(client)) > 10


def test_a_fixed_chunk_makes_jobs_of_that_size(client: Client) -> None:
    assert list(client.map(functions.square, range(25), chunk=10)) == [x * x for x in range(25)]
    assert sizes(client) == [5, 10, 10]


def test_chunk_1_gives_each_call_its_own_job(client: Client) -> None:
    assert list(client.map(functions.square, range(40), chunk=1)) == [x * x for x in range(40)]
    assert sizes(client) == [0] * 40


@pytest.mark.parametrize("chunk", [0, -1, 1001, 2.0, "many", True])
def test_a_chunk_that_is_not_a_number_of_elements_is_refused(client: Client, chunk: object) -> None:
    with pytest.raises(InvalidInput, match="chunk"):
        client.map(functions.square, [1], chunk=chunk)  # type: ignore[arg-type]


def test_calls_with_a_limit_of_their_own_are_not_chunked(client: Client, tmp_path: Path) -> None:
    limited = detent.task(timeout="30s")(functions.square)
    assert list(client.map(limited, range(100))) == [x * x for x in range(100)]
    assert sizes(client) == [0] * 100
    with pytest.raises(InvalidInput, match="cannot run in chunks of 5: it has a limit"):
        list(client.map(limited, range(10), chunk=5))


def test_elements_are_called_and_counted_by_themselves(client: Client) -> None:
    found = list(client.map(functions.called, range(6), chunk=3))
    first, second = sorted({job.job_id for job, _ in orders(client)}, key=[one[0][:36] for one in found].index)
    assert found == [
        [name, 1, name]
        for name in [f"{first}.0", f"{first}.1", f"{first}.2", f"{second}.0", f"{second}.1", f"{second}.2"]
    ]


def test_a_failed_element_is_named_and_its_neighbours_succeed(client: Client) -> None:
    results = client.map(functions.odd_one_out, range(20), chunk=10)
    assert list(itertools.islice(results, 7)) == list(range(7))
    with pytest.raises(TaskFailed, match="ValueError: seven") as caught:
        next(results)
    job_id, place = str(caught.value.details["job_id"]).split(".")
    assert place == "7"
    assert "odd_one_out" in str(caught.value.details["traceback"])
    _, report = client._work.backend.array_report(job_id) or (None, None)
    assert report is not None
    assert [None if one is None else one.ok for one in map(report.of_element, range(10))] == [True] * 7 + [
        False,
        True,
        True,
    ]
    failed = report.of_element(7)
    assert failed is not None
    assert failed.result.stdout.data == b"about to fail\n"
    assert report.result.failure is not None
    assert report.result.failure.message == "1 of 10 elements failed; element 7: ValueError: seven"


def test_only_the_failed_element_is_tried_again(client: Client, tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert list(client.map(functions.marked_again, [directory] * 10, range(10), chunk=10)) == list(range(10))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*(f"{x}-1-1" for x in range(10)), "5-2-2"])
    ((job, _),) = orders(client)
    assert (job.state, job.failures) == ("SUCCEEDED", 1)


@pytest.mark.parametrize(("how", "code"), [("exit", "PROCESS_EXITED"), ("segfault", "PROCESS_CRASHED")])
def test_a_crash_fails_its_own_element_only(client: Client, tmp_path: Path, how: str, code: str) -> None:
    results = client.map(functions.dying, [str(tmp_path)] * 8, range(8), [how] * 8, chunk=8)
    assert list(itertools.islice(results, 3)) == [0, 1, 2]
    with pytest.raises(TaskFailed) as caught:
        next(results)
    assert caught.value.details["code"] == code
    assert calls(tmp_path) == {str(x): "0" for x in range(8)}


def test_a_worker_killed_from_outside_costs_the_element_it_had(client: Client, tmp_path: Path) -> None:
    given = ([str(tmp_path)] * 8, range(8), ["killed once"] * 8)
    assert list(client.map(functions.dying, *given, chunk=8)) == list(range(8))
    assert calls(tmp_path) == {str(x): "1" if x == 3 else "0" for x in range(8)}
    ((job, _),) = orders(client)
    assert (job.failures, job.interruptions) == (0, 1)


def test_an_element_that_always_loses_its_worker_ends_alone(client: Client, tmp_path: Path) -> None:
    results = client.map(functions.dying, [str(tmp_path)] * 8, range(8), ["killed"] * 8, chunk=8)
    assert list(itertools.islice(results, 3)) == [0, 1, 2]
    with pytest.raises(TaskFailed) as caught:
        next(results)
    assert caught.value.details["code"] == "WORKER_LOST"
    assert str(caught.value.details["job_id"]).endswith(".3")
    assert calls(tmp_path) == {str(x): "10" if x == 3 else "0" for x in range(8)}


def test_an_element_that_leaves_a_thread_retires_its_worker(client: Client) -> None:
    pids = list(client.map(functions.leaves_a_thread, range(6), chunk=6))
    assert pids[2] not in pids[3:]


def test_what_an_element_changes_is_put_back_before_the_next(client: Client) -> None:
    here = str(Path.cwd())
    assert list(client.map(functions.changes_the_world, range(4), chunk=4)) == [[here, None]] * 4


def test_large_values_and_files_come_back(client: Client) -> None:
    assert list(client.map(functions.page, range(8), chunk=4)) == [functions.page(x) for x in range(8)]
    files = list(client.map(functions.as_file, range(6), chunk=3))
    assert [file.read_bytes() for file in files] == [b"%d" % x for x in range(6)]
    assert list(client.map(functions.size_of, files, chunk=3)) == [1] * 6


def test_async_functions_run_in_chunks(client: Client) -> None:
    assert list(client.map(functions.later, range(6), chunk=3)) == list(range(1, 7))


def test_a_message_that_has_to_be_asked_for_is_told(client: Client) -> None:
    results = client.map(functions.late_message, range(5), chunk=5)
    assert next(results) == 0
    with pytest.raises(TaskFailed, match="Slow: told late"):
        next(results)


def test_a_result_that_is_not_json_fails_its_element(client: Client) -> None:
    results = client.map(functions.not_json, range(5), chunk=5)
    assert next(results) == 0
    with pytest.raises(TaskFailed, match="return") as caught:
        next(results)
    assert caught.value.details["code"] == "RESULT_NOT_JSON"


def test_long_elements_of_one_chunk_run_beside_each_other(client: Client) -> None:
    assert len(set(client.map(functions.sleeps, [0.3] * 6, chunk=6))) == 2


def test_elements_are_taken_from_iterables_as_room_is_made(client: Client) -> None:
    taken = itertools.count()
    results = client.map(functions.square, (next(taken) for _ in range(100_000)))
    assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
    assert next(taken) <= 1100
    results.close()  # type: ignore[attr-defined]


def test_an_earlier_element_answers_for_an_equal_call(client: Client, tmp_path: Path) -> None:
    given = ([str(tmp_path)] * 10, range(10))
    assert list(client.map(functions.marked_again, *given, chunk=10)) == list(range(10))
    ((job, _),) = orders(client)
    again = client.submit(functions.marked_again, str(tmp_path), 3, reuse=True)
    assert (again.job_id, again.deduplicated, again.result()) == (f"{job.job_id}.3", True, 3)
    assert list(client.map(functions.marked_again, *given, reuse=True)) == list(range(10))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*(f"{x}-1-1" for x in range(10)), "5-2-2"])


def test_equal_work_under_way_in_a_chunk_is_waited_for(client: Client, tmp_path: Path) -> None:
    results = client.map(functions.waits_for, [str(tmp_path / name) for name in "ab"], chunk=2)
    told = in_thread(lambda: list(results))
    eventually(lambda: [len(order.elements) for _, order in orders(client)] == [2], "the chunk is submitted")
    joined = client.submit(functions.waits_for, str(tmp_path / "b"), reuse=True)
    assert joined.deduplicated
    for name in "ab":
        (tmp_path / name).touch()
    assert joined.result() == str(tmp_path / "b")
    assert told() == [str(tmp_path / name) for name in "ab"]
    assert len(orders(client)) == 1


def test_a_handle_of_an_element_has_its_outcome(client: Client) -> None:
    with pytest.raises(TaskFailed) as caught:
        list(client.map(functions.odd_one_out, range(10), chunk=10))
    name = str(caught.value.details["job_id"])
    failed, fine = client.handle(name), client.handle(name.replace(".7", ".8"))
    assert (failed.job_id, failed.status.value, str(failed.exception())) == (name, "FAILED", "ValueError: seven")
    assert (fine.result(), fine.status.value) == (8, "SUCCEEDED")
    assert fine.cancel() is False
    with pytest.raises(InvalidInput, match="there is no job"):
        client.handle(name.replace(".7", ".10"))
