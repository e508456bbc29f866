"""Which steps of a run have changed behind a position of the ledger, so that a page of a large run need not be read whole again.

The records between the position and now name jobs; those are of steps. What a step waits for decides its state as well, so the steps that
need a changed one count as changed, and those that need these. Where too much has happened, or the run itself began or ended, all have.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from detent.canon import decode_trusted
from detent.kernel.history import RUN_ENDED, RUN_REUSED, STEP_REUSED
from detent.kernel.identity import partition_of
from detent.kernel.records import RUN_STARTED
from detent.runs.record.recorded_run import RecordedRun
from detent.store.api import StoreReader

RECORDS_MAX: Final = 20_000
"""Records that are looked at; behind more of them, everything counts as changed."""
_WHOLE: Final = frozenset({RUN_STARTED, RUN_ENDED, RUN_REUSED})


class Behind(NamedTuple):
    """What has happened to a run behind a position."""

    position: str
    """Where the ledger stands: the position to ask with the next time."""
    jobs: frozenset[str] | None
    """The jobs that records name; None: all of them."""


def behind(reader: StoreReader, run_id: str, since: str | None) -> Behind:
    """The jobs of a run that records name behind an event id such as `0:1234`; all where there is none for the run's partition."""
    partition = partition_of(run_id, reader.partitions)
    end = reader.head(partition).next_position
    at = dict(part.split(":") for part in since.split(",")) if since else {}
    first = int(at[str(partition)]) + 1 if str(partition) in at else 0
    position = f"{partition}:{end - 1}"
    if not at or end - first > RECORDS_MAX or first > end:
        return Behind(position, None)
    jobs: set[str] = set()
    for row in reader.records(partition, first, end):
        if row.run_id != run_id:
            continue
        if row.kind in _WHOLE:
            return Behind(position, None)
        if row.job_id is not None:
            jobs.add(row.job_id)
        if row.kind == STEP_REUSED:
            jobs.add(decode_trusted(row.body)["job_id"])
    return Behind(position, frozenset(jobs))


def changed_steps(run: RecordedRun, jobs: frozenset[str]) -> frozenset[str]:
    """The steps of these jobs, and all that wait for them."""
    changed = {
        step.key for step in run.steps if any(one.carrier in jobs or one.job_id in jobs for one in step.elements)
    }
    before = -1
    while len(changed) != before:
        before = len(changed)
        changed |= {step.key for step in run.steps if not changed.isdisjoint((*step.needs, *step.waits_for))}
    return frozenset(changed)
