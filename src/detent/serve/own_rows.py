"""A store as one workspace sees it: its own jobs and runs, and nothing that names another's.

Pages (`detent list`, `show`, `explain`, ...) are made by functions that read a whole home, because that is what a user beside it may see.
On a server they get this reader instead: what looks a row up finds only the workspace's own, and everything that they read beyond that,
they reach from such a row. What is shared by all (epochs, tree heads, decisions) is passed on; `explain` is told the workspace and
names no foreign job. What would read every tenant's rows is not there at all.

Known weak spot: ids are ordered across workspaces, so a look by the beginning of an id passes over foreign rows. It gives up after
`FOREIGN_MAX` of them in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, cast

from detent.errors import InvariantBroken
from detent.store.api import JobRow, JobsWanted, RecordRow, RefusalRow, RunRow, StoreReader

FOREIGN_MAX: Final = 10_000
PAGE: Final = 1_000
SHARED: Final = frozenset(
    {
        *("origin", "partitions", "head", "batch", "records_of_kind", "decisions", "checkpoints", "tree_heads"),
        *("records", "batches", "is_erased", "content", "contents"),
        *("work", "work_of_keys", "work_labelled"),  # They take the workspace.
        *("jobs_page", "runs_page"),
    }
)
"""What is read as it is. Content is reached by digests that own rows name."""


class OwnRows:
    """A reader of one workspace. For the thread and the moment of the reader that it was made from."""

    def __init__(self, reader: StoreReader, tenant: str) -> None:
        self._reader, self._tenant = reader, tenant

    def __getattr__(self, name: str) -> Any:
        if name not in SHARED:
            raise InvariantBroken(f"a page of one workspace reads {name}")
        return getattr(self._reader, name)

    def job(self, job_id: str) -> JobRow | None:
        """The job, if it is here."""
        row = self._reader.job(job_id)
        return row if row is not None and row.tenant_id == self._tenant else None

    def run(self, run_id: str) -> RunRow | None:
        """The run, if it is here."""
        row = self._reader.run(run_id)
        return row if row is not None and row.tenant_id == self._tenant else None

    def jobs_of(self, job_ids: Sequence[str]) -> list[JobRow]:
        """Those of many that are here."""
        return [row for row in self._reader.jobs_of(job_ids) if row.tenant_id == self._tenant]

    def jobs(
        self,
        *,
        run_id: str | None = None,
        state: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Iterator[JobRow]:
        """The own jobs by id."""
        if run_id is not None and self.run(run_id) is None:
            return iter(())
        return islice(self._own(self._reader.jobs(run_id=run_id, state=state, after=after)), limit)

    def recent_jobs(
        self, *, run_id: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Iterator[JobRow]:
        """The own jobs, newest first."""
        return islice(self._recent(run_id, state), limit)

    def runs(self, *, status: str | None = None, limit: int | None = None) -> Iterator[RunRow]:
        """The own runs, newest first."""
        return islice(self._runs(status), limit)

    def job_counts(self) -> dict[str, int]:
        """How many of the own jobs are in each state."""
        jobs, _ = self._reader.tenant_counts()
        return {state: number for (tenant, state), number in jobs.items() if tenant == self._tenant}

    def records_of_job(self, job_id: str) -> Iterator[RecordRow]:
        """The records of an own job."""
        return self._reader.records_of_job(job_id) if self.job(job_id) is not None else iter(())

    def transition(self, job_id: str, transition_seq: int) -> RecordRow | None:
        """A record of an own job."""
        return self._reader.transition(job_id, transition_seq) if self.job(job_id) is not None else None

    def transitions(self, wanted: Sequence[tuple[str, int]]) -> Iterator[RecordRow]:
        """Records of own jobs."""
        own = {row.job_id for row in self.jobs_of([job_id for job_id, _ in wanted])}
        return self._reader.transitions([one for one in wanted if one[0] in own])

    def submissions(self, job_ids: Sequence[str]) -> Iterator[RecordRow]:
        """The first records of own jobs."""
        return self._reader.submissions([row.job_id for row in self.jobs_of(job_ids)])

    def records_of_run(self, run_id: str) -> Iterator[RecordRow]:
        """The records of an own run."""
        return self._reader.records_of_run(run_id) if self.run(run_id) is not None else iter(())

    def record_of_run(self, run_id: str, kind: str) -> RecordRow | None:
        """A record of an own run."""
        return self._reader.record_of_run(run_id, kind) if self.run(run_id) is not None else None

    def labels_of_run(self, run_id: str) -> set[str]:
        """What the jobs of an own run do."""
        return self._reader.labels_of_run(run_id) if self.run(run_id) is not None else set()

    def refusals(self, *, job_id: str | None = None, limit: int = 100) -> Iterator[RefusalRow]:
        """Refusals of an own job. One that made no job names no workspace, so it is not told."""
        own = job_id is not None and self.job(job_id) is not None
        return self._reader.refusals(job_id=job_id, limit=limit) if own else iter(())

    def _own(self, rows: Iterator[JobRow]) -> Iterator[JobRow]:
        foreign = 0
        for row in rows:
            if row.tenant_id == self._tenant:
                foreign = 0
                yield row
            elif (foreign := foreign + 1) > FOREIGN_MAX:
                return

    def _recent(self, run_id: str | None, state: str | None) -> Iterator[JobRow]:
        before: int | None = None
        while page := self._reader.jobs_page(JobsWanted(self._tenant, run_id, state, before=before), limit=PAGE):
            yield from (row for _, row in page)
            before = page[-1][0]

    def _runs(self, status: str | None) -> Iterator[RunRow]:
        before: tuple[int, str] | None = None
        while page := self._reader.runs_page(self._tenant, status=status, before=before, limit=PAGE):
            yield from page
            before = (page[-1].started_tick, page[-1].run_id)


def own_rows(reader: StoreReader, tenant: str) -> StoreReader:
    """A reader that finds the rows of one workspace alone."""
    return cast("StoreReader", OwnRows(reader, tenant))
