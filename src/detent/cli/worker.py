"""`detent worker`: workers as a process of their own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from detent.cli.shell import Shell, teaching, with_shell
from detent.errors import EXIT_INTERRUPTED


@click.command(
    "worker",
    help=teaching(
        """Run jobs of a home that another process serves or drives. `detent serve` starts such a process by itself;
start more of them to have more workers, or run them under another limit of the system.

The workers never own the home. They wait up to a minute for an owner, and again whenever it has ended. On SIGTERM or
Ctrl-C they take no more jobs and finish those under way; jobs that take longer than --drain-timeout go to other workers.""",
        """  detent worker --home /srv/jobs/.detent
  detent worker --workers 8 --drain-timeout 300
""",
    ),
)
@click.option(
    "-w", "--workers", type=click.IntRange(1, 1024), help="Number of worker processes.  [default: one per core]"
)
@click.option(
    "--project",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where functions are found whose jobs name no directory.  [default: this directory]",
)
@click.option("--drain-timeout", type=click.FloatRange(0, 86_400), default=10.0, show_default=True, metavar="SECONDS")
@click.option("--lifeline", type=click.IntRange(min=0), hidden=True, help="A pipe that ends with the server.")
@with_shell
def command(
    shell: Shell, *, workers: int | None, project: Path | None, drain_timeout: float, lifeline: int | None
) -> int:
    """Run jobs until the end is asked for."""
    from detent.runs.ending import Ending  # noqa: PLC0415 - keeps `--help` fast
    from detent.runs.local_workers import work_until  # noqa: PLC0415

    ending = Ending(lifeline)
    home = shell.home(writes=True)
    if project is not None:
        os.chdir(project)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as the interpreter itself writes it
    work_until(home, ending, workers=workers, drain_seconds=drain_timeout)
    if lifeline is None:
        shell.note("stopped")
    return EXIT_INTERRUPTED if ending.signal == signal.SIGINT else 0
