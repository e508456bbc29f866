"""``document_export``: a whole document as PDF, HTML or a bundle of both.

The contract names how a document is exported and leaves open how it comes. Here it comes with the payload, since an
executor makes no calls: ``inputs.content`` is ``{format, value}`` as every object's content is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detent.canon import parse_digest
from detent.executor.runners.blockdoc import NotBlockdoc, document_of
from detent.executor.runners.model import Need, Outcome, Prepared, RunnerFailure, unsupported
from detent.executor.runners.toolwork import judge_tool, prepare_tool
from detent.executor.sandbox import Execution
from detent.jobs.payload import DocumentExport

VIEW_MODES: Final = ("slide", "document")
PICTURES_MAX: Final = 200
FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "pdf": ("document.pdf", "pdf"),
    "html": ("document.html", "html"),
    "bundle": ("document.zip", "zip"),
}
"""The file of each format, and what it must turn out to be."""


class Export:
    """Typesets documents."""

    def prepare(self, payload: DocumentExport) -> Prepared | RunnerFailure:
        """The document as data for the tool, and its pictures. Refuses blocks and views that it does not know."""
        inputs = payload.inputs
        if inputs.view_mode not in VIEW_MODES:
            return unsupported("inputs.view_mode", f"{inputs.view_mode!r} is none of {', '.join(VIEW_MODES)}")
        content: Any = getattr(inputs, "content", None)
        if not isinstance(content, dict) or not isinstance(content.get("format"), str):
            return unsupported("inputs.content", "is missing: the document comes with the payload, as {format, value}")
        document: dict[str, Any] | None = None
        source: str | None = None
        pictures: tuple[str, ...] = ()
        if content["format"] == "blockdoc":
            try:
                document, pictures = document_of(content.get("value"), notes=inputs.include_speaker_notes)
            except NotBlockdoc as exc:
                return unsupported(f"inputs.content.{exc.path}", str(exc))
        elif content["format"] == "typst" and isinstance(content.get("value"), str):
            source = content["value"]
        else:
            return unsupported("inputs.content", "must be a blockdoc, or typst with a text as its value")
        if len(pictures) > PICTURES_MAX:
            return unsupported("inputs.content", f"has {len(pictures)} pictures; {PICTURES_MAX} are allowed")
        names = {digest: digest.replace(":", "-") for digest in pictures}
        parameters = {
            "document": document,
            "source": source,
            "view_mode": inputs.view_mode,
            "formats": sorted(payload.output_spec.formats),
            "pictures": names,
        }
        needs = tuple(Need(name, parse_digest(digest)) for digest, name in names.items())
        return prepare_tool(payload.job_type, "document", parameters, needs)

    def judge(self, payload: DocumentExport, execution: Execution) -> Outcome:
        """The files that were asked for, or why there are none."""
        return judge_tool(execution, dict(FORMATS[name] for name in payload.output_spec.formats), "export")
