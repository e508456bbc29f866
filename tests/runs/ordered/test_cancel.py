"""Cancellation at a boundary: what is below runs to its end, what is above is cancelled, and the number decides."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from detent.executor.own_targets import COMPUTE_CHUNK
from detent.kernel import Cancel
from detent.runs.ordered import driver
from detent.runs.ordered.driver import OrderedDriver
from detent.runs.ordered.notes import note
from detent.runs.ordered.recorded import SnapshotFile, read_snapshot
from detent.runs.ordered.recovery import standing
from detent.targets import Mark, Nothing
from tests.runs.ordered.rig import ListTarget, OrderedRig
from tests.runs.rig import WAIT_SECONDS, eventually, in_thread


@pytest.mark.parametrize(("window", "chunk"), [(8, 4), (16, 1), (100, 7)])
def test_the_outcome_depends_on_the_boundary_alone(rig: OrderedRig, window: int, chunk: int) -> None:
    """ORD-038, X-069: the same for any windows, chunks and timing; nothing at or above is ever computed."""
    target = ListTarget()
    with rig.work() as work:
        handle = rig.ordered(work, range(100), "square", target, window=window, chunk=chunk)
        handle.cancel("enough", at=42)
        result = handle.run()
        said = note(work.backend, result.run_id, "cancel-42")
        assert standing(work.backend, result.run_id).boundary == 42
    assert (result.status, target.values) == ("cancelled", [x * x for x in range(42)])
    assert (result.summary.success, result.summary.cancel) == (42, 58)
    assert said == {"boundary": 42, "requested": 42, "reason": "enough"}
    assert all(one.order.origin.index < 42 for one in rig.lane.began if one.order.origin.index is not None)


def test_a_second_cancellation_at_the_same_place_changes_nothing(rig: OrderedRig) -> None:
    """X-069: a boundary is recorded once, by the first to ask."""
    with rig.work() as work:
        handle = rig.ordered(work, range(50), "square", ListTarget(), window=8, chunk=4)
        handle.open()
        handle.cancel("first", at=20)
        handle.cancel("second", at=20)
        handle.cancel("third", at=30)
        result = handle.run()
        said = note(work.backend, result.run_id, "cancel-20")
    assert (result.status, result.summary.success, said["reason"]) == ("cancelled", 20, "first")


def test_a_run_that_was_killed_before_its_last_record_ends_with_the_summary_it_has(rig: OrderedRig) -> None:
    """ORD-055: everything is committed and summed up, only the end is missing."""
    target = ListTarget()
    with rig.work() as work:
        handle = rig.ordered(work, range(8), "square", target)
        handle.open()
        assert handle._driver is not None
        handle._driver._end = lambda summary: f"stopped at {summary.total}"  # type: ignore[method-assign]
        handle.run()
        summed = handle._driver.ordered.summary()
        OrderedDriver._end_note(handle._driver, summed)
    result = rig.map(range(8), "square", target)
    assert (result.run_id, result.status, result.resumed_at) == (handle.run_id, "completed", 8)
    assert target.values == [x * x for x in range(8)]


def test_a_cancellation_takes_no_outcome_away(rig: OrderedRig) -> None:
    """X-069: never below what has ended; what ended is committed, and the boundary is on the ledger."""
    target = ListTarget()
    with rig.work() as work:
        handle = rig.ordered(work, range(200), "square", target, window=8, chunk=4)

        def cancels(first_seq: int, values: Sequence[Any]) -> Mark:
            if first_seq == 0:
                handle.cancel("enough")
            return ListTarget.write(target, first_seq, values)

        target.write = cancels  # type: ignore[method-assign]
        result = handle.run()
        boundary = standing(work.backend, result.run_id).boundary
    assert result.status == "cancelled"
    assert boundary is not None
    assert target.seqs == list(range(boundary))
    assert (result.summary.success, result.summary.cancel) == (boundary, 200 - boundary)
    assert boundary <= 16


def test_a_boundary_survives_the_runtime(rig: OrderedRig) -> None:
    """ORD-052: the run that is resumed ends where the one that was left would have ended."""
    target = ListTarget()
    with rig.work() as work:
        handle = rig.ordered(work, range(100), "square", target, window=8, chunk=4)
        handle.cancel("enough", at=42)

        def leaves(first_seq: int, values: Sequence[Any]) -> Mark:
            handle.stop()
            return ListTarget.write(target, first_seq, values)

        target.write = leaves  # type: ignore[method-assign]
        assert handle.run().status == "stopped"
        target.write = ListTarget.write.__get__(target)  # type: ignore[method-assign]
    result = rig.map(range(100), "square", target, window=8, chunk=4)
    assert (result.status, target.values) == ("cancelled", [x * x for x in range(42)])


def test_a_cancelled_job_is_its_items_outcome(rig: OrderedRig) -> None:
    """ORD-054: CANCELED is TERMINAL_CANCEL; the cursor passes it and the others are committed."""
    target = ListTarget()
    rig.lane.held = {COMPUTE_CHUNK}
    with rig.work() as work:
        handle = rig.ordered(work, range(12), "square", target, window=12, chunk=4)
        run_id = handle.open()

        def idle() -> None:
            if rig.lane.waiting(COMPUTE_CHUNK) == 3:
                work.session.ask([Cancel(0, work.backend.tenant, f"{run_id}/seq-4-7")])
                rig.lane.release()

        rig.lane.on_idle = idle
        result = handle.run()
    assert target.seqs == [0, 1, 2, 3, 8, 9, 10, 11]
    assert (result.summary.cancel, result.status) == (4, "failed")


class Gated(ListTarget):
    """Takes its entries one by one, and waits at the fourth."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.gate = threading.Event(), threading.Event()

    def write(self, first_seq: int, values: Sequence[Any | Nothing]) -> Mark:
        if first_seq == 3:
            self.waits.set()
            assert self.gate.wait(WAIT_SECONDS)
        return super().write(first_seq, values[:1])


def test_a_snapshot_tells_of_a_cancellation_when_the_destination_takes_nothing_more(
    rig: OrderedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-193: what the destination is at is its last, for a reader of the snapshot that lets it go on, too."""
    target = Gated()
    work = rig.work()
    handle = rig.ordered(work, range(12), "same", target, chunk=1)
    monkeypatch.setattr(driver, "LOOK_SECONDS", 0.0)
    write = SnapshotFile.write

    def told(self: SnapshotFile, snapshot: Any, now_ms: int, message: str = "") -> None:
        write(self, snapshot, now_ms, message)
        if message and not target.gate.is_set():
            target.gate.set()
            lane = handle._driver._commit_thread  # type: ignore[union-attr]
            eventually(lambda: lane._commit_began is None, "the destination does not answer")

    def computed() -> int:
        known = read_snapshot(rig.home.path, run_id)
        return 0 if known is None else int(known["snapshot"]["terminal_count"])

    monkeypatch.setattr(SnapshotFile, "write", told)
    run_id = handle.open()
    ended = in_thread(handle.run)
    assert target.waits.wait(WAIT_SECONDS)
    eventually(lambda: computed() == 12, "not everything is computed")
    handle.cancel("too slow")
    assert ended().status == "cancelled"
    assert target.values == [0, 1, 2, 3]
