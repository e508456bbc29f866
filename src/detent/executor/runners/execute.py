"""``object_execute``: runs a code object's Python and takes what it returns, writes and leaves.

Reads ``blockdoc``, the form in which documents and objects come: a list of blocks, each with a type.

The contract leaves the value of a content open. This is what this executor understands of it; anything else is refused
by the path of the block, never guessed at or left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from detent.artifacts.content_type import claim_fault, examine
from detent.canon import json_decode, parse_digest, sha256
from detent.errors import InvalidInput
from detent.executor.runners.model import Made, Need, Note, Outcome, Prepared, RunnerFailure, unsupported
from detent.executor.sandbox import Execution, OutputFile
from detent.executor.sandbox.classify import message_of
from detent.executor.sandbox.model import INPUTS_MAX
from detent.jobs.payload import DatasetDependency, ObjectExecute
from detent.jobs.status import ErrorCategory

LANGUAGE: Final = "python"
INDEX: Final = "inputs.json"
"""Says which file under ``/job/inputs`` is which dependency."""
TYPE_INVALID: Final = "ARTIFACT_TYPE_INVALID"
FIGURES: Final = frozenset({"png", "svg"})
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-])?")


class Execute:
    """Runs Python. Everything the code does is the guest's; the envelope around it is not."""

    def prepare(self, payload: ObjectExecute) -> Prepared | RunnerFailure:
        """The program, its call, and the dependencies it may read. Refuses other languages and forms of content."""
        code, runtime = payload.inputs.object, payload.inputs.object.runtime
        if code.type != "code":
            return unsupported("inputs.object.type", f"{code.type!r} cannot be executed here, only 'code'")
        for path, language in (
            ("inputs.object.runtime.language", runtime.language),
            ("environment.language", payload.environment.language),
        ):
            if language != LANGUAGE:
                return unsupported(path, f"{language!r} is not supported here, only {LANGUAGE!r}")
        try:
            source = _source(code.content.format, code.content.value)
        except NotBlockdoc as exc:
            return unsupported(f"inputs.object.content.{exc.path}", str(exc))
        needs, index = _dependencies(payload)
        if len(needs) >= INPUTS_MAX:
            return unsupported("inputs.object.dependencies", f"more than {INPUTS_MAX - 1} different dependencies")
        texts = {INDEX: json.dumps(index, sort_keys=True, ensure_ascii=False)} if needs else {}
        return Prepared(source, runtime.entrypoint, runtime.parameters, needs=needs, texts=texts)

    def judge(self, payload: ObjectExecute, execution: Execution) -> Outcome:
        """The outcome of the code. A file whose content does not fit its name makes it a failure."""
        wanted = payload.output_spec
        notes: list[Note] = []
        failure = failure_of(replace(execution, message=message_of(execution)))
        made: tuple[Made, ...] = ()
        if failure is None or failure.category is ErrorCategory.USER_CODE_ERROR:
            # What code left before it raised often says why it did.
            made = tuple(_made(file) for file in sorted(execution.files, key=lambda file: file.name))
            lie = next((fault for one in made if (fault := claim_fault(one.file.name, one.sniffed))), None)
            if lie is not None and failure is None:
                failure = RunnerFailure(ErrorCategory.VALIDATION_ERROR, TYPE_INVALID, lie)
            if lie is not None:
                made = ()
        notes += [
            Note("warning", f"{one.file.name!r} could run something in a viewer; it is given as plain text")
            for one in made
            if one.sniffed.active
        ]
        notes += [
            Note("info", f"no {name} file was left in the output directory")
            for name in wanted.formats
            if name in FIGURES and not any(one.sniffed.format == name for one in made) and failure is None
        ]
        returned = None
        if failure is None and "json" in wanted.formats and execution.result is not None:
            returned = json_decode(execution.result, name="result")
        streams = (("stdout", wanted.return_stdout), ("stderr", wanted.return_stderr))
        return Outcome(
            failure,
            returned,
            stdout=execution.stdout.text if wanted.return_stdout else "",
            stderr=execution.stderr.text if wanted.return_stderr else "",
            truncated=tuple(name for name, asked in streams if asked and getattr(execution, name).truncated),
            made=made,
            notes=tuple(notes),
        )


def failure_of(execution: Execution) -> RunnerFailure | None:
    """The sandbox's verdict as a job's error; line and column are in the user's own source."""
    if execution.category is None:
        return None
    details: dict[str, Any] = {}
    raised = execution.raised
    if raised is not None:
        details = {"traceback": raised.traceback, "line": raised.line, "column": raised.column}
    return RunnerFailure(
        execution.category,
        execution.code or "",
        execution.message,
        {name: value for name, value in details.items() if value is not None},
    )


def _source(form: str, value: Any) -> str:
    if form == "blockdoc":
        return source_of(value)
    if form == LANGUAGE:
        if not isinstance(value, str):
            raise NotBlockdoc("value", "must be a text")
        return value
    raise NotBlockdoc("format", f"{form!r} is not supported here, only 'blockdoc' and {LANGUAGE!r}")


def _dependencies(payload: ObjectExecute) -> tuple[tuple[Need, ...], dict[str, Any]]:
    """Every pinned object and every dataset once, under names that only we choose."""
    found: dict[str, Need] = {}
    objects, datasets = {}, {}
    for snapshot in payload.inputs.dependency_snapshots:
        name = _object_name(snapshot.id)
        found[name] = Need(name, parse_digest(snapshot.content_digest))
        objects[snapshot.id] = {"file": name, "digest": snapshot.content_digest, "runtime": snapshot.resolved_runtime}
    for dependency in payload.inputs.object.dependencies:
        if isinstance(dependency, DatasetDependency):
            name = dependency.digest.replace(":", "-")
            found[name] = Need(name, parse_digest(dependency.digest))
            datasets[dependency.digest] = {"file": name, "name": getattr(dependency, "name", None)}
    return tuple(found.values()), {"objects": objects, "datasets": datasets}


def _object_name(object_id: str) -> str:
    """The object's own id where it makes a plain file name, else a name made of its hash; the two never meet."""
    if _PLAIN_ID.fullmatch(object_id):
        return f"object-{object_id}"
    return f"object.{sha256(object_id.encode()).hex()[:40]}"


def _made(file: OutputFile) -> Made:
    found = examine(file.path)
    figure = found.format in FIGURES and not found.active
    return Made(file, "figure" if figure else "file", found)


BLOCKS_MAX: Final = 10_000
CELLS_MAX: Final = 10_000


class NotBlockdoc(Exception):
    """The value is not a blockdoc this executor understands; ``path`` says where."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def source_of(value: Any) -> str:
    """The program in a code object: its ``source``, or its code blocks one after the other, each from a new line."""
    document = _object(value, "value")
    if "source" in document:
        return _text(document, "source", "value")
    sources = [
        _text(_object(block, f"value.blocks[{index}]"), "source", f"value.blocks[{index}]")
        for index, block in enumerate(_list(document, "blocks", "value"))
        if isinstance(block, dict) and block.get("type") == "code"
    ]
    return "\n".join(sources)


def document_of(value: Any, *, notes: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A whole document in one normal form, and the digests of the pictures in it.

    A document has ``slides``, each with ``title``, ``blocks`` and ``notes``, or ``blocks`` alone. Notes are dropped here
    when they were not requested, so that no export can hold them by accident.
    """
    document = _object(value, "value")
    if "slides" in document:
        given = [_object(one, f"value.slides[{i}]") for i, one in enumerate(_list(document, "slides", "value"))]
        places = [f"value.slides[{index}]" for index in range(len(given))]
    else:
        given, places = [document | {"title": ""}], ["value"]
    pictures: dict[str, None] = {}
    slides = []
    count = 0
    for slide, place in zip(given, places, strict=True):
        blocks = _list(slide, "blocks", place)
        count += len(blocks) + 1
        if count > BLOCKS_MAX:
            raise NotBlockdoc(place, f"the document has more than {BLOCKS_MAX} blocks and slides")
        slides.append(
            {
                "title": _text(slide, "title", place, ""),
                "blocks": [_block(block, f"{place}.blocks[{i}]", pictures) for i, block in enumerate(blocks)],
                "notes": _text(slide, "notes", place, "") if notes else "",
            }
        )
    return {"title": _text(document, "title", "value", ""), "slides": slides}, tuple(pictures)


def _block(value: Any, place: str, pictures: dict[str, None]) -> dict[str, Any]:
    block = _object(value, place)
    kind = block.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise NotBlockdoc(f"{place}.type", f"is none of {', '.join(_READERS)}")
    normal = {"type": kind, **read(block, place)}
    if kind == "image":
        pictures[normal["digest"]] = None
    return normal


def _heading(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    level = block.get("level", 1)
    if type(level) is not int or not 1 <= level <= 6:
        raise NotBlockdoc(f"{place}.level", "must be from 1 to 6")
    return {"text": _text(block, "text", place), "level": level}


def _plain(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {"text": _text(block, "text", place)}


def _code(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {"source": _text(block, "source", place), "language": _text(block, "language", place, "")}


def _equation(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {"latex": _text(block, "latex", place)}


def _items(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    items = _list(block, "items", place)
    if not all(isinstance(item, str) for item in items):
        raise NotBlockdoc(f"{place}.items", "must be a list of texts")
    ordered = block.get("ordered", False)
    return {"items": items, "ordered": ordered is True}


def _table(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    rows = _list(block, "rows", place)
    width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width or not all(isinstance(cell, str) for cell in row):
            raise NotBlockdoc(f"{place}.rows[{index}]", f"must be a list of {width} texts, as the first row is")
    if not 0 < width * len(rows) <= CELLS_MAX:
        raise NotBlockdoc(f"{place}.rows", f"must have from 1 to {CELLS_MAX} cells")
    return {"rows": rows, "columns": width}


def _image(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    digest = _text(block, "digest", place)
    try:
        parse_digest(digest)
    except InvalidInput as exc:
        raise NotBlockdoc(f"{place}.digest", f"{exc}; pictures are named by digest, never by path or address") from exc
    return {"digest": digest, "alt": _text(block, "alt", place, "")}


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str], dict[str, Any]]]] = {
    "heading": _heading,
    "text": _plain,
    "quote": _plain,
    "code": _code,
    "equation": _equation,
    "list": _items,
    "table": _table,
    "image": _image,
}


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotBlockdoc(place, "must be an object")
    return value


def _list(holder: Mapping[str, Any], name: str, place: str) -> list[Any]:
    value = holder.get(name)
    if not isinstance(value, list) or len(value) > BLOCKS_MAX:
        raise NotBlockdoc(f"{place}.{name}", f"must be a list of at most {BLOCKS_MAX}")
    return value


def _text(holder: Mapping[str, Any], name: str, place: str, default: str | None = None) -> str:
    value = holder.get(name, default)
    if not isinstance(value, str):
        raise NotBlockdoc(f"{place}.{name}", "must be a text")
    return value
