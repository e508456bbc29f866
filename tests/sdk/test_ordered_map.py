"""`detent.ordered_map`: results in order, as a loop or to a destination; the same call again goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import detent
from detent.canon import NotStrictJson
from detent.errors import InvalidInput
from detent.inspect.replay import replay_home
from detent.runs.cancel import Canceller
from detent.store.sqlite import SqliteStore
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home
from tests.runs.rig import eventually
from tests.sdk import ordered_functions as functions

__all__ = ["detent_home"]

_ = detent.ordered_map
ordered_map = sys.modules["detent.sdk.ordered_map"]  # The name itself is the function's.


@pytest.fixture
def home(detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[TemporaryHome]:
    """A home whose history is verified and replayed when the test is over, and its directory to work in."""
    monkeypatch.chdir(detent_home.directory)
    monkeypatch.setenv("DETENT_HOME", str(detent_home.path))
    yield detent_home
    assert detent_home.verify().ok
    assert replay_home(detent_home.home).ok


def runs(home: TemporaryHome) -> list[Any]:
    with closing(SqliteStore.open_reader(home.home.ledger_file)) as reader:
        return list(reader.runs())


def jobs(home: TemporaryHome) -> list[Any]:
    with closing(SqliteStore.open_reader(home.home.ledger_file)) as reader:
        return list(reader.jobs())


def test_a_loop_gets_the_results_in_order(home: TemporaryHome) -> None:
    """ORD-001, ORD-036."""
    results = detent.ordered_map(range(50), functions.square, workers=2)
    with pytest.raises(InvalidInput, match="has not ended"):
        _ = results.summary
    assert list(results) == [x * x for x in range(50)]
    assert (results.summary.succeeded, results.summary.status) == (50, "succeeded")
    assert results.summary.run_id in {run.run_id for run in runs(home)}


@pytest.mark.usefixtures("home")
def test_a_generator_is_as_good_as_a_list() -> None:
    """X-184: what has no length is written down first."""
    given = detent.ordered_map((x for x in range(20)), functions.square, workers=1)
    assert sum(given) == sum(x * x for x in range(20))


@pytest.mark.usefixtures("home")
@given(st.lists(st.one_of(st.integers(), st.booleans(), st.text(max_size=3), st.none()), max_size=150))
@example([*range(64), True, *range(63)])
@example([2**60, -(2**60), 2**60 - 1, 1 - 2**60, 0])
def test_items_are_written_down_one_by_one_however_they_are_looked_at(items: list[Any]) -> None:
    assume(all(type(item) is not int or abs(item) < 2**63 for item in items))
    assert list(ordered_map._lines(iter(items), None, {})) == [
        json.dumps(item, ensure_ascii=False).encode() for item in items
    ]


def test_an_item_that_is_none_is_named_by_its_place_in_all_of_them() -> None:
    with pytest.raises(NotStrictJson, match="item 70"):
        list(ordered_map._lines([*range(70), b"1"], None, {}))


@pytest.mark.usefixtures("home")
def test_skipped_items_are_left_out() -> None:
    results = detent.ordered_map(range(10), functions.half, workers=1)
    assert list(results) == [0, 1, 2, 3, 4]
    assert (results.summary.skipped, results.summary.total) == (5, 10)


@pytest.mark.usefixtures("home")
def test_a_loop_that_was_left_goes_on_with_everything_from_the_start() -> None:
    """X-184: `sum` over a resumed run is right, and what was computed is not computed again."""
    results = detent.ordered_map(range(200), functions.square, workers=1, window=8, chunk=4)
    taken = [next(results) for _ in range(60)]
    results.close()
    again = detent.ordered_map(range(200), functions.square, workers=1, window=8, chunk=4)
    assert taken == [x * x for x in range(60)]
    assert sum(again) == sum(x * x for x in range(200))
    assert again.summary._result.resumed_at >= 60


def test_a_destination_gets_each_result_once(home: TemporaryHome) -> None:
    summary = detent.ordered_map(range(30), functions.square, "jsonl:out.jsonl", workers=2)
    assert [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()] == [x * x for x in range(30)]
    assert (summary.succeeded, summary.failed, summary.cancelled, summary.home) == (30, 0, 0, home.path)
    assert summary.digest.startswith("sha256:")


@pytest.mark.usefixtures("home")
def test_the_digest_is_the_same_on_every_run() -> None:
    """X-077: loops and destinations of the same items come to the same digest."""
    looped = detent.ordered_map(range(9), functions.half, workers=1)
    assert len(list(looped)) == 5
    written = detent.ordered_map(range(9), functions.half, "jsonl:a.jsonl", workers=2, window=2, chunk=1)
    assert looped.summary.digest == written.digest


@pytest.mark.usefixtures("home")
def test_a_function_gets_values_with_their_tokens() -> None:
    got: list[tuple[int, int]] = []

    def keep(value: int, token: Any) -> None:
        got.append((token.seq, value))

    summary = detent.ordered_map(range(5), functions.square, keep, workers=1)
    assert got == [(x, x * x) for x in range(5)]
    assert summary.status == "succeeded"


@pytest.mark.usefixtures("home")
def test_files_go_in_and_come_out() -> None:
    """X-170."""
    files = [detent.File.from_bytes(b"a" * size, name="a") for size in (1, 2)]
    assert list(detent.ordered_map(files, functions.size, workers=1)) == [1, 2]
    (made,) = detent.ordered_map([3], functions.wrapped, workers=1)
    assert made.read_bytes() == b"xxx"


@pytest.mark.usefixtures("home")
def test_a_failure_that_stops_is_raised_with_its_item() -> None:
    with pytest.raises(detent.RunFailed, match="1 of 10 items failed; item 3: ValueError: three") as failed:
        detent.ordered_map(range(10), functions.picky, "jsonl:out.jsonl", workers=1)
    assert failed.value.details["failed"][0]["seq"] == 3  # type: ignore[index]
    results = detent.ordered_map(range(10), functions.picky, workers=1)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(detent.RunFailed):
        list(results)


@pytest.mark.usefixtures("home")
def test_a_failure_that_goes_on_is_in_the_summary() -> None:
    summary = detent.ordered_map(range(10), functions.picky, "jsonl:out.jsonl", workers=1, on_error="continue")
    assert (summary.failed, summary.succeeded) == (1, 9)
    assert [(one["seq"], one["type"], one["message"]) for one in summary.failures] == [(3, "ValueError", "three")]
    looped = detent.ordered_map(range(10), functions.picky, workers=1, on_error="continue")
    assert list(looped) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.usefixtures("home")
def test_an_item_that_takes_too_long_fails_with_the_code_of_a_limit() -> None:
    said: dict[str, Any] = {"workers": 1, "chunk": 5, "on_error": "continue"}
    first = detent.ordered_map(range(10), functions.stuck, "jsonl:a.jsonl", item_timeout=0.2, **said)
    assert [(one["seq"], one["code"]) for one in first.failures] == [(3, "LIMIT_WALL")]
    limited = detent.task(timeout="200ms")(functions.stuck)
    second = detent.ordered_map(range(10), limited, "jsonl:b.jsonl", **said)
    assert (second.digest, second.succeeded) == (first.digest, 9)


@pytest.mark.parametrize("given", ["soon", 0.01, True])
def test_a_time_that_is_none_is_refused_before_anything_begins(given: Any) -> None:
    with pytest.raises(InvalidInput, match="item_timeout"):
        detent.ordered_map([1], functions.square, item_timeout=given)


@pytest.mark.usefixtures("home")
def test_a_task_brings_its_options_along() -> None:
    assert list(detent.ordered_map([1, 2], functions.as_task, workers=1)) == [2, 3]


@pytest.mark.parametrize(
    ("items", "compute", "commit", "said"),
    [
        ([b"1"], functions.square, None, "item 0 is a bytes"),
        ([1], lambda x: x, None, "a lambda"),
        ([1], functions.square, "nowhere", "destination"),
        ([1], functions.square, 5, "not a destination"),
        ([1], functions.square, "jsonl:nowhere/out.jsonl", "which is not a directory"),
        ([1], functions.as_task.options(resources={"cpu": 2}), None, "declares resources"),
    ],
)
@pytest.mark.usefixtures("home")
def test_what_cannot_work_is_refused_by_its_name(items: Any, compute: Any, commit: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        list(detent.ordered_map(items, compute, commit, workers=1))


@pytest.mark.usefixtures("home")
def test_a_destination_that_never_returns_is_left_at_its_time_limit() -> None:
    """ORD-044: typed, with the snapshot; the same call goes on at the item that was not taken."""
    let_go, taken = threading.Event(), []

    def put(value: int, _token: Any) -> None:
        taken.append(value)
        if value == 4 and not let_go.is_set():
            let_go.wait()

    said: dict[str, Any] = {"workers": 1, "chunk": 1, "name": "stuck"}
    with pytest.raises(detent.DetentError) as stuck:
        detent.ordered_map(range(6), functions.square, put, commit_timeout="300ms", **said)
    assert stuck.value.code == "COMMIT_TIMEOUT"
    snapshot = stuck.value.details["snapshot"]
    assert isinstance(snapshot, dict)
    assert snapshot["oldest_blocked"]["seq"] == snapshot["next_commit_seq"] <= 2
    let_go.set()
    summary = detent.ordered_map(range(6), functions.square, put, **said)
    assert (summary.status, summary.run_id) == ("succeeded", stuck.value.details["run_id"])
    assert taken[-4:] == [4, 9, 16, 25]


def test_a_time_limit_for_commits_needs_a_destination() -> None:
    with pytest.raises(InvalidInput, match="commit_timeout needs a destination"):
        detent.ordered_map([1], functions.square, commit_timeout=1)
    with pytest.raises(InvalidInput, match="commit_timeout"):
        detent.ordered_map([1], functions.square, "jsonl:out.jsonl", commit_timeout="soon")


def test_a_loop_whose_run_is_cancelled_elsewhere_raises_and_does_not_simply_end(home: TemporaryHome) -> None:
    """X-193: what it had is a beginning without a gap, and it is told that it is no more than that."""
    results = detent.ordered_map(range(400), functions.square, workers=1, window=8, chunk=4)
    got = [next(results)]
    (run,) = runs(home)
    opened = closing(SqliteStore.open_reader(home.home.ledger_file))
    with home.session() as session, opened as reader, ThreadPoolExecutor(1) as pool:
        cancelled = pool.submit(Canceller(home.home, session, reader, reason="enough").run, run.run_id)
        eventually(lambda: any("/cancel-" in job.job_id for job in jobs(home)), "no boundary is recorded")
        with pytest.raises(detent.RunFailed, match="was cancelled from item") as failed:
            got.extend(results)
        assert cancelled.result().status == "cancelled"
    assert failed.value.code == "WORK_CANCELLED"
    assert got == [x * x for x in range(len(got))]
    assert len(got) < 400


@pytest.mark.usefixtures("home")
def test_the_same_call_again_is_answered_as_done_and_its_destination_left_alone() -> None:
    """X-192: also in Python; `force` replaces what the map left, `append` adds to what is there."""
    squares = [x * x for x in range(9)]

    def written() -> list[int]:
        return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]

    first = detent.ordered_map(range(9), functions.square, "jsonl:out.jsonl", workers=1)
    second = detent.ordered_map(range(9), functions.square, "jsonl:out.jsonl", workers=1)
    assert (first.done_before, second.done_before, second.run_id) == (False, True, first.run_id)
    assert (second.digest, second.total, second.succeeded, written()) == (first.digest, 9, 9, squares)
    forced = detent.ordered_map(range(9), functions.square, "jsonl:out.jsonl", workers=1, force=True)
    assert (forced.done_before, forced.run_id != first.run_id, written()) == (False, True, squares)
    with pytest.raises(detent.DetentError, match="holds 23 bytes already: run") as refused:
        detent.ordered_map(range(3), functions.square, "jsonl:out.jsonl", workers=1)
    assert refused.value.code == "DESTINATION_NOT_EMPTY"
    detent.ordered_map(range(3), functions.square, "jsonl:out.jsonl", workers=1, append=True)
    assert written() == [*squares, 0, 1, 4]
    assert detent.ordered_map(range(9), functions.square, "jsonl:out.jsonl", workers=1).done_before


@pytest.mark.usefixtures("home")
def test_a_function_object_is_called_by_every_call() -> None:
    """X-192: what it did may live in this process alone, so an earlier run is no answer."""
    got: list[int] = []
    for _ in range(2):
        assert not detent.ordered_map(range(3), functions.square, got.append, workers=1, name="kept").done_before
    assert got == [0, 1, 4, 0, 1, 4]


@pytest.mark.parametrize("given", [{"force": True}, {"append": True}])
def test_a_loop_has_nothing_to_replace_or_to_add_to(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="needs a destination"):
        detent.ordered_map([1], functions.square, **given)


def test_a_map_outside_a_flow_loads_nothing_that_reads_contracts() -> None:
    script = (
        "import sys, detent\n"
        "detent.ordered_map\n"
        "sys.exit(', '.join({'detent.contract', 'detent.workflow', 'detent.sdk.calls'} & set(sys.modules)) or 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
