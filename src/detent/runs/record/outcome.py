"""What a run left behind, read from the reports of its jobs: the files it made, and why what failed did."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from detent.canon import digest_text
from detent.canon.late import dataclass, pattern
from detent.errors import DetentError, InvalidInput, StoreCorrupt
from detent.jobs.elements import split_element_id
from detent.jobs.order import Order
from detent.jobs.status import ErrorCategory
from detent.jobs.values import split_result_name
from detent.jobs.work import Failure, WorkReport
from detent.kernel import Evidence
from detent.ledger import SignedResult
from detent.owner.content import Content, order_of
from detent.owner.views import job_view, timeline_of_job
from detent.store.api import StoreReader
from detent.store.content import ContentFiles
from detent.workers.next_attempt import unreported, unreported_category

NOT_RUN: Final = "NOT_RUN"
"""Code of a step that failed before it had a job: what it goes through is not a list, or too long a one."""
_FRAME: Final = pattern(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S.*))?$')
_FOREIGN: Final = ("site-packages", "dist-packages", "/lib/python3", "<frozen ")
"""Where code lies that is not the user's own."""


@dataclass(frozen=True, slots=True)
class StepFailure:
    """A step, or one element of it, that did not succeed."""

    step: str
    category: str
    code: str
    message: str = ""
    job_id: str | None = None
    where: str | None = None
    """The user's line: ``etl.py:42 in clean: celsius = float(row)``."""
    attempts: int = 1
    index: int | None = None
    """Which element of a mapped step it was."""

    @property
    def label(self) -> str:
        """``extract``, or ``extract[3]`` for an element of it."""
        return self.step if self.index is None else f"{self.step}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a run made, or took over from an earlier one."""

    step: str
    name: str
    path: str
    """Where its bytes lie: the file that the step left, or else the one in the content store."""
    size_bytes: int
    digest: str


def failures_of(reader: StoreReader, content: Content, failed: Iterable[tuple[str, str, str]]) -> Iterator[StepFailure]:
    """Why jobs failed, each given as (step, job, message); what the last report says comes before the message.

    An element of an array is given by its own name.
    """
    for step, job_id, message in failed:
        view, element = job_view(reader, job_id), None
        if view is None and (named := split_element_id(job_id)) is not None:
            view, element = job_view(reader, named[0]), named[1]
        if view is None:
            yield StepFailure(step, ErrorCategory.VALIDATION_ERROR.value, NOT_RUN, message)
            continue
        row = view.row
        order = order_of(content, row)
        if order is not None and element is not None:
            order = order.of_element(element) if element < len(order.elements) else None
        index = None if order is None else order.origin.index
        records = timeline_of_job(reader, content, view)
        attempts = sum(1 for record in records if record.fields.get("dispatch") is True)
        last = records[-1].evidence if records else None
        report = None if last is None or last.detail_digest is None else read_report(content, last.detail_digest)
        if report is not None and element is not None:
            report = report.of_element(element)
        if report is not None and report.result.failure is not None:
            yield failure_of(step, report.result.failure, job_id=job_id, attempts=attempts, order=order)
            continue
        code = view.job.reason_code or row.state
        category = None if last is None else last.category
        yield StepFailure(
            step,
            category or unreported_category(code),
            code,
            unreported(code, message),
            job_id,
            attempts=attempts,
            index=index,
        )


def failure_of(
    step: str, failure: Failure, *, job_id: str | None = None, attempts: int = 1, order: Order | None = None
) -> StepFailure:
    """A failure as a report tells it, with the line of the user's own code."""
    base = None if order is None else order.call.base
    where = users_line(failure.traceback, base) if failure.traceback else None
    if where is None and failure.line is not None:
        where = f"line {failure.line} of its code"
    message = failure.message
    if failure.type is not None and not message.startswith(failure.type):
        message = f"{failure.type}: {message}" if message else failure.type
    index = None if order is None else order.origin.index
    return StepFailure(step, failure.category, failure.code, message, job_id, where, attempts, index)


def artifacts_of(
    reader: StoreReader, content: Content, files: ContentFiles, jobs: Mapping[str, Sequence[str]]
) -> Iterator[Artifact]:
    """The files of a run's jobs, given by step, in that order. A job is read once, however many steps took its result."""
    found: dict[str, tuple[Artifact, ...]] = {}
    for step, job_ids in jobs.items():
        for job_id in job_ids:
            if job_id not in found:
                found[job_id] = tuple(_files_of(reader, content, files, step, job_id))
            for one in found[job_id]:
                yield one if one.step == step else Artifact(step, one.name, one.path, one.size_bytes, one.digest)


def _files_of(reader: StoreReader, content: Content, files: ContentFiles, step: str, job_id: str) -> Iterator[Artifact]:
    row = reader.job(job_id)
    last = None if row is None else reader.transition(job_id, row.transition_seq - 1)
    if row is None or last is None or last.evidence is None:
        return
    report = _report_of(content, last.evidence)
    if report is None or not report.result.files:
        return
    order = order_of(content, row)
    for file in report.result.files:
        path = _left_at(file.name, order) or str(files.path(file.digest))
        yield Artifact(step, file.name, path, file.size_bytes, digest_text(file.digest))


def read_report(content: Content, digest: bytes) -> WorkReport | None:
    """A report by its digest; None when it is erased, damaged, or none."""
    try:
        envelope = content.get(digest)
        return None if envelope is None else WorkReport.parse(SignedResult.parse(envelope).body)
    except (StoreCorrupt, InvalidInput):
        return None


def read_result(content: Content, named: str) -> WorkReport | None:
    """The report of a result, or of one element's, by its name; None when it is erased, damaged, or none."""
    digest, element = split_result_name(named)
    report = read_report(content, digest)
    return report if report is None or element is None else report.of_element(element)


def users_line(traceback: str, base: str | None = None) -> str | None:
    """The last line of the user's own code in a traceback, with the function and the source; None when there is none."""
    found: tuple[re.Match[str], str] | None = None
    lines = traceback.splitlines()
    for place, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame is None or any(part in frame["file"] for part in _FOREIGN):
            continue
        if found is not None and _is_below(found[0]["file"], base) and not _is_below(frame["file"], base):
            continue
        source = lines[place + 1].strip() if place + 1 < len(lines) and not _FRAME.match(lines[place + 1]) else ""
        found = (frame, source)
    if found is None:
        return None
    frame, source = found
    file = Path(frame["file"])
    shown = str(file.relative_to(base)) if base is not None and _is_below(frame["file"], base) else str(file)
    function = f" in {frame['function']}" if frame["function"] and frame["function"] != "<module>" else ""
    return f"{shown}:{frame['line']}{function}" + (f": {source}" if source else "")


def _report_of(content: Content, evidence: bytes) -> WorkReport | None:
    try:
        digest = Evidence.decode(evidence).detail_digest
    except DetentError:
        return None
    return None if digest is None else read_report(content, digest)


def _left_at(name: str, order: Order | None) -> str | None:
    """The path at which a step left a declared output; None when it is not there any more, or was not a declared output."""
    if order is None or not order.call.outputs or order.call.base is None:
        return None
    path = Path(order.call.base, order.call.cwd or "", name)
    return str(path) if path.is_file() else None


def _is_below(file: str, base: str | None) -> bool:
    return base is not None and Path(file).is_relative_to(base)
