"""`detent explain`: why a job waits, ran where it ran, was tried again, refused or dropped; why a step ran or was reused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.page import Cell, Page, state_cell
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.terminal import BAD, FAINT, STATE_STYLES, STRONG
from detent.words.quantities import count_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detent.inspect.explain_job import Explanation
    from detent.inspect.explain_reuse import WhyRun
    from detent.inspect.explain_run import RunExplanation, ToldStep
    from detent.inspect.explain_words import Chapter
    from detent.owner.content import Content
    from detent.owner.home import Home
    from detent.store.api import StoreReader

FIRST_SHOWN, LAST_SHOWN = 3, 9
"""Chapters at both ends of a story that are shown when it is longer."""
REPLICAS_SHOWN_MAX = 200


@click.command(
    "explain",
    help=teaching(
        "Explain why a job waited, ran, was reused or failed: what it waits for now and which jobs go first, where it was"
        " placed and why there, and why it was retried, refused, dropped or stopped. For a run, or one step of it, explain"
        " for each step whether it ran or was reused and why, what it waits for, or what blocks it. Everything is read from"
        " the ledger, so the answer is the same a year later. A prefix of an id is enough. The name of a workflow stands"
        " for its newest run, and the name of a step for that step in a recent run.",
        """  detent explain JOB
  detent explain RUN
  detent explain RUN STEP -o json
  detent explain JOB --replicas
""",
    ),
)
@click.argument("identifier", metavar="ID")
@click.argument("step", metavar="[STEP]", required=False)
@click.option(
    "--replicas",
    is_flag=True,
    help="Replay the job's scheduling decisions, and list every replica with the filter that removed it.",
)
@with_shell
def command(shell: Shell, identifier: str, step: str | None, *, replicas: bool) -> int:
    """Explain one job, run or step."""
    from detent.owner.content import Content  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts  # noqa: PLC0415

    home = shell.home()
    with Parts().open_snapshot(home.ledger) as reader:
        content = Content(reader, home.content_files())
        kind, identifier, step, element = _meant(reader, content, identifier, step)
        if kind == "run":
            return _explain_run(shell, home, reader, content, identifier, step)
        return _explain_job(shell, home, reader, content, identifier, element, again=replicas)


def _meant(
    reader: StoreReader, content: Content, identifier: str, step: str | None
) -> tuple[str, str, str | None, int | None]:
    """What an identifier stands for: ("job" or "run", its id, the step of the run if one is meant, the element of the job)."""
    from detent.runs.find_jobs import find_jobs  # noqa: PLC0415

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
    shell: Shell,
    home: Home,
    reader: StoreReader,
    content: Content,
    job_id: str,
    place: int | None,
    *,
    again: bool,
) -> int:
    from detent.inspect.elements import element_of  # noqa: PLC0415
    from detent.inspect.explain_job import explained  # noqa: PLC0415
    from detent.owner.content import order_of  # noqa: PLC0415
    from detent.owner.views import job_view  # noqa: PLC0415

    found = explained(home, reader, content, job_id, again=again)
    view = job_view(reader, job_id)
    order = None if view is None or place is None else order_of(content, view.row)
    element = (
        None if view is None or place is None or order is None else element_of(reader, content, view, order, place)
    )
    document = {**found.to_map(), **({} if element is None else {**element.to_map(), "array": job_id})}

    def draw(page: Page) -> None:
        if element is not None:
            page.line(Cell("element ", STRONG), Cell(element.name, STRONG), "  ", state_cell(element.state))
            _lines(page, "  ", element.lines)
            page.line()
        _draw(page, found.told, found.why, found.reason, found.beside)

    return shell.answer(document, draw)


def _explain_run(shell: Shell, home: Home, reader: StoreReader, content: Content, run_id: str, step: str | None) -> int:
    from detent.inspect.explain_run import explain_run  # noqa: PLC0415
    from detent.inspect.replicas import standstill  # noqa: PLC0415
    from detent.runs.record.inputs import is_driven  # noqa: PLC0415

    told = explain_run(reader, content, run_id, step, driven=is_driven(home.path, run_id))
    waits = standstill(reader) if told.view.row.ended_tick is None else None
    code = shell.answer(told.to_map(), lambda page: _draw_run(page, told))
    if waits is not None:
        shell.note(waits)
    return code


def _draw_run(page: Page, told: RunExplanation) -> None:
    row = told.view.row
    page.line(Cell("run ", STRONG), Cell(row.run_id, STRONG), "  ", state_cell(row.status), f"  {row.name}")
    if told.driven is False:
        page.hanging(["  "], "No process is working on it; run the same command again to resume it.")
    _lines(page, "  ", told.lines)
    if told.steps:
        page.line()
    for step in told.steps:
        _draw_step(page, step)


def _draw_step(page: Page, step: ToldStep) -> None:
    jobs = f"  {step.elements[0].job_id}" if len(step.elements) == 1 else ""
    page.line(Cell(step.key, STRONG), "  ", state_cell(step.state), Cell(jobs, FAINT))
    _lines(page, "    ", step.lines)


def _draw(page: Page, told: Explanation, why: WhyRun | None, reason: str | None, beside: Iterable[str]) -> None:
    state = Cell("refused", BAD) if told.state is None else state_cell(told.state)
    page.line(Cell("job ", STRONG), Cell(told.job_id, STRONG), "  ", state, "  ", Cell(_as_of(told), FAINT))
    _lines(page, "  ", told.now)
    _lines(page, "  ", beside)
    if reason is not None:
        page.hanging(["  "], f"The reason that was given: {reason}")
    if why is not None:
        _lines(page, "  ", why.lines)
    present = told.present
    if present.ahead:
        more = present.ahead_total - len(present.ahead)
        names = ", ".join(present.ahead) + (f" and {more:,} more" if more > 0 else "")
        page.hanging(["  "], f"Before it: {names}.")
    page.line()
    story = told.story
    left_out = len(story) - FIRST_SHOWN - LAST_SHOWN
    if left_out <= 0:
        _chapters(page, story)
        return
    _chapters(page, story[:FIRST_SHOWN])
    page.line(Cell(f"... {count_text(left_out, 'event')} between: `-o json` has all", FAINT))
    _chapters(page, story[-LAST_SHOWN:])


def _as_of(told: Explanation) -> str:
    return f"as of {time_text(told.as_of)} UTC"


def _chapters(page: Page, chapters: Iterable[Chapter]) -> None:
    from detent.scheduling.explain import replica_lines  # noqa: PLC0415

    for chapter in chapters:
        style = STATE_STYLES.get(chapter.what.rpartition(" ")[2], BAD if "refused" in chapter.what else STRONG)
        often = f", {chapter.times:,} times in a row" if chapter.times > 1 else ""
        often += f", attempt {chapter.attempt}" if (chapter.attempt or 1) > 1 else ""
        page.line(Cell(time_text(chapter.at), FAINT), "  ", Cell(chapter.what + often, style))
        _lines(page, "    ", chapter.why)
        if chapter.replicas and chapter.decision is not None:
            _lines(page, "    ", ["All that was looked at, in order:"])
            _lines(page, "    ", replica_lines(chapter.decision, chapter.replicas, REPLICAS_SHOWN_MAX))


def _lines(page: Page, indent: str, lines: Iterable[str]) -> None:
    """Sentences, each below the other; the items of a list keep their own indent where they are broken."""
    for line in lines:
        text = line.lstrip(" ")
        page.hanging([indent + " " * (len(line) - len(text))], text)
