"""Bundles to take away, and verification by the server: of one run for its workspace, of the whole ledger for its auditors."""

from __future__ import annotations

import json
from typing import Final

from pydantic import Field, JsonValue

from detent.errors import InvalidInput
from detent.inspect.audit_child import ALL, NO_CONTENT, REPORTS
from detent.serve.audit import operated
from detent.serve.auditing import Verification, pieces
from detent.serve.call import Answer, Call, Shape
from detent.serve.routes.drive import NoBody
from detent.serve.table import READING, Route
from detent.serve.times import written_ms
from detent.serve.writing import Writing

BYTES: Final = "application/octet-stream"
FINDINGS_MAX: Final = 200
NEVER: Final = "never"
LEDGER: Final = "ledger"


class LedgerBundleQuery(Shape):
    """What a bundle holds beside the records."""

    reports: bool = True
    """The executors' signed reports, with small results and the beginning of each output."""


class RunBundleQuery(LedgerBundleQuery):
    """The same for a run."""

    content: bool = False
    """Payloads, results and all other content that its records refer to; the reports are among it."""


class VerifyFinding(Shape):
    """Something that does not hold, and where."""

    code: str
    message: str
    place: str | None
    """Partition, batch and record, as far as they are known."""
    meaning: str


class Verified(Shape):
    """What a verification found, or how far it is."""

    state: str
    """`never`, `running`, `done`, or `failed` where it could not be made."""
    started_at: str | None = None
    ended_at: str | None = None
    ok: bool | None = None
    """Whether everything holds; null until it is done."""
    error: str | None = None
    """Why it could not be made."""
    origin: str | None = None
    root: str | None = None
    """The root digest that it was checked against: the home's own. A root that you have by another way proves more."""
    counts: dict[str, JsonValue] = Field(default_factory=dict)
    proved: list[str] = Field(default_factory=list)
    not_proved: list[str] = Field(default_factory=list)
    """What the verification does not show."""
    findings_total: int = 0
    findings: list[VerifyFinding] = Field(default_factory=list)
    """The first of them."""


async def _run_bundle(call: Call) -> Answer:
    run_id = await _own_run(call)
    query: RunBundleQuery = call.query
    if query.content and not query.reports:
        raise InvalidInput(
            "content includes the reports: ask for content, or leave the reports out",
            code="VALIDATION_ERROR",
            details={"errors": [{"path": "query.reports", "message": "content includes the reports"}]},
        )
    return await _bundle(call, run_id, ALL if query.content else REPORTS if query.reports else NO_CONTENT)


async def _ledger_bundle(call: Call) -> Answer:
    return await _bundle(call, None, REPORTS if call.query.reports else NO_CONTENT)


async def _bundle(call: Call, run_id: str | None, held: str) -> Answer:
    """Write a bundle, record who takes it away, and send it."""
    made = await call.serving.auditing.bundle(call.workspace, run_id, held)
    try:
        record = operated(call, "export", LEDGER if run_id is None else "run", run_id or LEDGER)
        await call.write(lambda: Writing(commands=[record]))
    except BaseException:
        made.file.close()
        raise
    headers = {
        "detent-root": made.root,
        "detent-counts": json.dumps(made.counts),
        "content-length": str(made.size_bytes),
        "content-disposition": f'attachment; filename="{run_id or LEDGER}.detent"',
    }
    return Answer(pieces(made), headers=headers)


async def _verify_run(call: Call) -> Answer:
    run_id = await _own_run(call)
    return await _verify(call, run_id)


async def _verify_ledger(call: Call) -> Answer:
    return await _verify(call, None)


async def _verify(call: Call, run_id: str | None) -> Answer:
    record = operated(call, "verify", LEDGER if run_id is None else "run", run_id or LEDGER)
    await call.write(lambda: Writing(commands=[record]))
    return Answer(_told(call.serving.auditing.verify(call.workspace, run_id)), status=202)


async def _run_verified(call: Call) -> Answer:
    run_id = await _own_run(call)
    return Answer(_told(call.serving.auditing.verification(call.workspace, run_id)))


async def _ledger_verified(call: Call) -> Answer:
    return Answer(_told(call.serving.auditing.verification(call.workspace, None)))


async def _own_run(call: Call) -> str:
    view = await call.read(lambda reader: reader.run(call.workspace, call.path["run_id"]))
    return view.row.run_id


def _told(found: Verification | None) -> Verified:
    if found is None:
        return Verified(state=NEVER)
    started_at, ended_at = written_ms(found.started_ms), written_ms(found.ended_ms)
    report = found.report
    if report is None:
        return Verified(state=found.state, error=found.error, started_at=started_at, ended_at=ended_at)
    return Verified(
        state=found.state,
        started_at=started_at,
        ended_at=ended_at,
        ok=report["ok"],
        origin=report["origin"],
        root=report["root"],
        counts=report["counts"],
        proved=report["proved"],
        not_proved=report["not_proved"],
        findings_total=report["findings_total"],
        findings=[
            VerifyFinding(code=one["code"], message=one["message"], place=_place(one), meaning=one["meaning"])
            for one in report["findings"][:FINDINGS_MAX]
        ],
    )


def _place(finding: dict[str, object]) -> str | None:
    named = {"partition": "partition", "batch_no": "batch", "position": "record", "job_id": "job"}
    found = [f"{word} {finding[name]}" for name, word in named.items() if finding[name] is not None]
    return ", ".join(found) or None


_OF_RUN: Final = ("UNKNOWN_RUN", "NOT_READY", *READING)
_WRITES: Final = ("OUTCOME_UNKNOWN", "INBOX_FULL")
_EXPORTS: Final = (*_WRITES, "RATE_LIMITED", "HOME_INVALID", "HOME_COPIED")
ROUTES: Final = (
    Route(
        "GET",
        "/v1/runs/{run_id}/bundle",
        _run_bundle,
        "Export a run as a file that anyone can verify offline; `Detent-Root` has the root to verify it against, `Detent-Counts` what it holds.",
        "ledger:export",
        (*_OF_RUN, *_EXPORTS),
        {200: None},
        query=RunBundleQuery,
        media_type=BYTES,
        audited=True,
        action="export",
    ),
    Route(
        "POST",
        "/v1/runs/{run_id}/verify",
        _verify_run,
        "Begin to verify a run; the same address tells what comes of it.",
        "runs:read",
        (*_OF_RUN, *_WRITES),
        {202: Verified},
        body=NoBody,
        audited=True,
        action="verify",
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}/verify",
        _run_verified,
        "Read what the last verification of a run has proved, and what not.",
        "runs:read",
        _OF_RUN,
        {200: Verified},
    ),
    Route(
        "GET",
        "/v1/ledger/bundle",
        _ledger_bundle,
        "Export the whole ledger, of all workspaces, as a file that anyone can verify and replay offline.",
        "server:audit",
        ("NOT_READY", *READING, *_EXPORTS),
        {200: None},
        query=LedgerBundleQuery,
        media_type=BYTES,
        audited=True,
        action="export",
    ),
    Route(
        "POST",
        "/v1/ledger/verify",
        _verify_ledger,
        "Begin to verify the whole ledger and everything that is stored beside it.",
        "server:audit",
        ("NOT_READY", *READING, *_WRITES),
        {202: Verified},
        body=NoBody,
        audited=True,
        action="verify",
    ),
    Route(
        "GET",
        "/v1/ledger/verify",
        _ledger_verified,
        "Read what the last verification of the ledger has proved, and what not.",
        "server:audit",
        READING,
        {200: Verified},
    ),
)
