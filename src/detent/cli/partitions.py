"""`detent partitions`: who owns each partition of a home, and how far its log has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import FAINT
from detent.words.quantities import time_text

if TYPE_CHECKING:
    from detent.inspect.partitions import PartitionView
    from detent.owner.ledgers import OwnerView


@click.command(
    "partitions",
    help=teaching(
        "Show the partitions of a home: the process that owns each and its epoch, where it takes requests if it is a server, the number of"
        " batches in its log and under its newest tree head, its open jobs, and the time of its last commit. A home has one partition unless `detent init"
        " --partitions` made it with more; the number never changes.",
        """  detent partitions
  detent partitions -o json
  detent init --partitions 4
""",
    ),
)
@with_shell
def command(shell: Shell) -> int:
    """Show the partitions."""
    from detent.inspect.partitions import partitions  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts  # noqa: PLC0415

    home = shell.home()
    with Parts().open_snapshot(home.ledger) as reader:
        found = partitions(home, reader)

    def draw(page: Page) -> None:
        names = ("PARTITION", "OWNER", "EPOCH", "BATCHES", "TREE HEAD", "OPEN JOBS", "LAST COMMIT (UTC)")
        page.table(names, [_row(one) for one in found])
        if all(one.owner is None for one in found):
            page.line()
            page.line(Cell("No process owns this home now; the next command that writes will.", FAINT))

    return shell.answer([one.to_map() for one in found], draw)


def _row(one: PartitionView) -> list[Cellish]:
    return [
        str(one.partition),
        Cell("none", FAINT) if one.owner is None else _owner(one.owner),
        str(one.epoch),
        str(one.size),
        "none" if one.head_size is None else f"over {one.head_size}",
        str(one.jobs_open),
        time_text(one.at).partition(".")[0],
    ]


def _owner(owner: OwnerView) -> str:
    where = "" if owner.address is None else f", {owner.address}"
    return f"process {owner.pid or 'unknown'} on {owner.host}{where}"
