"""Runs, written: start, cancel and retry them, from source trees too; and contracts, checked and planned without running them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, JsonValue

from detent.canon import digest_text, parse_digest
from detent.errors import InvalidInput, RequestRefused
from detent.jobs.source_tree import FILES_MAX, LIST_BYTES_MAX, TREE_BYTES_MAX, TreeFile, source_tree
from detent.kernel import Operate
from detent.runs.record.inputs import REQUEST_ID, TRACEPARENT
from detent.serve.audit import operated
from detent.serve.call import WHOLE, Answer, Call, Shape
from detent.serve.routes.change import not_own
from detent.serve.routes.runs import RunSummary, summary
from detent.serve.routes.submit import SALT_CHARS_MAX
from detent.serve.routes.uploads import DIGEST_PATTERN
from detent.serve.table import READING, Route
from detent.serve.waiting import Wait, until_ended
from detent.words.states import CANCELLED, word_of

CONTRACT_BYTES_MAX: Final = 4 * 1024 * 1024
BODY_BYTES_MAX: Final = CONTRACT_BYTES_MAX + 1024 * 1024
PARALLEL_MAX: Final = 10_000
RUNS_CANCEL: Final = "runs:cancel"
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
    salt: Annotated[str, Field(min_length=1, max_length=SALT_CHARS_MAX)] | None = None
    """Part of every key: only results under the same salt are reused."""

    def asked(self) -> dict[str, Any]:
        """What was asked for beside the defaults."""
        return {name: value for name, value in self.model_dump().items() if value}


class TreeEntry(Shape):
    """A contract file in a source tree."""

    tree: Annotated[str, Field(pattern=DIGEST_PATTERN)]
    """The digest of the tree's list, as `POST /v1/trees:missing` tells it; the list and all files were uploaded."""
    entry: Annotated[str, Field(min_length=1, max_length=1_024)]
    """The path of the contract file in the tree. Its functions are found beside it."""


class NewRun(Shape):
    """A contract and what to run it with."""

    contract: ContractText | TreeEntry
    """The text of a contract file, whose functions are found in the directory that the server was started for; or a file in a
    source tree."""
    params: Params = Field(default_factory=dict)
    options: Options = Options()


class TreeListFile(Shape):
    """One file of a source tree."""

    path: Annotated[str, Field(min_length=1, max_length=1_024)]
    digest: Annotated[str, Field(pattern=DIGEST_PATTERN)]
    size_bytes: Annotated[int, Field(ge=0, le=TREE_BYTES_MAX), WHOLE]
    executable: bool = False


class TreeList(Shape):
    """The files of a source tree."""

    files: Annotated[list[TreeListFile], Field(max_length=FILES_MAX)]


class TreeMissing(Shape):
    """What has to be uploaded before a source tree can be used."""

    tree: str
    """The digest of the tree."""
    missing: list[str]
    """Digests that this workspace has not uploaded; the tree's own is that of `list`."""
    list: str
    """The canonical list of the tree, to be uploaded as it is."""


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


def _once(call: Call) -> bytes | None:
    """What tells this request from all others but its repetitions; None without an idempotency key."""
    return None if call.once is None else call.once.scope + call.once.body


def _traced(call: Call) -> dict[str, str | None]:
    """How the request is known, as the inputs of a run say it."""
    return {TRACEPARENT: call.traceparent, REQUEST_ID: call.logged_id}


async def _start(call: Call) -> Answer:
    body: NewRun = call.body
    looked = await looked_at(call, body)
    options = body.options.asked()
    run_id = await call.serving.driving.start(
        call.workspace, _principal(call), looked, options, once=_once(call), traced=_traced(call)
    )
    return await _started(call, run_id, None)


async def looked_at(call: Call, body: NewRun) -> dict[str, Any]:
    """A contract as the checker found it, with its parameters; refuses one that names files which this workspace has not."""
    driving = call.serving.driving
    if isinstance(body.contract, TreeEntry):
        text, place = await _from_tree(call, body.contract)
        looked = await driving.look("bind", call.workspace, text, params=body.params, **place)
    else:
        looked = await driving.look("bind", call.workspace, body.contract, params=body.params)
    named = [parse_digest(digest) for digest in looked["files"]]
    await call.serving.uploads.insist_on_known(call.workspace, named, "body.contract")
    return looked


async def _from_tree(call: Call, named: TreeEntry) -> tuple[str, dict[str, str]]:
    """The text of a contract file in a source tree, and where its functions are found."""

    async def insist(digests: list[bytes]) -> None:
        await call.serving.uploads.insist_on_known(call.workspace, digests, "body.contract.tree")

    tree, directory = await call.serving.driving.lay_out(parse_digest(named.tree), insist)
    found = next((one for one in tree.files if one.path == named.entry), None)
    if found is None or found.size_bytes > CONTRACT_BYTES_MAX:
        raise InvalidInput(
            "the source tree has no such contract file" if found is None else "the contract file is too large",
            code="TREE_INVALID",
            hint="`entry` is the path of a file in the tree",
        )
    path = directory / named.entry
    try:
        text = path.read_text(encoding="utf-8")
    except ValueError:
        raise InvalidInput("the contract file is not UTF-8", code="TREE_INVALID") from None
    return text, {"base": str(path.parent), "name": named.entry}


async def _missing(call: Call) -> Answer:
    body: TreeList = call.body
    files = [TreeFile(one.path, parse_digest(one.digest), one.size_bytes, one.executable) for one in body.files]
    tree = source_tree(files)
    wanted = list(dict.fromkeys([*(one.digest for one in tree.files), tree.digest()]))
    missing = await call.serving.uploads.missing(call.workspace, wanted)
    answer = TreeMissing(
        tree=digest_text(tree.digest()), missing=[digest_text(digest) for digest in missing], list=tree.data().decode()
    )
    return Answer(answer)


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
    if not call.may(RUNS_CANCEL):
        own = await call.read(lambda reader: reader.is_run_of(call.workspace, run_id, _principal(call)))
        if not own:
            raise not_own(f"run {run_id}", RUNS_CANCEL)
    if before.row.ended_tick is not None and word_of(before.row.status) != CANCELLED:
        raise RequestRefused(f"run {run_id!r} has ended: {word_of(before.row.status)}", code="CONFLICT")
    beside = operated(call, "run.cancel", "run", run_id, reason=body.reason)
    cancelled = await call.serving.driving.cancel(run_id, body.reason, beside)
    view = await call.read(lambda reader: reader.run(call.workspace, run_id))
    return Answer(CancelledRun.model_validate({**summary(view), "jobs_cancelled": len(cancelled.jobs)}))


async def _retry(call: Call) -> Answer:
    run_id = call.path["run_id"]
    view = await call.read(lambda reader: reader.run(call.workspace, run_id))

    def behind(retry: str) -> Operate:
        return operated(call, "run.retry", "run", run_id, parameters={"run_id": retry})

    retried = await call.serving.driving.retry(
        call.workspace, _principal(call), run_id, view.row.name, behind, _once(call), _traced(call)
    )
    return await _started(call, retried, run_id)


async def _check(call: Call) -> Answer:
    body: ContractToCheck = call.body
    said = await call.serving.driving.look("check", call.workspace, body.contract)
    findings = [ContractFinding.model_validate(finding) for finding in said.get("findings", ())]
    checked = CheckedContract(
        ok=said["ok"],
        name=said.get("name"),
        steps=said.get("steps"),
        scheduled=said["schedule"] is not None if said["ok"] else None,
        findings=findings,
        findings_total=said.get("findings_total", 0),
    )
    return Answer(checked)


async def _plan(call: Call) -> Answer:
    body: ContractToPlan = call.body
    said = await call.serving.driving.look("plan", call.workspace, body.contract, params=body.params)
    said.pop("ok")
    return Answer(ContractPlan.model_validate(said))


LOOKING: Final = ("CONTRACT_INVALID", "CONTRACT_TOO_COSTLY", "INVALID_PARAMS", "POLICY_UNKNOWN", *READING)
DRIVING: Final = ("NOT_READY", "NO_FEASIBLE_POOL", "OUTCOME_UNKNOWN")
NAMING: Final = ("TREE_INVALID", "CONTENT_UNKNOWN", "CONTENT_GONE", "NOT_STRICT_JSON")
"""The codes of a contract that is given as a text, or in a source tree."""
ROUTES: Final = (
    Route(
        "POST",
        "/v1/runs",
        _start,
        "Start a run of a contract; the server drives it to its end.",
        "runs:write",
        (*LOOKING, *DRIVING, *NAMING),
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
        RUNS_CANCEL,
        ("UNKNOWN_RUN", "CONFLICT", "OUTCOME_UNKNOWN", *READING),
        {200: CancelledRun},
        body=CancelRun,
        audited=True,
        action="run.cancel",
    ),
    Route(
        "POST",
        "/v1/runs/{run_id}/retry",
        _retry,
        "Run again what did not succeed of a run, as a new run.",
        "runs:write",
        ("UNKNOWN_RUN", "CONFLICT", "INVALID_PARAMS", *DRIVING, *READING),
        {202: StartedRun},
        query=StartQuery,
        body=NoBody,
        idempotent=True,
        audited=True,
        action="run.retry",
    ),
    Route(
        "POST",
        "/v1/trees:missing",
        _missing,
        "List what has to be uploaded before a source tree can be used.",
        "artifacts:write",
        ("TREE_INVALID", *READING),
        {200: TreeMissing},
        body=TreeList,
        body_bytes_max=LIST_BYTES_MAX,
    ),
    Route(
        "POST",
        "/v1/contracts:validate",
        _check,
        "Check a contract; nothing of it is imported or run.",
        "runs:read",
        LOOKING,
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
        LOOKING,
        {200: ContractPlan},
        body=ContractToPlan,
        body_bytes_max=BODY_BYTES_MAX,
    ),
)
