"""`detent metrics`: the metrics of a home, as a scraper reads them."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.shell import JSON, Shell, teaching, with_shell

if TYPE_CHECKING:
    from detent.owner.home import Home


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
    home = shell.home()
    text = exposition(home)
    document = _families(text) if shell.format == JSON else None

    def draw(_page: Page) -> None:
        sys.stdout.write(text)

    return shell.answer(document, draw)


def exposition(home: Home) -> str:
    """The metrics of a home as text; what was counted is kept in the home, where it can be written."""
    from detent.errors import DetentError  # noqa: PLC0415 - keeps `--help` fast
    from detent.inspect.replicas import kernels  # noqa: PLC0415
    from detent.owner.metrics import HomeMetrics  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.scheduling import Scheduler  # noqa: PLC0415
    from detent.scheduling.observability import queue_depths  # noqa: PLC0415

    with Parts().open_snapshot(home.ledger) as reader:
        found = kernels(reader)
        metrics = HomeMetrics.kept(home.path, reader, found[0].config.tick_ms)
        counted = metrics.follow(reader)
    if counted:
        with suppress(OSError, DetentError):  # A home of another user, or a full disk: the next command counts again.
            metrics.keep(home.path)
    waiting = [queue_depths(kernel.queue.queues) for kernel in found if isinstance(kernel.queue, Scheduler)]
    return metrics.exposition([kernel.metrics for kernel in found], waiting).decode()


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
