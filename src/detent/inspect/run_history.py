"""Runs as columns and as differences: when each attempt waited and ran, and what two runs have not in common."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from detent.canon import digest_text
from detent.inspect.logs import attempts_of
from detent.jobs.work import WorkReport
from detent.owner.content import Content, order_of
from detent.owner.views import Times, view_of_job
from detent.runs.record.recorded_run import RecordedElement, RecordedRun, RecordedStep, report_of
from detent.store.api import StoreReader
from detent.words.states import RUNNING

JOBS_MAX: Final = 2_000
"""Jobs of a run whose attempts are told, and elements that are compared; a larger run is told so far."""
COLUMNS: Final = ("step", "index", "job_id", "attempt", "waited_ms", "started_ms", "ended_ms", "worker", "state")


def timeline_of_run(
    reader: StoreReader, content: Content, run: RecordedRun, times: Times, jobs: Container[str] | None = None
) -> dict[str, Any]:
    """Every attempt of a run's own jobs, or of some of them, as columns: row n of each is attempt n."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    seen: set[str] = set()
    for step, element in _elements(run):
        if element.reused or element.row is None or element.carrier in seen:
            continue
        if jobs is not None and element.carrier not in jobs:
            continue
        if len(seen) == JOBS_MAX:
            return {**columns, "complete": False}
        seen.add(element.carrier)
        view = view_of_job(element.row, times)
        for attempt in attempts_of(reader, content, view):
            state = RUNNING if attempt.running else (attempt.status or attempt.reason_code or "").lower()
            row = (step.key, element.index, element.carrier, attempt.number, attempt.waited_ms, attempt.started_ms)
            for name, value in zip(COLUMNS, (*row, attempt.finished_ms, attempt.worker or None, state), strict=True):
                columns[name].append(value)
    return {**columns, "complete": True}


def difference(reader: StoreReader, content: Content, first: RecordedRun, second: RecordedRun) -> dict[str, Any]:
    """What differs between two runs: parameters, steps, what their work was made of, how long it took and what it gave."""
    mine, others = ({step.key: step for step in run.steps} for run in (first, second))
    steps, complete = [], True
    for key in mine:
        if key in others:
            told, whole = _step_difference(reader, content, mine[key], others[key])
            complete = complete and whole
            if told is not None:
                steps.append(told)
    return {
        "params": changed(first.inputs.params, second.inputs.params),
        "steps_added": [key for key in others if key not in mine],
        "steps_removed": [key for key in mine if key not in others],
        "steps_changed": steps,
        "complete": complete,
    }


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What two mappings do not have in common, by name."""
    names = sorted({*old, *new})
    return [
        {"name": name, "old": old.get(name), "new": new.get(name)} for name in names if old.get(name) != new.get(name)
    ]


def _step_difference(
    reader: StoreReader, content: Content, mine: RecordedStep, other: RecordedStep
) -> tuple[dict[str, Any] | None, bool]:
    elements, theirs = [], {element.index: element for element in other.elements}
    for element in mine.elements[:JOBS_MAX]:
        match = theirs.get(element.index)
        told = None if match is None else _element_difference(reader, content, element, match)
        if told is not None:
            elements.append(told)
    complete = len(mine.elements) <= JOBS_MAX
    views = mine.view, other.view
    if not elements and views[0].state == views[1].state and len(mine.elements) == len(other.elements):
        return None, complete
    told = {
        "step": mine.key,
        "state": [view.state for view in views],
        "ran_ms": [view.ran_ms for view in views],
        "total": [view.total for view in views],
        "elements": elements,
    }
    return told, complete


def _element_difference(
    reader: StoreReader, content: Content, mine: RecordedElement, other: RecordedElement
) -> dict[str, Any] | None:
    both = mine, other
    made = [_ingredients(content, element) for element in both]
    ingredients = changed(*made)
    results = [_result(reader, content, element) for element in both]
    if not ingredients and results[0] == results[1]:
        return None
    return {
        "index": mine.index,
        "job_ids": [element.job_id for element in both],
        "ingredients": ingredients,
        "result_digests": results,
    }


def _ingredients(content: Content, element: RecordedElement) -> Mapping[str, Any]:
    order = None if element.row is None else order_of(content, element.row)
    if order is None:
        return {}
    return (order if element.place is None else order.of_element(element.place)).origin.ingredients


def _result(reader: StoreReader, content: Content, element: RecordedElement) -> str | None:
    report: WorkReport | None = None if element.row is None else report_of(reader, content, element.row)
    if report is not None and element.place is not None:
        report = report.of_element(element.place)
    return None if report is None or report.value_digest is None else digest_text(report.value_digest)


def _elements(run: RecordedRun) -> Iterator[tuple[RecordedStep, RecordedElement]]:
    for step in run.steps:
        for element in step.elements:
            yield step, element
