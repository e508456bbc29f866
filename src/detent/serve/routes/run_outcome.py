"""Runs, summed up: what one gave back, the files it made, and why what failed did."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Final

from pydantic import JsonValue

from detent.access.headers import weak_tag
from detent.errors import InvalidInput
from detent.kernel.run import RUNNING
from detent.runs.record.recorded_outcome import RecordedOutcome
from detent.serve.call import Answer, Call, Shape
from detent.serve.table import READING, Route


class RunFile(Shape):
    """A file that a run made, or took over from an earlier one."""

    step: str
    name: str
    size_bytes: int
    digest: str


class RunFailure(Shape):
    """A step, or one job of it, that did not succeed."""

    step: str
    category: str
    code: str
    message: str
    job_id: str | None
    """Null for a step that failed before it had a job."""
    where: str | None
    """The line of the user's code."""
    attempts: int
    index: int | None
    """Which element of a mapped step it was."""


class RunOutcome(Shape):
    """What a run left behind; of a run that has not ended, what it has left so far."""

    run_id: str
    gives_result: bool
    """Whether it succeeded and its contract has a `result`."""
    result: JsonValue
    """Null also where it was erased or is larger than 16 MiB."""
    result_left_out: bool
    """Whether the result is too large for an answer."""
    artifacts: list[RunFile]
    """The first 10,000 of its files."""
    failures: list[RunFailure]
    """The first 1,000 of its failures."""


async def _outcome(call: Call) -> Answer:
    run_id = call.path["run_id"]
    view, shown = await call.read(lambda reader: reader.outcome(call.workspace, run_id, partial(_shown, run_id)))
    if shown is None:
        raise InvalidInput(
            "the run has no outcome to show: it is not a run of a contract, or its inputs were erased",
            code="CONTENT_GONE",
            hint="GET /v1/jobs?run= lists its jobs",
        )
    return Answer(shown, tag=None if view.row.status == RUNNING else weak_tag("outcome", run_id, view.row.body))


def _shown(run_id: str, found: RecordedOutcome) -> bytes:
    """The document, made on a thread that reads: thousands of files take a while."""
    outcome = RunOutcome(
        run_id=run_id,
        gives_result=found.gives_result,
        result=found.result,
        result_left_out=found.result_left_out,
        artifacts=[
            RunFile(step=one.step, name=one.name, size_bytes=one.size_bytes, digest=one.digest)
            for one in found.artifacts
        ],
        failures=[RunFailure.model_validate(asdict(one)) for one in found.failures],
    )
    return outcome.model_dump_json().encode()


ROUTES: Final = (
    Route(
        "GET",
        "/v1/runs/{run_id}/outcome",
        _outcome,
        "Read what a run gave back, the files it made, and why what failed did.",
        "runs:read",
        ("UNKNOWN_RUN", *READING, "CONTENT_GONE"),
        {200: RunOutcome},
        etag=True,
    ),
)
