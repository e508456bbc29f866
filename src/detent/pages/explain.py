"""Why a job waits, ran where it ran, was tried again, refused or dropped; why a step ran or was reused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.inspect.elements import element_of
from detent.inspect.explain_job import explained
from detent.inspect.explain_run import explain_run
from detent.inspect.replicas import standstill
from detent.owner.content import Content, order_of
from detent.owner.views import job_view
from detent.pages.sheet import Cell, Sheet, Told, state_cell, told
from detent.pages.text import BAD, FAINT, STATE_STYLES, STRONG
from detent.runs.find_jobs import find_jobs
from detent.runs.record.inputs import is_driven
from detent.scheduling.explain import replica_lines
from detent.words.quantities import count_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detent.inspect.explain_job import Explanation
    from detent.inspect.explain_reuse import WhyRun
    from detent.inspect.explain_run import RunExplanation, ToldStep
    from detent.inspect.explain_words import Chapter
    from detent.owner.home import Home
    from detent.store.api import StoreReader

FIRST_SHOWN, LAST_SHOWN = 3, 9
"""Chapters at both ends of a story that are shown when it is longer."""
REPLICAS_SHOWN_MAX = 200


def explain(
    home: Home,
    reader: StoreReader,
    identifier: str,
    step: str | None = None,
    *,
    again: bool = False,
    tenant: str | None = None,
) -> Told:
    """Explain one job, run or step; ``again`` replays the decisions, ``tenant`` names the workspace that may read names."""
    content = Content(reader, home.content_files())
    kind, identifier, step, element = _meant(reader, content, identifier, step)
    if kind == "run":
        return _explain_run(home, reader, content, identifier, step, tenant)
    return _explain_job(home, reader, content, identifier, element, again=again, tenant=tenant)


def _meant(
    reader: StoreReader, content: Content, identifier: str, step: str | None
) -> tuple[str, str, str | None, int | None]:
    """What an identifier stands for: ("job" or "run", its id, the step of the run if one is meant, the element of the job)."""
    refused = next(iter(reader.refusals(job_id=identifier, limit=1)), None)
    if step is None and (refused is not None or reader.job(identifier) is not None):
        return "job", identifier, None, None
    if reader.run(identifier) is not None:
        return "run", identifier, step, None
    found = find_jobs(reader, content, identifier)
    if found.kind == "job" and step is None:
        return "job", found.jobs[0].job_id, None, found.jobs[0].element
    return "run", found.run_id or identifier, identifier if found.kind == "step" and step is None else step, None


def _explain_job(
    home: Home,
    reader: StoreReader,
    content: Content,
    job_id: str,
    place: int | None,
    *,
    again: bool,
    tenant: str | None,
) -> Told:

    found = explained(home, reader, content, job_id, again=again, tenant=tenant)
    view = job_view(reader, job_id)
    order = None if view is None or place is None else order_of(content, view.row)
    element = (
        None if view is None or place is None or order is None else element_of(reader, content, view, order, place)
    )
    document = {**found.to_map(), **({} if element is None else {**element.to_map(), "array": job_id})}

    def draw(page: Sheet) -> None:
        if element is not None:
            page.line(Cell("element ", STRONG), Cell(element.name, STRONG), "  ", state_cell(element.state))
            _lines(page, "  ", element.lines)
            page.line()
        _draw(page, found.told, found.why, found.reason, found.beside)

    return told(document, draw)


def _explain_run(
    home: Home, reader: StoreReader, content: Content, run_id: str, step: str | None, tenant: str | None
) -> Told:

    found = explain_run(reader, content, run_id, step, driven=is_driven(home.path, run_id))
    # A reader of one tenant has not what the scheduler is rebuilt from.
    waits = standstill(reader) if found.view.row.ended_tick is None and tenant is None else None
    return told(found.to_map(), lambda page: _draw_run(page, found), notes=[] if waits is None else [waits])


def _draw_run(page: Sheet, found: RunExplanation) -> None:
    row = found.view.row
    page.line(Cell("run ", STRONG), Cell(row.run_id, STRONG), "  ", state_cell(row.status), f"  {row.name}")
    if found.driven is False:
        page.hanging(["  "], "No process is working on it; run the same command again to resume it.")
    _lines(page, "  ", found.lines)
    if found.steps:
        page.line()
    for step in found.steps:
        _draw_step(page, step)


def _draw_step(page: Sheet, step: ToldStep) -> None:
    jobs = f"  {step.elements[0].job_id}" if len(step.elements) == 1 else ""
    page.line(Cell(step.key, STRONG), "  ", state_cell(step.state), Cell(jobs, FAINT))
    _lines(page, "    ", step.lines)


def _draw(page: Sheet, found: Explanation, why: WhyRun | None, reason: str | None, beside: Iterable[str]) -> None:
    state = Cell("refused", BAD) if found.state is None else state_cell(found.state)
    page.line(Cell("job ", STRONG), Cell(found.job_id, STRONG), "  ", state, "  ", Cell(_as_of(found), FAINT))
    _lines(page, "  ", found.now)
    _lines(page, "  ", beside)
    if reason is not None:
        page.hanging(["  "], f"The reason that was given: {reason}")
    if why is not None:
        _lines(page, "  ", why.lines)
    present = found.present
    if present.ahead:
        more = present.ahead_total - len(present.ahead)
        names = ", ".join(present.ahead) + (f" and {more:,} more" if more > 0 else "")
        page.hanging(["  "], f"Before it: {names}.")
    page.line()
    story = found.story
    left_out = len(story) - FIRST_SHOWN - LAST_SHOWN
    if left_out <= 0:
        _chapters(page, story)
        return
    _chapters(page, story[:FIRST_SHOWN])
    page.line(Cell(f"... {count_text(left_out, 'event')} between: `-o json` has all", FAINT))
    _chapters(page, story[-LAST_SHOWN:])


def _as_of(found: Explanation) -> str:
    return f"as of {time_text(found.as_of)} UTC"


def _chapters(page: Sheet, chapters: Iterable[Chapter]) -> None:

    for chapter in chapters:
        style = STATE_STYLES.get(chapter.what.rpartition(" ")[2], BAD if "refused" in chapter.what else STRONG)
        often = f", {chapter.times:,} times in a row" if chapter.times > 1 else ""
        often += f", attempt {chapter.attempt}" if (chapter.attempt or 1) > 1 else ""
        page.line(Cell(time_text(chapter.at), FAINT), "  ", Cell(chapter.what + often, style))
        _lines(page, "    ", chapter.why)
        if chapter.replicas and chapter.decision is not None:
            _lines(page, "    ", ["All that was looked at, in order:"])
            _lines(page, "    ", replica_lines(chapter.decision, chapter.replicas, REPLICAS_SHOWN_MAX))


def _lines(page: Sheet, indent: str, lines: Iterable[str]) -> None:
    """Sentences, each below the other; the items of a list keep their own indent where they are broken."""
    for line in lines:
        text = line.lstrip(" ")
        page.hanging([indent + " " * (len(line) - len(text))], text)
