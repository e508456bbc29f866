"""`detent metrics`: the metrics of a home, as a scraper reads them."""

from __future__ import annotations

import sys
from typing import Any

import click

from detent.cli.page import Page
from detent.cli.shell import JSON, Shell, teaching, with_shell


@click.command(
    "metrics",
    help=teaching(
        """Print the metrics of this home in the text format of Prometheus: jobs by state, waiting jobs by pool and priority, transitions,
refusals, drops, and how long attempts waited and ran. They are read from the ledger, whether a process works on the home or
not, and counted from where the last count ended.

[metrics] textfile in config.toml keeps the same text in a file for node_exporter's textfile collector.""",
        """  detent metrics
  detent metrics | promtool check metrics
  detent metrics -o json
""",
    ),
)
@with_shell
def command(shell: Shell) -> int:
    """Print metrics."""
    from detent.inspect.monitoring import Exposition  # noqa: PLC0415 - keeps `--help` fast

    text = Exposition(shell.home()).text().decode()
    document = _families(text) if shell.format == JSON else None

    def draw(_page: Page) -> None:
        sys.stdout.write(text)

    return shell.answer(document, draw)


def _families(text: str) -> list[dict[str, Any]]:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    return [
        {
            "name": family.name,
            "type": family.type,
            "help": family.documentation,
            "samples": [
                {"name": sample.name, "labels": sample.labels, "value": sample.value} for sample in family.samples
            ],
        }
        for family in text_string_to_metric_families(text)
    ]
