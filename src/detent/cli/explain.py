"""`detent explain`: why a job waits, why it ran where it ran, why it was tried again, refused or dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.page import FAINT, STRONG, Cell, Page, state_cell
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.text import time_text

if TYPE_CHECKING:
    from detent.engine.explain import Explanation


@click.command(
    "explain",
    help=teaching(
        "Tell why a job stands where it stands: what it waits for now and who goes before it, where it was placed and who"
        " lost by what, why it was retried, refused, dropped or stopped. Everything is read from the ledger, now or a year"
        " later.",
        """  detent explain JOB
  detent explain JOB -o json
""",
    ),
)
@click.argument("job_id", metavar="JOB")
@with_shell
def command(shell: Shell, job_id: str) -> int:
    """Explain one job."""
    from detent.engine.content import Content  # noqa: PLC0415 - keeps `--help` fast
    from detent.engine.explain import explain  # noqa: PLC0415
    from detent.engine.wiring import Parts  # noqa: PLC0415

    home = shell.home()
    with Parts().open_snapshot(home.ledger) as reader:
        told = explain(reader, Content(reader, home.content_files()), job_id)
    return shell.answer(told.to_map(), lambda page: _draw(page, told))


def _draw(page: Page, told: Explanation) -> None:
    state = Cell("refused", "bad") if told.state is None else state_cell(told.state)
    page.line(Cell("job ", STRONG), Cell(told.job_id, STRONG), "  ", state)
    for line in told.now:
        page.hanging(["  "], line)
    if told.ahead:
        more = told.ahead_total - len(told.ahead)
        page.hanging(["  "], f"Before it: {', '.join(told.ahead)}" + (f" and {more:,} more." if more > 0 else "."))
    page.line()
    for chapter in told.story:
        page.line(Cell(time_text(chapter.at), FAINT), "  ", Cell(chapter.what, STRONG))
        for line in chapter.why:
            page.hanging(["    "], line)
