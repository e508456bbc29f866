"""The elements of an array on the page of `detent show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from detent.canon import digest_text
from detent.inspect.elements import settled_report
from detent.pages.sheet import Cell, Cellish, Sheet, state_cell
from detent.pages.show_run import call_text, value_bytes, value_text
from detent.pages.text import BAD, FAINT
from detent.words.quantities import count_text, duration_text
from detent.words.states import word_of

if TYPE_CHECKING:
    from detent.inspect.elements import ElementView
    from detent.owner.content import Content
    from detent.owner.views import JobView
    from detent.store.api import StoreReader

ELEMENTS_SHOWN_MAX = 50


def array_map(elements: Sequence[ElementView]) -> dict[str, Any]:
    """The elements of an array as data: how many ended how, and each of them."""
    counts: dict[str, int] = {}
    for element in elements:
        counts[word_of(element.state)] = counts.get(word_of(element.state), 0) + 1
    return {"count": len(elements), "states": counts, "list": [element.to_map() for element in elements]}


def proof_map(reader: StoreReader, content: Content, view: JobView, element: ElementView) -> dict[str, Any] | None:
    """What proves one element: the root in the array's signed report, and the way from the element's leaf to it."""
    report = settled_report(reader, content, view.row.job_id)
    if report is None or report.result.elements is None or report.elements_root is None:
        return None
    leaf, path = report.result.elements.proof(element.place)
    hashes = [digest_text(path[start : start + 32]) for start in range(0, len(path), 32)]
    return {"root": digest_text(report.elements_root), "leaf": digest_text(leaf), "path": hashes}


def element_fields(element: ElementView, view: JobView) -> list[tuple[str, Cellish]]:
    """Where an element belongs, for a page."""
    return [
        (
            "element",
            f"{element.place} of {count_text(element.count, 'element')} of job {view.row.job_id}, which is {word_of(view.row.state)}",
        )
    ]


def draw_elements(page: Sheet, content: Content, elements: Sequence[ElementView]) -> None:
    """The elements of an array: failed ones first where there are more than fit."""
    shown = elements
    if len(elements) > ELEMENTS_SHOWN_MAX:
        shown = sorted(elements, key=lambda one: (one.report is not None and one.report.ok, one.place))
    rows = [_row(content, element) for element in shown[:ELEMENTS_SHOWN_MAX]]
    page.table(("ELEMENT", "STATE", "ATTEMPT", "TOOK", "WORK", "RESULT"), rows)
    if len(elements) > ELEMENTS_SHOWN_MAX:
        page.line(Cell(f"... and {len(elements) - ELEMENTS_SHOWN_MAX:,} more: `-o json` has all", FAINT))


def _row(content: Content, element: ElementView) -> list[Cellish]:
    report = element.report
    result: Cellish = "-"
    if report is not None and report.result.failure is not None:
        result = Cell(report.result.failure.type or report.result.failure.code, BAD)
    elif report is not None:
        data = value_bytes(content, report)
        result = Cell("not here any more", FAINT) if data is None else value_text(data)
    return [
        f".{element.place}",
        state_cell(element.state),
        "-" if report is None else str(report.attempt_id + 1),
        "-" if element.ran_ms is None else duration_text(element.ran_ms),
        call_text(element.order),
        result,
    ]
