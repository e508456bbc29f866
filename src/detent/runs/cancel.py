"""Cancelling a run or a job from any terminal.

The jobs of a run are cancelled one by one with WORKFLOW_CANCELLED. The process that drives the run takes that for the end of
all of it, starts nothing more and closes the run. A driver whose run has no job of its own to cancel, because it waits for the
work of another run, is asked by a file beside its lock. Only a run that no process drives is closed here (X-193).

An ordered run is another matter: which of its items are cancelled is a number, and only its driver can tell which numbers
leave no gap (X-069). So its driver is asked, by a note on the ledger, and closes the run itself (X-193). One that no process drives
is closed here, where its destination stands.

Cancelling an ordered run from a process that does not drive it: the driver is asked, and closes the run itself (X-193).

The answer to a cancellation, of a run, an ordered run or a job.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, OutcomeUnknown, StoreUnavailable, error_of
from detent.kernel import Cancel, Command, EndRun, Evidence, Run
from detent.kernel.run import CANCELLED, RUNNING
from detent.kernel.table import OPEN, State
from detent.owner.backend import Backend
from detent.owner.content import NONCE_BYTES, Content, open_value, seal_value
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.runs.ordered.notes import Request, notes_of, write_request
from detent.runs.ordered.recorded import ordered_inputs
from detent.runs.ordered.recovery import end_run, notes_for
from detent.runs.ordered.resume import first_seqs
from detent.runs.record.identity import RunLock, ask_to_cancel, is_driven
from detent.store.api import JobRow, RunRow, StoreReader
from detent.words.states import CANCELLED as CANCELLED_WORD
from detent.words.states import word_of

USER, WORKFLOW = "CANCELLED_BY_USER", "WORKFLOW_CANCELLED"
USER_REASON: Final = "cancelled by the user"
BATCH: Final = 200
REASON_CHARS_MAX: Final = 1_000
WAIT_SECONDS: Final = 30.0
"""How long it is waited for the process that drives a run to close it."""
IDLE_LOOKS: Final = 4
"""Looks at a driven run without a live job after which its driver is asked in another way: it waits for work of others."""


class Canceller:
    """Cancels through a session, under any owner of the home."""

    def __init__(
        self,
        home: Home,
        session: Session,
        reader: StoreReader,
        *,
        reason: str | None = None,
        beside: Command | None = None,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home, self._session, self._reader = home, session, reader
        self._pause, self._clock = pause, clock
        self._beside = beside
        """What is to be recorded in the first commit that cancels something."""
        self._inline: tuple[tuple[bytes, bytes], ...] = ()
        self._digest: bytes | None = None
        self._reason = reason
        if reason is not None:
            self._digest, self._inline = self._sealed(reason)

    def job(self, job_id: str) -> Cancelled:
        """Cancel one job; one that has ended stays as it is. Raises `InvalidInput` for one that is not there."""
        row = self._reader.job(job_id)
        if row is None:
            raise InvalidInput(f"there is no job {job_id!r}", code="UNKNOWN_JOB", hint="`detent list --jobs` shows all")
        if row.state not in OPEN:
            return Cancelled("job", job_id, row.state, before=True)
        command = Cancel(0, row.tenant_id, job_id, USER, detail_digest=self._digest)
        (answer,) = self._ask([command], job_id)
        after = self._reader.job(job_id)
        state = row.state if after is None else after.state
        if answer.refusal is not None:
            if state in OPEN:
                raise error_of(answer.refusal)
            return Cancelled("job", job_id, state, before=True)
        return Cancelled("job", job_id, state, (job_id,))

    def run(self, run_id: str, *, at: int | None = None, wait_seconds: float = WAIT_SECONDS) -> Cancelled:
        """Cancel a run's open jobs and see it closed, by its driver or from here.

        A driver that does not get to it within the time leaves the run ``running``; its jobs are cancelled all the same. Of
        an ordered run, ``at`` is the first item that is to be cancelled.
        """
        row = self._run(run_id)
        if row.status != RUNNING:
            return Cancelled("run", run_id, row.status, before=True)
        total = self._items_of(row)
        if total is not None:
            ordered = OrderedCanceller(self._home, self._session, self._reader, self._pause, self._clock)
            done = ordered.cancel(run_id, total, at, self._reason or USER_REASON, self._clock() + wait_seconds)
            if self._beside is not None:
                self._ask([], run_id)  # The boundary was recorded by the run's driver, in a commit of its own.
            return done
        if at is not None:
            raise InvalidInput(f"run {run_id!r} has steps, not items", hint="--at is for the runs of `detent map`")
        cancelled: dict[str, None] = {}
        mapped: dict[str, None] = {}
        deadline, idle = self._clock() + wait_seconds, 0
        while True:
            mapped.update(dict.fromkeys(self._map_runs(run_id, row.name)))
            live = self._cancel_jobs(run_id, cancelled)
            idle = 0 if live else idle + 1
            if not self._close(run_id) and idle >= IDLE_LOOKS:
                ask_to_cancel(self._home.path, run_id)
            status = self._run(run_id).status
            is_over = status != RUNNING and self._have_ended(mapped)
            if is_over or self._clock() >= deadline:
                # Its last job may have been done when the first look came: then it has ended otherwise.
                before = status not in {RUNNING, CANCELLED}
                return Cancelled("run", run_id, status, tuple(cancelled), before, map_steps=self._cut(mapped))
            self._pause(POLL_SECONDS)

    def _map_runs(self, run_id: str, workflow: str) -> Sequence[str]:
        """The ordered runs of this run's map steps that have not ended, and that no other run needs."""
        if not any(row.name.startswith(f"{workflow}/") for row in self._reader.runs(status=RUNNING)):
            return ()
        from detent.runs.map_step import left_open  # noqa: PLC0415 - ordered runs take time to load

        return left_open(self._reader, Content(self._reader, self._home.content_files()), workflow, run_id)

    def _have_ended(self, mapped: Iterable[str]) -> bool:
        """Whether the ordered runs of map steps are over with their run; those that no process drives are ended here."""
        are_over = True
        for run_id in mapped:
            if self._run(run_id).status == RUNNING:
                if is_driven(self._home.path, run_id):
                    are_over = False
                else:
                    self.run(run_id)
        return are_over

    def _cut(self, mapped: Iterable[str]) -> tuple[CancelledStep, ...]:
        if not mapped:
            return ()

        content = Content(self._reader, self._home.content_files())
        return tuple(cut for run_id in mapped if (cut := cut_step(self._reader, content, run_id)) is not None)

    def _cancel_jobs(self, run_id: str, cancelled: dict[str, None]) -> bool:
        """Cancel what is open now; whether there was anything."""
        open_jobs = [row for state in OPEN for row in self._reader.jobs(run_id=run_id, state=state)]
        for start in range(0, len(open_jobs), BATCH):
            batch = open_jobs[start : start + BATCH]
            commands = [Cancel(0, row.tenant_id, row.job_id, WORKFLOW, detail_digest=self._digest) for row in batch]
            for row, answer in zip(batch, self._ask(commands, run_id), strict=True):
                if answer.refusal is None:
                    cancelled[row.job_id] = None
        return bool(open_jobs)

    def _close(self, run_id: str) -> bool:
        """End the run if no process drives it; False when one does."""
        try:
            lock = RunLock.take(self._home.path, run_id)
            if lock is None:
                return False
        except InvalidInput:
            lock = None  # No driver of ours could have such a run.
        try:
            # RUN_NOT_DONE: a job came or is still there, and the next look cancels it. Ended meanwhile: as well.
            self._ask([EndRun(0, run_id, CANCELLED)], run_id)
        finally:
            if lock is not None:
                lock.release()
        return True

    def _items_of(self, row: RunRow) -> int | None:
        """How many items an ordered run has; None for another kind of run."""
        inputs = ordered_inputs(Content(self._reader, self._home.content_files()), Run.decode(row.body))
        return None if inputs is None else inputs.config.total

    def _run(self, run_id: str) -> RunRow:
        row = self._reader.run(run_id)
        if row is None:
            raise InvalidInput(f"there is no run {run_id!r}", code="UNKNOWN_RUN", hint="`detent list` shows the runs")
        return row

    def _ask(self, commands: Sequence[Command], name: str) -> list[Answer]:
        partition, beside = self._session.partition(name), self._beside
        both = commands if beside is None else [*commands, beside]
        while True:
            try:
                answers = self._session.ask(both, partition=partition, content=self._inline)
                self._beside = None
                return answers[: len(commands)]
            except OutcomeUnknown:
                self._pause(POLL_SECONDS)  # Asking again is safe.
            except StoreUnavailable as exc:
                if not exc.retryable:
                    raise
                self._pause(POLL_SECONDS)

    def _sealed(self, reason: str) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
        text = reason.strip()
        if not text or len(text) > REASON_CHARS_MAX:
            raise InvalidInput(f"a reason has 1 to {REASON_CHARS_MAX} characters", hint="say it shorter")
        data = seal_value({"reason": text}, secrets.token_bytes(NONCE_BYTES), name="reason")
        staged = Content(self._reader, self._home.content_files()).stage(data)
        return staged.digest, staged.inline


def given_reason(reader: StoreReader, content: Content, row: JobRow) -> str | None:
    """The reason a user gave for cancelling a job; None when none was given, or it was erased."""
    return cancel_note(reader, content, row).get("reason")


def cancel_note(reader: StoreReader, content: Content, row: JobRow) -> dict[str, str]:
    """What was said when a job was cancelled: a ``reason``, and the job that it was ``superseded_by``; as far as it is here."""
    record = reader.transition(row.job_id, row.transition_seq - 1) if row.state == State.CANCELED else None
    if record is None or record.evidence is None:
        return {}
    try:
        digest = Evidence.decode(record.evidence).detail_digest
        data = None if digest is None else content.get(digest)
        said = None if data is None else open_value(data)
    except DetentError:
        return {}
    return {name: text for name, text in said.items() if isinstance(text, str)} if isinstance(said, dict) else {}


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


POLL_SECONDS: Final = 0.05
"""Between two looks at whether a run has ended."""


@dataclass(frozen=True, slots=True)
class CancelledItems:
    """Where an ordered run was cut."""

    total: int
    committed: int
    """Items that the destination has, by the record; cancelled ones are not among them."""
    requested: int
    """The first item that was to be cancelled; 0: as early as possible."""
    boundary: int | None
    """The first item that is cancelled (X-069); None while the driver has not answered."""

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class CancelledStep:
    """Where the ordered run of a workflow's map step was cut; items have the numbers that they have in the step."""

    step: str
    run_id: str
    items: CancelledItems

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {"step": self.step, "run_id": self.run_id, "items": self.items.to_map()}


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The result of a cancellation."""

    kind: str
    """``run`` or ``job``."""
    identifier: str
    status: str
    """Where it stands afterwards: the run's status, or the job's state."""
    jobs: tuple[str, ...] = ()
    """Jobs that were cancelled by this."""
    before: bool = False
    """Whether it had ended before."""
    ordered: CancelledItems | None = None
    """Of an ordered run, where it was cut."""
    map_steps: tuple[CancelledStep, ...] = ()
    """Of a workflow's run, its map steps that were under way."""

    @property
    def is_cancelled(self) -> bool:
        """Whether it is cancelled now, by this or before."""
        return word_of(self.status) == CANCELLED_WORD

    def to_map(self) -> dict[str, object]:
        """As data."""
        name = "run_id" if self.kind == "run" else "job_id"
        return {
            "kind": self.kind,
            name: self.identifier,
            "status": word_of(self.status),
            "cancelled": self.is_cancelled,
            "had_ended": self.before,
            "jobs_cancelled": list(self.jobs),
            **({} if self.ordered is None else {"items": self.ordered.to_map()}),
            **({"map_steps": [one.to_map() for one in self.map_steps]} if self.map_steps else {}),
        }
