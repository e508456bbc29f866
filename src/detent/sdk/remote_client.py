"""`detent.Client("https://...")`: the same client for a home behind a server, whose workers run what is submitted.

    with detent.Client("https://jobs.example.org", key=KEY) as client:
        handle = client.submit(resize, "photo.png", width=640)
        print(handle.result())

A function is named, not sent: the server runs the one of that name in its project (`detent serve --project`). Arguments and results are JSON
and `detent.File`, as everywhere; files travel by digest and are sent once. What is submitted is durable when `submit` returns and goes on
whatever happens to this process, so closing a client waits for nothing. A lost answer is asked for again under the same idempotency
key: nothing is submitted twice.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from detent.canon import json_decode, parse_digest
from detent.canon.grammar import PRIORITY_NAMES
from detent.errors import DetentError, InvalidInput
from detent.jobs.status import JobStatus
from detent.jobs.values import is_file
from detent.remote.address import KEY_VARIABLE, PIN_VARIABLE, parse_address
from detent.remote.http import ANSWER_SECONDS, Http
from detent.remote.jobs import failure_of_job, post, submit_payload, value_of_job
from detent.remote.operator_key import sign_requests
from detent.remote.uploads import Uploads
from detent.sdk.calls import MakeCall, StoreArguments, caller
from detent.sdk.options import Duration, check_policies, not_ended, refuse_ambiguous, waiting_seconds
from detent.sdk.outcomes import Left, TaskCancelled, TaskFailed, task_failure
from detent.store.content import ContentFiles
from detent.words.states import CANCELLED, FAILED, SUCCEEDED, TIMED_OUT

if TYPE_CHECKING:
    from detent.runs.submit.calls import JobRequest

PATIENCE_SECONDS: Final = 60.0
"""For how long a server that restarts or is busy is asked again."""
WAIT_SECONDS: Final = 30
BATCH_MAX: Final = 500
MAP_AHEAD: Final = 2_000
"""Calls of a map that are submitted before the first of them has been given back."""
_PRIORITIES: Final = {number: name for name, number in PRIORITY_NAMES.items()}
_ENDED: Final = frozenset({SUCCEEDED, FAILED, TIMED_OUT, CANCELLED})


class RemoteHandle:
    """A job that was submitted to a server."""

    def __init__(self, client: RemoteClient, job_id: str, *, deduplicated: bool = False) -> None:
        self._server = client
        self._job_id, self._deduplicated = job_id, deduplicated
        self._detail: dict[str, Any] | None = None
        """The job as it ended; nothing changes then."""

    @property
    def job_id(self) -> str:
        """What `detent show` and `detent explain` call it."""
        return self._job_id

    @property
    def deduplicated(self) -> bool:
        """Whether it stands for a job that was submitted before."""
        return self._deduplicated

    @property
    def status(self) -> JobStatus:
        """Where the job stands now, by the ledger."""
        return JobStatus(str(self._look(0)["status"]).upper())

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._detail is not None or self._look(0)["status"] in _ENDED

    def result(self, timeout: Duration | None = None) -> Any:
        """What the task returned. Raises `TaskFailed` if it failed, `TimeoutError` if it has not ended in time."""
        return self._server.value(self._ended(waiting_seconds("timeout", timeout)))

    def exception(self, timeout: Duration | None = None) -> TaskFailed | None:
        """Why the task failed; None if it succeeded."""
        try:
            self.result(timeout)
        except TaskFailed as exc:
            return exc
        return None

    def cancel(self) -> bool:
        """Cancel the job, and end it at once if it runs; False when it has ended already."""
        if self.done():
            return False
        try:
            self._server.http.post(f"/v1/jobs/{self.job_id}/cancel", {})
        except DetentError as exc:
            if exc.code == "CONFLICT":
                return False
            raise
        return True

    def outcome(self, timeout: Duration | None = None) -> dict[str, Any]:
        """The job as it ended, as `GET /v1/jobs/{id}` tells it: of a platform job, ``result`` is its envelope."""
        return self._ended(waiting_seconds("timeout", timeout))

    def __repr__(self) -> str:
        known = "submitted" if self._detail is None else self._detail["status"]
        return f"<job {self.job_id}: {known}>"

    def _ended(self, seconds: float | None) -> dict[str, Any]:
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._detail is None:
            left = WAIT_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
            detail = self._look(int(min(WAIT_SECONDS, left)))
            if self._detail is None and deadline is not None and time.monotonic() >= deadline:
                raise not_ended(f"job {detail['job_id']}", seconds)
            if self._detail is None and left < 1:
                time.sleep(min(left, 0.05))  # What is left of the time is shorter than a request can wait.
        return self._detail

    def _look(self, wait: int) -> dict[str, Any]:
        if self._detail is not None:
            return self._detail
        path = f"/v1/jobs/{self.job_id}"
        detail: dict[str, Any] = self._server.http.get(path, {"wait": wait}, seconds=wait + ANSWER_SECONDS)
        if detail["status"] in _ENDED:
            self._detail = detail
        return detail


class RemoteClient:
    """Submits functions and payloads to the home behind a server. Safe for several threads."""

    def __init__(
        self,
        url: str,
        *,
        workers: int | None = None,
        force: bool = False,
        salt: str | None = None,
        key: str | None = None,
        pin: str | None = None,
    ) -> None:
        import os  # noqa: PLC0415 - for the two variables alone

        if workers or force or salt is not None:
            raise InvalidInput(
                "workers=, force= and salt= are for a home on this machine",
                hint="the server has its own workers (`detent serve --workers N`)",
            )
        chosen, pinned = key or os.environ.get(KEY_VARIABLE), pin or os.environ.get(PIN_VARIABLE)
        address = parse_address(url, key=chosen or None, pin=pinned or None)
        self.http = sign_requests(Http(address, patience=PATIENCE_SECONDS, agent="detent-client"))
        self.url = address.url
        self._files = tempfile.TemporaryDirectory(prefix="detent-client-")
        self._content = ContentFiles(Path(self._files.name))
        self._uploads = Uploads(self.http)
        self._calls: dict[int, tuple[Any, tuple[MakeCall, StoreArguments]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- submitting ----------------------------------------------------------------------------------------------------

    def submit(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        reuse: bool | None = None,
        idempotency_key: str | None = None,
        quota: str | None = None,
        lease: str | None = None,
        backoff: str | None = None,
        **kwargs: Any,
    ) -> RemoteHandle:
        """Submit one call of a function that the server has; when this returns it is durable. A full queue makes it wait."""
        from detent.sdk.flow import Flow  # noqa: PLC0415 - single functions need none of it

        if isinstance(function, Flow):
            raise InvalidInput(
                f"{function!r} is a flow, and a client of a server submits functions",
                hint="write the pipeline as a contract file: detent run FILE --connect URL",
            )
        policies = {"quota": quota, "lease": lease, "backoff": backoff}
        options = {"reuse": reuse, "idempotency_key": idempotency_key, **policies}
        if given := {name: value for name, value in options.items() if value is not None}:
            refuse_ambiguous(function, given)
        return self.submit_call(function, args, kwargs, reuse=reuse, idempotency_key=idempotency_key, **policies)

    def submit_call(  # noqa: PLR0913 - options, all by name
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        reuse: bool | None = None,
        idempotency_key: str | None = None,
        quota: str | None = None,
        lease: str | None = None,
        backoff: str | None = None,
        timeout: Duration | None = None,
    ) -> RemoteHandle:
        """Submit one call of a function that the server has; durable when this returns. A full queue makes it wait."""
        named = _policies(quota=quota, lease=lease, backoff=backoff)
        body = {"task": self._task(self._call(function, args, kwargs or {}, reuse, named))}
        taken = post(self.http, "/v1/jobs", body, seconds=waiting_seconds("timeout", timeout), key=idempotency_key)
        return self._handle(taken)

    def submit_many(
        self,
        function: Callable[..., Any],
        calls: Iterable[Sequence[Any]],
        *,
        reuse: bool | None = None,
        quota: str | None = None,
        lease: str | None = None,
        backoff: str | None = None,
        timeout: Duration | None = None,
    ) -> list[RemoteHandle]:
        """Submit one call for each tuple of arguments, many in one commit; the handles in the same order."""
        named = _policies(quota=quota, lease=lease, backoff=backoff)
        asked = [{"task": self._task(self._call(function, args, {}, reuse, named))} for args in calls]
        return self._submit_all(asked, waiting_seconds("timeout", timeout))

    def map(
        self,
        function: Callable[..., Any],
        *iterables: Iterable[Any],
        reuse: bool | None = None,
        timeout: Duration | None = None,
    ) -> Iterator[Any]:
        """The results of one call for each element, in order, as they come; stops at the first that failed."""
        if not iterables:
            raise InvalidInput("map needs something to go through", hint="client.map(function, [1, 2, 3])")
        return self._mapped(function, iterables, reuse, waiting_seconds("timeout", timeout))

    def submit_job(
        self,
        payload: bytes | Mapping[str, Any],
        *,
        user_id: str | None = None,
        idempotency_key: str | None = None,
        reuse_failed: bool = False,
        join: bool = False,
        files: Sequence[str | Path] = (),
        timeout: Duration | None = None,
    ) -> RemoteHandle:
        """Submit a platform job: a payload as docs/jobs.md describes it, as a dict or as the bytes of a JSON document.

        Who asks is said by the key, so ``user_id`` is refused.
        """
        if user_id is not None:
            raise InvalidInput("user_id= is for a home on this machine", hint="the key says who asks a server")
        document = json_decode(payload, name="payload") if isinstance(payload, bytes) else dict(payload)
        options: dict[str, Any] = {"reuse_failed": reuse_failed, "join": join, "files": files, "key": idempotency_key}
        seconds = waiting_seconds("timeout", timeout)
        return self._handle(submit_payload(self.http, self._uploads, document, seconds=seconds, **options))

    def handle(self, job_id: str) -> RemoteHandle:
        """A handle for a job that was submitted earlier, by any process."""
        return RemoteHandle(self, job_id)

    def close(self, timeout: Duration | None = None, *, now: bool = False) -> Left:  # noqa: ARG002 - as a local client
        """Let go of the server. Nothing is waited for: what was submitted goes on there."""
        self.http.close()
        self._files.cleanup()
        return Left()

    # -- results -------------------------------------------------------------------------------------------------------

    def value(self, detail: Mapping[str, Any]) -> Any:
        """What a job that has ended gave back, or the error that its failure stands for."""
        job_id, status = str(detail["job_id"]), detail["status"]
        if status == CANCELLED:
            raise TaskCancelled(f"job {job_id} was cancelled", hint=f"`detent explain {job_id}`")
        if status != SUCCEEDED:
            raise task_failure(job_id, failure_of_job(detail), str(detail["reason_code"] or detail["state"]))
        return value_of_job(self.http, detail)

    def _mapped(
        self,
        function: Callable[..., Any],
        iterables: Sequence[Iterable[Any]],
        reuse: bool | None,
        timeout: float | None,
    ) -> Iterator[Any]:
        left = iter(zip(*iterables, strict=False))
        waiting: list[RemoteHandle] = []
        while True:
            more = list(islice(left, min(BATCH_MAX, MAP_AHEAD - len(waiting))))
            waiting += self._submit_all(
                [{"task": self._task(self._call(function, args, {}, reuse, {}))} for args in more]
            )
            if not waiting:
                return
            yield waiting.pop(0).result(timeout)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _caller(self, function: Callable[..., Any]) -> tuple[MakeCall, StoreArguments]:
        known = self._calls.get(id(function))
        if known is None or known[0] is not function:
            known = self._calls[id(function)] = (function, caller(function, self._content))
        return known[1]

    def _call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        reuse: bool | None,
        policies: Mapping[str, str],
    ) -> JobRequest:
        return self._caller(function)[0](args, kwargs, reuse, policies)

    def _task(self, request: JobRequest) -> dict[str, Any]:
        """A call as the server takes it; the files that it names are sent first."""
        call, limits = request.call, request.limits
        if call.kind != "python":
            raise InvalidInput(f"a server runs functions, and {request.label!r} is a {call.kind} step")
        arguments, keywords = list(call.arguments), dict(call.keywords)
        for digest in _digests([arguments, keywords]):
            self._uploads.send_file(self._content.path(digest), digest)
        said = {
            "target": call.target,
            "arguments": arguments,
            "keywords": keywords,
            "label": request.label,
            "priority": _PRIORITIES.get(request.priority),
            "retries": limits.retries.max,
            "timeout_ms": limits.wall_ms,
            "resources": dict(limits.resources),
            "version": call.version,
            "reuse": request.reuse,
            **limits.policies,
        }
        return {name: value for name, value in said.items() if value is not None}

    def _submit_all(self, asked: Sequence[dict[str, Any]], seconds: float | None = None) -> list[RemoteHandle]:
        handles: list[RemoteHandle] = []
        for first in range(0, len(asked), BATCH_MAX):
            part = list(asked[first : first + BATCH_MAX])
            items = post(self.http, "/v1/jobs:batch", {"items": part, "atomic": True}, seconds=seconds)["items"]
            handles += [self._handle(item) for item in items]
        return handles

    def _handle(self, taken: Mapping[str, Any]) -> RemoteHandle:
        return RemoteHandle(self, str(taken["job_id"]), deduplicated=bool(taken["deduplicated"]))


def _digests(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        if is_file(value):
            yield parse_digest(str(value["$file"]))
            return
        for one in value.values():
            yield from _digests(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _digests(one)


def _policies(**policies: str | None) -> dict[str, str]:
    named = {kind: name for kind, name in policies.items() if name is not None}
    check_policies(named)
    return named
