"""Listings of one workspace: which filters go together, and a page of what they leave.

Every filter is answered by an index, or by looking through a bounded number of rows: a page costs the same after a million
jobs. Filters that no index answers together are refused with those that go together.

Jobs have numbers in the order in which they were submitted. A moment is turned into a number by halving: twenty looks
among a million. A page may have fewer rows than asked for, or none, and still be followed by another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from detent.errors import InvalidInput
from detent.kernel.table import TERMINAL, State
from detent.owner.views import JobView, RunView, Times, view_of_run
from detent.serve.known_jobs import KnownJobs
from detent.store.api import JobRow, JobsWanted, RunRow, StoreReader

Row = TypeVar("Row")
Place = tuple[int | str, ...]
LOOKED_AT_MAX: Final = 500
"""Rows that are looked at for one page where a filter has no index of its own."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How rows of jobs are seen."""

    times: Times
    known: KnownJobs[Any]

    def view(self, row: JobRow) -> JobView:
        """A job as its row says it stands."""
        return self.known.view(row, self.times)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs."""

    state: str | None = None
    """As the kernel names it."""
    run_id: str | None = None
    label: str | None = None
    pool: str | None = None
    prefix: str | None = None
    worker: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def insist_on_index(self) -> None:
        """Refuse filters that no index answers together."""
        leading = [name for name in ("run_id", "label", "pool", "prefix") if getattr(self, name) is not None]
        spelt = {"run_id": "run", "prefix": "q"}
        if len(leading) > 1:
            names = " and ".join(spelt.get(name, name) for name in leading)
            raise _refused(spelt.get(leading[1], leading[1]), f"no index answers {names} together; give one of them")
        if self.prefix is not None and (self.since_ms, self.until_ms) != (None, None):
            raise _refused("q", "no index answers q and a time together; give one of them")
        if self.worker is not None and (self.state is None or State(self.state) in TERMINAL or leading):
            raise _refused(
                "worker",
                "is answered for jobs that a worker has now: add state=running. Others are found by q, run, label,"
                " pool, state, since and until",
            )


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs."""

    status: str | None = None
    name: str | None = None
    prefix: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def insist_on_index(self) -> None:
        """Refuse filters that no index answers together."""
        if self.prefix is not None and self != RunFilter(prefix=self.prefix):
            raise _refused("q", "goes with no other filter; others are status, name, since and until")


def jobs_listed(
    reader: StoreReader, seen: Seen, tenant: str, wanted: JobFilter, place: Place | None, limit: int
) -> tuple[list[JobView], Place | None]:
    """A page of jobs, and the place behind it; None when it is the last."""
    wanted.insist_on_index()
    # The jobs of a label, of a pool and of a prefix have an index each, which does not say in what state they are.
    by_name = any(name is not None for name in (wanted.label, wanted.pool, wanted.prefix))
    by_row = wanted.worker is not None or (by_name and wanted.state is not None)
    count = LOOKED_AT_MAX if by_row else limit + 1
    if (prefix := wanted.prefix) is not None:
        named, following = _page(
            lambda place: reader.jobs_prefixed(tenant, prefix, after=str(place[0]) if place else "", limit=count),
            lambda row: wanted.state in {None, row.state},
            lambda row: (row.job_id,),
            (place, limit, count),
        )
        return [seen.view(row) for row in named], following
    if wanted.until_ms is not None and place is None:
        place = (_number_at(reader, seen, tenant, wanted.until_ms),)
    first = 0 if wanted.since_ms is None else _number_at(reader, seen, tenant, wanted.since_ms)

    def fetch(place: Place | None) -> list[tuple[int, JobRow]]:
        before = int(place[0]) if place else None
        state = None if by_name else wanted.state
        return reader.jobs_page(
            JobsWanted(tenant, wanted.run_id, state, wanted.label, before, wanted.pool), limit=count
        )

    found, following = _page(
        fetch,
        lambda row: (
            wanted.state in {None, row[1].state}
            and wanted.worker in {None, wanted.worker and seen.view(row[1]).job.lease_holder}
        ),
        lambda row: (row[0],),
        (place, limit, count),
        lambda row: row[0] < first,
    )
    return [seen.view(row) for _, row in found], following


def runs_listed(
    reader: StoreReader, times: Times, tenant: str, wanted: RunFilter, place: Place | None, limit: int
) -> tuple[list[RunView], Place | None]:
    """A page of runs, and the place behind it; None when it is the last."""
    wanted.insist_on_index()
    count = limit + 1 if wanted.name is None else LOOKED_AT_MAX
    if wanted.until_ms is not None and place is None:
        place = (max(0, -((times.epoch_base_ms - wanted.until_ms) // times.tick_ms)), "")

    def fetch(place: Place | None) -> list[RunRow]:
        if wanted.prefix is not None:
            return reader.runs_prefixed(tenant, wanted.prefix, after=str(place[1]) if place else "", limit=count)
        before = (int(place[0]), str(place[1])) if place else None
        return reader.runs_page(tenant, status=wanted.status, before=before, limit=count)

    found, following = _page(
        fetch,
        lambda row: wanted.name in {None, row.name},
        lambda row: (row.started_tick, row.run_id),
        (place, limit, count),
        lambda row: wanted.since_ms is not None and times.ms(row.started_tick) < wanted.since_ms,
    )
    return [view_of_run(row, times) for row in found], following


def _page(
    fetch: Callable[[Place | None], list[Row]],
    keep: Callable[[Row], bool],
    place_of: Callable[[Row], Place],
    bounds: tuple[Place | None, int, int],
    is_beyond: Callable[[Row], bool] = lambda _: False,
) -> tuple[list[Row], Place | None]:
    """Rows to show, at most so many, and the place behind the last row that was looked at; None at the end of all."""
    place, limit, count = bounds
    shown: list[Row] = []
    looked = 0
    while True:
        rows = fetch(place)
        for row in rows:
            if is_beyond(row):
                return shown, None
            if keep(row):
                if len(shown) == limit:
                    return shown, place
                shown.append(row)
            place = place_of(row)
        looked += len(rows)
        if len(rows) < count:
            return shown, None
        if looked >= LOOKED_AT_MAX:
            return shown, place


def _number_at(reader: StoreReader, seen: Seen, tenant: str, moment_ms: int) -> int:
    """The number from which on a tenant's jobs were submitted at a moment or later."""
    newest = reader.jobs_page(JobsWanted(tenant), limit=1)
    low, high = 0, newest[0][0] + 1 if newest else 0
    while low < high:
        middle = (low + high + 1) // 2  # Whether everything below it was submitted before the moment.
        found = reader.jobs_page(JobsWanted(tenant, before=middle), limit=1)
        if found and seen.times.ms(seen.view(found[0][1]).job.submitted_tick) >= moment_ms:
            high = middle - 1
        else:
            low = middle
    return low


def _refused(name: str, message: str) -> InvalidInput:
    errors: Sequence[dict[str, str]] = [{"path": f"query.{name}", "message": message}]
    return InvalidInput(f"query.{name}: {message}", code="VALIDATION_ERROR", details={"errors": list(errors)})
