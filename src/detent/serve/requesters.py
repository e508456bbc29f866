"""On whose behalf jobs and runs were submitted: what decides which of them a principal may cancel as its own.

It is part of what was signed: of a job's payload or order, and of a run's inputs. A job of a run belongs to the principal of its run. What
was submitted in the home itself, or whose payload was erased, belongs to no principal of the server.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from detent.errors import DetentError
from detent.jobs.platform_order import requested_by
from detent.kernel import Run
from detent.owner.content import Content, open_value, order_of
from detent.runs.record.inputs import RETRY_OF
from detent.runs.schedules.keeper import SCHEDULE_ID
from detent.store.api import JobRow, RunRow, StoreReader


class Starter(NamedTuple):
    """Who or what started a run; nothing is known of one that was started in the home itself, or whose inputs were erased."""

    principal_id: str | None
    schedule_id: str | None


UNKNOWN_STARTER = Starter(None, None)


def asked_for_job(reader: StoreReader, content: Content, row: JobRow) -> str | None:
    """The principal that a job was submitted for."""
    if row.run_id is not None:
        run = reader.run(row.run_id)
        return None if run is None or run.tenant_id != row.tenant_id else asked_for_run(content, run)
    order = order_of(content, row)
    return None if order is None else requested_by(order)


def asked_for_run(content: Content, row: RunRow) -> str | None:
    """The principal that a run was started for."""
    return starter_of(content, row).principal_id


def starter_of(content: Content, row: RunRow) -> Starter:
    """Who or what started a run. A retry of a scheduled run was started by the principal that asked for it."""
    data = content.get(Run.decode(row.body).inputs_digest)
    if data is None:
        return UNKNOWN_STARTER
    try:
        said: Any = open_value(data)
        about = said["about"]
        named, schedule = about.get("requested_by"), None if RETRY_OF in about else about.get(SCHEDULE_ID)
    except (DetentError, ValueError, TypeError, KeyError, AttributeError):
        return UNKNOWN_STARTER  # Inputs of another form: for `verify` to report.
    return Starter(named if isinstance(named, str) else None, schedule if isinstance(schedule, str) else None)
