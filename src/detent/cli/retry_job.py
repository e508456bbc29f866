"""`detent retry JOB`: one job of no run, run again here or at a server, and told in the same words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.access.headers import path_part
from detent.cli.page import Page
from detent.cli.shell import Shell
from detent.errors import EXIT_FAILED, RequestRefused
from detent.jobs.elements import element_id
from detent.pages.sheet import Cell, state_cell
from detent.pages.text import BAD, FAINT, STRONG, safe, shortened
from detent.words.quantities import short_duration
from detent.words.states import OVER, SUCCEEDED, word_of

if TYPE_CHECKING:
    from detent.jobs.work import Failure
    from detent.owner.home import Home
    from detent.remote.home import RemoteHome
    from detent.runs.find_jobs import FoundJob
    from detent.store.api import JobRow

RESULT_SHOWN_MAX = 400


@dataclass(frozen=True, slots=True)
class RetriedTask:
    """A call of a function that was run again, as it ended."""

    job_id: str
    retry_of: str
    label: str
    state: str
    took_ms: int | None
    value: Any
    failure: Failure | None

    def to_map(self) -> dict[str, Any]:
        """As data."""
        failure = self.failure
        error = None if failure is None else {n: getattr(failure, n) for n in ("category", "code", "type", "message")}
        return {
            **{name: getattr(self, name) for name in ("job_id", "retry_of", "label")},
            "state": word_of(self.state),
            "retried": True,
            "result": self.value,
            "error": error,
        }

    def draw(self, page: Page) -> None:
        """For people."""
        from detent.runs.record.outcome import failure_of  # noqa: PLC0415 - keeps `--help` fast

        took = "" if self.took_ms is None else f" in {short_duration(self.took_ms)}"
        page.line(Cell(self.label, STRONG), " ", state_cell(self.state), took, Cell(f"  job {self.job_id}", FAINT))
        page.fields([("retry of", self.retry_of)], indent="  ")
        if self.failure is not None:
            told = failure_of(self.label, self.failure)
            page.hanging(["  ", Cell(f"{told.category} {told.code}", BAD), "  "], told.message)
            if told.where is not None:
                page.hanging([Cell("  at ", FAINT)], told.where)
        elif word_of(self.state) == SUCCEEDED:
            text = shortened(safe(json.dumps(self.value, ensure_ascii=False)), RESULT_SHOWN_MAX)
            page.fields([("result", text)], indent="  ")
        page.line()
        page.line("  ", Cell(f"detent logs {self.job_id}", FAINT))


def retry_here(shell: Shell, home: Home, row: JobRow, element: int | None, state: str, *, workers: int | None) -> int:
    """Run a job of this home again, on workers of this process."""
    from detent.kernel import Job  # noqa: PLC0415 - keeps `--help` fast
    from detent.kernel.manifest import PLATFORM  # noqa: PLC0415
    from detent.runs.retry import retry_job  # noqa: PLC0415
    from detent.runs.runtime import Runtime  # noqa: PLC0415

    if (answered := _needless(shell, row.job_id, element, state)) is not None:
        return answered
    with Runtime(home, workers=1 if workers is None else workers) as work:
        if Job.decode(row.body).job_kind == PLATFORM:
            from detent.pages.result import result_page  # noqa: PLC0415
            from detent.runs.platform_jobs import PlatformJobs  # noqa: PLC0415 - loads Pydantic
            from detent.runs.single_jobs import SingleJobs  # noqa: PLC0415
            from detent.sdk.platform_jobs import result_of  # noqa: PLC0415

            again = PlatformJobs(work).retry(row.job_id)
            view = result_of(work, SingleJobs(work), again.job_id, None)
            return shell.tell(result_page(view, submitted={**again.to_map(), "retry_of": row.job_id, "retried": True}))
        ended = retry_job(work, row, element)
        report = ended.report
        value = work.backend.value(report) if report is not None and report.ok else None
    result = None if report is None else report.result
    took_ms = None if result is None else result.finished_ms - result.started_ms
    failure = None if result is None else result.failure
    return _answer(shell, RetriedTask(ended.job_id, ended.retry_of, ended.label, ended.state, took_ms, value, failure))


def retry_there(shell: Shell, server: RemoteHome, job: FoundJob) -> int:
    """Have a server run a job again, and wait for its end."""
    from detent.remote.jobs import failure_of_job, submitted_map, value_of_job  # noqa: PLC0415 - keeps `--help` fast

    name = element_id(job.job_id, job.element)
    if (answered := _needless(shell, job.job_id, job.element, server.state_of(name))) is not None:
        return answered
    again = server.http.post(f"/v1/jobs/{path_part(name)}/retry", {})
    detail = server.await_job(str(again["job_id"]))
    if again["platform"] is not None:
        told = server.page("result", id=detail["job_id"])
        told.document = {**submitted_map(again), "retry_of": job.job_id, "retried": True, **told.document}
        return shell.tell(told)
    value = value_of_job(server.http, detail) if detail["state"] == SUCCEEDED else None
    ended = RetriedTask(
        detail["job_id"],
        name,
        detail["label"],
        detail["state"],
        detail["ran_ms"],
        value,
        failure_of_job(detail),
    )
    return _answer(shell, ended)


def _needless(shell: Shell, job_id: str, element: int | None, state: str) -> int | None:
    """The answer for a job that succeeded; `RequestRefused` for one that has not ended; None for all others."""
    name = element_id(job_id, element)
    if word_of(state) == SUCCEEDED:
        document = {"job_id": name, "state": word_of(state), "retried": False}
        said = f"{SUCCEEDED}: there is nothing to run again"
        return shell.answer(document, lambda page: page.line(f"job {name} ", Cell(said, FAINT)))
    if word_of(state) not in OVER:
        raise RequestRefused(
            f"job {name!r} has not ended: {word_of(state)}",
            code="CONFLICT",
            hint=f"wait for it, or `detent cancel {job_id}` first",
        )
    return None


def _answer(shell: Shell, ended: RetriedTask) -> int:
    code = 0 if word_of(ended.state) == SUCCEEDED else EXIT_FAILED
    return shell.answer(ended.to_map(), ended.draw, code=code)
