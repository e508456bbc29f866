"""Single calls on their way to the queue: their work keys, the earlier work that may answer for them, their orders.

For one workspace, that of its backend. The clients of a process and the server submit single calls through this, so equal calls
have equal keys, whichever way they came in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from detent.canon.grammar import PRIORITY_DEFAULT
from detent.canon.late import dataclass
from detent.errors import InvalidInput
from detent.jobs.order import Call, JobLimits, Order, Origin
from detent.owner.backend import Backend, Submission
from detent.reuse.work_keys import Found, Miss, Options, WorkKey, WorkKeys

EACH_TIME: Final = Miss("reuse was not asked for")
"""Why an earlier result does not answer for a call that says nothing of reuse."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One piece of work to submit."""

    call: Call
    label: str
    limits: JobLimits = JobLimits()
    priority: int = PRIORITY_DEFAULT
    reuse: bool = False
    """Whether an earlier result, or equal work under way, may answer for it (X-190)."""
    requested_by: str | None = None
    """The principal on whose behalf a server submits it; None for work of the home's own user."""
    salt: str | None = None
    """Part of its key, beside what the process was started with."""
    traceparent: str | None = None
    """The trace that it belongs to."""
    request_id: str | None = None
    """The request to a server that asks for it."""


def value_digests(backend: Backend) -> Callable[[str], bytes]:
    """How to find the digest of a result's value by the name of the result, for the key of work that is given it."""

    def value_digest(named: str) -> bytes:
        report = backend.result(named)
        if report is None or report.value_digest is None:
            raise InvalidInput(
                f"the result {named} that the job was given is gone", hint="submit it again with another"
            )
        return report.value_digest

    return value_digest


class Calls:
    """The single calls of one workspace. Safe for several threads."""

    def __init__(self, backend: Backend, work_keys: WorkKeys, options: Options | None = None) -> None:
        self._backend, self._keys = backend, work_keys
        self._options = options or Options()
        self._reading = threading.Lock()
        """Held while a work key is made: its readers of code and files are for one thread at a time."""
        self._started_ms = backend.now_ms()
        self._value_digest = value_digests(backend)

    def work_keys_of(self, requests: Sequence[JobRequest]) -> list[WorkKey]:
        """The work keys of some requests; what was done of them before is read at once."""
        with self._reading:
            self._keys.refresh()
            work_keys = [self._work_key(request) for request in requests]
            self._keys.look(work_key for request, work_key in zip(requests, work_keys, strict=True) if request.reuse)
        return work_keys

    def work_key_of(self, request: JobRequest) -> WorkKey:
        """The work key of one request."""
        with self._reading:
            self._keys.refresh()
            return self._work_key(request)

    def look_away(self) -> None:
        """Forget what was read ahead of earlier work: from now on it may be otherwise."""
        self._keys.look_away()

    def find(self, request: JobRequest, work_key: WorkKey) -> Found | Miss:
        """The earlier work, or work under way, that answers for a request; else why there is none."""
        if work_key.key is None:
            return Miss()
        if not request.reuse:
            return EACH_TIME
        with self._reading:
            return self._keys.find(work_key, self._options, since_ms=self._started_ms)

    def order(self, request: JobRequest, work_key: WorkKey, again: Miss | None = None) -> Order:
        """What the job of a request is asked to do."""
        origin = Origin(
            again=None if again is None else again.why or None,
            ingredients=work_key.ingredients,
            requested_by=request.requested_by,
            traceparent=request.traceparent,
            request_id=request.request_id,
        )
        return Order(request.call, request.label, request.limits, origin)

    def submission(self, request: JobRequest, work_key: WorkKey, job_id: str, again: Miss) -> Submission:
        """The job of a request, ready to be submitted."""
        return self._backend.submission(
            self.order(request, work_key, again),
            job_id=job_id,
            job_kind="task",
            priority=request.priority,
            key=work_key.key,
        )

    def _work_key(self, request: JobRequest) -> WorkKey:
        return self._keys.of(
            request.call,
            self._value_digest,
            limits=request.limits,
            salt=request.salt or self._options.salt,
            warns=request.reuse,
        )
