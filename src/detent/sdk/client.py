"""`detent.Client`: single jobs from Python, durable from the moment `submit` returns.

    with detent.Client() as client:
        handle = client.submit(resize, "photo.png", width=640)
        print(handle.result())

Values are JSON and `detent.File`; nothing is pickled. A function runs each time it is submitted, unless reuse is asked for
(X-190). A client that only reads takes no work. Closing one that has submitted waits for it, for a bounded time; what has
not ended then stays in the queue, and the next client goes on with it.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from detent.errors import InvalidInput
from detent.sdk.options import Duration, not_ended, waiting_seconds
from detent.sdk.outcomes import Left, TaskCancelled, ticket_failure
from detent.sdk.submissions import Outcome, Submissions

if TYPE_CHECKING:
    from detent.inspect.fetch_artifacts import Fetched
    from detent.inspect.job_results import JobResultView
    from detent.jobs.dedupe import IdempotencyScope
    from detent.jobs.status import JobStatus
    from detent.runs.runtime import Runtime
    from detent.runs.single_jobs import SingleJobs, Ticket
    from detent.runs.submit.calls import JobRequest
    from detent.sdk.flow import Flow
    from detent.sdk.flow_handle import FlowHandle
    from detent.sdk.platform_jobs import JobHandle
    from detent.store.content import ContentFiles

USER = "local"
ENDPOINT = "Client.submit"
CLOSE_SECONDS = 60.0
"""How long `Client.close` waits for what was submitted and begun, unless asked otherwise."""
logger = logging.getLogger("detent.client")


class Handle(Outcome):
    """A job that was submitted."""

    def __init__(self, client: Client, ticket: Ticket) -> None:
        self._client = client
        self._ticket = ticket

    @property
    def job_id(self) -> str:
        """What `detent show` and `detent explain` call it."""
        return self._ticket.name

    @property
    def deduplicated(self) -> bool:
        """Whether it stands for a job that was submitted before."""
        return self._ticket.deduplicated

    @property
    def status(self) -> JobStatus:
        """Where the job stands now, by the ledger."""
        return self._client._status(self._ticket)  # noqa: SLF001 - one class in two parts

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._ticket.done

    def result(self, timeout: Duration | None = None) -> Any:
        """What the task returned. Raises `TaskFailed` if it failed, `TimeoutError` if it has not ended in time.

        ``timeout`` is a number of seconds, a text such as ``"5m"``, or a timedelta.
        """
        return self._client._result(self._ticket, waiting_seconds("timeout", timeout))  # noqa: SLF001

    def cancel(self) -> bool:
        """Cancel the job, and end it at once if it runs; False when it has ended already."""
        return self._client._tasks.cancel(self._ticket)  # noqa: SLF001

    def __repr__(self) -> str:
        from detent.jobs.status import project_status  # noqa: PLC0415 - `import detent` stays cheap

        # By what this process knows: a handle may be looked at when its client is closed and the ledger with it.
        error = None if self._ticket.report is None else self._ticket.report.result.failure
        status = project_status(self._ticket.state, failure_code=None if error is None else error.code)
        return f"<job {self.job_id}: {status.value}>"


class Client(Submissions[Handle, "FlowHandle"]):
    """Submits functions and flows to a home and runs them on local workers. Safe for several threads.

    With the URL of a server in place of a home, the server's workers run them (see `detent.sdk.remote_client`): ``key`` is one of its
    keys, else ``DETENT_KEY``; ``pin`` the digest of its public key.

    ``home`` names the directory of the ledger; otherwise the nearest ``.detent`` upwards, or a new one here. ``force`` runs
    everything again, ``salt`` disowns all earlier results.

    ``workers`` is how many processes run work here, from the start. Without it there are as many as processors, from the
    first submission or wait for a result on: a client that only reads takes no work. With 0 it never takes any, and leaves
    what it submits to other processes.
    """

    def __new__(cls, home: str | Path | None = None, **options: Any) -> Self:
        """A `RemoteClient`, which has the same methods, where the URL of a server is given."""
        if isinstance(home, str) and home.startswith(("http://", "https://")):
            from detent.sdk.remote_client import RemoteClient  # noqa: PLC0415 - `import detent` stays cheap

            return cast("Self", RemoteClient(home, **options))
        return object.__new__(cls)

    def __init__(
        self,
        home: str | Path | None = None,
        *,
        workers: int | None = None,
        force: bool = False,
        salt: str | None = None,
        key: str | None = None,
        pin: str | None = None,
    ) -> None:
        super().__init__()
        if key is not None or pin is not None:
            raise InvalidInput("key= and pin= are for servers", hint='detent.Client("https://...", key=...)')
        from detent.runs.ahead import host_ahead  # noqa: PLC0415 - `import detent` stays cheap
        from detent.sdk.user_code import refuse_while_loading  # noqa: PLC0415

        refuse_while_loading("makes a client")
        chosen = None if home is None else Path(home)
        host = host_ahead(chosen, reuses=False) if workers else None  # Before all else is loaded.
        from detent.reuse.work_keys import Options  # noqa: PLC0415
        from detent.runs.runtime import Runtime, home_at  # noqa: PLC0415
        from detent.runs.single_jobs import SingleJobs  # noqa: PLC0415
        from detent.sdk.run import file_maker  # noqa: PLC0415

        where = home_at(chosen)
        self.home = where.path
        self._options = Options(force=force, salt=salt)
        self._work: Runtime = Runtime(where, workers=workers, idle=True, host=host)
        self._tasks: SingleJobs = SingleJobs(self._work, options=self._options)
        self._file = file_maker(where.path)
        self._warned = 0
        self._runs: list[FlowHandle] = []
        self._closing = threading.Lock()
        self._closed = False
        if workers is not None:
            self._work.start()

    def _submit_one(self, call: JobRequest, seconds: float | None, idempotency_key: str | None) -> Handle:
        from detent.jobs.dedupe import IdempotencyScope, parse_idempotency_key  # noqa: PLC0415

        scope = None
        if idempotency_key is not None:
            key = parse_idempotency_key(idempotency_key)
            scope = IdempotencyScope(self._work.backend.tenant, USER, ENDPOINT, key)
        (ticket,) = self._submitted([call], seconds, scope)
        return Handle(self, ticket)

    def _submit_all(self, calls: Sequence[JobRequest], seconds: float | None) -> list[Handle]:
        return [Handle(self, ticket) for ticket in self._submitted(calls, seconds)]

    def _mapped(
        self,
        function: Callable[..., Any],
        iterables: Sequence[Iterable[Any]],
        reuse: bool | None,
        timeout: float | None,
        chunk: int | None,
    ) -> Iterator[Any]:
        from detent.jobs.elements import element_id  # noqa: PLC0415 - `import detent` stays cheap
        from detent.sdk.mapping import Mapped, plain_values  # noqa: PLC0415

        self._work.start()
        make, stored = self._caller(function)
        mapped = Mapped(
            self._tasks,
            lambda args: make(args, {}, reuse, {}),
            lambda args: stored(args, {}),
            lambda calls: self._submitted(calls, None),
            zip(*iterables, strict=False),
            chunk=chunk,
            workers=self._work.workers,
        )
        for ticket, count in mapped.jobs():
            for place in range(count) if count else (None,):
                if not (ticket.done or mapped.wait(ticket, place, timeout)):
                    raise not_ended(f"job {element_id(ticket.job_id, place)}", timeout)
                if count and ticket.done and (found := plain_values(ticket, place or 0)) is not None:
                    yield from found
                    break
                yield self._result(ticket, 0.0) if place is None else self._element_result(ticket, place)

    def submit_job(  # noqa: PLR0913 - options, all by name
        self,
        payload: bytes | Mapping[str, Any],
        *,
        user_id: str | None = None,
        idempotency_key: str | None = None,
        reuse_failed: bool = False,
        join: bool = False,
        files: Sequence[str | Path] = (),
        pool: str | None = None,
        labels: str | Sequence[str] | None = None,
        resources: Mapping[str, int] | None = None,
        timeout: Duration | None = None,
    ) -> JobHandle:
        """Submit a platform job: a payload as docs/jobs.md describes it, as a dict or as the bytes of a JSON document.

        The payload is checked whole and held to the plan of its workspace; every fault is told at once (`EnvelopeInvalid`,
        or `RequestRefused` with ``PLAN_EXCEEDED``). Equal work that succeeded before answers for it; ``reuse_failed`` accepts
        an earlier failure, too, and ``join`` a job that is still under way. ``files`` are those that the payload names by
        digest. ``user_id`` is who asks, unless the payload says it. ``pool``, ``labels`` and ``resources`` say where the job may
        run and what it takes there, as for a task.
        """
        from detent.sdk.options import place_of  # noqa: PLC0415 - `import detent` stays cheap
        from detent.sdk.platform_jobs import submit_job  # noqa: PLC0415

        self._work.start()
        options = {
            "user_id": user_id,
            "idempotency_key": idempotency_key,
            "reuse_failed": reuse_failed,
            "in_flight_policy": "join" if join else "new",
            "files": files,
            **place_of(pool, labels, resources),
            "timeout": timeout,
        }
        return submit_job(self._work, self._tasks, payload, options)

    def result_of(self, job: str | JobHandle, timeout: Duration | None = None) -> JobResultView:
        """The result envelope of a platform job, with its proof; waits for the job's end. See `JobHandle.outcome`."""
        from detent.sdk.platform_jobs import result_of  # noqa: PLC0415

        return result_of(self._work, self._tasks, job if isinstance(job, str) else job.job_id, timeout)

    def fetch_artifacts(
        self, job: str | JobHandle, directory: str | Path, ids: Sequence[str] = (), *, force: bool = False
    ) -> list[Fetched]:
        """Copy the artifacts of a platform job into a directory; existing files are kept unless ``force`` is set."""
        from detent.sdk.platform_jobs import fetch_of  # noqa: PLC0415

        return fetch_of(self._work, self.result_of(job), directory, ids, force=force)

    def handle(self, job_id: str) -> Handle:
        """A handle for a job that was submitted earlier, by any process."""
        return Handle(self, self._tasks.ticket(job_id))

    def close(self, timeout: Duration | None = CLOSE_SECONDS, *, now: bool = False) -> Left:
        """Finish, and end the workers; says what was left.

        Waits at most ``timeout`` seconds (None: as long as it takes) for what this client submitted and for what its
        workers have begun. ``now=True`` waits for nothing. What has not ended by then is interrupted and stays in the queue
        for the next client or run; nothing is lost. Without workers it waits for its runs of flows alone.
        """
        seconds = waiting_seconds("timeout", timeout)
        with self._closing:
            if self._closed:
                return Left()
            self._closed = True
        drained = now
        try:
            if not now:
                self._drain(None if seconds is None else time.monotonic() + seconds)
            drained = True
        finally:
            left = self._end()
            if left and not now and drained and (self._work.workers or left.runs):
                logger.warning(
                    "the client of %s was closed after %s s and left %s; the next client or run goes on with it, and"
                    " close(timeout=...) waits longer",
                    self.home,
                    timeout,
                    left,
                )
        return left

    def _submitted(
        self, calls: Sequence[JobRequest], timeout: float | None, scope: IdempotencyScope | None = None
    ) -> list[Ticket]:
        self._work.start()
        tickets = self._tasks.submit(calls, timeout=timeout, scope=scope)
        said = self._work.work_keys.path_arguments.warnings
        for text in said[self._warned :]:
            warnings.warn(text, stacklevel=5)
        self._warned = len(said)
        return tickets

    def _drain(self, deadline: float | None) -> None:
        """Wait for the runs and jobs of this client, then for all other work that its workers have begun."""
        for run in self._runs:
            run.wait(_left(deadline))
        if self._work.workers:
            self._tasks.drain(deadline)
            self._work.supervisor.drain(_left(deadline))

    def _end(self) -> Left:
        """Stop everything; what had not ended."""
        open_runs = [run for run in self._runs if not run.done()]
        for run in open_runs:
            run.leave()
        interrupted = self._work.supervisor.held
        queued = [job_id for job_id in self._tasks.open_jobs() if job_id not in set(interrupted)]
        self._tasks.close()
        self._work.close()
        return Left(
            tuple(interrupted), tuple(queued), tuple(run.run_id for run in open_runs if run.status == "stopped")
        )

    def _submit_flow(self, flow: Flow[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> FlowHandle:
        from detent.runs.handle import RunHandle  # noqa: PLC0415 - single functions need none of it
        from detent.runs.record.inputs import RunInputs  # noqa: PLC0415
        from detent.sdk.flow_handle import FlowHandle  # noqa: PLC0415

        inputs = RunInputs(flow.contract(*args, **kwargs), {})
        handle = FlowHandle(self._work, RunHandle(self._work, inputs, options=self._options, file=self._file))
        handle.start()
        self._runs = [*(run for run in self._runs if not run.done()), handle]
        return handle

    @property
    def _content(self) -> ContentFiles:
        return self._work.backend.files

    def _status(self, ticket: Ticket) -> JobStatus:
        from detent.jobs.status import JobStatus, project_job  # noqa: PLC0415
        from detent.kernel import Job  # noqa: PLC0415

        job_id = ticket.job_id
        if ticket.element is not None and ticket.report is not None:
            return JobStatus(ticket.report.result.status)
        row = self._work.backend.reader.job(job_id)
        if row is None:
            raise InvalidInput(f"there is no job {job_id!r}", code="UNKNOWN_JOB", hint="`detent list --jobs` shows all")
        return project_job(Job.decode(row.body)).status

    def _result(self, ticket: Ticket, timeout: float | None) -> Any:
        from detent.jobs.values import restored  # noqa: PLC0415
        from detent.kernel import Job, State  # noqa: PLC0415
        from detent.reuse.work_keys import no_results  # noqa: PLC0415

        if not ticket.done:
            self._work.start()  # Else a job that waits for a worker would wait for ever.
        if not self._tasks.wait(ticket, timeout):
            raise not_ended(f"job {ticket.name}", timeout)
        if ticket.state == State.CANCELED:
            raise TaskCancelled(f"job {ticket.name} was cancelled", hint=f"`detent explain {ticket.name}`")
        report = ticket.report
        if ticket.state == State.SUCCEEDED and report is not None:
            backend = self._work.backend
            return restored(backend.value(report), no_results, self._file)
        row = None if report is not None else self._work.backend.reader.job(ticket.job_id)
        raise ticket_failure(ticket, None if row is None else Job.decode(row.body).reason_code)

    def _element_result(self, ticket: Ticket, place: int) -> Any:
        """What came of one element of an array that has ended."""
        from detent.runs.single_jobs import Ticket  # noqa: PLC0415

        report = ticket.report
        if report is None or report.result.elements is None:
            _, report = self._work.backend.array_report(ticket.job_id) or (None, None)
        own = Ticket(ticket.job_id, element=place)
        own.end(ticket.state, ticket.digest, report)
        return self._result(own, 0.0)


def _left(deadline: float | None) -> float:
    return threading.TIMEOUT_MAX if deadline is None else max(0.0, deadline - time.monotonic())
