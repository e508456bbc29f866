"""What was refused about a job, from the decision log.

That log is bounded and not signed (X-182): what it says is told, and nothing is built upon it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from detent.canon import NotCanonical, decode, digest_text
from detent.engine.explain_chapter import Chapter, capital, decision_lines, read_decision
from detent.engine.inspect import Times
from detent.kernel import identity
from detent.store.api import RefusalRow, StoreReader

REFUSALS_READ_MAX: Final = 1_000
"""Newest refusals of one job that are looked at; equal ones in a row are told once."""
REFUSALS_TOLD_MAX: Final = 20

_WHAT: Final[Mapping[str, str]] = {
    identity.JOB_SUBMIT: "submission refused",
    identity.JOB_CANCEL: "cancellation refused",
    identity.JOB_HEARTBEAT: "heartbeat refused",
}


def refusals_of(reader: StoreReader, job_id: str, times: Times) -> tuple[Chapter, ...]:
    """What was refused about a job, oldest first: of equal answers in a row the last, with their number."""
    rows = list(reader.refusals(job_id=job_id, limit=REFUSALS_READ_MAX))
    told = [_refusal(row, times) for row in reversed(rows)]
    groups = [list(group) for _, group in groupby(told, key=lambda chapter: (chapter.what, chapter.why))]
    return tuple(replace(group[-1], times=len(group)) for group in groups[-REFUSALS_TOLD_MAX:])


def _refusal(row: RefusalRow, times: Times) -> Chapter:
    error = _read_error(row.body)
    diagnostics = error.get("diagnostics")
    diagnostics = diagnostics if isinstance(diagnostics, dict) else {}
    details = diagnostics.get("details")
    decision = read_decision(details.get("decision")) if isinstance(details, dict) else None
    if decision is None:
        message = diagnostics.get("message")
        said = f"{capital(str(message))} ({row.code})." if message else f"The reason cannot be read ({row.code})."
        why = [said]
    else:
        why = decision_lines(decision)
    operator = error.get("failure_operator")
    what = _WHAT.get(str(operator), "request refused")
    result = details.get("result_digest") if isinstance(details, dict) else None
    if isinstance(result, bytes):
        what = "result discarded"
        why.append(f"Nothing of it was kept but its digest, {digest_text(result)}.")
    # Whoever is told that the job exists already asked after it was made; any other submission came before.
    rank = 0 if operator == identity.JOB_SUBMIT and row.code != "CONFLICT" else 2
    return Chapter(row.tick, times.iso(row.tick), what, tuple(why), decision=decision, rank=rank)


def _read_error(body: object) -> dict[str, Any]:
    """What an entry of the decision log says; nothing when it cannot be read, for that log is not signed."""
    try:
        error = decode(body) if isinstance(body, bytes) else None
    except NotCanonical:
        return {}
    return error if isinstance(error, dict) else {}
