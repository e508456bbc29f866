"""What a worker has to tell its server: signed reports, and ends without one. Kept until the server has answered.

While the server is away the outbox grows, up to a bound; a worker whose outbox is full asks for no more jobs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from detent.access.turn import REPORTS_MAX, Ended

BYTES_MAX: Final = 64 * 1024 * 1024
"""Of reports that wait for the server."""
TURN_BYTES: Final = 8 * 1024 * 1024
"""Of reports and content that one turn brings, unless a single one has more."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A signed report, with the content that goes with it."""

    lease_id: bytes
    envelope: bytes
    content: tuple[bytes, ...]
    files: tuple[bytes, ...]
    """Digests of larger content, which is sent on its own first."""

    @property
    def size_bytes(self) -> int:
        """What it takes in a turn."""
        return len(self.envelope) + sum(map(len, self.content))


class Outbox:
    """Reports and ends by their leases. The caller holds a lock."""

    def __init__(self) -> None:
        self._reports: OrderedDict[bytes, Outgoing] = OrderedDict()
        self._ends: OrderedDict[bytes, Ended] = OrderedDict()
        self._taken: set[bytes] = set()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._reports) + len(self._ends)

    @property
    def is_full(self) -> bool:
        """Whether no more work should be begun until something was taken."""
        return self._size_bytes > BYTES_MAX

    @property
    def has_fresh(self) -> bool:
        """Whether something is here that no turn under way brings."""
        return len(self) > len(self._taken)

    def report(self, outgoing: Outgoing) -> None:
        """Add a report."""
        self._reports[outgoing.lease_id] = outgoing
        self._size_bytes += outgoing.size_bytes

    def end(self, ended: Ended) -> None:
        """Add an end without a report, unless there is a report."""
        if ended.lease_id not in self._reports:
            self._ends[ended.lease_id] = ended

    def take(self) -> tuple[list[Outgoing], list[Ended]]:
        """What the next turn brings; it stays here until it is `done` or `back`."""
        reports: list[Outgoing] = []
        size = 0
        for lease_id, outgoing in self._reports.items():
            if lease_id in self._taken:
                continue
            size += outgoing.size_bytes
            if reports and (size > TURN_BYTES or len(reports) == REPORTS_MAX):
                break
            reports.append(outgoing)
        ends = [end for lease_id, end in self._ends.items() if lease_id not in self._taken]
        self._taken.update({report.lease_id for report in reports}, {end.lease_id for end in ends})
        return reports, ends

    def done(self, lease_ids: Sequence[bytes]) -> None:
        """Forget what was answered."""
        for lease_id in lease_ids:
            self._taken.discard(lease_id)
            self._ends.pop(lease_id, None)
            if (outgoing := self._reports.pop(lease_id, None)) is not None:
                self._size_bytes -= outgoing.size_bytes

    def back(self, lease_ids: Sequence[bytes]) -> None:
        """Bring it again with a later turn."""
        self._taken.difference_update(lease_ids)

    def get(self, lease_id: bytes) -> Outgoing | None:
        """The report of a lease."""
        return self._reports.get(lease_id)

    @property
    def leases(self) -> set[bytes]:
        """The leases that something is here for."""
        return {*self._reports, *self._ends}
