"""The ledger as one workspace sees it: every method takes the workspace, and what belongs to another does not exist.

Handlers get this and never a store reader (tests/rooms.py refuses that import in `serve/routes`), so a route cannot forget to
ask whose a row is. A row is looked at before anything that it names: a digest found in a foreign row is never followed.

For one thread. What takes several looks at the ledger looks at one moment of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from detent.errors import InvalidInput
from detent.owner.content import Content
from detent.owner.home import Home
from detent.owner.views import JobView, RunView, Times, view_of_job, view_of_run
from detent.owner.wiring import Parts
from detent.store.api import JobRow, RunRow, StoreReader


class TenantReader:
    """Reads a home for the workspaces that it serves."""

    def __init__(self, home: Home, parts: Parts) -> None:
        self._home, self._parts = home, parts
        self._reader = parts.read_ledger(home.ledger)
        self._times: tuple[int, Times] | None = None

    def close(self) -> None:
        """Let go of the ledger."""
        self._reader.close()

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs(
        self, tenant: str, *, run_id: str | None, state: str | None, before: int | None, limit: int
    ) -> list[tuple[int, JobView]]:
        """A page of jobs as they were submitted, newest first, each with its number."""
        times = self._times_now()
        found = self._reader.jobs_page(tenant, run_id=run_id, state=state, before=before, limit=limit)
        return [(number, view_of_job(row, times)) for number, row in found]

    def jobs_of(self, tenant: str, job_ids: Sequence[str]) -> list[JobView]:
        """Those of these jobs that exist here, in the order in which they were asked for."""
        times = self._times_now()
        found = {row.job_id: row for row in self._reader.jobs_of(job_ids) if row.tenant_id == tenant}
        return [view_of_job(found[job_id], times) for job_id in dict.fromkeys(job_ids) if job_id in found]

    def job(self, tenant: str, job_id: str) -> JobView:
        """One job as it stands."""
        return view_of_job(_own_job(self._reader, tenant, job_id), self._times_now())

    # -- runs ----------------------------------------------------------------------------------------------------------

    def runs(self, tenant: str, *, status: str | None, before: tuple[int, str] | None, limit: int) -> list[RunView]:
        """A page of runs, newest first."""
        times = self._times_now()
        found = self._reader.runs_page(tenant, status=status, before=before, limit=limit)
        return [view_of_run(row, times) for row in found]

    def run(self, tenant: str, run_id: str) -> RunView:
        """One run as it stands."""
        return view_of_run(_own_run(self._reader, tenant, run_id), self._times_now())

    # -- inside --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _moment(self) -> Iterator[tuple[StoreReader, Content]]:
        """The ledger at one moment, with the content that it names."""
        with self._parts.open_snapshot(self._home.ledger) as reader:
            yield reader, Content(reader, self._home.content_files())

    def _times_now(self) -> Times:
        """How ticks are written as time. Every owner records it anew, so it is read once for each."""
        epoch = self._reader.head(0).epoch
        if self._times is None or self._times[0] != epoch:
            self._times = (epoch, Times.of(self._reader))
        return self._times[1]


def _own_job(reader: StoreReader, tenant: str, job_id: str) -> JobRow:
    row = reader.job(job_id)
    if row is None or row.tenant_id != tenant:
        raise InvalidInput(
            "there is no such job in this workspace", code="UNKNOWN_JOB", hint="GET /v1/jobs lists the jobs"
        )
    return row


def _own_run(reader: StoreReader, tenant: str, run_id: str) -> RunRow:
    row = reader.run(run_id)
    if row is None or row.tenant_id != tenant:
        raise InvalidInput(
            "there is no such run in this workspace", code="UNKNOWN_RUN", hint="GET /v1/runs lists the runs"
        )
    return row
