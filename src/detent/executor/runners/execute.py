"""``object_execute``: runs a code object's Python and takes what it returns, writes and leaves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final

from detent.artifacts.file_type import claim_fault, examine
from detent.canon import json_decode, parse_digest, sha256
from detent.executor.runners.blockdoc import NotBlockdoc, source_of
from detent.executor.runners.model import Made, Need, Note, Outcome, Prepared, RunnerFailure, unsupported
from detent.executor.sandbox import Execution, OutputFile
from detent.executor.sandbox.missing import message_of
from detent.executor.sandbox.model import INPUTS_MAX
from detent.jobs.category import ErrorCategory
from detent.jobs.inputs import DatasetDependency
from detent.jobs.payload import ObjectExecute

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
