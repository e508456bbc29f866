"""``thumbnail_generate``: a small picture of a picture that is in the store.

The contract names the box and leaves open what is to fit into it: ``inputs.content_digest`` names it, usually an artifact
of an earlier job.
"""

from __future__ import annotations

from typing import Any, Final

from detent.canon import parse_digest
from detent.errors import InvalidInput
from detent.executor.runners.model import Need, Outcome, Prepared, RunnerFailure, unsupported
from detent.executor.runners.toolwork import judge_tool, pixels_max, prepare_tool
from detent.executor.sandbox import Execution
from detent.jobs.payload import ThumbnailGenerate

PICTURE: Final = "picture"
"""The name of the source under ``/job/inputs``."""


class Thumbnail:
    """Makes thumbnails."""

    def prepare(self, payload: ThumbnailGenerate) -> Prepared | RunnerFailure:
        """The box and the picture for the tool. Refuses a source that is not named by digest."""
        inputs = payload.inputs
        digest: Any = getattr(inputs, "content_digest", None)
        try:
            need = Need(PICTURE, parse_digest(digest))
        except (InvalidInput, TypeError, AttributeError):
            return unsupported("inputs.content_digest", "must be the digest of the picture to make smaller")
        parameters = {
            "width": inputs.width,
            "height": inputs.height,
            "formats": sorted(payload.output_spec.formats),
            "pixels_max": pixels_max(payload.limits),
            "name": PICTURE,
        }
        return prepare_tool(payload.job_type, "thumbnail", parameters, (need,))

    def judge(self, payload: ThumbnailGenerate, execution: Execution) -> Outcome:
        """The thumbnails that were asked for, or why there are none."""
        return judge_tool(execution, {f"thumbnail.{name}": name for name in payload.output_spec.formats}, "thumbnail")
