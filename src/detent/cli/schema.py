"""`detent schema`: the JSON Schema of contract files, for editors."""

from __future__ import annotations

import json
import sys

import click

from detent.cli.contract_file import without_home
from detent.cli.page import Page
from detent.cli.shell import Shell, teaching


@click.command(
    "schema",
    help=teaching(
        """Print the JSON Schema of contract files, both forms. Editors use it for completion and checks: write it to a file, and put
`# yaml-language-server: $schema=detent.schema.json` above a contract. It describes the structure only; references and
cycles are checked by `detent validate`.""",
        """  detent schema > detent.schema.json
  detent schema -o json | jq '."$defs" | keys'
""",
    ),
)
@without_home
def command(shell: Shell) -> int:
    """Print the schema; for people and for programs it is the same document."""
    from detent.contract import schema  # noqa: PLC0415 - keeps `--help` fast

    document = schema()

    def draw(_: Page) -> None:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")

    return shell.answer(document, draw)
