"""`detent.Client("https://...")`: the same client for a home behind a server, whose workers run what is submitted.

    with detent.Client("https://jobs.example.org", key=KEY) as client:
        handle = client.submit(resize, "photo.png", width=640)
        print(handle.result())

A function is named, not sent: the server runs the one of that name in its project (`detent serve --project`). A flow is recorded here and
sent with its code, and the server drives its run. Arguments and results are JSON and `detent.File`, as everywhere; files travel by
digest. What is submitted is durable when `submit` returns and goes on whatever happens to this process, so closing a client waits for
nothing. A lost answer is asked for again under the same idempotency key: nothing is submitted twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detent.canon import json_decode
from detent.canon.grammar import PRIORITY_NAMES
from detent.errors import InvalidInput
from detent.owner.state_directory import state_directory
from detent.remote.address import KEY_VARIABLE, PIN_VARIABLE, parse_address
from detent.remote.heads import check_head
from detent.remote.http import Http
from detent.remote.jobs import post, submit_payload
from detent.remote.operator_key import sign_requests
from detent.remote.runs import start_run
from detent.remote.trees import send_tree
from detent.sdk.flow_tree import tree_of_flow
from detent.sdk.options import Duration, place_of, waiting_seconds
from detent.sdk.outcomes import Left
from detent.sdk.remote_flow import RemoteFlowHandle
from detent.sdk.remote_handles import RemoteHandle, RemoteJobHandle, fetch_there, result_there
from detent.sdk.remote_values import RemoteValues
from detent.sdk.submissions import Submissions
from detent.store.content import ContentFiles

if TYPE_CHECKING:
    from detent.inspect.fetch_artifacts import Fetched
    from detent.inspect.job_results import JobResultView
    from detent.runs.submit.calls import JobRequest
    from detent.sdk.flow import Flow

PATIENCE_SECONDS: Final = 60.0
"""For how long a server that restarts or is busy is asked again."""
BATCH_MAX: Final = 500
BATCH_BYTES: Final = 8 * 1024 * 1024
"""Of calls that are submitted in one request, unless a single one has more."""
MAP_AHEAD: Final = 2_000
"""Calls of a map that are submitted before the first of them has been given back."""
_PRIORITIES: Final = {number: name for name, number in PRIORITY_NAMES.items()}


class RemoteClient(Submissions[RemoteHandle, RemoteFlowHandle]):
    """Submits functions, flows and payloads to the home behind a server. Safe for several threads."""

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
        super().__init__()
        if workers:
            raise InvalidInput(
                "workers= is for a home on this machine",
                hint="the server has its own workers (`detent serve --workers N`)",
            )
        self._force, self._salt = force, salt
        chosen, pinned = key or os.environ.get(KEY_VARIABLE), pin or os.environ.get(PIN_VARIABLE)
        address = parse_address(url, key=chosen or None, pin=pinned or None)
        self.http = sign_requests(Http(address, patience=PATIENCE_SECONDS, agent="detent-client", greet=check_head))
        self.url = address.url
        self._values = RemoteValues(self.http)

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
    ) -> RemoteJobHandle:
        """Submit a platform job: a payload as docs/jobs.md describes it, as a dict or as the bytes of a JSON document.

        Who asks is said by the key, so ``user_id`` is refused.
        """
        if user_id is not None:
            raise InvalidInput("user_id= is for a home on this machine", hint="the key says who asks a server")
        document = json_decode(payload, name="payload") if isinstance(payload, bytes) else dict(payload)
        options: dict[str, Any] = {"reuse_failed": reuse_failed, "join": join, "files": files, "key": idempotency_key}
        options["place"] = place_of(pool, labels, resources)
        seconds = waiting_seconds("timeout", timeout)
        taken = submit_payload(self.http, self._values.uploads, document, seconds=seconds, **options)
        return RemoteJobHandle(self.http, taken)

    def result_of(self, job: str | RemoteJobHandle, timeout: Duration | None = None) -> JobResultView:
        """The result envelope of a platform job, with its proof; waits for the job's end."""
        job_id = job if isinstance(job, str) else job.job_id
        self.handle(job_id).ended(timeout)
        return result_there(self.http, job_id)

    def fetch_artifacts(
        self, job: str | RemoteJobHandle, directory: str | Path, ids: Sequence[str] = (), *, force: bool = False
    ) -> list[Fetched]:
        """Copy the artifacts of a platform job into a directory; existing files are kept unless ``force`` is set."""
        return fetch_there(self.http, self.result_of(job), directory, ids, force=force)

    def handle(self, job_id: str) -> RemoteHandle:
        """A handle for a job that was submitted earlier, by any process."""
        return RemoteHandle(self.http, self._values, job_id)

    def close(self, timeout: Duration | None = None, *, now: bool = False) -> Left:  # noqa: ARG002 - as a local client
        """Let go of the server. Nothing is waited for: what was submitted goes on there."""
        self.http.close()
        self._values.close()
        return Left()

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _content(self) -> ContentFiles:
        return self._values.content

    def _submit_flow(self, flow: Flow[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> RemoteFlowHandle:
        tree, contract = tree_of_flow(flow.record(*args, **kwargs))
        self._values.send_files(contract.files)
        options = {name: value for name, value in (("force", self._force), ("salt", self._salt)) if value}
        asked = {"contract": send_tree(self.http, tree), "params": {}, "options": options}
        run = start_run(self.http, asked, state_directory(os.environ).parent / "runs", new=False)
        return RemoteFlowHandle(self.http, self._values, run)

    def _submit_one(self, call: JobRequest, seconds: float | None, idempotency_key: str | None) -> RemoteHandle:
        body = {"task": self._task(call)}
        return self._handle(post(self.http, "/v1/jobs", body, seconds=seconds, key=idempotency_key))

    def _submit_all(self, calls: Sequence[JobRequest], seconds: float | None) -> list[RemoteHandle]:
        handles: list[RemoteHandle] = []
        for part in _batches({"task": self._task(call)} for call in calls):
            items = post(self.http, "/v1/jobs:batch", {"items": part, "atomic": True}, seconds=seconds)["items"]
            handles += [self._handle(item) for item in items]
        return handles

    def _mapped(
        self,
        function: Callable[..., Any],
        iterables: Sequence[Iterable[Any]],
        reuse: bool | None,
        timeout: float | None,
        chunk: int | None,  # noqa: ARG002
    ) -> Iterator[Any]:
        # ``chunk`` is taken as a wish: here each call has a job of its own, and one request has many of them.
        left = iter(zip(*iterables, strict=False))
        waiting: list[RemoteHandle] = []
        while True:
            more = list(islice(left, min(BATCH_MAX, MAP_AHEAD - len(waiting))))
            waiting += self._submit_all([self._call(function, args, {}, reuse, {}) for args in more], None)
            if not waiting:
                return
            yield waiting.pop(0).result(timeout)

    def _task(self, request: JobRequest) -> dict[str, Any]:
        """A call as the server takes it; the files that it names are sent first."""
        call, limits = request.call, request.limits
        if call.kind != "python":
            raise InvalidInput(f"a server runs functions, and {request.label!r} is a {call.kind} step")
        arguments, keywords = list(call.arguments), dict(call.keywords)
        self._values.send(arguments, keywords)
        said = {
            "target": call.target,
            "arguments": arguments,
            "keywords": keywords,
            "label": request.label,
            "priority": _PRIORITIES.get(request.priority),
            "retries": limits.retries.max,
            "timeout_ms": limits.wall_ms,
            "resources": dict(limits.resources),
            "pool": limits.pool,
            "labels": list(limits.labels),
            "version": call.version,
            "reuse": request.reuse and not self._force,
            "salt": self._salt,
            **limits.policies,
        }
        return {name: value for name, value in said.items() if value is not None}

    def _handle(self, taken: Mapping[str, Any]) -> RemoteHandle:
        job_id, deduplicated = str(taken["job_id"]), bool(taken["deduplicated"])
        return RemoteHandle(self.http, self._values, job_id, deduplicated=deduplicated)


def _batches(items: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Items in parts that a request may have: by their number and by their bytes."""
    part: list[dict[str, Any]] = []
    size_bytes = 0
    for item in items:
        own = len(json.dumps(item))
        if part and (len(part) == BATCH_MAX or size_bytes + own > BATCH_BYTES):
            yield part
            part, size_bytes = [], 0
        part.append(item)
        size_bytes += own
    if part:
        yield part
