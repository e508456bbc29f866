"""A home that a server has: what commands ask of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from detent.access.headers import path_part
from detent.errors import InvalidInput, RequestRefused
from detent.inspect.logs import JobLog
from detent.pages.logs import Asked, News, read_found, read_log, read_news, seen_map
from detent.pages.sheet import Told, read_told
from detent.remote.http import ANSWER_SECONDS, Http
from detent.remote.problems import ServerUnreachable
from detent.runs.cancel import Cancelled
from detent.runs.find_jobs import JOB, NEWEST, OPEN, RUN, STEP, Found, FoundJob, insist_on_whole
from detent.words.states import CANCELLED, OVER

LOGS_AT_ONCE: Final = 200
READ_AT_ONCE: Final = 500
FOLLOW_SECONDS: Final = 10
WAIT_SECONDS: Final = 30.0
FOLLOW_PATIENCE: Final = 300.0
"""For how long a server that cannot be reached is waited for while something is followed: it may be restarting."""


class RemoteHome:
    """The home behind a server."""

    def __init__(self, http: Http, tell: Callable[[str], None] = lambda _: None) -> None:
        """``tell`` is told what the user waits for."""
        self.http, self._tell = http, tell

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.http.close()

    def page(self, name: str, **query: object) -> Told:
        """What a command tells."""
        return read_told(self.http.get(f"/v1/pages/{name}", query))

    def find(self, identifier: str, run_id: str | None = None, named: str = NEWEST) -> Found:
        """What an identifier stands for."""
        return read_found(self.http.get("/v1/pages/find", {"id": identifier, "run": run_id, "named": named}))

    def logs(self, jobs: tuple[FoundJob, ...]) -> Iterator[tuple[FoundJob, JobLog | None]]:
        """What jobs printed, in order."""
        left = list(jobs)
        while left:
            wanted: list[Any] = [{"job_id": job.job_id, "element": job.element} for job in left[:LOGS_AT_ONCE]]
            items = self.http.post("/v1/pages/logs", {"jobs": wanted})["items"]
            yield from ((job, read_log(item)) for job, item in zip(left, items, strict=False))
            left = left[max(1, len(items)) :]

    def follow(self, asked: Asked) -> News:
        """What is new; waits a while for something, and outlasts a restart of the server."""
        body = {
            "job_ids": list(asked.job_ids),
            "run_id": asked.run_id,
            "step": asked.step,
            "seen": None if asked.seen is None else seen_map(asked.seen),
            "wait": FOLLOW_SECONDS,
        }
        key = uuid4().hex  # Both tries are one request.
        try:
            sent = self.http.post("/v1/pages/follow", body, patience=0, idempotency_key=key)
        except ServerUnreachable:
            self._tell(f"no answer from {self.http.address.url}; waiting for it, Ctrl-C stops")
            sent = self.http.post("/v1/pages/follow", body, patience=FOLLOW_PATIENCE, idempotency_key=key)
        return read_news(sent)

    def one_job(self, identifier: str) -> str:
        """The id of the one job that an identifier stands for."""
        found = self.find(identifier)
        if len(found.jobs) != 1:
            raise InvalidInput(f"{identifier!r} is not one job", hint=f"`detent show {identifier}` lists its jobs")
        return found.jobs[0].job_id

    def state_of(self, name: str) -> str:
        """Where a job, or an element of one, stands."""
        return str(self.page("show", id=name, what=JOB).document["state"])

    def await_job(self, job_id: str, seconds: float | None = None) -> dict[str, Any]:
        """Wait for the end of a job, also while the server restarts; `RequestRefused` (``RESULT_NOT_READY``) when that takes longer."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = WAIT_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
            wait = int(min(WAIT_SECONDS, max(left, 0)))
            patience = FOLLOW_PATIENCE if deadline is None else left
            detail: dict[str, Any] = self.http.get(
                f"/v1/jobs/{path_part(job_id)}", {"wait": wait}, seconds=wait + ANSWER_SECONDS, patience=patience
            )
            if detail["finished_at"] is not None or detail["state"] in OVER:
                return detail
            if deadline is not None and time.monotonic() >= deadline:
                raise RequestRefused(
                    f"job {job_id} has not ended within {seconds:g} s",
                    code="RESULT_NOT_READY",
                    hint=f"it goes on at the server: `detent result {job_id} --wait` waits for it again",
                    details={"job_id": job_id},
                )

    def cancel(self, identifier: str, reason: str | None) -> Cancelled:
        """Cancel the run or job that is meant, and say what that did."""
        found = self.find(identifier, named=OPEN)
        insist_on_whole(found, CANCELLED)
        if found.kind == STEP:
            raise InvalidInput(
                f"{identifier!r} is a step of run {found.run_id}",
                hint=f"`detent cancel {found.run_id}` cancels the run; `detent list --run {found.run_id}` shows its jobs",
            )
        kind, name = (RUN, found.run_id or identifier) if found.kind == RUN else (JOB, found.jobs[0].job_id)
        path = f"/v1/{kind}s/{path_part(name)}"
        before = self.http.get(path)
        status = "status" if kind == RUN else "state"
        if before[status] in OVER:
            return Cancelled(kind, name, str(before[status]), before=True)
        open_jobs = self._open_jobs([job.job_id for job in found.jobs]) if kind == RUN else []
        after = self.http.post(f"{path}/cancel", {} if reason is None else {"reason": reason})
        ended = set(open_jobs) - set(self._open_jobs(open_jobs))
        return Cancelled(kind, name, str(after[status]), tuple(job for job in open_jobs if job in ended))

    def _open_jobs(self, job_ids: list[str]) -> list[str]:
        found: list[str] = []
        for first in range(0, len(job_ids), READ_AT_ONCE):
            items = self.http.post("/v1/jobs:read", {"job_ids": job_ids[first : first + READ_AT_ONCE]})["items"]
            found += [item["job_id"] for item in items if item["state"] not in OVER]
        return found
