"""Running again what did not succeed (X-154, A.7). Nothing that has ended is touched: a retry is a new run, or a new job.

A run is started once more with the contract and the values that were recorded, and takes by content everything that
succeeded; its inputs name the run that it retries. A single task is submitted once more with the same order, which names the
job that it retries.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import UUID

from detent.canon.late import dataclass
from detent.contract import ContractInvalid, load
from detent.contract.words import BYTES_MAX
from detent.errors import DetentError, InvalidInput, RequestRefused
from detent.jobs.dedupe import ExecutionKey
from detent.jobs.elements import element_id
from detent.jobs.order import Call, Order, Retries
from detent.jobs.work import WorkReport
from detent.kernel import Job, Run
from detent.kernel.run import RUNNING
from detent.kernel.table import TERMINAL
from detent.owner.backend import Backend
from detent.reuse.ingredients import default_shell
from detent.reuse.work_keys import WorkKeys
from detent.runs.record.inputs import RETRY_OF, RunIdentity, RunInputs, RunLock, digests_of, parse_inputs
from detent.runs.runtime import Runtime
from detent.runs.submit.calls import value_digests
from detent.runs.submit.submitter import Submitter
from detent.store.api import JobRow
from detent.workers.bench import Attempted

LOOK_SECONDS: Final = 0.2
"""How often the ledger is asked whether a job has ended, when it is not announced."""


@dataclass(frozen=True, slots=True)
class RunToRetry:
    """The inputs of the run that retries another; or of that other itself, when it never ended and is taken up again."""

    inputs: RunInputs
    taken: tuple[RunIdentity, RunLock] | None = None


@dataclass(frozen=True, slots=True)
class RetriedJob:
    """A job that was run again, as it ended."""

    job_id: str
    retry_of: str
    label: str
    state: str
    report: WorkReport | None


def run_to_retry(backend: Backend, run: Run) -> RunToRetry:
    """What to start to retry a run. Raises `InvalidInput` for one that is under way, or whose inputs are gone."""
    inputs = _inputs(backend, run)
    if inputs.contract.base is not None and not Path(inputs.contract.base).is_dir():
        raise InvalidInput(
            f"the directory {inputs.contract.base} that run {run.run_id!r} worked in is gone",
            hint="bring it back, or run the contract from where it is now",
        )
    if run.status != RUNNING:
        return RunToRetry(RunInputs(inputs.contract, inputs.params, {RETRY_OF: run.run_id}))
    lock = RunLock.take(backend.home.path, run.run_id)
    if lock is None:
        raise RequestRefused(
            f"run {run.run_id!r} is under way in another process",
            code="CONFLICT",
            hint=f"wait for it, or `detent cancel {run.run_id}` first",
        )
    return RunToRetry(inputs, (RunIdentity(run.run_id, UUID(run.operation_id), resumed=True), lock))


def changed_since(inputs: RunInputs) -> str | None:
    """The contract's file, if it says something else by now than the recorded contract that is run; else None."""
    contract = inputs.contract
    path = Path(contract.base or "", Path(contract.name).name)
    if contract.base is None or path.suffix not in {".yaml", ".yml", ".json"}:
        return None
    try:
        with path.open("rb") as stream:
            present = load(stream.read(BYTES_MAX + 1), name=contract.name, base=contract.base)
    except (OSError, ContractInvalid):
        return None
    return None if digests_of(present) == digests_of(contract) else str(path)


def retry_job(work: Runtime, row: JobRow, element: int | None = None) -> RetriedJob:
    """Run a task's job, or one element of it, again as a new job, and wait for its end.

    Raises `InvalidInput` where that cannot be done.
    """
    again, key = order_again(work.backend, work.work_keys, row, element)
    job = Job.decode(row.body)
    ended = threading.Event()
    job_id = work.backend.new_job_id()

    def attempted(attempts: Sequence[Attempted]) -> None:
        if any(attempt.job_id == job_id and attempt.state in TERMINAL for attempt in attempts):
            ended.set()

    submitter: Submitter[None] = Submitter(work.backend, work.supervisor, threading.Event())
    submission = work.backend.submission(again, job_id=job_id, job_kind=job.job_kind, priority=job.priority, key=key)
    unlisten = work.listen(attempted)
    try:
        while submitter.submit([submission]) != [True]:
            submitter.wait_for_room(None)
        while (done := submitter.look(job_id)) is None:
            ended.wait(LOOK_SECONDS)
            submitter.check_supervisor()
    finally:
        unlisten()
    return RetriedJob(job_id, element_id(job.job_id, element), again.label, done.state, done.report)


def order_again(
    backend: Backend, work_keys: WorkKeys, row: JobRow, element: int | None = None
) -> tuple[Order, ExecutionKey | None]:
    """The order of a job that runs a task's job, or one element of it, again, and its key.

    Raises `InvalidInput` where that cannot be done.
    """
    job = Job.decode(row.body)
    order = _order(backend, job)
    if element is not None:
        order = order.of_element(element)
    elif order.elements:
        raise InvalidInput(
            f"job {job.job_id!r} has {len(order.elements)} elements, and each is retried by itself",
            hint=f"`detent show {job.job_id}` lists them; `detent retry {element_id(job.job_id, 0)}` retries the first",
        )
    call, salt = _call(order), order.origin.ingredients.get("salt")
    work_key = work_keys.of(call, value_digests(backend), salt=salt)
    again = Order(
        replace(call, shell=order.call.shell),
        order.label,
        replace(order.limits, retries=Retries(job.max_retries, job.retry_categories)),
        replace(order.origin, ingredients=work_key.ingredients, retry_of=element_id(job.job_id, element), again=None),
    )
    return again, work_key.key


def _inputs(backend: Backend, run: Run) -> RunInputs:
    try:
        return parse_inputs(backend.unsealed(run.inputs_digest), run.run_id)
    except ContractInvalid:
        raise
    except DetentError as exc:
        erased = backend.reader.is_erased(run.inputs_digest)
        why = "was erased" if erased else "is not here, or was written by something else"
        raise InvalidInput(
            f"run {run.run_id!r} cannot be retried: what it was started with {why}",
            hint="start it from its file: `detent run FILE`; results that succeeded are reused anyway",
        ) from exc


def _order(backend: Backend, job: Job) -> Order:
    if job.job_kind not in {"task", "action"}:
        raise InvalidInput(
            f"job {job.job_id!r} is of kind {job.job_kind!r}, and only tasks and steps can be retried from here",
            hint="submit it again with the program that submitted it",
        )
    try:
        return backend.order(job.payload_digest)
    except DetentError as exc:
        why = "was erased" if backend.reader.is_erased(job.payload_digest) else "is not here"
        raise InvalidInput(
            f"job {job.job_id!r} cannot be retried: what it was asked to do {why}",
            hint="submit it again with the program that submitted it",
        ) from exc


def _call(order: Order) -> Call:
    """An order's call with what decides about its reuse, read back: its inputs are the files that were found then."""
    call, said = order.call, order.origin.ingredients
    return replace(
        call,
        # Its module was found on the path of the program that submitted it; from a terminal, this directory stands for it.
        base=str(Path.cwd()) if call.base is None else call.base,
        version=said.get("version"),
        cache=bool(said),
        inputs=tuple(name.removeprefix("input:") for name in said if name.startswith("input:")),
        shell=(call.shell or default_shell()) if call.kind == "shell" else (),
    )
