"""Some jobs of workers elsewhere run again on another worker, and the digests of the two values are compared (``[workers] audit_percent``).

    a report is accepted  ->  is the job in the sample, and may it be repeated?  ->  a job of low priority for any other worker
    that job ends         ->  two values that differ, or a failure of the code, are recorded: `operated`, action `worker.mismatch`

A difference says that one of two workers, or the function, is wrong, and not which. The job that repeats another names it (`retry_of`), and its id
follows from the other's, so what a killed server has begun is compared by the next one. A repeat that ends while no server runs
is not compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from detent.canon import digest_text
from detent.canon.grammar import PRIORITY_NAMES
from detent.errors import DetentError
from detent.jobs.order import Order
from detent.jobs.placing import fits, wanted_by
from detent.jobs.repeats import PREFIX, is_repeatable, is_sampled, repeat_id, repeated_order
from detent.jobs.work import WorkReport
from detent.kernel import Grant, Job
from detent.kernel.history import Record
from detent.kernel.partition_state import TERMINAL_NAMES
from detent.owner.backend import Submission
from detent.runs.runtime import Runtime
from detent.runs.submit.calls import EACH_TIME
from detent.serve.counters import AUDIT_OUTCOMES
from detent.serve.fleet import Worker
from detent.serve.turns import Turns
from detent.serve.writing import Writer, Writing

COUNTED: Final = ("USER_CODE_ERROR", "RESOURCE_LIMIT")
"""Failures of a repeat that say something about its value: the first attempt had none of them."""
SAME, DIFFERENT, VOID = AUDIT_OUTCOMES
WORKING: Final = ("idle", "busy")


class Repeating:
    """Has jobs repeated and compares. For the HTTP loop alone."""

    def __init__(
        self,
        work: Runtime,
        turns: Turns,
        writer: Writer,
        *,
        own_workers: bool,
        mismatched: Callable[[str, str, Mapping[str, Any]], None],
        counted: Callable[[str], None],
    ) -> None:
        """``mismatched`` is told the worker, the workspace and what differs; ``counted`` the outcome of each comparison."""
        self._work, self._turns, self._writer = work, turns, writer
        self._own_workers, self._mismatched, self._counted = own_workers, mismatched, counted
        self._percent = work.settings.audit_percent
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._end: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Follow reports and ends of jobs; nothing without the setting."""
        if self._percent:
            self._turns.reported = self._reported
            self._end = await asyncio.to_thread(self._work.session.observe, self._observe)

    def close(self) -> None:
        """Follow no longer."""
        self._end()

    # -- once more -----------------------------------------------------------------------------------------------------

    def _reported(self, worker: Worker, grants: Sequence[Grant]) -> None:
        for grant in grants:
            if is_sampled(grant.job_id, self._percent) and not grant.job_id.startswith(PREFIX):
                self._run(self._repeat(worker, grant))

    async def _repeat(self, worker: Worker, grant: Grant) -> None:
        new_id = repeat_id(grant.job_id)
        self._turns.exclude(worker, new_id)

        def make() -> Writing:
            submission = self._submission(worker, grant, new_id)
            return Writing([] if submission is None else [submission])

        await self._writer.write(make)

    def _submission(self, worker: Worker, grant: Grant, new_id: str) -> Submission | None:
        """The job that repeats another; None where that must not be, or no other worker could take it. On the writing thread."""
        backend = self._work.backend.for_tenant(grant.tenant_id)
        found = backend.report_of(grant.job_id)
        if found is None or not found[1].ok or found[1].stale or found[1].value_digest is None:
            return None
        order = backend.order(grant.payload_digest)
        if not is_repeatable(order, not_asked=EACH_TIME.why) or not self._has_another(worker, grant, order):
            return None
        return backend.submission(
            repeated_order(order, grant.job_id),
            job_id=new_id,
            job_kind="task",
            priority=PRIORITY_NAMES["low"],
            key=None,
        )

    def _has_another(self, worker: Worker, grant: Grant, order: Order) -> bool:
        wanted = frozenset(wanted_by(order.limits, self._work.resources))
        if self._own_workers and not wanted:
            return True
        return any(
            one is not worker
            and one.state in WORKING
            and one.certificate.covers(grant.tenant_id)
            and wanted <= one.offers
            and fits(order.limits.resources, one.offered.offer.resources or {})
            for one in self._turns.fleet.all()
        )

    # -- compared ------------------------------------------------------------------------------------------------------

    def _observe(self, records: Sequence[Record]) -> None:
        """Called after commits, on the thread that made them."""
        ended = {record.job_id for record in records if record.job_id is not None and record.job_id.startswith(PREFIX)}
        for job_id in ended:
            try:
                self._loop.call_soon_threadsafe(self._compare_later, job_id)
            except RuntimeError:
                return  # The loop has ended meanwhile.

    def _compare_later(self, job_id: str) -> None:
        self._run(self._compare(job_id))

    async def _compare(self, job_id: str) -> None:
        compared = await self._turns.run(lambda: self._compared(job_id))
        if compared is None:
            return
        outcome, worker_id, workspace, said = compared
        self._counted(outcome)
        if outcome == DIFFERENT:
            self._mismatched(worker_id, workspace, said)

    def _compared(self, job_id: str) -> tuple[str, str, str, dict[str, Any]] | None:
        """What came of a repeat; None while it has not ended. On a thread."""
        row = self._work.backend.reader.job(job_id)
        job = None if row is None else Job.read(row.body)
        if job is None or job.state not in TERMINAL_NAMES:
            return None
        backend = self._work.backend.for_tenant(job.tenant_id)
        first_id = backend.order(job.payload_digest).origin.retry_of
        first, second = None if first_id is None else backend.report_of(first_id), backend.report_of(job_id, job)
        if first is None or second is None or first_id is None:
            return VOID, "", job.tenant_id, {}
        said = {"job_id": first_id, "repeated_by": job_id, **_both(first[1], second[1])}
        return _outcome(first[1], second[1]), worker_of(first[1]), job.tenant_id, said

    def _run(self, work: Any) -> None:
        task = self._loop.create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def worker_of(report: WorkReport) -> str:
    """The worker that made a report, whichever of its starts it was."""
    return report.worker.partition("/")[0]


def _outcome(first: WorkReport, second: WorkReport) -> str:
    if worker_of(first) == worker_of(second) or second.stale:
        return VOID
    if second.ok:
        return SAME if first.value_digest == second.value_digest else DIFFERENT
    failure = second.result.failure
    return DIFFERENT if failure is not None and failure.category in COUNTED else VOID


def _both(first: WorkReport, second: WorkReport) -> dict[str, Any]:
    return {
        "value": None if first.value_digest is None else digest_text(first.value_digest),
        "other_value": None if second.value_digest is None else digest_text(second.value_digest),
        "other_worker": worker_of(second),
        "other_code": second.reason_code,
    }


async def _quietly(work: Any) -> None:
    """An audit that cannot be made is left out: the jobs themselves stand."""
    try:
        await work
    except DetentError:
        return
