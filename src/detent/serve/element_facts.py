"""The elements of a step with what is known of each: its job as it stands, and the report of its last attempt that ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from detent.jobs.work import WorkReport
from detent.owner.content import Content
from detent.owner.views import JobView, Times, quick_view_of_job
from detent.runs.record.recorded_run import RecordedElement, RecordedStep, report_of
from detent.store.api import StoreReader


class ElementFacts(NamedTuple):
    """One element of a step."""

    place: int
    """Among the elements of the step."""
    element: RecordedElement
    view: JobView | None
    """Its job; None where that is not of this workspace, or not there any more."""
    report: WorkReport | None


class ElementsWanted(NamedTuple):
    """Which elements of a step."""

    step: str
    fits: Callable[[RecordedElement], bool]
    first: int
    limit: int


def element_facts(
    reader: StoreReader, content: Content, times: Times, tenant: str, step: RecordedStep, wanted: ElementsWanted
) -> list[ElementFacts]:
    """The elements of a step that are wanted, from a place on."""
    places = [pair for pair in enumerate(step.elements) if pair[0] >= wanted.first and wanted.fits(pair[1])]
    reports: dict[str, WorkReport | None] = {}
    found: list[ElementFacts] = []
    for place, one in places[: wanted.limit]:
        row = one.row if one.row is not None and one.row.tenant_id == tenant else None
        if row is None:
            found.append(ElementFacts(place, one, None, None))
            continue
        if row.job_id not in reports:  # Elements that share a job share its report.
            reports[row.job_id] = report_of(reader, content, row)
        report = reports[row.job_id]
        own = report if report is None or one.place is None else report.of_element(one.place)
        found.append(ElementFacts(place, one, quick_view_of_job(row, times), own))
    return found
