"""`detent cancel`: end a run or a job, from whichever terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.page import GOOD, WARN, Cell, Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.text import count_text
from detent.errors import EXIT_FAILED, EXIT_UNAVAILABLE

if TYPE_CHECKING:
    from detent.engine.cancel import Cancelled

JOBS_NAMED_MAX = 5


@click.command(
    "cancel",
    help=teaching(
        """Cancel a run or a job, wherever it runs: from this terminal or another one, on this home's own process or as a
client of it. What runs is stopped at once, what waits is dropped, and what is done stays done. The answer comes when the
run has ended.

Cancelled already is fine (0); what has ended otherwise cannot be cancelled any more (1).""",
        """  detent cancel RUN
  detent cancel JOB --reason "wrong input file"
""",
    ),
)
@click.argument("identifier", metavar="RUN|JOB")
@click.option("--reason", metavar="TEXT", help="Kept beside the record of the cancellation; `detent explain` shows it.")
@with_shell
def command(shell: Shell, identifier: str, *, reason: str | None) -> int:
    """Cancel a run or a job."""
    from detent.engine.cancel import Canceller  # noqa: PLC0415 - keeps `--help` fast
    from detent.engine.content import Content  # noqa: PLC0415
    from detent.engine.find_jobs import find_jobs  # noqa: PLC0415
    from detent.engine.session import Session  # noqa: PLC0415
    from detent.engine.wiring import Parts  # noqa: PLC0415
    from detent.errors import InvalidInput  # noqa: PLC0415

    home = shell.home()
    with Parts().open_reader(home.ledger) as reader:
        found = find_jobs(reader, Content(reader, home.content_files()), identifier, by_name=False)
        if found.kind == "step":
            raise InvalidInput(
                f"{identifier!r} is a step of run {found.run_id}",
                hint=f"`detent cancel {found.run_id}` cancels the run; `detent list --run {found.run_id}` shows its jobs",
            )
        with Session(home) as session:
            canceller = Canceller(home, session, reader, reason=reason)
            if found.kind == "run":
                ended = canceller.run(found.run_id or identifier)
            else:
                ended = canceller.job(found.jobs[0].job_id)
    code = 0 if ended.is_cancelled else EXIT_FAILED if ended.before else EXIT_UNAVAILABLE
    return shell.answer(ended.to_map(), lambda page: _draw(page, ended), code=code)


def _draw(page: Page, ended: Cancelled) -> None:
    what = f"{ended.kind} {ended.identifier}"
    if ended.before:
        how = "was cancelled before" if ended.is_cancelled else f"has already ended: {ended.status}"
        page.line(Cell(what), " ", Cell(how, "" if ended.is_cancelled else WARN))
        return
    if not ended.is_cancelled:
        page.hanging(
            [Cell(what), " "],
            Cell("has not ended yet: its jobs are cancelled, and the process that drives it has not closed it", WARN),
        )
        return
    page.line(Cell("cancelled", GOOD), f" {what}")
    if ended.kind == "run":
        named = ", ".join(ended.jobs[:JOBS_NAMED_MAX]) + (" ..." if len(ended.jobs) > JOBS_NAMED_MAX else "")
        shown = f"{count_text(len(ended.jobs), 'job')}: {named}" if ended.jobs else "no job was under way"
        page.fields([("stopped", shown), ("kept", "what was done; `detent retry` runs the rest")], indent="  ")
