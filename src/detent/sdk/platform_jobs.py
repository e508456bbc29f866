"""Platform jobs from Python: what `Client.submit_job` gives.

with detent.Client() as client:
    job = client.submit_job(payload)            # a dict, or the bytes of a JSON document
    outcome = job.outcome()                     # the signed result envelope, checked
    job.fetch("pictures")                       # its artifacts, as files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.sdk.options import Duration, not_ended, waiting_seconds

if TYPE_CHECKING:
    from detent.inspect.fetch_artifacts import Fetched
    from detent.inspect.job_results import JobResultView
    from detent.jobs.status import JobStatus
    from detent.runs.platform_jobs import SubmittedJob
    from detent.runs.runtime import Runtime
    from detent.runs.single_jobs import SingleJobs


class JobHandle:
    """A platform job that was submitted."""

    def __init__(self, work: Runtime, tasks: SingleJobs, submitted: SubmittedJob) -> None:
        self._work, self._tasks = work, tasks
        self._ticket = tasks.ticket(submitted.job_id, own=not submitted.deduplicated)
        self.submitted = submitted
        """What the submission was answered: workspace, user, plan, execution key."""

    @property
    def job_id(self) -> str:
        """What `detent show`, `detent result` and `detent artifacts` call it."""
        return self.submitted.job_id

    @property
    def deduplicated(self) -> bool:
        """Whether an earlier job answers for this payload."""
        return self.submitted.deduplicated

    @property
    def superseded(self) -> tuple[str, ...]:
        """The jobs for older revisions that were cancelled for this one."""
        return self.submitted.superseded

    @property
    def status(self) -> JobStatus:
        """Where the job stands now, by the ledger."""
        from detent.jobs.status import project_job  # noqa: PLC0415 - `import detent` stays cheap
        from detent.kernel import Job  # noqa: PLC0415

        row = self._work.backend.reader.job(self.job_id)
        return project_job(None if row is None else Job.decode(row.body)).status

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._ticket.done

    def cancel(self) -> bool:
        """Cancel the job, and end it at once if it runs; False when it has ended already."""
        return self._tasks.cancel(self._ticket)

    def outcome(self, timeout: Duration | None = None) -> JobResultView:
        """The result envelope of the job, successful or not, once it has ended. Raises `TimeoutError` if that takes longer."""
        return result_of(self._work, self._tasks, self.job_id, timeout)

    def fetch(self, directory: str | Path, ids: Sequence[str] = (), *, force: bool = False) -> list[Fetched]:
        """Copy the artifacts of the job into a directory, all or those with these ids, numbers or names."""
        return fetch_of(self._work, self.outcome(), directory, ids, force=force)

    def __repr__(self) -> str:
        return f"<platform job {self.job_id}: {self.submitted.job_type}>"


def submit_job(
    work: Runtime, tasks: SingleJobs, payload: bytes | Mapping[str, Any], options: Mapping[str, Any]
) -> JobHandle:
    """Submit a payload, and give the handle of the job that does its work."""
    from detent.runs.platform_jobs import JobOptions, PlatformJobs  # noqa: PLC0415 - `import detent` stays cheap

    timeout = waiting_seconds("timeout", options["timeout"])
    files = tuple(Path(path) for path in options["files"])
    submitted = PlatformJobs(work).submit(payload, JobOptions(**{**options, "timeout": timeout, "files": files}))
    return JobHandle(work, tasks, submitted)


def result_of(work: Runtime, tasks: SingleJobs, job_id: str, timeout: Duration | None) -> JobResultView:
    """The checked result of a platform job; waits for its end, with workers of this process if there are any."""
    from detent.inspect.job_results import job_result  # noqa: PLC0415
    from detent.owner.content import Content  # noqa: PLC0415

    ticket = tasks.ticket(job_id)
    seconds = waiting_seconds("timeout", timeout)
    if not ticket.done:
        work.start()  # Else a job that waits for a worker would wait for ever.
    if not tasks.wait(ticket, seconds):
        raise not_ended(f"job {job_id}", seconds)
    return job_result(work.home, Content(work.backend.reader, work.backend.files), job_id)


def fetch_of(
    work: Runtime, view: JobResultView, directory: str | Path, ids: Sequence[str], *, force: bool
) -> list[Fetched]:
    """Copy artifacts of a checked result into a directory."""
    from detent.inspect.fetch_artifacts import chosen, fetch_artifacts  # noqa: PLC0415

    return fetch_artifacts(work.backend.files, chosen(view.artifacts, ids), Path(directory), force=force)
