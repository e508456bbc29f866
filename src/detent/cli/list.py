"""`detent list`: runs, or jobs."""

from __future__ import annotations

import click

from detent.cli.shell import JSON, Shell, connectable, teaching
from detent.words.states import JOB_STATES, kernel_name, state_typed, word_of

SHOWN_MAX = 50
"""Rows that a page shows unless told otherwise; JSON has them all."""


class JobState(click.ParamType[str]):
    """The state of a job as people type it: either spelling, either case, the ledger's names too."""

    name = "state"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 - click asks so
        """What stands for it in a help page."""
        return f"[{'|'.join(JOB_STATES)}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The kernel's name for the state that was typed."""
        word = state_typed(value)
        if word not in JOB_STATES:
            self.fail(f"{value!r:.80} is not a job state; use one of {', '.join(JOB_STATES)}", param, ctx)
        return kernel_name(word)


@click.command(
    "list",
    help=teaching(
        "List the runs of this home, newest first, or with --jobs its jobs, the last submitted first. Nothing is changed, and"
        " the home may be in use.",
        """  detent list
  detent list --jobs --state failed
  detent list --jobs --run RUN -o json
  detent list --label report/fetch
  detent list --pool gpu --state queued
  detent list --correlation 5f0c1e9a-0d5e-8c1b-9d0f-2a7be4f6c301
""",
    ),
)
@click.option("--jobs", "show_jobs", is_flag=True, help="List jobs instead of runs.")
@click.option("--run", "run_id", metavar="RUN", help="Only jobs of this run.")
@click.option("--state", type=JobState(), help="Only jobs in this state.")
@click.option("--correlation", metavar="ID", help="Only jobs of the steps that have this correlation id, in any run.")
@click.option("--label", metavar="LABEL", help="Only jobs under this label: workflow/step, or the name of a function.")
@click.option("--pool", metavar="POOL", help="Only jobs that asked for this pool.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Show at most this many rows; 0 shows all. [text: {SHOWN_MAX}, json: all]",
)
@connectable
def command(  # noqa: PLR0913 - a command's options
    shell: Shell,
    *,
    show_jobs: bool,
    run_id: str | None,
    state: str | None,
    correlation: str | None,
    label: str | None,
    pool: str | None,
    limit: int | None,
) -> int:
    """List runs or jobs."""
    from detent.owner.ticks import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.pages.list import Wanted, list_rows  # noqa: PLC0415

    whole = shell.format == JSON
    most = (limit or None) if limit is not None else None if whole else SHOWN_MAX
    if (server := shell.server()) is not None:
        typed = None if state is None else word_of(state)
        names = {"correlation": correlation, "label": label, "pool": pool}
        query = {"run": run_id, "state": typed, **names, "most": most, "whole": whole}
        with server:
            return shell.tell(server.page("list", jobs=show_jobs, **query))
    wanted = Wanted(show_jobs, run_id, state, correlation, most, whole, label=label, pool=pool)
    home = shell.home()
    with Parts().open_reader(home.ledger) as reader:
        return shell.tell(list_rows(home, reader, wanted, now_ms=SystemClock().wall_ms()))
