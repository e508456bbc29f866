"""`detent copy`: give a copied home an identity of its own."""

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
        "Give a copied home its own identity: after `cp -r project copy`, a new name and new keys for the copy. From then on"
        " original and copy have separate histories. Records from before still verify under the original's keys, and the"
        " root that others pin stays the same. Stop every process that works on the copy first.",
        """  cp -r project copy && cd copy && detent copy
  detent copy --home /srv/copy/.detent -o json
  detent copy --force   a copy from another machine or another user
""",
    ),
)
@click.option(
    "--force", is_flag=True, help="Treat this home as a copy even if its original is not known on this machine."
)
@with_shell
def command(shell: Shell, *, force: bool) -> int:
    """Give a copy an identity."""
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
