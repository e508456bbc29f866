"""`detent cancel`: end a run or a job, from any terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, connectable, teaching
from detent.errors import EXIT_FAILED, EXIT_UNAVAILABLE
from detent.pages.sheet import Cell
from detent.pages.text import GOOD, WARN
from detent.words.quantities import count_text
from detent.words.states import CANCELLED, word_of

if TYPE_CHECKING:
    from detent.runs.cancel import Cancelled, CancelledItems

JOBS_NAMED_MAX = 5


@click.command(
    "cancel",
    help=teaching(
        """Cancel a run or a job, also one of another process. Running jobs are stopped at once, waiting jobs are dropped, and
finished work is kept. The command returns when the run has ended.

A run of `detent map` is cancelled at a boundary: items below it are committed without a gap, items from it on are
cancelled, and `detent retry` continues there. The boundary is recorded. It is the first item after all that have ended, or
the item given with --at. When only the destination lags behind, the boundary is the next item to commit.

A prefix of an id is enough. The name of a workflow stands for its open run, if there is exactly one.

The exit code is 0 if the run or job was already cancelled, and 1 if it ended in another way.""",
        """  detent cancel RUN
  detent cancel prices            the one open run of that name
  detent cancel RUN --at 5000
  detent cancel JOB --reason "wrong input file"
""",
    ),
)
@click.argument("identifier", metavar="RUN|JOB")
@click.option("--reason", metavar="TEXT", help="Stored with the cancellation; `detent explain` shows it.")
@click.option("--at", metavar="ITEM", type=click.IntRange(min=0), help="For `detent map`: the first item to cancel.")
@connectable
def command(shell: Shell, identifier: str, *, reason: str | None, at: int | None) -> int:
    """Cancel a run or a job."""
    if (server := shell.server()) is not None:
        if at is not None:
            raise click.UsageError("--at is for a home on this machine")
        with server:
            there = server.cancel(identifier, reason)
        ended_code = (
            EXIT_FAILED if there.before and not there.is_cancelled else 0 if there.is_cancelled else EXIT_UNAVAILABLE
        )
        return shell.answer(there.to_map(), lambda page: _draw(page, there), code=ended_code)
    from detent.errors import InvalidInput  # noqa: PLC0415
    from detent.owner.content import Content  # noqa: PLC0415
    from detent.owner.session import Session  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.runs.cancel import Canceller  # noqa: PLC0415 - keeps `--help` fast
    from detent.runs.find_jobs import OPEN, find_jobs, insist_on_whole  # noqa: PLC0415

    home = shell.home(writes=True)
    with Parts().open_reader(home.ledger) as reader:
        found = find_jobs(reader, Content(reader, home.content_files()), identifier, named=OPEN)
        insist_on_whole(found, CANCELLED)
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
            Cell("has not ended yet: its jobs are cancelled, but the process running it has not closed it", WARN),
        )
        return
    page.line(Cell(CANCELLED, GOOD), f" {what}")
    if ended.kind == "run":
        named = ", ".join(ended.jobs[:JOBS_NAMED_MAX]) + (" ..." if len(ended.jobs) > JOBS_NAMED_MAX else "")
        shown = f"{count_text(len(ended.jobs), 'job')}: {named}" if ended.jobs else "no job was running"
        steps = [(one.step, _step_text(one.items)) for one in ended.map_steps]
        page.fields([("stopped", shown), *steps, ("kept", "what was done; `detent retry` runs the rest")], indent="  ")


def _step_text(items: CancelledItems) -> str:
    """Where a map step was cut."""
    return f"{items.committed:,} of {count_text(items.total, 'item')} committed, cancelled from item {items.committed:,} on"


def _draw_items(page: Page, ended: Cancelled, items: CancelledItems) -> None:
    what = f"run {ended.identifier}"
    if items.boundary is None:
        told = "has not ended yet: the process running it was asked to cancel it and has not answered"
        page.hanging([Cell(what), " "], Cell(told, WARN))
        return
    if ended.is_cancelled:
        page.line(Cell(CANCELLED, GOOD), f" {what}")
        kept = f"{count_text(items.boundary, 'item')} of {items.total:,}; `detent retry {ended.identifier}` continues there"
    else:
        page.line(Cell("cancelling", WARN), f" {what}")
        left = count_text(max(0, items.boundary - items.committed), "item")
        kept = f"{left} below it still to be committed; then the run ends by itself"
    asked = f" (asked for {items.requested:,})" if items.requested and items.requested != items.boundary else ""
    page.fields([("from", f"item {items.boundary:,} on{asked}"), ("kept", kept)], indent="  ")
