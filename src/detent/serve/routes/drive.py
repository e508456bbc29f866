"""Runs, written: start, cancel and retry them; and contracts, checked and planned without running anything of them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, JsonValue

from detent.errors import RequestRefused
from detent.serve.audit import operated
from detent.serve.call import Answer, Call, Shape
from detent.serve.routes.runs import RunSummary, summary
from detent.serve.table import READING, Route
from detent.serve.waiting import Wait, until_ended
from detent.words.states import word_of

CONTRACT_BYTES_MAX: Final = 4 * 1024 * 1024
BODY_BYTES_MAX: Final = CONTRACT_BYTES_MAX + 1024 * 1024
PARALLEL_MAX: Final = 10_000
ContractText = Annotated[str, Field(min_length=1, max_length=CONTRACT_BYTES_MAX)]
Params = Annotated[dict[str, JsonValue], Field(max_length=1_000)]


class Options(Shape):
    """How a run goes about its work."""

    force: bool = False
    """Run every step again, without reuse."""
    reuse_failed: bool = False
    """Also reuse failures."""
    max_parallel: Annotated[int, Field(ge=1, le=PARALLEL_MAX)] | None = None
    """How many jobs of the run may be under way at once."""


class NewRun(Shape):
    """A contract and what to run it with."""

    contract: ContractText
    """The text of a contract file, YAML or JSON. Its functions are found in the directory that the server was started for."""
    params: Params = Field(default_factory=dict)
    options: Options = Options()


class StartedRun(Shape):
    """A run that is on the ledger and that the server drives."""

    run_id: str
    retry_of: str | None = None
    links: dict[str, str]


class StartQuery(Shape):
    """Whether to wait for its end."""

    wait: Wait = 0


class CancelRun(Shape):
    """Why a run is cancelled."""

    reason: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None


class CancelledRun(RunSummary):
    """A run after it was cancelled."""

    jobs_cancelled: int


class NoBody(Shape):
    """An empty object."""


class ContractToCheck(Shape):
    """A contract to look at."""

    contract: ContractText


class ContractToPlan(ContractToCheck):
    """A contract to plan with these values."""

    params: Params = Field(default_factory=dict)


class ContractFinding(Shape):
    """What is wrong with a contract, and where."""

    line: int | None
    column: int | None
    path: str | None
    message: str
    hint: str | None
    code: str | None


class CheckedContract(Shape):
    """Whether a contract is valid."""

    ok: bool
    name: str | None
    steps: int | None
    scheduled: bool | None
    findings: list[ContractFinding]
    findings_total: int


class PlannedStep(Shape):
    """What a run would do with a step now."""

    step: str
    needs: list[str]
    verdict: str
    """`run`, `reuse`, `join`, `depends` or `unknown`."""
    why: str
    total: int | None
    reused: int
    jobs: list[str]
    depends_on: list[str]
    changes: list[JsonValue]


class ContractPlan(Shape):
    """What a run of a contract would do now."""

    name: str
    steps: list[PlannedStep]
    missing: list[str]
    """Parameters that a run must be given."""
    warnings: list[str]


def _links(run_id: str) -> dict[str, str]:
    return {"run": f"/v1/runs/{run_id}", "steps": f"/v1/runs/{run_id}/steps"}


def _principal(call: Call) -> str:
    assert call.principal is not None
    return call.principal.principal_id


async def _start(call: Call) -> Answer:
    body: NewRun = call.body
    driving = call.serving.driving
    looked = await driving.look("bind", call.workspace, body.contract, params=body.params)
    options = {name: value for name, value in body.options.model_dump().items() if value}
    run_id = await driving.start(call.workspace, _principal(call), looked, options)
    return await _started(call, run_id, None)


async def _started(call: Call, run_id: str, retry_of: str | None) -> Answer:
    query: StartQuery = call.query
    if query.wait:
        await until_ended(
            call.serving.hub,
            "run",
            run_id,
            query.wait,
            lambda: call.read(lambda reader: reader.run(call.workspace, run_id)),
            lambda view: view.row.ended_tick is not None,
        )
    return Answer(StartedRun(run_id=run_id, retry_of=retry_of, links=_links(run_id)), status=202)


async def _cancel(call: Call) -> Answer:
    body: CancelRun = call.body
    run_id = call.path["run_id"]
    before = await call.read(lambda reader: reader.run(call.workspace, run_id))
    if before.row.ended_tick is not None and word_of(before.row.status) != "cancelled":
        raise RequestRefused(f"run {run_id!r} has ended: {word_of(before.row.status)}", code="CONFLICT")
    beside = operated(call, "run.cancel", "run", run_id, reason=body.reason)
    cancelled = await call.serving.driving.cancel(run_id, body.reason, beside)
    view = await call.read(lambda reader: reader.run(call.workspace, run_id))
    return Answer(CancelledRun.model_validate({**summary(view), "jobs_cancelled": len(cancelled.jobs)}))


async def _retry(call: Call) -> Answer:
    run_id = call.path["run_id"]
    view = await call.read(lambda reader: reader.run(call.workspace, run_id))
    retried = await call.serving.driving.retry(call.workspace, _principal(call), run_id, view.row.name)
    await call.serving.driving.record(operated(call, "run.retry", "run", run_id))
    return await _started(call, retried, run_id)


async def _check(call: Call) -> Answer:
    body: ContractToCheck = call.body
    said = await call.serving.driving.look("check", call.workspace, body.contract)
    findings = [ContractFinding.model_validate(finding) for finding in said.get("findings", ())]
    checked = CheckedContract(
        ok=said["ok"],
        name=said.get("name"),
        steps=said.get("steps"),
        scheduled=said.get("scheduled"),
        findings=findings,
        findings_total=said.get("findings_total", 0),
    )
    return Answer(checked)


async def _plan(call: Call) -> Answer:
    body: ContractToPlan = call.body
    said = await call.serving.driving.look("plan", call.workspace, body.contract, params=body.params)
    said.pop("ok")
    return Answer(ContractPlan.model_validate(said))


_LOOKING: Final = ("CONTRACT_INVALID", "CONTRACT_TOO_COSTLY", "INVALID_PARAMS", "POLICY_UNKNOWN", *READING)
_DRIVING: Final = ("NOT_READY", "NO_FEASIBLE_POOL", "OUTCOME_UNKNOWN")
ROUTES: Final = (
    Route(
        "POST",
        "/v1/runs",
        _start,
        "Start a run of a contract; the server drives it to its end.",
        "runs:write",
        (*_LOOKING, *_DRIVING),
        {202: StartedRun},
        query=StartQuery,
        body=NewRun,
        body_bytes_max=BODY_BYTES_MAX,
        idempotent=True,
    ),
    Route(
        "POST",
        "/v1/runs/{run_id}/cancel",
        _cancel,
        "Cancel a run: its open jobs are cancelled, then it is closed.",
        "runs:cancel",
        ("UNKNOWN_RUN", "CONFLICT", "OUTCOME_UNKNOWN", *READING),
        {200: CancelledRun},
        body=CancelRun,
        audited=True,
    ),
    Route(
        "POST",
        "/v1/runs/{run_id}/retry",
        _retry,
        "Run again what did not succeed of a run, as a new run.",
        "runs:write",
        ("UNKNOWN_RUN", "CONFLICT", "INVALID_PARAMS", *_DRIVING, *READING),
        {202: StartedRun},
        query=StartQuery,
        body=NoBody,
        idempotent=True,
        audited=True,
    ),
    Route(
        "POST",
        "/v1/contracts:validate",
        _check,
        "Check a contract; nothing of it is imported or run.",
        "runs:read",
        _LOOKING,
        {200: CheckedContract},
        body=ContractToCheck,
        body_bytes_max=BODY_BYTES_MAX,
    ),
    Route(
        "POST",
        "/v1/contracts:plan",
        _plan,
        "Plan a contract: what a run would do with each step now.",
        "runs:read",
        _LOOKING,
        {200: ContractPlan},
        body=ContractToPlan,
        body_bytes_max=BODY_BYTES_MAX,
    ),
)
