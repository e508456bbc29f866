"""One ordered run from its first commit to its last: which run is meant, who drives it, and how it looks meanwhile.

The same line typed again goes on with the run that it began, if that one has not ended: the same function, items, destination
and settings (X-174). If the function has changed since, the destination would hold the results of two programs; that is
refused unless a new run is asked for. If the run has ended and its destination still has what it left, that is the answer, and
nothing is begun (X-192).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Final, Protocol

from detent.canon import json_decode
from detent.canon.grammar import function_of
from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, RequestRefused, error_of
from detent.executor.annotations import refuse_return
from detent.jobs.order import Call
from detent.kernel import Run, StartRun
from detent.kernel.run import COMPLETED, RUNNING
from detent.ordered import Summary
from detent.ordered.actions import WindowView, window_views
from detent.owner.backend import Backend
from detent.owner.home import Home
from detent.owner.session import Session, ask_again
from detent.reuse.work_keys import WorkKeys, no_results
from detent.runs.ordered.driver import OrderedDriver
from detent.runs.ordered.notes import Notes, taken_name
from detent.runs.ordered.recorded import snapshot_path
from detent.runs.ordered.recovery import FailedItem, Standing, end_run, standing
from detent.runs.ordered.resume import Beginning, Earlier, earlier_run
from detent.runs.ordered.spec import COMMIT_MS, Items, OrderedInputs, OrderedSpec, read_ordered, shown_name
from detent.runs.record.identity import RunLock, new_run_id
from detent.targets.api import CommitTarget
from detent.words.states import word_of
from detent.workers.bench import Attempted
from detent.workers.supervisor import Supervisor

ITEM_CHARS_MAX: Final = 60
FILTER: Final = "filter"
KEPT: Final = ("code", "version", "target", FILTER)
"""Ingredients that say which functions it was."""


@dataclass(frozen=True, slots=True)
class OrderedView:
    """An ordered run at one moment, for those who watch; times are milliseconds since 1970."""

    run_id: str
    name: str
    status: str
    total: int
    computed: int
    committed: int
    failed: int
    buffered_bytes: int
    blocked_seq: int | None
    """The item that the cursor waits for; None when nothing waits."""
    blocked_ms: int
    write_failures: int
    started_ms: int
    now_ms: int
    workers: int
    home: str
    resumed: bool = False
    resumed_at: int = 0
    """Items that were committed before this process took the run up."""
    note: str = ""
    cancelled: int = 0
    windows: tuple[WindowView, ...] = ()
    """The open windows, each with how many of its items are in each state."""

    @property
    def lag(self) -> int:
        """Items that have ended and wait for their commit."""
        return max(0, self.computed - self.committed)


@dataclass(frozen=True, slots=True)
class OrderedResult:
    """How an ordered run ended."""

    run_id: str
    name: str
    status: str
    """``completed``, ``failed``, ``cancelled``, or ``stopped`` when it was left as it stands."""
    message: str
    summary: Summary
    failures: tuple[FailedItem, ...]
    resumed_at: int
    view: OrderedView
    done_before: bool = False
    """Whether an earlier run is the answer, and nothing was done now."""

    @property
    def ok(self) -> bool:
        """Whether every item succeeded or was skipped."""
        return self.status == COMPLETED


class RuntimeParts(Protocol):
    """What an ordered run needs of the process that it runs in."""

    home: Home
    workers: int
    session: Session
    backend: Backend
    work_keys: WorkKeys
    supervisor: Supervisor
    progress: dict[str, Callable[[], tuple[int, int, int]]]

    def listen(self, listener: Callable[[Sequence[Attempted]], None]) -> Callable[[], None]: ...


class OrderedHandle:
    """An ordered run of this process. `run` drives it; everything else may be called from other threads."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        work: RuntimeParts,
        spec: OrderedSpec,
        items: Items,
        target: CommitTarget,
        *,
        files: Iterator[str] | tuple[str, ...] = (),
        new: bool = False,
        ingredients: Mapping[str, Any] | None = None,
        step_of: str | None = None,
        commit_ms: int | None = None,
        beginning: Beginning | None = None,
    ) -> None:
        """``ingredients`` say what the function is made of, where that is known already; ``step_of`` is the run it is for.

        ``commit_ms`` is how long the destination may take over one commit; None: `COMMIT_MS`. ``beginning`` says what earlier
        runs mean to a new one; without it they mean nothing, and the caller has looked at them.
        """
        self._work = work
        self._items = items
        self._target = target
        self._new = new
        self._commit_ms = COMMIT_MS if commit_ms is None else commit_ms
        self._beginning = beginning
        self._done: OrderedResult | None = None
        if ingredients is None:
            ingredients = self._made_of(spec.compute, spec.base)
            if spec.filter is not None:
                ingredients = {**ingredients, FILTER: self._made_of(spec.filter, spec.base).get("code")}
        made = {name: value for name, value in ingredients.items() if name in KEPT}
        config = spec.config(items.total, work.workers)
        self.inputs = OrderedInputs(spec, items.digest, config, made, tuple(files), step_of)
        self.run_id = ""
        self.resumed = False
        self._standing = Standing()
        self._taken_for: str | None = None
        """The run for which it is taken up, where the step of another one began it."""
        self._lock: RunLock | None = None
        self._driver: OrderedDriver | None = None
        self._leave: Callable[[], None] = lambda: None
        self._started_ms = work.backend.now_ms()
        self._cancel: tuple[str, int] | None = None
        self._stopped = False

    def open(self) -> str:
        """Settle which run it is; a new one is on the ledger when this returns. Its id.

        Raises `DestinationNotEmpty`, before there is a run, where a new one would be mixed with something else.
        """
        if self._lock is None and self._done is None:
            refuse_return(self.inputs.spec.compute, self.inputs.spec.base)
            self._settle()
            if self._lock is None:
                return self.run_id
            try:
                if self.resumed:
                    self._standing = standing(self._work.backend, self.run_id)
                else:
                    self._start()
                notes = self._notes()
                if self._taken_for is not None:
                    notes.write(taken_name(self._taken_for), {"step_of": self._taken_for})
                self._driver = self._make_driver(notes)
            except BaseException:
                self._release()
                raise
        return self.run_id

    def run(self) -> OrderedResult:
        """Drive the run to its end. Raises what keeps it from getting there; it can be resumed then."""
        self.open()
        if self._done is not None:
            return self._done
        driver = self._driver
        assert driver is not None
        try:
            status = driver.run(self._standing)
        finally:
            self._leave()
            self._release()
        return OrderedResult(
            self.run_id,
            self.inputs.spec.name,
            status,
            driver.message,
            driver.ordered.summary(),
            tuple(driver.failures),
            self._standing.cursor,
            self.view(),
        )

    def cancel(self, reason: str = "cancelled by the user", at: int = 0) -> None:
        """Cancel from a boundary on: what is below is still computed and committed."""
        self._cancel = (reason, at)
        if self._driver is not None:
            self._driver.cancel(reason, at)

    def stop(self) -> None:
        """Leave the run as it stands, to be taken up again."""
        self._stopped = True
        if self._driver is not None:
            self._driver.stop()

    def view(self) -> OrderedView:
        """The run at this moment; may be called from other threads, and then may be a moment old."""
        driver, work, config = self._driver, self._work, self.inputs.config
        now = work.backend.now_ms()
        if driver is None:
            return OrderedView(
                self.run_id, self.inputs.spec.name, RUNNING, config.total, 0, 0, 0, 0, None, 0, 0, now, now,
                work.workers, str(work.home.path),
            )  # fmt: skip
        run = driver.ordered
        cursor = run.ledger.next_commit_seq
        cancelled = config.total - run.boundary
        waits = cursor < config.total and driver.status == RUNNING
        return OrderedView(
            self.run_id,
            self.inputs.spec.name,
            driver.status,
            config.total,
            run.ledger.terminal_count - cancelled,
            min(cursor, run.boundary),
            len(driver.failures),
            run.commits.buffered_bytes,
            cursor if waits else None,
            max(0, run.now_ms - run.blocked_since_ms),
            run.commits.write_failures,
            self._started_ms,
            now,
            work.workers,
            str(work.home.path),
            self.resumed,
            self._standing.cursor,
            driver.message,
            cancelled,
            window_views(run.ledger, run.windows.active()),
        )

    @property
    def is_done(self) -> bool:
        """Whether an earlier run is the answer; known when it is open."""
        return self._done is not None

    def snapshot(self) -> dict[str, object] | None:
        """The diagnostics snapshot of the run as it stands; None before it is open. For after the end of `run`."""
        return None if self._driver is None else self._driver.ordered.snapshot().to_map()

    @property
    def snapshot_path(self) -> Path:
        """Where the snapshot lies while the run has not ended."""
        return snapshot_path(self._work.home.path, self.run_id)

    def item_text(self, seq: int) -> str:
        """An item as people recognise it: the name of a file, or the beginning of a value."""
        line = self._items.lines(seq, seq)[0]
        if self.inputs.spec.files:
            return shown_name(json_decode(line)[0])
        text = line.decode()
        return text if len(text) <= ITEM_CHARS_MAX else f"{text[:ITEM_CHARS_MAX]}..."

    # -- which run -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        home, backend, beginning = self._work.home.path, self._work.backend, self._beginning
        is_forced = beginning is not None and beginning.force
        for run, inputs in () if self._new else self._unfinished():
            if is_forced:
                if not end_run(backend, run.run_id, "begun anew"):
                    raise self._driven(run)
            elif self._goes_on(run, inputs):
                return
        if beginning is not None:
            if not (is_forced or self._new) and beginning.answers and self._is_answered():
                return
            if (insist := getattr(self._target, "insist_on_room", None)) is not None:
                insist()
        RunLock.sweep(home, {row.run_id for row in backend.reader.runs(status=RUNNING)})
        while self._lock is None:
            self.run_id = new_run_id(self.inputs.spec.name, backend.random)
            self._lock = RunLock.take(home, self.run_id)

    def _goes_on(self, run: Run, inputs: OrderedInputs) -> bool:
        """Take an unfinished run up; False when it computes for a loop and its function has changed."""
        lock = RunLock.take(self._work.home.path, run.run_id)
        if lock is None:
            raise self._driven(run)
        known = {name: value for name, value in self.inputs.ingredients.items() if name in inputs.ingredients}
        change = self._work.work_keys.difference(inputs.ingredients, known)
        if change and self.inputs.spec.commit is not None:
            lock.release()
            raise InvalidInput(
                f"run {run.run_id!r} has not ended, and {change} since it began",
                hint="its destination would hold the results of two programs: --force begins anew and replaces what it wrote",
                details={"run_id": run.run_id},
            )
        if change:
            lock.release()
            return False
        self.run_id, self.resumed, self._lock = run.run_id, True, lock
        self._started_ms = run.started_tick
        self._taken_for = self.inputs.step_of if self.inputs.step_of != inputs.step_of else None
        self.inputs = replace(self.inputs, config=inputs.config)
        return True

    @staticmethod
    def _driven(run: Run) -> RequestRefused:
        return RequestRefused(
            f"run {run.run_id!r} does the same in another process",
            code="CONFLICT",
            hint=f"wait for it, or `detent cancel {run.run_id}` first",
        )

    def _is_answered(self) -> bool:
        """Whether an earlier run has done this; raises `InvalidInput` for one that did a part, which must not be done twice."""
        backend = self._work.backend
        earlier = None if self.inputs.spec.commit is None else earlier_run(backend, self.inputs)
        if earlier is None or not earlier.is_kept(backend, self._target):
            return False
        run_id = earlier.run.run_id
        if earlier.is_complete:
            self.run_id = run_id
            self._done = self._recorded_result(earlier)
        elif earlier.delivered:
            raise InvalidInput(
                f"run {run_id!r} did a part of this and ended as {word_of(earlier.run.status)}: its destination has"
                f" {earlier.delivered:,} items",
                code="DESTINATION_NOT_EMPTY",
                hint=f"`detent retry {run_id}` runs what is missing; --force (force=True in Python) begins anew",
                details={"run_id": run_id, "delivered": earlier.delivered},
            )
        return self._done is not None

    def _recorded_result(self, earlier: Earlier) -> OrderedResult:
        run, summary, work = earlier.run, earlier.summary(), self._work
        self._started_ms, ended_ms = run.started_tick, run.ended_tick or run.started_tick
        view = OrderedView(
            run.run_id, self.inputs.spec.name, run.status, summary.total, summary.total, summary.total, summary.fail, 0,
            None, 0, 0, self._started_ms, ended_ms, work.workers, str(work.home.path),
        )  # fmt: skip
        name = self.inputs.spec.name
        return OrderedResult(run.run_id, name, run.status, "", summary, (), 0, view, done_before=True)

    def _unfinished(self) -> Iterator[tuple[Run, OrderedInputs]]:
        backend, digests = self._work.backend, self.inputs.digests()
        for row in backend.reader.runs(status=RUNNING):
            if row.tenant_id != backend.tenant:
                continue
            run = Run.decode(row.body)
            if (run.contract_digest, run.bindings_digest) != digests:
                continue
            try:
                inputs = read_ordered(backend.unsealed(run.inputs_digest))
            except DetentError:
                continue  # Erased: it cannot be the one that is meant.
            if inputs is not None:
                yield run, inputs

    def _made_of(self, function: str, base: str | None) -> Mapping[str, Any]:
        return self._work.work_keys.of(Call(kind="python", target=function, base=base), no_results).ingredients

    def _start(self) -> None:
        backend, inputs = self._work.backend, self.inputs
        digest, inline = backend.sealed(inputs.document(), name="the run's inputs")
        spec, items = inputs.digests()
        operation = backend.new_uuid()
        command = StartRun(0, backend.tenant, self.run_id, inputs.spec.name, spec, items, digest, operation)
        (answer,) = ask_again(backend.session, lambda: backend.session.ask([command], content=inline), Event())
        if answer.refusal is not None:
            raise error_of(answer.refusal)

    def _notes(self) -> Notes:
        work, spec = self._work, self.inputs.spec
        committing = None if spec.commit is None else function_of(spec.commit)
        called = [name for name in (spec.compute, spec.filter, committing) if name is not None]
        # Of its own: the other one is the thread's that drives the run which this is a step of.
        env_version = WorkKeys(work.backend).env_version_of(called, spec.base)
        return Notes(
            work.backend,
            self.run_id,
            worker=work.supervisor.identity,
            label=spec.name,
            env_version=env_version,
        )

    def _make_driver(self, notes: Notes) -> OrderedDriver:
        work = self._work
        driver = OrderedDriver(
            work.backend,
            self.inputs,
            self._items,
            self.run_id,
            self._target,
            notes,
            supervisor=work.supervisor,
            workers=work.workers,
            commit_ms=self._commit_ms,
        )
        unlisten, unobserve = work.listen(driver.attempted), work.session.observe(driver.observe)

        def leave() -> None:
            unlisten()
            unobserve()

        self._leave = leave
        if self._cancel is not None:
            driver.cancel(*self._cancel)
        if self._stopped:
            driver.stop()
        return driver

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
