"""The commit lane by itself: what a limit keeps from the destination."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

from detent.kernel import StartRun
from detent.ordered import Batch, OrderedConfig, SeqState
from detent.ordered.actions import BlockTree
from detent.runs.ordered.commit_thread import Committed, CommitThread, Drained, Handed
from detent.runs.ordered.recovery import Standing, notes_for
from detent.targets import Mark, Nothing
from tests.runs.ordered.rig import ListTarget, OrderedRig


class Gated(ListTarget):
    """A destination that does not return from its first write until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.gate = threading.Event(), threading.Event()

    def write(self, first_seq: int, values: Sequence[Any | Nothing]) -> Mark:
        self.entered.set()
        assert self.gate.wait(60)
        return super().write(first_seq, values)


def skipped(first: int, last: int) -> Handed:
    """A run of seqs that have no values."""
    count = last - first + 1
    return Handed(first, [Batch(first, last, ())], [SeqState.TERMINAL_SKIP] * count, [None] * count, [])


def test_what_was_handed_under_a_limit_is_not_written_when_the_limit_is_lifted(rig: OrderedRig) -> None:
    """X-193: the driver lowers the boundary and lifts the limit while the lane may not have looked at its queue yet."""
    target, told = Gated(), SimpleQueue[Any]()
    with rig.work() as work:
        began = StartRun(0, work.backend.tenant, "lane", "lane", bytes(32), bytes(32), bytes(32), "begin")
        (answer,) = work.backend.session.ask([began], partition=work.backend.session.partition("lane"))
        assert answer.refusal is None
        notes = notes_for(work.backend, "lane")
        lane = CommitThread(work.backend, OrderedConfig(total=12), "lane", target, notes, told.put)
        lane.open(Standing(), BlockTree(), {})
        lane.hand(skipped(0, 3))
        assert target.entered.wait(60)
        lane.limit(0)
        lane.drain()
        lane.hand(skipped(4, 11))
        lane.lift()
        lane.hand(skipped(4, 5))
        target.gate.set()
        assert told.get(timeout=60) == Committed(3)
        assert told.get(timeout=60) == Drained()
        assert told.get(timeout=60) == Committed(5)
        lane.close()
    assert target.writes == [4, 2]
