"""`detent.Client`: single jobs from Python, durable from the moment `submit` returns.

    with detent.Client() as client:
        handle = client.submit(resize, "photo.png", width=640)
        print(handle.result())

Values are JSON and `detent.File`; nothing is pickled. Equal work is done once: a handle may stand for a job that somebody
submitted before. Closing a client leaves what has not ended in the queue; the next one goes on with it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from detent.errors import DetentError, InvalidInput
from detent.sdk.options import Duration, waiting_seconds

if TYPE_CHECKING:
    from detent.engine.tasks import Call, Tasks, Ticket
    from detent.engine.work import Work
    from detent.jobs.idempotency import IdempotencyScope
    from detent.jobs.status import JobStatus

USER = "local"
ENDPOINT = "Client.submit"
MAP_AHEAD = 1000
"""Jobs that `map` submits ahead of the results that were taken."""


class TaskFailed(DetentError):
    """A task did not succeed; ``details`` has its category, code and traceback."""

    code = "WORK_FAILED"


class TaskCancelled(TaskFailed):
    """A task was cancelled before it ended."""

    code = "WORK_CANCELLED"


class Handle:
    """A job that was submitted."""

    def __init__(self, client: Client, ticket: Ticket) -> None:
        self._client = client
        self._ticket = ticket

    @property
    def job_id(self) -> str:
        """What `detent show` and `detent explain` call it."""
        return self._ticket.job_id

    @property
    def deduplicated(self) -> bool:
        """Whether it stands for a job that was submitted before."""
        return self._ticket.deduplicated

    @property
    def status(self) -> JobStatus:
        """Where the job stands now, by the ledger."""
        return self._client._status(self._ticket.job_id)  # noqa: SLF001 - one class in two parts

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._ticket.done

    def result(self, timeout: Duration | None = None) -> Any:
        """What the task returned. Raises `TaskFailed` if it failed, `TimeoutError` if it has not ended in time.

        ``timeout`` is a number of seconds, a text such as ``"5m"``, or a timedelta.
        """
        return self._client._result(self._ticket, waiting_seconds("timeout", timeout))  # noqa: SLF001

    def exception(self, timeout: Duration | None = None) -> TaskFailed | None:
        """Why the task failed; None if it succeeded."""
        try:
            self.result(timeout)
        except TaskFailed as exc:
            return exc
        return None

    def cancel(self) -> bool:
        """Cancel the job, and end it at once if it runs; False when it has ended already."""
        return self._client._tasks.cancel(self._ticket)  # noqa: SLF001

    def __repr__(self) -> str:
        from detent.jobs.status import project_status  # noqa: PLC0415 - `import detent` stays cheap

        # By what this process knows: a handle may be looked at when its client is closed and the ledger with it.
        error = None if self._ticket.report is None else self._ticket.report.error
        status = project_status(self._ticket.state, failure_code=None if error is None else error.code)
        return f"<job {self.job_id}: {status.value}>"


class Client:
    """Submits tasks to a home and runs them on local workers. Safe for several threads.

    ``home`` names the directory of the ledger; otherwise the nearest ``.detent`` upwards, or a new one here. ``force`` runs
    everything again, ``salt`` disowns all earlier results.
    """

    def __init__(
        self,
        home: str | Path | None = None,
        *,
        workers: int | None = None,
        force: bool = False,
        salt: str | None = None,
    ) -> None:
        from detent.engine.driver import Options  # noqa: PLC0415 - `import detent` stays cheap
        from detent.engine.tasks import Tasks  # noqa: PLC0415
        from detent.engine.work import Work, home_at  # noqa: PLC0415
        from detent.sdk.run import file_maker  # noqa: PLC0415
        from detent.sdk.user_code import refuse_while_loading  # noqa: PLC0415

        refuse_while_loading("makes a client")
        where = home_at(None if home is None else Path(home))
        self.home = where.path
        self._work: Work = Work(where, workers=workers)
        self._tasks: Tasks = Tasks(self._work, options=Options(force=force, salt=salt))
        self._file = file_maker(where.path)
        self._warned = 0
        self._calls: dict[int, tuple[Any, Callable[[Sequence[Any], dict[str, Any]], Call]]] = {}

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Handle:
        """Submit one call; when this returns it is durable. A full queue makes it wait."""
        return self.submit_call(function, args, kwargs)

    def submit_call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        timeout: Duration | None = None,
    ) -> Handle:
        """Like `submit`, with the arguments in one place and options beside them.

        The same ``idempotency_key`` with the same call within a day gives the same job; with another call it is refused
        (``IDEMPOTENCY_KEY_REUSED``). When as many keys are remembered as the settings allow, a new one is refused
        (`IdempotencyKeysFull`). ``timeout`` bounds the wait for room in a full queue.
        """
        from detent.jobs.idempotency import IdempotencyScope, parse_idempotency_key  # noqa: PLC0415

        seconds = waiting_seconds("timeout", timeout)
        call = self._call(function, args, {} if kwargs is None else kwargs)
        scope = None
        if idempotency_key is not None:
            key = parse_idempotency_key(idempotency_key)
            scope = IdempotencyScope(self._work.desk.tenant, USER, ENDPOINT, key)
        (ticket,) = self._submitted([call], seconds, scope)
        return Handle(self, ticket)

    def submit_many(
        self, function: Callable[..., Any], calls: Iterable[Sequence[Any]], *, timeout: Duration | None = None
    ) -> list[Handle]:
        """Submit one call for each tuple of arguments, many in one commit; the handles in the same order."""
        seconds = waiting_seconds("timeout", timeout)
        prepared = [self._call(function, args, {}) for args in calls]
        return [Handle(self, ticket) for ticket in self._submitted(prepared, seconds)]

    def map(
        self, function: Callable[..., Any], *iterables: Iterable[Any], timeout: Duration | None = None
    ) -> Iterator[Any]:
        """The results of one call for each element, in order, as they come; stops at the first that failed."""
        if not iterables:
            raise InvalidInput("map needs something to go through", hint="client.map(function, [1, 2, 3])")
        return self._mapped(function, iterables, waiting_seconds("timeout", timeout))

    def _mapped(
        self, function: Callable[..., Any], iterables: Sequence[Iterable[Any]], timeout: float | None
    ) -> Iterator[Any]:
        handles: list[Handle] = []
        calls = zip(*iterables, strict=False)
        taken = 0
        while True:
            if len(handles) - taken < MAP_AHEAD // 2:
                ahead = [args for _, args in zip(range(MAP_AHEAD), calls, strict=False)]
                handles += self.submit_many(function, ahead)
            if taken == len(handles):
                return
            yield handles[taken].result(timeout)
            handles[taken] = None  # type: ignore[call-overload]  # a long map holds no results it has given out
            taken += 1

    def handle(self, job_id: str) -> Handle:
        """A handle for a job that was submitted earlier, by whoever."""
        return Handle(self, self._tasks.ticket(job_id))

    def close(self) -> None:
        """End the workers. What runs is interrupted and stays in the queue, for the next client or run."""
        self._tasks.close()
        self._work.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _submitted(
        self, calls: Sequence[Call], timeout: float | None, scope: IdempotencyScope | None = None
    ) -> list[Ticket]:
        tickets = self._tasks.submit(calls, timeout=timeout, scope=scope)
        said = self._work.recipes.path_arguments.warnings
        for text in said[self._warned :]:
            warnings.warn(text, stacklevel=4)
        self._warned = len(said)
        return tickets

    def _call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        known = self._calls.get(id(function))
        if known is None or known[0] is not function:
            from detent.sdk.calls import caller  # noqa: PLC0415

            known = self._calls[id(function)] = (function, caller(function, self._work.desk.files))
        return known[1](args, kwargs)

    def _status(self, job_id: str) -> JobStatus:
        from detent.jobs.status import project_job  # noqa: PLC0415
        from detent.kernel import Job  # noqa: PLC0415

        row = self._work.desk.reader.job(job_id)
        if row is None:
            raise InvalidInput(f"there is no job {job_id!r}", code="UNKNOWN_JOB", hint="`detent list --jobs` shows all")
        return project_job(Job.decode(row.body)).status

    def _result(self, ticket: Ticket, timeout: float | None) -> Any:
        from detent.engine.recipes import no_results  # noqa: PLC0415
        from detent.jobs.values import restored  # noqa: PLC0415
        from detent.kernel import Job  # noqa: PLC0415

        if not self._tasks.wait(ticket, timeout):
            raise TimeoutError(f"job {ticket.job_id} has not ended within {timeout} s")
        if ticket.state == "CANCELED":
            raise TaskCancelled(f"job {ticket.job_id} was cancelled", hint=f"`detent explain {ticket.job_id}`")
        report = ticket.report
        if ticket.state == "SUCCEEDED" and report is not None:
            desk = self._work.desk
            return restored(desk.value(report), no_results, self._file)
        row = None if report is not None else self._work.desk.reader.job(ticket.job_id)
        raise _failure(ticket, None if row is None else Job.decode(row.body).reason_code)


def _failure(ticket: Ticket, reason_code: str | None = None) -> TaskFailed:
    """What is raised for a job that failed; ``reason_code`` is the ledger's, for one whose end its worker did not report."""
    error = None if ticket.report is None else ticket.report.error
    hint = f"`detent explain {ticket.job_id}` and `detent logs {ticket.job_id}` tell more"
    if error is None:
        from detent.engine.next_attempt import unreported, unreported_category  # noqa: PLC0415

        code = reason_code or ticket.state
        return TaskFailed(
            f"{code}: {unreported(code, 'it ended without a report')}",
            hint=hint,
            details={"job_id": ticket.job_id, "category": unreported_category(code), "code": code},
        )
    from detent.engine.run_ending import users_line  # noqa: PLC0415

    name = error.type or error.code
    failure = TaskFailed(
        f"{name}: {error.message}" if error.message else name,
        hint=hint,
        details={
            "job_id": ticket.job_id,
            "category": error.category,
            "code": error.code,
            "traceback": error.traceback,
            "line": error.line,
        },
    )
    if error.traceback and (place := users_line(error.traceback, os.getcwd())) is not None:  # noqa: PTH109
        failure.__notes__.insert(0, f"at {place}")  # Before the hint, as a traceback would have it.
    return failure
