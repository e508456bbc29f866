"""Handles of single jobs at a server: calls of functions, and platform jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detent.access.headers import path_part
from detent.errors import DetentError
from detent.jobs.status import JobStatus
from detent.remote.files import RemoteFiles
from detent.remote.home import RemoteHome
from detent.remote.http import ANSWER_SECONDS, Http
from detent.remote.jobs import failure_of_job, value_of_job
from detent.runs.platform_jobs import SubmittedJob
from detent.sdk.options import Duration, not_ended, waiting_seconds
from detent.sdk.outcomes import TaskCancelled, task_failure
from detent.sdk.remote_values import RemoteValues
from detent.sdk.submissions import Outcome
from detent.words.states import CANCELLED, FAILED, SUCCEEDED, TIMED_OUT

if TYPE_CHECKING:
    from detent.inspect.fetch_artifacts import Fetched
    from detent.inspect.job_results import JobResultView

WAIT_SECONDS: Final = 30
_ENDED: Final = frozenset({SUCCEEDED, FAILED, TIMED_OUT, CANCELLED})


class RemoteJob:
    """One job at a server, watched until it has ended."""

    def __init__(self, http: Http, job_id: str, *, deduplicated: bool = False) -> None:
        self._http = http
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

    def cancel(self) -> bool:
        """Cancel the job, and end it at once if it runs; False when it has ended already."""
        if self.done():
            return False
        try:
            self._http.post(f"/v1/jobs/{path_part(self.job_id)}/cancel", {})
        except DetentError as exc:
            if exc.code == "CONFLICT":
                return False
            raise
        return True

    def __repr__(self) -> str:
        known = "submitted" if self._detail is None else self._detail["status"]
        return f"<job {self.job_id}: {known}>"

    def ended(self, timeout: Duration | None = None) -> dict[str, Any]:
        """The job as `GET /v1/jobs/{id}` tells it, once it has ended. Raises `TimeoutError` if that takes longer."""
        seconds = waiting_seconds("timeout", timeout)
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
        path = f"/v1/jobs/{path_part(self.job_id)}"
        detail: dict[str, Any] = self._http.get(path, {"wait": wait}, seconds=wait + ANSWER_SECONDS)
        if detail["status"] in _ENDED:
            self._detail = detail
        return detail


class RemoteHandle(RemoteJob, Outcome):
    """A call of a function that was submitted to a server."""

    def __init__(self, http: Http, values: RemoteValues, job_id: str, *, deduplicated: bool = False) -> None:
        super().__init__(http, job_id, deduplicated=deduplicated)
        self._values = values

    def result(self, timeout: Duration | None = None) -> Any:
        """What the task returned. Raises `TaskFailed` if it failed, `TimeoutError` if it has not ended in time."""
        detail = self.ended(timeout)
        job_id, status = self.job_id, detail["status"]
        if status == CANCELLED:
            raise TaskCancelled(f"job {job_id} was cancelled", hint=f"`detent explain {job_id}`")
        if status != SUCCEEDED:
            raise task_failure(job_id, failure_of_job(detail), str(detail["reason_code"] or detail["state"]))
        return self._values.restored(value_of_job(self._http, detail), lambda: [job_id])


class RemoteJobHandle(RemoteJob):
    """A platform job that was submitted to a server."""

    def __init__(self, http: Http, taken: Mapping[str, Any]) -> None:
        super().__init__(http, str(taken["job_id"]), deduplicated=bool(taken["deduplicated"]))
        self.submitted = SubmittedJob(self.job_id, **taken["platform"], deduplicated=self.deduplicated)
        """What the submission was answered: workspace, user, plan, execution key."""

    @property
    def superseded(self) -> tuple[str, ...]:
        """The jobs for older revisions that were cancelled for this one; a server does not tell them."""
        return self.submitted.superseded

    def outcome(self, timeout: Duration | None = None) -> JobResultView:
        """The result envelope of the job, successful or not, once it has ended. Raises `TimeoutError` if that takes longer."""
        self.ended(timeout)
        return result_there(self._http, self.job_id)

    def fetch(self, directory: str | Path, ids: Sequence[str] = (), *, force: bool = False) -> list[Fetched]:
        """Copy the artifacts of the job into a directory, all or those with these ids, numbers or names."""
        return fetch_there(self._http, self.outcome(), directory, ids, force=force)


def result_there(http: Http, job_id: str) -> JobResultView:
    """The result of a platform job that has ended; the server has checked it."""
    from detent.inspect.job_results import JobResultView  # noqa: PLC0415 - loads Pydantic

    told = RemoteHome(http).page("result", id=job_id).document
    proof = {name: told["proof"][name] for name in ("report_digest", "envelope_digest", "key_id")}
    said = {name: told[name] for name in ("job_id", "reason_code", "attempt", "result", "superseded_by")}
    return JobResultView(**said, status=JobStatus(str(told["status"]).upper()), **proof)


def fetch_there(
    http: Http, view: JobResultView, directory: str | Path, ids: Sequence[str], *, force: bool
) -> list[Fetched]:
    """Copy artifacts into a directory; their bytes are checked against the digests of the result here."""
    from detent.inspect.fetch_artifacts import chosen, fetch_artifacts  # noqa: PLC0415

    wanted = chosen(view.artifacts, ids)
    return fetch_artifacts(RemoteFiles(http, view.job_id), wanted, Path(directory), force=force)
