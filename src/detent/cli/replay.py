"""`detent replay`: decide the recorded commands again and compare every byte."""

from __future__ import annotations

from pathlib import Path

import click

from detent.cli.page import BAD, FAINT, GOOD, STRONG, WARN, Cell, Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.text import count_text
from detent.errors import EXIT_FAILED

DIFFERENCES_SHOWN_MAX = 50


@click.command(
    "replay",
    help=teaching(
        """Give the recorded commands to a fresh kernel and compare every record it makes with the recorded one, byte for byte. It
shows that everything was decided by the rules, which a signature cannot show. It checks no signature itself: that is what
`detent verify` does.

With a FILE, a bundle of a whole ledger is replayed; the bundle of one run holds no commands. Without one, this home's ledger is
replayed, and its stored rows and checkpoints are compared as well. Any difference makes the exit code 1.""",
        """  detent replay
  detent replay ledger.detent -o json
""",
    ),
)
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@with_shell
def command(shell: Shell, file: Path | None) -> int:
    """Replay a bundle or this home."""
    from detent.engine.replay import replay_file, replay_home  # noqa: PLC0415 - keeps `--help` fast

    if file is not None:
        report, what = replay_file(file), str(file)
    else:
        home = shell.home()
        report, what = replay_home(home), str(home.ledger)
    document = {"file": what, **report.to_map()}

    def draw(page: Page) -> None:
        verdict = Cell("replayed", GOOD) if report.ok else Cell("NOT THE SAME", BAD)
        page.line(verdict, f"  {what}")
        counts = [
            count_text(report.batches, "batch", "batches"),
            count_text(report.commands, "command"),
            count_text(report.records, "record"),
        ]
        page.fields(
            [
                ("decided", ", ".join(counts) + (": every byte the same" if report.ok else "")),
                ("hash", str(document["transition_log_hash"] or "-")),
            ],
        )
        for note in report.notes:
            page.hanging([Cell("  - ", WARN)], note)
        if report.differences:
            page.line()
            page.line(Cell(f"{count_text(report.differences_total, 'difference')}:", STRONG))
        for difference in report.differences[:DIFFERENCES_SHOWN_MAX]:
            place = f"partition {difference.partition}, batch {difference.batch_no}"
            if difference.position is not None:
                place += f", record {difference.position}"
            page.hanging([Cell("  ! ", BAD), f"{place}: "], difference.problem)
        hidden = report.differences_total - min(len(report.differences), DIFFERENCES_SHOWN_MAX)
        if hidden:
            page.line(Cell(f"  ... and {hidden:,} more", FAINT))

    return shell.answer(document, draw, code=0 if report.ok else EXIT_FAILED)
