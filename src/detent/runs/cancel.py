"""Cancelling a run or a job from any terminal.

The jobs of a run are cancelled one by one with WORKFLOW_CANCELLED. The process that drives the run takes that for the end of
all of it, starts nothing more and closes the run. A driver whose run has no job of its own to cancel, because it waits for the
work of another run, is asked by a file beside its lock. Only a run that no process drives is closed here (X-193).

An ordered run is another matter: which of its items are cancelled is a number, and only its driver can tell which numbers
leave no gap (X-069). So its driver is asked, by a note on the ledger, and closes the run itself (X-193). One that no process drives
is closed here, where its destination stands.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from detent.errors import DetentError, InvalidInput, OutcomeUnknown, StoreUnavailable, error_of
from detent.kernel import Cancel, Command, EndRun, Evidence, Run
from detent.kernel.run import CANCELLED, RUNNING
from detent.kernel.table import OPEN, State
from detent.owner.content import NONCE_BYTES, Content, open_value, seal_value
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.runs.cancelled import POLL_SECONDS, Cancelled, CancelledStep
from detent.runs.record.identity import RunLock, ask_to_cancel, is_driven
from detent.store.api import JobRow, RunRow, StoreReader

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
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home, self._session, self._reader = home, session, reader
        self._pause, self._clock = pause, clock
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
            from detent.runs.cancel_ordered import OrderedCanceller  # noqa: PLC0415 - ordered runs take time to load

            ordered = OrderedCanceller(self._home, self._session, self._reader, self._pause, self._clock)
            return ordered.cancel(run_id, total, at, self._reason or USER_REASON, self._clock() + wait_seconds)
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
        from detent.runs.cancel_ordered import cut_step  # noqa: PLC0415

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
        from detent.runs.ordered.recorded import ordered_inputs  # noqa: PLC0415

        inputs = ordered_inputs(Content(self._reader, self._home.content_files()), Run.decode(row.body))
        return None if inputs is None else inputs.config.total

    def _run(self, run_id: str) -> RunRow:
        row = self._reader.run(run_id)
        if row is None:
            raise InvalidInput(f"there is no run {run_id!r}", code="UNKNOWN_RUN", hint="`detent list` shows the runs")
        return row

    def _ask(self, commands: Sequence[Command], name: str) -> list[Answer]:
        partition = self._session.partition(name)
        while True:
            try:
                return self._session.ask(commands, partition=partition, content=self._inline)
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
