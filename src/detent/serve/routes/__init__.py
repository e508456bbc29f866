"""The routes, by what they are about; `ALL` is the table's content, in the order of the reference."""

from __future__ import annotations

from typing import Final

from detent.serve.routes import (
    about,
    audit,
    batch,
    bundles,
    change,
    drive,
    files,
    home,
    job_value,
    jobs,
    keys,
    ledger,
    me,
    members,
    pages,
    run_history,
    run_outcome,
    runs,
    sessions,
    submit,
    told,
    uploads,
    webhooks,
    workers,
)
from detent.serve.table import Route

ALL: Final[tuple[Route, ...]] = (
    *about.ROUTES,
    *home.ROUTES,
    *jobs.ROUTES,
    *job_value.ROUTES,
    *submit.ROUTES,
    *batch.ROUTES,
    *change.ROUTES,
    *sessions.ROUTES,
    *runs.ROUTES,
    *run_history.ROUTES,
    *run_outcome.ROUTES,
    *drive.ROUTES,
    *files.ROUTES,
    *uploads.ROUTES,
    *ledger.ROUTES,
    *bundles.ROUTES,
    *me.ROUTES,
    *keys.ROUTES,
    *members.ROUTES,
    *webhooks.ROUTES,
    *audit.ROUTES,
    *told.ROUTES,
    *pages.ROUTES,
    *workers.ROUTES,
)
