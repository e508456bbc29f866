"""`detent explain`: why a job waits, why it ran where it ran, why it was tried again, refused or dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.page import BAD, FAINT, STATE_STYLES, STRONG, Cell, Page, state_cell
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.text import count_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detent.engine.explain import Explanation
    from detent.engine.explain_chapter import Chapter

FIRST_SHOWN, LAST_SHOWN = 3, 9
"""Chapters at both ends of a story that are shown when it is longer."""
REPLICAS_SHOWN_MAX = 200


@click.command(
    "explain",
    help=teaching(
        "Tell why a job stands where it stands: what it waits for now and who goes before it, where it was placed and who"
        " lost by what, why it was retried, refused, dropped or stopped. Everything is read from the ledger, now or a year"
        " later.",
        """  detent explain JOB
  detent explain JOB -o json
  detent explain JOB --replicas
""",
    ),
)
@click.argument("job_id", metavar="JOB")
@click.option(
    "--replicas",
    is_flag=True,
    help="Make the job's decisions again from the recorded commands, and list every replica with the filter that removed it.",
)
@with_shell
def command(shell: Shell, job_id: str, *, replicas: bool) -> int:
    """Explain one job."""
    from detent.engine.content import Content  # noqa: PLC0415 - keeps `--help` fast
    from detent.engine.explain import explain  # noqa: PLC0415
    from detent.engine.lock import is_held  # noqa: PLC0415
    from detent.engine.wiring import Parts  # noqa: PLC0415

    home = shell.home()
    with Parts().open_snapshot(home.ledger) as reader:
        content = Content(reader, home.content_files())
        told = explain(reader, content, job_id, at_work=is_held(home.lock), again=replicas)
    return shell.answer(told.to_map(), lambda page: _draw(page, told))


def _draw(page: Page, told: Explanation) -> None:
    state = Cell("refused", BAD) if told.state is None else state_cell(told.state)
    page.line(Cell("job ", STRONG), Cell(told.job_id, STRONG), "  ", state, "  ", Cell(_as_of(told), FAINT))
    _lines(page, "  ", told.now)
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
