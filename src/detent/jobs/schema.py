"""The envelopes as JSON Schema, for those who integrate in another language.

A schema says what has the right shape. What it cannot say (a dependency without a snapshot, a code of another category, a
date that does not exist) the models still refuse.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter

from detent.jobs.payload import DocumentExport, ObjectExecute, ObjectRender, ThumbnailGenerate
from detent.jobs.result import JobResult

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def payload_schema() -> dict[str, Any]:
    """The schema of payloads: one alternative for each job type."""
    kinds = ObjectExecute | ObjectRender | DocumentExport | ThumbnailGenerate
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[kinds, Field(discriminator="job_type")])
    return {"$schema": DIALECT, "title": "JobPayload", **adapter.json_schema()}


def result_schema() -> dict[str, Any]:
    """The schema of results, successes and failures alike."""
    return {"$schema": DIALECT, **JobResult.model_json_schema()}
