"""Where a verification stands: the batch whose records are being checked, the time they may carry, and the findings about them."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from detent.ledger.book import Book, Partition
from detent.ledger.findings import Finding
from detent.ledger.trust import Trust
from detent.ledger.trust_config import MANIFEST, KeyEntry, TrustFault


class WalkState:
    """What the checks of all kinds of records share."""

    def __init__(self, book: Book, partition: Partition) -> None:
        self.book = book
        self.partition = partition
        self.batch_no = 0
        self.transitions = 0
        self.submitted = 0
        self.unnamed = 0
        self._tick_max = 0
        self._ticks: AbstractSet[int] | None = None
        self._submitters: dict[bytes, KeyEntry | TrustFault] = {}

    def begin(self, batch_no: int, tick_max: int, ticks: AbstractSet[int] | None) -> None:
        """The next records are of this batch; ``ticks`` are those its commands were applied at, where they are known."""
        self.batch_no = batch_no
        self._tick_max = tick_max
        self._ticks = ticks
        self._submitters.clear()

    def submitter(self, trust: Trust, key_id: bytes) -> KeyEntry | TrustFault:
        """The key that signed a manifest of the present batch, or why it may not sign one here."""
        entry = self._submitters.get(key_id)
        if entry is None:
            entry = self._submitters[key_id] = trust.entry(key_id, MANIFEST, self.batch_no)
        return entry

    def note(
        self, code: str, message: str, position: int | None, job_id: str | None = None, seq: int | None = None
    ) -> None:
        """Add a finding about a record of the present batch."""
        self.book.findings.add(Finding(code, message, self.partition.number, self.batch_no, position, job_id, seq))

    def note_all(
        self, faults: Iterable[TrustFault], position: int, job_id: str | None = None, seq: int | None = None
    ) -> None:
        """Add a finding for each fault, each code once."""
        seen: set[str] = set()
        for fault in faults:
            if fault.code not in seen:
                seen.add(fault.code)
                self.note(fault.code, fault.message, position, job_id, seq)

    @property
    def written_tick(self) -> int:
        """The last tick of the present batch, which the rows written with it carry."""
        return self._tick_max

    def in_time(self, tick: int) -> bool:
        """Whether nothing is wrong with a record's tick; time goes on to it then."""
        partition = self.partition
        if partition.record_tick <= tick <= self._tick_max and (self._ticks is None or tick in self._ticks):
            partition.record_tick = tick
            return True
        return False

    def tick(self, tick: int, position: int, job_id: str | None = None, seq: int | None = None) -> None:
        """A record's tick: never before the last one, inside its batch, and that of a command."""
        partition = self.partition
        if tick < partition.record_tick:
            message = f"tick {tick} comes after tick {partition.record_tick}"
            self.note("TICK_BACKWARDS", message, position, job_id, seq)
        else:
            partition.record_tick = tick
        if tick > self._tick_max or (self._ticks is not None and tick not in self._ticks):
            self.note("TICK_OUT_OF_BATCH", f"tick {tick} is not one of its batch", position, job_id, seq)
