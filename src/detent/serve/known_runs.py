"""Runs that have ended, put together once: the page of a run asks for its steps, graph, timeline and outcome, and each needs all of it.

To put a run of 10,000 steps together takes seconds. Nothing about it changes once it has ended and none of its jobs is live, but for what is
erased: an erasure is a record, so a run that was put together before the newest one is put together again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from detent.kernel.history import ERASED
from detent.owner.content import Content
from detent.owner.views import RunView, Times
from detent.runs.record.recorded_run import Live, RecordedRun, recorded_run
from detent.serve.requesters import Starter, starter_of
from detent.store.api import RunRow, StoreReader
from detent.words.states import OVER

STEPS_KEPT_MAX: Final = 50_000
"""Steps of all runs that are kept; the run that was put together first goes first."""

STARTERS_KEPT_MAX: Final = 10_000
SHOWN_MAX: Final = 64
"""Answers about one run that are kept."""
SHOWN_BYTES_MAX: Final = 8 * 1024 * 1024
"""A larger answer is made each time."""


class _Kept(NamedTuple):
    row: RunRow
    times: Times
    positions: Sequence[int]
    """Where each partition ended when it was put together."""
    run: RecordedRun
    shown: dict[object, bytes]
    """What was shown of it, by what was asked for."""


class KnownRuns:
    """Runs that were put together. For all threads that read."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._steps = 0
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}
        self._starters: dict[str, Starter] = {}
        self._starters_at: Sequence[int] = ()

    def recorded(self, reader: StoreReader, content: Content, view: RunView, live: Live | None) -> RecordedRun | None:
        """A run with its steps; None when what it was started with is gone. Threads that ask for the same run wait for one of them."""
        row = view.row
        if row.ended_tick is None or view.run.live_jobs:
            return recorded_run(reader, content, view.run, live)
        if (known := self._known(reader, view)) is not None:
            return known
        with self._lock:
            making = self._making.setdefault(row.run_id, threading.Lock())
        with making:
            if (known := self._known(reader, view)) is not None:
                return known
            positions = _positions(reader)
            made = recorded_run(reader, content, view.run, live)
            self._keep(row.run_id, None if made is None else _Kept(row, view.times, positions, made, {}))
            return made

    def starters(self, reader: StoreReader, content: Content, rows: Iterable[RunRow]) -> list[Starter]:
        """Who or what started each run. It is among a run's inputs, which may be large, and never changes unless they are erased."""
        here = _positions(reader)
        with self._lock:
            if _erased(reader, self._starters_at) or len(self._starters) > STARTERS_KEPT_MAX:
                self._starters, self._starters_at = {}, here
            elif not self._starters_at:
                self._starters_at = here
            # A reader that began before the last erasure may see more than may be kept.
            is_older = any(own < kept for own, kept in zip(here, self._starters_at, strict=True))
            known = {} if is_older else self._starters
        return [known.get(row.run_id) or known.setdefault(row.run_id, starter_of(content, row)) for row in rows]

    def shown(self, run: RecordedRun, asked: object, make: Callable[[RecordedRun], bytes]) -> bytes:
        """What is shown of a run, made once for each question while the run is kept."""
        kept = self._kept.get(run.run.run_id)
        if kept is None or kept.run is not run:
            return make(run)
        found = kept.shown.get(asked)
        if found is None:
            found = make(run)
            if len(kept.shown) < SHOWN_MAX and len(found) <= SHOWN_BYTES_MAX:
                kept.shown[asked] = found
        return found

    def _known(self, reader: StoreReader, view: RunView) -> RecordedRun | None:
        kept = self._kept.get(view.row.run_id)
        if kept is None or (kept.row, kept.times) != (view.row, view.times) or _erased(reader, kept.positions):
            return None
        return kept.run

    def _keep(self, run_id: str, kept: _Kept | None) -> None:
        with self._lock:
            self._making.pop(run_id, None)
            before = self._kept.pop(run_id, None)
            self._steps -= 0 if before is None else len(before.run.steps)
            if kept is None or any(step.view.state not in OVER for step in kept.run.steps):
                return
            self._kept[run_id] = kept
            self._steps += len(kept.run.steps)
            while self._steps > STEPS_KEPT_MAX and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._steps -= len(oldest.run.steps)


def _positions(reader: StoreReader) -> list[int]:
    """Where each partition ends."""
    return [reader.head(partition).next_position for partition in range(reader.partitions)]


def _erased(reader: StoreReader, positions: Sequence[int]) -> bool:
    """Whether anything was erased behind these positions."""
    return any(
        next(iter(reader.records_of_kind(partition, ERASED, first)), None) is not None
        for partition, first in enumerate(positions)
    )
