"""Destinations that fail or are slow, items that are slow or change: the run ends, or says what it waits for."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from detent.errors import InvalidInput, StoreCorrupt
from detent.runs.erase import erase_job
from detent.runs.ordered.driver import DestinationFailed
from detent.runs.ordered.handle import OrderedHandle
from detent.runs.ordered.spec import OrderedSpec, file_lines, found_files, open_spool, spool
from detent.runs.submit.submitter import Submitter
from detent.targets import CommitFailed, Mark
from tests.runs.ordered.rig import ListTarget, OrderedRig
from tests.runs.rig import WAIT_SECONDS, eventually, in_thread

SOON = (1, 1, 1)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.runs.ordered.spec.WRITE_DELAYS_MS", SOON)


# -- the destination ---------------------------------------------------------------------------------------------------


def test_a_write_that_fails_is_repeated_by_the_schedule(rig: OrderedRig) -> None:
    """X-076, ORD-034: no gap and nothing twice."""
    target = ListTarget()
    target.failing = len(SOON)
    result = rig.map(range(30), "same", target, window=8, chunk=4)
    assert (result.status, target.values) == ("completed", list(range(30)))


def test_a_destination_that_stays_broken_ends_the_run_with_the_cursor_unmoved(rig: OrderedRig) -> None:
    """X-076: `DOWNSTREAM_WRITE_FAILED` with the snapshot; mended, the same line goes on at that item."""
    target = ListTarget()
    with rig.work() as work:
        handle = rig.ordered(work, range(30), "same", target, window=8, chunk=4)

        def fails_later(first_seq: int, values: Sequence[Any]) -> Mark:
            target.failing = 100 if first_seq >= 8 else 0
            return ListTarget.write(target, first_seq, values)

        target.write = fails_later  # type: ignore[method-assign]
        with pytest.raises(DestinationFailed) as failed:
            handle.run()
        run_id = handle.run_id
    assert failed.value.code == "DOWNSTREAM_WRITE_FAILED"
    snapshot = failed.value.details["snapshot"]
    assert isinstance(snapshot, dict)
    assert snapshot["next_commit_seq"] == target.next_seq == len(target.values)
    assert [run.status for run in rig.runs()] == ["running"]
    target.failing, target.write = 0, ListTarget.write.__get__(target)  # type: ignore[method-assign]
    result = rig.map(range(30), "same", target, window=8, chunk=4)
    assert (result.run_id, result.resumed_at, target.values) == (run_id, 8, list(range(30)))


def test_what_was_written_before_a_failing_batch_stays_committed(
    rig: OrderedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ORD-031, X-076: micro-batches of one commit are confirmed one by one; only the failing one is repeated."""
    monkeypatch.setattr("detent.runs.ordered.spec.MICRO_BATCH", 2)
    asked: list[int] = []

    class Stumbles(ListTarget):
        def write(self, first_seq: int, values: Sequence[Any]) -> Mark:
            asked.append(first_seq)
            self.failing = int(asked.count(4) == 1 and first_seq == 4)
            return super().write(first_seq, values)

    target = Stumbles()
    result = rig.map(range(8), "same", target, window=8, chunk=8)
    assert (result.status, target.values) == ("completed", list(range(8)))
    assert asked == [0, 2, 4, 4, 6]
    assert [row.job_id.partition("/")[2] for row in rig.jobs(result.run_id) if "/commit-" in row.job_id] == [
        "commit-0-3",
        "commit-4-7",
    ]


def test_a_destination_that_says_never_is_not_asked_again(rig: OrderedRig) -> None:
    target = ListTarget()
    target.fails_for_good = True
    with rig.work() as work, pytest.raises(CommitFailed, match="no room"):
        rig.ordered(work, range(4), "same", target).run()
    assert target.writes == []


def test_a_slow_destination_holds_the_computation_back(rig: OrderedRig) -> None:
    """ORD-019, ORD-021: no more than two windows are ever computed ahead of the destination."""
    gate, reached = threading.Event(), threading.Event()

    class Slow(ListTarget):
        def write(self, first_seq: int, values: Sequence[Any]) -> Mark:
            reached.set()
            assert gate.wait(WAIT_SECONDS)
            return super().write(first_seq, values)

    target = Slow()
    with rig.work() as work:
        handle = rig.ordered(work, range(100), "same", target, window=8, chunk=4)
        handle.open()
        running = in_thread(handle.run)
        assert reached.wait(WAIT_SECONDS)
        eventually(lambda: handle.view().computed == 16, "the windows are not full")
        ahead = handle.view()
        jobs = [row for row in work.backend.reader.jobs(run_id=handle.run_id) if "/seq-" in row.job_id]
        assert (ahead.committed, ahead.lag, len(jobs)) == (0, 16, 4)
        assert 0 < ahead.buffered_bytes < 16 * 200
        gate.set()
        result = running()
    assert (result.status, target.values) == ("completed", list(range(100)))


def test_values_that_wait_stay_within_their_bytes(rig: OrderedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-183: the bound on bytes holds chunks back although the windows have room."""
    monkeypatch.setattr("detent.runs.ordered.spec.BUFFERED_BYTES_MAX", 6 * 1000)
    monkeypatch.setattr("detent.runs.ordered.spec.PAYLOAD_BYTES_MAX", 1000)
    most = 0

    class Watching(ListTarget):
        def write(self, first_seq: int, values: Sequence[Any]) -> Mark:
            nonlocal most
            most = max(most, handle.view().buffered_bytes)
            return super().write(first_seq, values)

    target = Watching()
    with rig.work() as work:
        handle = rig.ordered(work, ["x" * 700] * 40, "same", target, window=20, chunk=2)
        result = handle.run()
    assert result.ok
    assert len(target.values) == 40
    assert 700 < most <= 6 * 1000


# -- the items ---------------------------------------------------------------------------------------------------------


def test_one_slow_item_holds_back_two_windows_and_no_more(rig: OrderedRig) -> None:
    """ORD-029, ORD-048: the cursor waits for it, everybody can see that, and memory is bounded meanwhile."""
    rig.write("def waits(x):\n    if x == 0: open('gate').read()\n    return x\n")
    os.mkfifo(rig.project / "gate")
    target = ListTarget()
    with rig.pool() as work:
        handle = rig.ordered(work, range(200), "waits", target, window=16, chunk=4)
        handle.open()
        running = in_thread(handle.run)
        eventually(lambda: handle.view().computed == 28, "the others have not got as far as they may")
        view = handle.view()
        assert (view.committed, view.blocked_seq, view.lag, target.values) == (0, 0, 28, [])
        (rig.project / "gate").write_text("")
        result = running()
    assert (result.status, target.values) == ("completed", list(range(200)))


def test_an_item_that_a_worker_has_is_in_flight_although_nothing_follows_from_that(
    rig: OrderedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ORD-048: what the cursor waits for is seen to be in flight."""
    monkeypatch.setattr("detent.runs.ordered.driver.LOOK_SECONDS", 10 * WAIT_SECONDS)
    rig.write("def waits(x): return open('gate').read()\n")
    os.mkfifo(rig.project / "gate")
    with rig.pool() as work:
        handle = rig.ordered(work, range(1), "waits", ListTarget())
        handle.open()
        driver = handle._driver
        assert driver is not None
        running = in_thread(handle.run)
        eventually(lambda: driver.ordered.ledger.in_flight_count == 1, "it is not seen to be in flight")
        blocked = driver.ordered.snapshot().oldest_blocked
        assert blocked is not None
        assert blocked.state == "IN_FLIGHT"
        (rig.project / "gate").write_text("")
        assert running().ok


def test_files_are_taken_in_the_order_of_their_bytes(rig: OrderedRig) -> None:
    """ORD-005, X-183: also names that are not UTF-8, and each once however many patterns find it."""
    corpus = rig.project / "corpus"
    corpus.mkdir()
    names = [b"\xff.txt", b"b.txt", b"a.txt", "ä.txt".encode(), b"B.txt"]
    for name in names:
        (corpus / os.fsdecode(name)).write_bytes(name)
    found = found_files(["corpus/*.txt", "corpus/a*", "corpus"], rig.project)
    assert found == [b"corpus/" + name for name in sorted(names)]
    target = ListTarget()
    result = mapped_files(rig, found, target)
    assert result.ok, result.failures
    assert [size for _, size in target.values] == [len(name) for name in sorted(names)]


def test_a_file_that_changed_or_vanished_since_discovery_fails(rig: OrderedRig) -> None:
    """The digest of discovery is what counts: a change is an error of that item, not a silent difference."""
    for name in ("a", "b", "c", "d"):
        (rig.project / f"{name}.txt").write_text(name)
    found = found_files(["*.txt"], rig.project)
    listed = list(file_lines(found, rig.project))
    (rig.project / "b.txt").write_text("B")
    (rig.project / "c.txt").unlink()
    target = ListTarget()
    result = mapped_files(rig, found, target, listed=listed)
    assert target.values == [["'a.txt'", 1], ["'d.txt'", 1]]
    assert [(one.seq, one.code) for one in result.failures] == [(1, "DEPENDENCY_MISMATCH"), (2, "DEPENDENCY_MISSING")]


def test_a_file_that_changes_while_it_is_computed_fails(rig: OrderedRig) -> None:
    rig.write("def touches(path):\n    path.write_text('other')\n    return 1\n")
    (rig.project / "a.txt").write_text("a")
    found = found_files(["*.txt"], rig.project)
    result = mapped_files(rig, found, ListTarget(), compute="touches")
    assert [one.code for one in result.failures] == ["DEPENDENCY_MISMATCH"]


def mapped_files(
    rig: OrderedRig,
    found: Sequence[bytes],
    target: ListTarget,
    *,
    compute: str = "length",
    listed: Sequence[bytes] | None = None,
) -> Any:
    """A run over files that were found."""
    with rig.work() as work:
        items = spool(work.backend.files, file_lines(found, rig.project) if listed is None else listed)
        spec: OrderedSpec = rig.spec(compute, files=True, on_error="continue")
        return OrderedHandle(work, spec, items, target).run()


def test_items_that_were_tampered_with_fail(rig: OrderedRig) -> None:
    """A chunk's order has the digest of its part: other bytes are refused."""
    with rig.work() as work:
        handle = rig.ordered(work, [1, 2, 3], "same", ListTarget(), chunk=3, on_error="continue")
        path = work.backend.files.path(handle.inputs.items)
        honest = path.read_bytes()
        part = handle._items.part

        def swapped(first: int, last: int) -> dict[str, object]:
            said = part(first, last)
            path.chmod(0o600)
            path.write_bytes(b"7\n8\n9\n")
            return said

        monkey = pytest.MonkeyPatch()
        monkey.setattr(type(handle._items), "part", lambda _self, first, last: swapped(first, last))
        try:
            result = handle.run()
        finally:
            monkey.undo()
            path.write_bytes(honest)
    assert [one.code for one in result.failures] == ["DEPENDENCY_MISMATCH"] * 3


def test_items_that_are_gone_are_named(rig: OrderedRig) -> None:
    with rig.work() as work:
        items = rig.items(work, range(3))
        assert list(open_spool(work.backend.files, items.digest).ends) == list(items.ends)
        work.backend.files.erase(items.digest)
        with pytest.raises(StoreCorrupt, match="are gone"):
            open_spool(work.backend.files, items.digest)


# -- the same line again -----------------------------------------------------------------------------------------------


def left(rig: OrderedRig, target: ListTarget, at: int, **said: Any) -> str:
    """Begin a run over a hundred items and leave it as it stands after a write beyond ``at``; its id."""
    with rig.work() as work:
        handle = rig.ordered(work, range(100), "square", target, window=8, chunk=4, **said)

        def leaves(first_seq: int, values: Sequence[Any]) -> Mark:
            mark = type(target).write(target, first_seq, values)
            if mark.next_seq >= at:
                handle.stop()
            return mark

        target.write = leaves  # type: ignore[method-assign]
        assert handle.run().status == "stopped"
        target.write = type(target).write.__get__(target)  # type: ignore[method-assign]
        return handle.run_id


def test_the_same_line_goes_on_at_the_first_item_that_is_not_committed(rig: OrderedRig) -> None:
    """X-174, ORD-055: the same run; what was committed is not computed again."""
    target = ListTarget()
    run_id = left(rig, target, 40)
    computed = len(rig.lane.began)
    rig.new_lane()
    result = rig.map(range(100), "square", target, window=8, chunk=4)
    assert (result.run_id, result.status) == (run_id, "completed")
    assert result.resumed_at >= 40
    assert target.values == [x * x for x in range(100)]
    assert computed + len(rig.lane.began) <= 25 + 2
    assert [run.status for run in rig.runs()] == ["completed"]


def test_windows_and_chunks_are_those_that_the_run_began_with(rig: OrderedRig) -> None:
    """X-183: never resized, whatever is worked out anew."""
    target = ListTarget()
    with rig.work(workers=1) as work:
        handle = rig.ordered(work, range(100), "square", target, window=8)
        config = handle.inputs.config
        handle.open()

        def leaves(first_seq: int, values: Sequence[Any]) -> Mark:
            handle.stop()
            return ListTarget.write(target, first_seq, values)

        target.write = leaves  # type: ignore[method-assign]
        handle.run()
        target.write = ListTarget.write.__get__(target)  # type: ignore[method-assign]
    with rig.work(workers=2) as work:
        again = rig.ordered(work, range(100), "square", target, window=8)
        assert again.inputs.config != config
        again.open()
        assert (again.resumed, again.inputs.config) == (True, config)
        assert again.run().ok


def test_other_items_settings_or_keys_are_another_run(rig: OrderedRig) -> None:
    """X-174."""
    target = ListTarget()
    run_id = left(rig, target, 8)
    with rig.work() as work:
        same = {"window": 8, "chunk": 4}
        others = [
            rig.ordered(work, range(99), "square", ListTarget(), **same),
            rig.ordered(work, range(100), "same", ListTarget(), **same),
            rig.ordered(work, range(100), "square", ListTarget(), window=9, chunk=4),
            rig.ordered(work, range(100), "square", ListTarget(), key="other", **same),
            rig.ordered(work, range(100), "square", ListTarget(), new=True, **same),
        ]
        assert run_id not in {other.open() for other in others}
        for other in others:
            assert other.run().ok
    assert rig.map(range(100), "square", target, window=8, chunk=4).run_id == run_id


def test_a_function_that_changed_is_not_mixed_with_what_it_was(rig: OrderedRig) -> None:
    """A destination never holds the results of two programs under one run."""
    target = ListTarget()
    left(rig, target, 8)
    rig.write("def square(x): return -x\n")
    with rig.work() as work, pytest.raises(InvalidInput, match="since it began"):
        rig.ordered(work, range(100), "square", target, window=8, chunk=4).open()


def test_a_result_that_was_erased_is_named_when_the_run_is_resumed(rig: OrderedRig) -> None:
    target = ListTarget()
    run_id = left(rig, target, 16)
    erase_job(rig.home.home, f"{run_id}/seq-0-3", environment=rig.home.environment, parts=rig.home.parts)
    with rig.work() as work, pytest.raises(StoreCorrupt, match="is gone"):
        rig.ordered(work, range(100), "square", target, window=8, chunk=4).run()


def test_a_full_queue_holds_chunks_back(rig: OrderedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-031: refused chunks are offered again, in order, and the summary is the same."""
    refusals = 0
    submit = Submitter.submit

    def full_now_and_then(self: Any, submissions: Any, **more: Any) -> list[bool]:
        nonlocal refusals
        refusals += 1
        return [False] * len(submissions) if refusals % 2 else submit(self, submissions, **more)

    before = rig.map(range(40), "square", ListTarget(), window=8, chunk=2).summary.digest()
    monkeypatch.setattr(Submitter, "submit", full_now_and_then)
    target = ListTarget()
    assert rig.map(range(40), "square", target, window=8, chunk=2).summary.digest() == before
    assert target.seqs == list(range(40))
    assert refusals > 2
