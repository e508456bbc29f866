"""Jobs as they were read last: what was made of a row is made again only when the row has changed.

A row holds everything that a list shows of a job, and ends with the hash of its last record, so equal rows are shown alike. The
rows themselves are read from the ledger each time. What a job that has ended was asked to do and gave back is content beside its row, which
can be erased and does not change otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from detent.owner.views import JobView, Times, quick_view_of_job
from detent.store.api import JobRow

KNOWN_MAX: Final = 10_000
ENDED_MAX: Final = 1_000
T = TypeVar("T")


class Kept(NamedTuple, Generic[T]):
    """What is known about a job that has ended."""

    view: JobView
    digests: frozenset[bytes]
    """The content that it was read from: when a piece of it is erased, this is forgotten."""
    facts: T


class KnownJobs(Generic[T]):
    """The views of rows, and everything about some jobs that have ended. For all threads that read."""

    def __init__(self) -> None:
        self._views: dict[str, JobView] = {}
        self._ended: dict[str, Kept[T]] = {}

    def view(self, row: JobRow, times: Times) -> JobView:
        """A job as its row says it stands."""
        known = self._views.get(row.job_id)
        if known is not None and known.row == row and known.times == times:
            return known
        view = quick_view_of_job(row, times)
        if len(self._views) >= KNOWN_MAX:
            self._views.clear()
        self._views[row.job_id] = view
        return view

    def ended(self, row: JobRow, times: Times) -> Kept[T] | None:
        """What is known about a job that has ended, if this is its row."""
        kept = self._ended.get(row.job_id)
        return kept if kept is not None and kept.view.row == row and kept.view.times == times else None

    def keep(self, view: JobView, digests: Iterable[bytes], facts: T) -> None:
        """Remember a job that has ended."""
        if len(self._ended) >= ENDED_MAX:
            self._ended.clear()
        self._ended[view.row.job_id] = Kept(view, frozenset(digests), facts)


class ShownJobs(Generic[T]):
    """What is shown of views. For the HTTP loop alone."""

    def __init__(self, show: Callable[[JobView], T]) -> None:
        self._show = show
        self._shown: dict[str, tuple[JobView, T]] = {}

    def of(self, view: JobView) -> T:
        """What is shown of a job."""
        known = self._shown.get(view.row.job_id)
        if known is not None and known[0] is view:
            return known[1]
        if len(self._shown) >= KNOWN_MAX:
            self._shown.clear()
        shown = self._show(view)
        self._shown[view.row.job_id] = (view, shown)
        return shown
