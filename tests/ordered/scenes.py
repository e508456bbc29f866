"""Small runs brought to a certain point."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from detent.canon import sha256
from detent.errors import InvariantBroken
from detent.ordered import Action, Chunk, Envelope, OrderedConfig, OrderedRun, SeqState, plan_windows

SUCCESS, SKIP, FAIL, CANCEL = (
    SeqState.TERMINAL_SUCCESS,
    SeqState.TERMINAL_SKIP,
    SeqState.TERMINAL_FAIL,
    SeqState.TERMINAL_CANCEL,
)
DONE = Envelope(SUCCESS, sha256(b"payload"), 10)


def config(total: int, **changes: Any) -> OrderedConfig:
    """One seq a chunk and windows of ten, unless told otherwise."""
    plain: dict[str, Any] = {"window_size": 10, "chunk_size": 1, "failure_policy": "continue"}
    return OrderedConfig(total, **{**plain, **changes})


def begun(total: int, **changes: Any) -> OrderedRun:
    """A run whose first offers have been made."""
    run = OrderedRun(config(total, **changes))
    run.begin()
    return run


def flying(total: int, count: int | None = None, **changes: Any) -> OrderedRun:
    """A run whose first ``count`` offered chunks are in flight; all of them without a count."""
    run = begun(total, **changes)
    for chunk in list(run.compute.offers)[:count]:
        run.dispatched(*chunk, "owner")
        run.started(*chunk, 0, "worker-1")
    return run


def finish(run: OrderedRun, seqs: Iterable[int], envelope: Envelope = DONE) -> list[Action]:
    """These seqs succeed at their first attempt; the actions of all of it together."""
    return [action for seq in seqs for action in run.finished(seq, 0, envelope)]


def commit_all(run: OrderedRun) -> None:
    """Confirm whatever is handed out, until nothing is."""
    while run.commits.commit_last is not None:
        run.committed(run.commits.commit_last)


def broken_by(event: Any, *arguments: Any) -> dict[str, Any]:
    """The details of the invariant that an event breaks."""
    with pytest.raises(InvariantBroken) as caught:
        event(*arguments)
    assert caught.value.code == "INVARIANT_VIOLATION"
    return caught.value.details


def plan_chunks(total: int, window_size: int, chunk_size: int) -> list[Chunk]:
    """All chunks of a run, in order: each window cut into ``chunk_size`` seqs, its last chunk may be shorter."""
    return [
        Chunk(first, min(first + chunk_size - 1, window.end_seq))
        for window in plan_windows(total, window_size)
        for first in range(window.start_seq, window.end_seq + 1, chunk_size)
    ]
