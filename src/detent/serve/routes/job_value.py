"""What a function returned, by itself: also when it is too large for the answer about its job."""

from __future__ import annotations

from typing import Final

from detent.access.headers import weak_tag
from detent.errors import DetentError
from detent.serve.call import Answer, Call
from detent.serve.table import READING, Route


async def _value(call: Call) -> Answer:
    job_id = call.path["job_id"]
    view, data = await call.read(lambda reader: reader.value(call.workspace, job_id))
    if data is None:
        raise DetentError("the job has no value, or it was erased", code="CONTENT_GONE")
    return Answer(data, tag=weak_tag("value", job_id, view.row.transition_seq))


ROUTES: Final = (
    Route(
        "GET",
        "/v1/jobs/{job_id}/value",
        _value,
        "Read what a function returned, of any size.",
        "jobs:read",
        ("UNKNOWN_JOB", "CONTENT_GONE", *READING),
        etag=True,
    ),
)
