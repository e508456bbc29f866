"""`detent cancel`: end a run or a job, from whichever terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.page import Cell, Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.terminal import GOOD, WARN
from detent.errors import EXIT_FAILED, EXIT_UNAVAILABLE
from detent.words.quantities import count_text
from detent.words.states import CANCELLED, word_of

if TYPE_CHECKING:
    from detent.engine.cancelled import Cancelled, CancelledItems

JOBS_NAMED_MAX = 5


@click.command(
    "cancel",
    help=teaching(
        """Cancel a run or a job, wherever it runs: from this terminal or another one, on this home's own process or as a
client of it. What runs is stopped at once, what waits is dropped, and what is done stays done. The answer comes when the
run has ended.

A run of `detent map` is cancelled at a boundary: the items below it are committed without a gap, those from there on are
cancelled, and `detent retry` goes on there. The boundary is the first item behind all that have ended, or the one that --at
names; it is recorded. When only the destination is behind, it is where the destination stands.

The beginning of an id is enough, and the name of a workflow means its open run if there is exactly one.

Cancelled already is fine (0); what has ended otherwise cannot be cancelled any more (1).""",
        """  detent cancel RUN
  detent cancel prices            the one open run of that name
  detent cancel RUN --at 5000
  detent cancel JOB --reason "wrong input file"
""",
    ),
)
@click.argument("identifier", metavar="RUN|JOB")
@click.option("--reason", metavar="TEXT", help="Kept beside the record of the cancellation; `detent explain` shows it.")
@click.option(
    "--at", metavar="ITEM", type=click.IntRange(min=0), help="Of `detent map`: the first item that is cancelled."
)
@with_shell
def command(shell: Shell, identifier: str, *, reason: str | None, at: int | None) -> int:
    """Cancel a run or a job."""
    from detent.engine.cancel import Canceller  # noqa: PLC0415 - keeps `--help` fast
    from detent.engine.content import Content  # noqa: PLC0415
    from detent.engine.find_jobs import OPEN, find_jobs  # noqa: PLC0415
    from detent.engine.session import Session  # noqa: PLC0415
    from detent.engine.wiring import Parts  # noqa: PLC0415
    from detent.errors import InvalidInput  # noqa: PLC0415

    home = shell.home(writes=True)
    with Parts().open_reader(home.ledger) as reader:
        found = find_jobs(reader, Content(reader, home.content_files()), identifier, named=OPEN)
        if found.kind == "step":
            raise InvalidInput(
                f"{identifier!r} is a step of run {found.run_id}",
                hint=f"`detent cancel {found.run_id}` cancels the run; `detent list --run {found.run_id}` shows its jobs",
            )
        with Session(home) as session:
            canceller = Canceller(home, session, reader, reason=reason)
            if found.kind == "run":
                ended = canceller.run(found.run_id or identifier, at=at)
            elif at is not None:
                raise InvalidInput(f"{identifier!r} is a job", hint="--at is for the runs of `detent map`")
            else:
                ended = canceller.job(found.jobs[0].job_id)
    is_settled = ended.is_cancelled or (ended.ordered is not None and ended.ordered.boundary is not None)
    code = EXIT_FAILED if ended.before and not ended.is_cancelled else 0 if is_settled else EXIT_UNAVAILABLE
    return shell.answer(ended.to_map(), lambda page: _draw(page, ended), code=code)


def _draw(page: Page, ended: Cancelled) -> None:
    what = f"{ended.kind} {ended.identifier}"
    if ended.before:
        how = "was cancelled before" if ended.is_cancelled else f"has already ended: {word_of(ended.status)}"
        page.line(Cell(what), " ", Cell(how, "" if ended.is_cancelled else WARN))
        return
    if ended.ordered is not None:
        _draw_items(page, ended, ended.ordered)
        return
    if not ended.is_cancelled:
        page.hanging(
            [Cell(what), " "],
            Cell("has not ended yet: its jobs are cancelled, and the process that drives it has not closed it", WARN),
        )
        return
    page.line(Cell(CANCELLED, GOOD), f" {what}")
    if ended.kind == "run":
        named = ", ".join(ended.jobs[:JOBS_NAMED_MAX]) + (" ..." if len(ended.jobs) > JOBS_NAMED_MAX else "")
        shown = f"{count_text(len(ended.jobs), 'job')}: {named}" if ended.jobs else "no job was under way"
        page.fields([("stopped", shown), ("kept", "what was done; `detent retry` runs the rest")], indent="  ")


def _draw_items(page: Page, ended: Cancelled, items: CancelledItems) -> None:
    what = f"run {ended.identifier}"
    if items.boundary is None:
        told = "has not ended yet: the process that drives it was asked to cancel it and has not answered"
        page.hanging([Cell(what), " "], Cell(told, WARN))
        return
    if ended.is_cancelled:
        page.line(Cell(CANCELLED, GOOD), f" {what}")
        kept = (
            f"{count_text(items.boundary, 'item')} of {items.total:,}; `detent retry {ended.identifier}` goes on there"
        )
    else:
        page.line(Cell("cancelling", WARN), f" {what}")
        left = count_text(max(0, items.boundary - items.committed), "item")
        kept = f"{left} below it still to be committed; the run ends by itself then"
    asked = f" (asked for {items.requested:,})" if items.requested and items.requested != items.boundary else ""
    page.fields([("from", f"item {items.boundary:,} on{asked}"), ("kept", kept)], indent="  ")
