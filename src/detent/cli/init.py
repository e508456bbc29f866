"""`detent init`: make a home."""

from __future__ import annotations

import os
from pathlib import Path

import click

from detent.cli.page import FAINT, GOOD, Cell, Page
from detent.cli.shell import Shell, teaching, with_shell


@click.command(
    "init",
    help=teaching(
        "Make a home: a directory with an empty ledger, new keys and settings, in `.detent` here or where --home or"
        " DETENT_HOME says. A home that is there already stays as it is.",
        """  detent init
  detent init --home /srv/detent -o json
""",
    ),
)
@with_shell
def command(shell: Shell) -> int:
    """Make a home."""
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.engine.home import make_home, new_home_path  # noqa: PLC0415
    from detent.engine.wiring import begin_ledger  # noqa: PLC0415

    home = make_home(new_home_path(Path.cwd(), os.environ, shell.home_option), begin_ledger)
    settings = home.settings()
    document = {"home": str(home.path), "origin": settings.origin, "root": digest_text(settings.root)}

    def draw(page: Page) -> None:
        page.line(Cell("made", GOOD), " ", str(home.path))
        page.fields(
            [
                ("ledger", settings.origin),
                ("root", document["root"]),
            ],
        )
        page.line(
            Cell("The root is what others pin to check what you export: `detent verify FILE --root ROOT`.", FAINT)
        )

    return shell.answer(document, draw)
