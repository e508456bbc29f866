"""`detent init`: make a home, and in an empty directory a first project beside it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from detent.cli.first_project import PIPELINE, write_first_project
from detent.cli.page import Cell, Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.terminal import FAINT, GOOD, NOTE


@click.command(
    "init",
    help=teaching(
        "Create a home: a directory with an empty ledger, new keys and settings. It is `.detent` in this directory, or the"
        " directory that --home or DETENT_HOME names, which may exist if it is empty. An existing home is left unchanged. In"
        " an empty directory it also writes an example project to run and edit: pipeline.yaml and tasks.py.",
        """  detent init
  mkdir words && cd words && detent init && detent run pipeline.yaml
  detent init --home /srv/detent -o json
""",
    ),
)
@with_shell
def command(shell: Shell) -> int:
    """Create a home."""
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.home import make_home, new_home_path  # noqa: PLC0415
    from detent.owner.wiring import begin_ledger  # noqa: PLC0415

    here = Path.cwd()
    home = make_home(new_home_path(here, os.environ, shell.home_option), begin_ledger)
    files = write_first_project(here) if home.path.parent == here else []
    settings = home.settings()
    document = {
        "home": str(home.path),
        "origin": settings.origin,
        "root": digest_text(settings.root),
        "files": files,
        "next": f"detent run {PIPELINE}" if files else None,
    }

    def draw(page: Page) -> None:
        page.line(Cell("made", GOOD), " ", str(home.path))
        page.fields(
            [
                ("ledger", settings.origin),
                ("root", digest_text(settings.root)),
            ],
        )
        page.line(Cell("Others pin this root to check what you export: `detent verify FILE --root ROOT`.", FAINT))
        if files:
            page.line()
            page.line(Cell("wrote", GOOD), f" {' and '.join(files)}: an example project to run and edit")
            page.line("  ", Cell(f"detent run {PIPELINE}", NOTE))

    return shell.answer(document, draw)
