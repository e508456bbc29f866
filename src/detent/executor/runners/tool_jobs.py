"""The jobs that drive a tool: render an object, export a document, make a thumbnail.

What the job types that drive a tool of ours share: how a tool is started in its jail, and how its word is taken.

The tool reads untrusted input, so it may have been taken over: it says which files it made or why it made none, and this
is checked against what was asked and against the files themselves. Any fault in it is the job's failure, never ours.

``object_render``: a picture of an object that need not be executed. Formulas in LaTeX, as SVG and PNG.

``thumbnail_generate``: a small picture of a picture that is in the store.

The contract names the box and leaves open what is to fit into it: ``inputs.content_digest`` names it, usually an artifact
of an earlier job.

``document_export``: a whole document as PDF, HTML or a bundle of both.

The contract names how a document is exported and leaves open how it comes. Here it comes with the payload, since an
executor makes no calls: ``inputs.content`` is ``{format, value}`` as every object's content is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detent.artifacts.content_type import Sniffed, examine
from detent.canon import json_decode, parse_digest
from detent.errors import InvalidInput
from detent.executor.runners import tools
from detent.executor.runners.execute import NotBlockdoc, document_of, failure_of
from detent.executor.runners.model import Made, Need, Outcome, Prepared, RunnerFailure, unsupported
from detent.executor.sandbox import Execution
from detent.jobs.payload import DocumentExport, Limits, ObjectRender, ThumbnailGenerate
from detent.jobs.status import ErrorCategory

INSIDE: Final = Path(__file__).with_name("inside")
PIXELS_MAX: Final = 50_000_000
"""Most pixels a picture may have, however much memory there is."""
BYTES_PER_PIXEL: Final = 16
"""Four channels, four times: read, turned, scaled, written."""

HTML_TYPE: Final = "text/html; charset=utf-8"
"""Of HTML that typst made and in which nothing can act; any other is text."""
OUTPUT_INVALID: Final = "OUTPUT_INVALID"
_KINDS: Final[Mapping[str, tuple[ErrorCategory, str]]] = {
    "invalid": (ErrorCategory.USER_CODE_ERROR, "INPUT_INVALID"),
    "too large": (ErrorCategory.RESOURCE_LIMIT, "LIMIT_MEMORY"),
    "unsupported": (ErrorCategory.VALIDATION_ERROR, "VALIDATION_ERROR"),
}

# In the jail there is no package `detent`: its rooms are entered without their files, all but the one that was mounted.
_SOURCE: Final = """
import os, sys, types

def main(**parameters):
    inputs = os.environ["DETENT_INPUTS"]
    sys.path.insert(0, inputs)
    name = ""
    for part in ("detent", "executor", "runners", "inside"):
        name = f"{name}.{part}".lstrip(".")
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [f"{inputs}/inside"] if part == "inside" else []
    from detent.executor.runners.inside.MODULE import main as draw
    return draw(**parameters)
"""


def prepare_tool(job_type: str, module: str, parameters: Mapping[str, Any], needs: tuple[Need, ...] = ()) -> Prepared:
    """A job that runs one of the modules in `inside` with its tools, the needs beside them."""
    return Prepared(
        _SOURCE.replace("MODULE", module),
        "main",
        parameters,
        filename="tool.py",
        runner=tools.NAMES[job_type],
        needs=needs,
        libraries={**tools.libraries(job_type), "inside": INSIDE},
    )


def pixels_max(limits: Limits) -> int:
    """How many pixels a picture may have in a job with these limits."""
    return min(PIXELS_MAX, limits.memory_bytes // BYTES_PER_PIXEL)


def judge_tool(execution: Execution, expected: Mapping[str, str], kind: str) -> Outcome:
    """The outcome of a tool's execution; ``expected`` gives the format that each of its files must turn out to have."""
    failure = failure_of(execution)
    if failure is not None:
        return Outcome(_of_tool(failure, execution))
    told = json_decode(execution.result or b"null", name="result")
    fault = told.get("fault") if isinstance(told, dict) else None
    if fault is not None:
        return Outcome(_told(fault))
    said = told.get("made") if isinstance(told, dict) else None
    found = {file.name: file for file in execution.files}
    if not isinstance(said, dict) or not set(said) == set(found) == set(expected):
        return Outcome(_invalid(f"the tool made {sorted(found)}, not {sorted(expected)}"))
    made = []
    for name in sorted(found):
        sniffed = examine(found[name].path)
        fits = _fits(sniffed, expected[name])
        if fits is None:
            return Outcome(_invalid(f"the tool's file {name!r} is {sniffed.format}, not {expected[name]}"))
        metadata = {key: value for key, value in _object(said[name]).items() if isinstance(value, int | float)}
        made.append(Made(found[name], kind, fits, metadata))
    return Outcome(made=tuple(made))


def _fits(sniffed: Sniffed, expected: str) -> Sniffed | None:
    if sniffed.format != expected or (sniffed.active and expected == "svg"):
        return None
    if expected == "html" and not sniffed.active:
        return Sniffed("html", HTML_TYPE)
    return sniffed


def _of_tool(failure: RunnerFailure, execution: Execution) -> RunnerFailure:
    """A failure of the tool itself: the user's input did it, and a traceback of ours would tell the user nothing."""
    if failure.category is not ErrorCategory.USER_CODE_ERROR:
        return RunnerFailure(failure.category, failure.code, failure.message)
    raised = None if execution.raised is None else execution.raised.type
    if raised == "MemoryError":
        return RunnerFailure(*_KINDS["too large"], "drawing this needs more memory than the job has")
    if raised in {"ImportError", "ModuleNotFoundError"}:
        return RunnerFailure(*_KINDS["unsupported"], f"the tools cannot be loaded here: {failure.message}")
    return RunnerFailure(failure.category, "TOOL_FAILED", f"the input cannot be drawn: {failure.message}")


def _told(fault: Any) -> RunnerFailure:
    kind = fault.get("kind") if isinstance(fault, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(fault.get("message"), str):
        return _invalid("the tool's answer is not one that it gives")
    details = {
        name: fault[name] for name in ("line", "column") if type(fault.get(name)) is int and 0 < fault[name] <= 2**31
    }
    return RunnerFailure(*_KINDS[kind], fault["message"], details)


def _invalid(message: str) -> RunnerFailure:
    return RunnerFailure(ErrorCategory.VALIDATION_ERROR, OUTPUT_INVALID, message)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class Render:
    """Draws equations."""

    def prepare(self, payload: ObjectRender) -> Prepared | RunnerFailure:
        """The formula as data for the tool. Refuses other objects and forms."""
        given, content = payload.inputs.object, payload.inputs.object.content
        if given.type != "equation":
            return unsupported("inputs.object.type", f"{given.type!r} cannot be rendered here, only 'equation'")
        if content.format != "latex":
            return unsupported(
                "inputs.object.content.format", f"{content.format!r} is not supported here, only 'latex'"
            )
        if not isinstance(content.value, str):
            return unsupported("inputs.object.content.value", "must be a text")
        parameters = {
            "latex": content.value,
            "formats": sorted(payload.output_spec.formats),
            "pixels_max": pixels_max(payload.limits),
        }
        return prepare_tool(payload.job_type, "formula", parameters)

    def judge(self, payload: ObjectRender, execution: Execution) -> Outcome:
        """The pictures that were asked for, or why there are none."""
        return judge_tool(execution, {f"formula.{name}": name for name in payload.output_spec.formats}, "rendering")


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
