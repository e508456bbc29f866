"""Cancelling an ordered run from a process that does not drive it: the driver is asked, and closes the run itself (X-193)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from detent.errors import DetentError, InvalidInput
from detent.kernel import Run
from detent.kernel.run import CANCELLED, RUNNING
from detent.kernel.table import State
from detent.owner.backend import Backend
from detent.owner.content import Content
from detent.owner.home import Home
from detent.owner.session import Session
from detent.runs.cancelled import POLL_SECONDS, Cancelled, CancelledItems, CancelledStep
from detent.runs.ordered.cancel_requests import Request, write_request
from detent.runs.ordered.close import end_run, notes_for
from detent.runs.ordered.notes import notes_of
from detent.runs.ordered.recorded import ordered_inputs
from detent.runs.ordered.retry import first_seqs
from detent.runs.record.identity import is_driven
from detent.store.api import StoreReader


class OrderedCanceller:
    """Cancels ordered runs through a session, under any owner of the home."""

    def __init__(
        self,
        home: Home,
        session: Session,
        reader: StoreReader,
        pause: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._home, self._session, self._reader = home, session, reader
        self._pause, self._clock = pause, clock

    def cancel(self, run_id: str, total: int, at: int | None, reason: str, deadline: float) -> Cancelled:
        """Cancel a run from item ``at`` on, or as early as possible, and wait for its end.

        A driver that has recorded the boundary and still works on the items below it is not waited for longer than to
        ``deadline``: what the run comes to is settled by then. Raises `InvalidInput` for a boundary that cannot be.
        """
        self._check(run_id, total, at)
        with Backend(self._home, self._session) as backend:
            asked = False
            while True:
                if not is_driven(self._home.path, run_id):
                    if at is not None and not asked:
                        raise InvalidInput(
                            f"no process works on run {run_id!r}, so nothing would compute the items below {at}",
                            hint="cancel it without --at, which cuts it where its destination stands; or resume it first",
                        )
                    end_run(backend, run_id, reason)
                elif not asked:
                    asked = self._ask(backend, run_id, Request(at or 0, reason))
                row = self._reader.run(run_id)
                status = RUNNING if row is None else row.status
                if status != RUNNING or self._clock() >= deadline:
                    return self._answer(run_id, status, total, at or 0)
                self._pause(POLL_SECONDS)

    def _check(self, run_id: str, total: int, at: int | None) -> None:
        if at is None:
            return
        if not 0 <= at < total:
            raise InvalidInput(
                f"run {run_id!r} has items 0 to {total - 1:,}, and {at:,} is not among them"
                if total
                else f"run {run_id!r} has no item",
                hint="--at takes the number of the first item that is to be cancelled",
                details={"run_id": run_id, "at": at, "total": total},
            )
        committed, boundary = _stands(self._reader, run_id)
        if at < committed:
            raise InvalidInput(
                f"item {at:,} of run {run_id!r} is committed already, and so is everything below {committed:,}",
                hint=f"the boundary can be {committed:,} at the earliest: `detent cancel {run_id}` cancels as early as possible",
                details={"run_id": run_id, "at": at, "committed": committed},
            )
        if boundary is not None and at >= boundary:
            raise InvalidInput(
                f"run {run_id!r} is cancelled from item {boundary:,} on already, and a later cancellation can only lower that",
                hint=f"wait for its end: `detent show {run_id}`",
                details={"run_id": run_id, "at": at, "boundary": boundary},
            )

    def _ask(self, backend: Backend, run_id: str, request: Request) -> bool:
        try:
            write_request(notes_for(backend, run_id), request)
        except DetentError as exc:
            if exc.code != "UNKNOWN_RUN":
                raise  # Otherwise it has ended meanwhile, which the next look finds.
        return True

    def _answer(self, run_id: str, status: str, total: int, requested: int) -> Cancelled:
        items = where_cut(self._reader, run_id, total, requested)
        jobs = tuple(row.job_id for row in self._reader.jobs(run_id=run_id, state=State.CANCELED.value))
        return Cancelled("run", run_id, status, jobs, status not in {RUNNING, CANCELLED}, items)


def where_cut(reader: StoreReader, run_id: str, total: int, requested: int = 0) -> CancelledItems:
    """Where an ordered run of so many items was cut."""
    passed, boundary = _stands(reader, run_id)
    committed = passed if boundary is None else min(passed, boundary)
    return CancelledItems(total, committed, requested, boundary)


def cut_step(reader: StoreReader, content: Content, run_id: str) -> CancelledStep | None:
    """Where the ordered run of a map step was cut; None for one that ended otherwise, or whose inputs are gone."""
    row = reader.run(run_id)
    inputs = None if row is None else ordered_inputs(content, Run.decode(row.body))
    if row is None or inputs is None or row.status != CANCELLED:
        return None
    items = where_cut(reader, run_id, inputs.config.total)
    seqs = first_seqs(reader, content, inputs.spec)
    before = 0 if not seqs else seqs[0]
    if before:  # It went on with what another had done.
        boundary = None if items.boundary is None else before + items.boundary
        items = replace(items, total=before + items.total, committed=before + items.committed, boundary=boundary)
    return CancelledStep(row.name.rpartition("/")[2], run_id, items)


def _stands(reader: StoreReader, run_id: str) -> tuple[int, int | None]:
    """How many items are committed, and from which one on they are cancelled."""
    committed, boundaries = 0, []
    for name in notes_of(reader, run_id):
        if name.kind == "commit":
            committed = max(committed, name.last + 1)
        elif name.kind == "cancel":
            boundaries.append(name.first)
    return committed, min(boundaries, default=None)
