"""Pages of one tenant's jobs and runs: each by an index that finds the next rows without reading the others."""

from __future__ import annotations

from typing import Any, Final

from detent.kernel.table import State
from detent.store.api import JobRow, JobsWanted, RunRow
from detent.store.beside_reader import SCHEMA_WITH_LABELS
from detent.store.checks import INTEGER_MAX, maker
from detent.store.named_queries import NamedQueries

_JOB_ROW: Final = maker(JobRow)
_RUN_ROW: Final = maker(RunRow)
_LAST: Final = "\U0010ffff"
"""Behind every character of an id."""


class TenantPages(NamedQueries):
    """The part of a reader that lists what belongs to one tenant."""

    def jobs_page(self, wanted: JobsWanted, *, limit: int) -> list[tuple[int, JobRow]]:
        """A tenant's jobs as they were submitted, newest first, each with its number."""
        tenant_id, run_id, state, label, before, pool = wanted
        if run_id is not None:
            name = "jobs_page_of_run"
        elif label is not None or pool is not None:
            if not self._knows(SCHEMA_WITH_LABELS):
                return []
            name = "jobs_page_in_pool" if label is None else "jobs_page_labelled"
        elif state in {None, State.SUCCEEDED}:
            name = "jobs_page"  # Most jobs of a long history have succeeded.
        else:
            # Few jobs are live at a time, of all tenants together; what ended badly adds up.
            name = "jobs_page_ended" if state in {State.FAILED, State.CANCELED} else "jobs_page_live"
        most = INTEGER_MAX if before is None else min(before, INTEGER_MAX)
        return list(self._rows(_numbered_job, name, tenant_id, most, limit, state, run_id or label or pool))

    def jobs_prefixed(self, tenant_id: str, prefix: str, *, after: str = "", limit: int) -> list[JobRow]:
        """A tenant's jobs whose ids begin so, by id."""
        return list(self._rows(_JOB_ROW, "jobs_prefixed", tenant_id, prefix, prefix + _LAST, after, limit))

    def runs_page(
        self, tenant_id: str, *, status: str | None = None, before: tuple[int, str] | None = None, limit: int
    ) -> list[RunRow]:
        """A tenant's runs, newest first."""
        tick, run_id = before or (INTEGER_MAX, "")
        name = "runs_page" if status is None else "runs_page_of_status"
        return list(self._rows(_RUN_ROW, name, tenant_id, min(tick, INTEGER_MAX), run_id, limit, status))

    def runs_prefixed(self, tenant_id: str, prefix: str, *, after: str = "", limit: int) -> list[RunRow]:
        """A tenant's runs whose ids begin so, by id."""
        return list(self._rows(_RUN_ROW, "runs_prefixed", tenant_id, prefix, prefix + _LAST, after, limit))

    def last_run_prefixed(self, tenant_id: str, prefix: str) -> RunRow | None:
        """The last, by id, of a tenant's runs whose ids begin so."""
        return self._one(_RUN_ROW, "last_run_prefixed", tenant_id, prefix, prefix + _LAST)

    def tenant_counts(self) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        """How many jobs each tenant has in each state, and how many runs of each status."""
        jobs = {(row[0], row[1]): row[2] for row in self._rows(tuple, "tenant_job_counts")}
        runs = {(row[0], row[1]): row[2] for row in self._rows(tuple, "tenant_run_counts")}
        return jobs, runs


def _numbered_job(row: tuple[Any, ...]) -> tuple[int, JobRow]:
    return row[0], _JOB_ROW(row[1:])
