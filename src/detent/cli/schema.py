"""`detent schema`: the JSON Schemas of contract files, and of the payloads and results of platform jobs."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from detent.cli.contract_file import without_home
from detent.cli.page import Page
from detent.cli.shell import Shell, teaching

ENVELOPES = ("payload", "result")


@click.command(
    "schema",
    help=teaching(
        """Print a JSON Schema: of contract files in both forms, or of the payloads or results of platform jobs.

Editors use the schema of contracts for completion and checks: write it to a file, and put
`# yaml-language-server: $schema=detent.schema.json` above a contract. It describes the structure only; references and
cycles are checked by `detent validate`.""",
        """  detent schema > detent.schema.json
  detent schema -o json | jq '."$defs" | keys'
  detent schema payload > payload.schema.json
""",
    ),
)
@click.argument(
    "what", metavar="[contract|payload|result]", type=click.Choice(["contract", *ENVELOPES]), default="contract"
)
@without_home
def command(shell: Shell, what: str) -> int:
    """Print the schema; for people and for programs it is the same document."""
    document = _schema(what)

    def draw(_: Page) -> None:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")

    return shell.answer(document, draw)


def _schema(what: str) -> dict[str, Any]:
    if what in ENVELOPES:
        from detent.jobs.result import payload_schema, result_schema  # noqa: PLC0415 - keeps `--help` fast

        return payload_schema() if what == "payload" else result_schema()
    from detent.contract import schema  # noqa: PLC0415

    return schema()
