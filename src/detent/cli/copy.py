"""`detent copy`: give a copied home an identity of its own; or move a ledger from one store to another."""

from __future__ import annotations

import os

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD


@click.command(
    "copy",
    help=teaching(
        "Without arguments, give a copied home its own identity: after `cp -r project copy`, a new name and new keys for the copy. From then on"
        " original and copy have separate histories. Records from before still verify under the original's keys, and the"
        " root that others pin stays the same. Stop every process that works on the copy first."
        "\n\nWith FROM and TO, move a ledger to another store, SQLite or PostgreSQL: each is a home or the URL of a store. All records"
        " are copied and compared; FROM stays readable and is never written to again. A move that was interrupted goes on when"
        " the same command is given again.",
        """  detent copy .detent postgresql://detent@db.example/detent
  detent copy postgresql://detent@db.example/detent .detent
  cp -r project copy && cd copy && detent copy
  detent copy --home /srv/copy/.detent -o json
  detent copy --force   a copy from another machine or another user
""",
    ),
)
@click.option(
    "--force", is_flag=True, help="Treat this home as a copy even if its original is not known on this machine."
)
@click.argument("source", metavar="[FROM", required=False)
@click.argument("target", metavar="TO]", required=False)
@with_shell
def command(shell: Shell, *, force: bool, source: str | None, target: str | None) -> int:
    """Give a copy an identity, or move a ledger."""
    if source is not None:
        if target is None or force:
            raise click.UsageError("a move takes FROM and TO, and no --force")
        return _move(shell, source, target)
    from detent.owner.keys import adopt  # noqa: PLC0415 - keeps `--help` fast

    home = shell.home(looks=False)
    adopted = adopt(home, environment=os.environ, force=force)
    document = {
        "home": str(home.path),
        "origin": adopted.origin,
        "copy_of": adopted.copy_of,
        "original": None if adopted.original is None else str(adopted.original),
        "batches_shared": adopted.batches,
        "trust_version": adopted.version,
    }

    def draw(page: Page) -> None:
        page.line(Cell("made", GOOD), f" {home.path} a home of its own")
        page.fields(
            [
                ("ledger", adopted.origin),
                ("copy of", adopted.copy_of + ("" if adopted.original is None else f" in {adopted.original}")),
                ("shared", f"the first {adopted.batches:,} batches"),
            ],
            indent="  ",
        )
        page.line(Cell("Original and copy now have separate histories; `detent verify` checks either.", FAINT))

    return shell.answer(document, draw)


def _move(shell: Shell, source: str, target: str) -> int:
    """Move a ledger from one store to another."""
    from detent.owner.move import describe, ends_of, move_ledger  # noqa: PLC0415 - keeps `--help` fast

    begin, end, home = ends_of(source, target)
    moved = move_ledger(begin, end, home)
    document = {"from": str(begin), "to": str(end), "home": None if home is None else str(home.path), **describe(moved)}

    def draw(page: Page) -> None:
        page.line(Cell("moved", GOOD), f" {moved.origin} to {end}")
        page.fields(
            [
                ("from", str(begin)),
                ("history", f"{moved.batches:,} batches, {moved.jobs:,} jobs"),
                ("log hash", str(document["transition_log_hash"])),
            ],
            indent="  ",
        )
        page.line(
            Cell("Both stores gave the same history; the old one stays readable and is not written to again.", FAINT)
        )
        if home is not None:
            page.line(
                Cell(f"{home.path / 'config.toml'} names the new store. `detent verify` checks all of it.", FAINT)
            )

    return shell.answer(document, draw)
