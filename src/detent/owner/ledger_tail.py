"""Following the end of a ledger: observers get every committed record, once and in order.

The owner of a home tells its observers itself, after each commit (`Owner.observers`). Everybody else looks at the ledger's
end from time to time. A session may be the one now and the other later, so what was told is remembered by position: a gap
is read from the ledger, and what comes twice is left out. That makes take-overs nothing special.

What must not happen is that a turn of the owner waits for an observer of another thread, since that one might wait for
the turn. So a turn that finds another thread telling leaves its records to it: they are on the ledger.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from detent.errors import DetentError
from detent.kernel import Record
from detent.owner.store_history import record_of
from detent.store.api import StoreReader

POLL_SECONDS = 0.05
"""How often a session that is not the owner looks at the ledger's end."""
IDLE_SECONDS = 1.0
"""How often one looks that its own owner tells: for what a take-over of ownership may have left over."""
RECORDS_AT_ONCE = 1_000
"""Records read from the ledger and told at once, at most."""

Observer: TypeAlias = Callable[[Sequence[Record]], None]

logger = logging.getLogger("detent.owner")


class Tail:
    """The end of a ledger, as far as observers know it. ``fed`` says whether an owner in this process announces its commits."""

    def __init__(self, reader: StoreReader, fed: Callable[[], bool]) -> None:
        self._reader = reader
        self._fed = fed
        self._observers: list[Observer] = []
        self._next = [reader.head(partition).next_position for partition in range(reader.partitions)]
        self._telling = threading.RLock()
        self._look = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name="detent-observe", daemon=True)
        self._thread.start()

    def add(self, observer: Observer) -> Callable[[], None]:
        """Tell one more, of what is committed from now on; gives back what ends it."""
        with self._telling:
            self._catch_up()
            self._observers.append(observer)

        def remove() -> None:
            with self._telling, suppress(ValueError):
                self._observers.remove(observer)

        return remove

    def hear(self, partition: int, first: int, records: Sequence[Record]) -> None:
        """Take over the records of a commit, from the owner of this process, within its turn."""
        if not self._telling.acquire(blocking=False):
            self.look()
            return
        try:
            known = self._next[partition]
            if first > known:
                self._read(partition, first)
                known = self._next[partition]
            if first <= known < first + len(records):
                self._next[partition] = first + len(records)
                self._tell(records[known - first :])
        finally:
            self._telling.release()

    def look(self) -> None:
        """Look at the ledger's end soon, on the thread for that: the owner of the home has changed, or another thread was telling."""
        self._look.set()

    def close(self) -> None:
        """Tell the rest, and stop."""
        self._closed = True
        self._look.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self._telling:
            with suppress(DetentError):
                self._catch_up()
            self._observers.clear()
            self._reader.close()

    def _follow(self) -> None:
        while not self._closed:
            self._look.wait(IDLE_SECONDS if self._fed() else POLL_SECONDS)
            self._look.clear()
            if self._closed:
                return
            # A ledger that cannot be read now, because its disk is full or it is being moved, may be readable next time.
            with self._telling, suppress(DetentError):
                self._catch_up()

    def _catch_up(self) -> None:
        for partition in range(len(self._next)):
            self._read(partition, self._reader.head(partition).next_position)

    def _read(self, partition: int, stop: int) -> None:
        """Tell what the ledger holds from what was told last up to a position."""
        while (first := self._next[partition]) < stop:
            rows = list(self._reader.records(partition, first, min(stop, first + RECORDS_AT_ONCE)))
            if not rows:
                return
            self._next[partition] = first + len(rows)
            self._tell([record_of(row) for row in rows])

    def _tell(self, records: Sequence[Record]) -> None:
        for observer in tuple(self._observers):
            try:
                observer(records)
            except Exception:
                logger.exception("an observer of the ledger failed")
